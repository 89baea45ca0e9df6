"""Trainer of ESM-2: buckets in, checkpoints and a Hugging Face model out.

Start at `train.py`. The only package that uses torch.
"""
