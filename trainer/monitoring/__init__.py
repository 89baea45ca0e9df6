"""Observation of a run: metrics, statistics of layers, and profiler traces.

Start at `meter.py`, which measures, and `run_log.py`, which writes.
"""
