"""Training in several processes: topology and FSDP2, context parallelism, agreement between ranks,
lost ranks, stop signals.

Start reading at `topology.py`.
"""
