"""Ablation of the training speed; `__main__.py` describes it."""
