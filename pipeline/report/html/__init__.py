"""A report as one HTML page without scripts: figures, tables and inline SVG plots.

Start at `page.py`.
"""
