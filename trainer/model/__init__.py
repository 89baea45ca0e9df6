"""ESM-2: layers in Transformer Engine and in plain torch, initialization, and Hugging Face's
format.

Start reading at `esm2.py`.
"""
