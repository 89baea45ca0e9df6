"""Several processes: topology and FSDP2, context parallelism, agreement of ranks, lost ranks, stop signals.

Start at `topology.py`.
"""
