"""`thdpack append --dry-run`: print what an append would do, and write nothing."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from pipeline.build.append.find_retired import count_retired
from pipeline.build.append.options import AppendOptions
from pipeline.cli.generations.dry_run_inputs import dry_run_inputs
from pipeline.cli.generations.retired_words import retired_words, unknown_words
from pipeline.inputs.first_records import check_first_records
from pipeline.storage.open_folder import folder_of
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
    retired = None
    if options.retire is not None:
        retired = count_retired(options.retire, existing, folder_of(options.dataset), _note)
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
        if retired is not None:
            found["retired"] = asdict(retired)
        print(json.dumps({**found, "dataset": without_credentials(options.dataset)}))
        return 0
    for source in sources:
        kind = f"{source.format}, {source.compression}"
        known = "" if source.bytes not in sizes else " (an input of the dataset has this size)"
        print(f"{source.bytes:>16,} bytes  {kind}  {without_credentials(source.url)}{known}")
    if sources or retired is None or retired.records:
        print(f"would add generation {next_generation} to {without_credentials(options.dataset)}")
    if any(source.bytes in sizes for source in sources):
        print("would skip inputs whose content the dataset has; an append compares those contents")
    if retired is not None:
        print(f"would retire {retired_words(retired)}")
        if retired.unknown:
            print(f"warning: {unknown_words(retired)}")
    return 0


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)
