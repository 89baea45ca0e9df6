"""Code that makes pages of the documentation site (`make site`). Start at `hooks.py`.

Nothing is written twice: README.md is the start page, the pages of commands are their `--help`, and
the pages of the API are docstrings.
"""
