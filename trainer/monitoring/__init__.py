"""What a run reports: metrics, statistics of layers, and traces for a profiler."""
