"""Order of buckets: pure functions of positions, which every rank computes for itself.

`global_order` has the order of one dataset, and `mixture_order` has the order of a mixture.
"""
