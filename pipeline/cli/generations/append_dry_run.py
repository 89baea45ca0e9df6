"""`thdpack append --dry-run`: print what an append would do, and write nothing."""

from __future__ import annotations

import json

from pipeline.build.append.options import AppendOptions
from pipeline.cli.generations.dry_run_inputs import dry_run_inputs
from pipeline.inputs.first_records import check_first_records
from schemas.text.redact import without_credentials


def print_append_plan(options: AppendOptions) -> int:
    """Print the inputs of an append and the generation that it would add; return an exit code.

    Raises:
        ThdpackError: see `pipeline.build.append.append_dataset.append`.
        OptionError: standard input is one of the inputs.
    """
    existing, build, sources = dry_run_inputs(options)
    check_first_records(sources, sequence_column=build.sequence_column, id_column=build.id_column)
    sizes = {entry.bytes for entry in existing.inputs}
    next_generation = existing.generation + 1
    if options.log_json:
        inputs = [
            {
                "url": without_credentials(source.url),
                "bytes": source.bytes,
                "may_be_known": source.bytes in sizes,
            }
            for source in sources
        ]
        found = {"event": "dry-run", "generation": next_generation, "inputs": inputs}
        print(json.dumps({**found, "dataset": without_credentials(options.dataset)}))
        return 0
    for source in sources:
        kind = f"{source.format}, {source.compression}"
        known = "" if source.bytes not in sizes else " (an input of the dataset has this size)"
        print(f"{source.bytes:>16,} bytes  {kind}  {without_credentials(source.url)}{known}")
    print(f"would add generation {next_generation} to {without_credentials(options.dataset)}")
    if any(source.bytes in sizes for source in sources):
        print("would skip inputs whose content the dataset has; an append compares those contents")
    if options.retire is not None:
        print(f"would retire the records that {without_credentials(options.retire)} lists")
    return 0
