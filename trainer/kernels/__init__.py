"""Triton kernels of backend te: attention, AdamW, GELU, normalization, rotary embedding.

The tests compare each kernel with plain torch code.
"""
