"""Turn protein FASTA into shards, and read shards. Nothing here imports torch.

`python -m pipeline` runs the `thdpack` command.
"""
