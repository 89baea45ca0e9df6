"""A report as one HTML page without scripts: figures, tables and inline SVG plots.

Start at `page.py`. The modules `*_figures.py` compute the contents of each plot. The templates in
`templates/` draw the plots.
"""
