"""Decompress one archive (a compressed input) with several threads.

`parallel_archive.py` chooses the decoder, `end_mark.py` detects truncated archives, and
`zstd_frames.py` decompresses the frames of a zstd archive. `pipeline.inputs.decompress` uses one
thread.
"""
