"""Several processes: topology and FSDP2, context parallelism, agreement, lost ranks, stop signals.

Start at `topology.py`.
"""
