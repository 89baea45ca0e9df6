"""Benchmarks of training: steps, kernels, recipes."""
