"""`thdpack card`: describe a dataset for publication, in croissant.json and README.md.

Both files are computed from the manifest alone, so the same dataset gives the same bytes. Start
reading at `write_card.py`. The command does not use Jinja2, and therefore needs no extra packages.
"""
