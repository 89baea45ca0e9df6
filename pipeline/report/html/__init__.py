"""A report as one HTML page without scripts: figures, tables and inline SVG plots.

Start at `page.py`. `*_figures.py` decide what each plot shows, and `templates/` draw the plots.
"""
