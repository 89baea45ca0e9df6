"""Print the plan of a build (`--dry-run` of preprocess and plan-tasks), and write nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pipeline.build.array_jobs.task_list import task_counts
from pipeline.build.build_plan import Plan, plan
from pipeline.build.destination.destination import open_destination
from pipeline.build.destination.local_access import refuse_unwritable
from pipeline.build.destination.local_destination import LocalDestination
from pipeline.build.options import PreprocessOptions
from pipeline.build.prepare_build import (
    adding_variants,
    existing_dataset,
    refuse_other_dataset,
    refuse_out,
    refuse_unused_columns,
)
from pipeline.cli.arguments import UsageError
from pipeline.inputs.first_records import check_first_records
from schemas.licenses import license_hint
from schemas.manifest import Manifest
from schemas.text.byte_size import megabytes
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials


def print_dry_run(options: PreprocessOptions, *, task_list: bool = False) -> int:
    """Print the plan of a build, and return an exit code.

    Args:
        task_list: whether to also print the number of tasks of each stage (`thdpack plan-tasks`).
    Raises:
        ThdpackError: see `pipeline.build.build`.
        UsageError: standard input is one of the inputs.
    """
    if "-" in options.inputs:
        raise UsageError("--dry-run cannot examine standard input without consuming it")
    destination = open_destination(options.out)
    refuse_out(options)
    if isinstance(destination, LocalDestination):
        refuse_unwritable(destination.path)
    planned = plan(options)
    refuse_unused_columns(options, planned)
    check_first_records(
        planned.sources, sequence_column=options.sequence_column, id_column=options.id_column
    )
    existing = existing_dataset(destination, options)
    replaces = options.overwrite and destination.manifest() is not None
    if replaces:
        existing = None
    if existing is not None:
        refuse_other_dataset(existing, options, planned, destination.out.where())
    show = _print_json if options.log_json else _print_lines
    show(options, planned, existing, replaces, task_counts(options, planned) if task_list else {})
    return 0


def _print_lines(
    options: PreprocessOptions,
    planned: Plan,
    existing: Manifest | None,
    replaces: bool,
    counts: Mapping[str, int],
) -> None:
    """Print the plan of a build as text.

    Args:
        existing: manifest of the dataset to which the build belongs; None if it writes a new one.
        replaces: True if the build replaces a dataset (--overwrite).
        counts: number of tasks of each stage of a task list; empty for other builds.
    """
    out = without_credentials(options.out)
    for source in planned.sources:
        kind = f"{source.format}, {source.compression}"
        print(f"{source.bytes:>16,} bytes  {kind}  {without_credentials(source.url)}")
    for skipped in planned.passed_over:
        print(f"         skipped  {without_credentials(skipped.line)}")
    if hint := license_hint(options.license):
        print(hint)
    variants = _new_variants(options, existing)
    if existing is not None and not variants:
        print(
            f"{out} already holds this dataset. A build would compare the inputs with it, "
            "and write nothing"
        )
        return
    if existing is not None:
        print(adding_variants(existing, options))
    if replaces:
        print(f"would replace the dataset in {out}")
    tasks = plural(len(planned.ranges), "task")
    tasks += f", and divide the records into {plural(planned.partitions, 'partition')} by hash"
    print(f"would read {planned.input_bytes:,} bytes in {tasks}")
    one = _variant_bytes(planned)
    each = f" ({plural(variants, 'variant')} of {megabytes(one)})" if variants > 1 else ""
    if counts:
        listed = ", ".join(plural(count, f"{stage} task") for stage, count in counts.items())
        print(f"would write a task list: {listed}")
    print(
        f"would write about {megabytes(one * variants)}{each} to {out}, "
        f"and need about {megabytes(one)} more during the build"
    )


def _print_json(
    options: PreprocessOptions,
    planned: Plan,
    existing: Manifest | None,
    replaces: bool,
    counts: Mapping[str, int],
) -> None:
    """Print the plan of a build as one JSON object. The arguments are those of `_print_lines`."""
    variants, size = _new_variants(options, existing), _variant_bytes(planned)
    sources = [
        {
            "url": without_credentials(source.url),
            "bytes": source.bytes,
            "format": source.format,
            "compression": source.compression,
        }
        for source in planned.sources
    ]
    found = {
        "event": "dry-run",
        "dataset": without_credentials(options.out),
        "exists": replaces or existing is not None,
        "replaces": replaces,
        "inputs": sources,
        "skipped": [without_credentials(skipped.line) for skipped in planned.passed_over],
        "input_bytes": planned.input_bytes,
        "tasks": len(planned.ranges),
        "partitions": planned.partitions,
        "new_variants": variants,
        "dataset_bytes": round(size * variants),
        "temporary_bytes": round(size) if variants else 0,
    }
    if counts:
        found["stages"] = dict(counts)
    if hint := license_hint(options.license):
        found["note"] = hint
    print(json.dumps(found))


def _new_variants(options: PreprocessOptions, existing: Manifest | None) -> int:
    return options.variants - (0 if existing is None else existing.variants)


def _variant_bytes(planned: Plan) -> float:
    """Return the estimated size of a variant of the dataset in bytes."""
    return 1.1 * planned.fasta_bytes
