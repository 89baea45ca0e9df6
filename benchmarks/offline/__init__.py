"""Benchmarks of the offline stage, the reports and the packers."""
