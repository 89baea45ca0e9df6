"""Order of buckets: pure functions of positions, that every rank computes for itself.

`global_order` is the order of one dataset, `mixture_order` that of several.
"""
