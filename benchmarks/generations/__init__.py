"""Benchmarks of datasets that grow."""
