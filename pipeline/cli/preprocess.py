"""`thdpack preprocess`: build a dataset, or print the plan of the build (--dry-run)."""

from __future__ import annotations

import time

from pipeline.build.build_plan import plan
from pipeline.build.destination.destination import open_destination
from pipeline.build.options import PreprocessOptions
from pipeline.build.prepare_build import adding_variants, existing_dataset, refuse_other_dataset
from pipeline.cli.arguments import UsageError
from pipeline.inputs.expand import refuse_inside
from pipeline.storage.s3.first_contact import refuse_unreachable
from schemas.licenses import license_hint
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials


def run_preprocess(options: PreprocessOptions) -> int:
    """Build a dataset, print its summary, and return an exit code.

    Raises:
        ThdpackError: see `pipeline.build.build`.
        UsageError: no input is named.
    """
    if not options.inputs:
        raise UsageError(
            "no input given: name files, folders, globs, URLs, or - for standard input"
        )
    if options.dry_run:
        return _dry_run(options)
    started = time.perf_counter()
    from pipeline.build.build_dataset import build  # imported here, so that --dry-run is quick
    from pipeline.build.progress import reporter
    from pipeline.cli.summary import print_built

    with reporter(as_json=options.log_json) as report:
        built = build(options, report)
    seconds = time.perf_counter() - started
    print_built(built, options.out, as_json=options.log_json, seconds=seconds)
    return 0


def _dry_run(options: PreprocessOptions) -> int:
    if "-" in options.inputs:
        raise UsageError("--dry-run cannot examine standard input without consuming it")
    refuse_inside(options.out, options.inputs)
    refuse_unreachable(options.out)
    planned = plan(options)
    for source in planned.sources:
        kind = f"{source.format}, {source.compression}"
        print(f"{source.bytes:>16,} bytes  {kind}  {without_credentials(source.url)}")
    for skipped in planned.passed_over:
        print(f"         skipped  {without_credentials(skipped.line)}")
    if hint := license_hint(options.license):
        print(hint)
    tasks = plural(len(planned.ranges), "task")
    tasks += f", and divide the records into {plural(planned.partitions, 'partition')} by hash"
    print(f"would read {planned.input_bytes:,} bytes in {tasks}")
    destination = open_destination(options.out)
    existing = existing_dataset(destination, options)
    if options.overwrite and destination.manifest() is not None:
        print(f"would replace the dataset in {without_credentials(options.out)}")
        existing = None
    variants = options.variants
    if existing is not None:
        refuse_other_dataset(existing, options, planned, destination.out.where())
        variants -= existing.variants
        print(
            f"this build {adding_variants(existing, options)}"
            if variants
            else "the dataset is here already: would only compare the inputs with it"
        )
    one = 1.1 * planned.fasta_bytes / 1e6
    if variants:
        size = f"{one * variants:,.1f} MB in {without_credentials(options.out)} for the dataset"
        if variants > 1:
            size += f" ({plural(variants, 'variant')} of {one:,.1f} MB)"
        print(f"would need about {size}, and about {one:,.1f} MB more during the build")
    return 0
