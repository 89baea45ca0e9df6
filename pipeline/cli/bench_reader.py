"""`thdpack bench-reader`: print how fast a dataset can be read."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from pipeline.cli.arguments import UsageError
from pipeline.cli.options.subcommand_options import BenchReaderOptions
from pipeline.reader import ShardReader
from pipeline.reader.benchmark import bench_reader
from schemas.text.redact import without_credentials


def run_bench_reader(options: BenchReaderOptions) -> int:
    """Read a dataset for some seconds, print the rates, and return an exit code.

    Raises:
        ThdpackError: the dataset cannot be read.
        UsageError: the reader refuses the value of an option.
    """
    started = time.perf_counter()
    try:
        reader = ShardReader(
            options.dataset,
            options.split,
            seed=options.seed,
            rank=options.rank,
            world_size=options.world_size,
            cache_dir=options.cache_dir,
            cache_bytes=options.cache_bytes,
            prefetch=options.prefetch,
            generation=options.generation,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    with reader:
        measured = bench_reader(reader, options.seconds, started)
    if options.log_json:
        dataset = without_credentials(options.dataset)
        print(json.dumps({"event": "bench-reader", "dataset": dataset, **asdict(measured)}))
        return 0
    for name, value in measured.lines():
        print(f"{name:>16}  {value}")
    return 0
