"""Ablation of training speed: see `__main__.py`."""
