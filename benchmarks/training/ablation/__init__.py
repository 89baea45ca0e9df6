"""Ablation of the training speed, described in `__main__.py`."""
