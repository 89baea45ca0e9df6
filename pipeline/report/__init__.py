"""`thdpack stats`: what a dataset or raw FASTA holds, for the terminal, as HTML, JSON and CSV."""
