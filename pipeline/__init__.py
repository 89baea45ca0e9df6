"""FASTA → shards → reader. Torch-free; `python -m pipeline` is the `thdpack` command."""
