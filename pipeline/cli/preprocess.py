"""`thdpack preprocess`: build a dataset, or print the plan of the build (--dry-run)."""

from __future__ import annotations

import time

from pipeline.build.options import PreprocessOptions
from pipeline.cli.arguments import NO_INPUT, UsageError


def run_preprocess(options: PreprocessOptions) -> int:
    """Build a dataset, print its summary, and return an exit code.

    Raises:
        ThdpackError: see `pipeline.build.build`.
        UsageError: no input is named.
    """
    if not options.inputs:
        raise UsageError(NO_INPUT)
    if options.dry_run:
        from pipeline.cli.dry_run import print_dry_run

        return print_dry_run(options)
    started = time.perf_counter()
    from pipeline.build.build_dataset import build  # imported here, so that --dry-run is quick
    from pipeline.build.progress.reporter import reporter
    from pipeline.cli.summary import print_built

    with reporter(as_json=options.log_json) as report:
        built = build(options, report)
    seconds = time.perf_counter() - started
    print_built(built, options.out, as_json=options.log_json, seconds=seconds)
    return 0
