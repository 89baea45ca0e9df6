"""Triton kernels of backend te: attention, AdamW, GELU, normalization, rotary embedding.

Each module names the plain torch code that is its reference.
"""
