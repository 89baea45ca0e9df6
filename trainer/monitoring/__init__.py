"""Monitoring of a run: metrics, statistics of layers, and profiler traces.

Start reading at `meter.py`, which computes metrics, and `run_log.py`, which writes them.
"""
