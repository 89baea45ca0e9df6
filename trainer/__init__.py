"""Trainer of ESM-2: it reads buckets, and writes checkpoints and a Hugging Face model.

Start reading at `train.py`. This is the only package that imports torch.
"""
