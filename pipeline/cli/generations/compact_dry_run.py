"""`thdpack compact --dry-run`: print what a compaction would do, and write nothing."""

from __future__ import annotations

import json
from collections import Counter

from pipeline.build.append.compact_dataset import is_compact
from pipeline.build.append.options import CompactOptions
from pipeline.cli.generations.dry_run_inputs import dry_run_inputs
from pipeline.inputs.file_names import as_text, some_names
from schemas.errors import DatasetError
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials


def print_compact_plan(options: CompactOptions) -> int:
    """Print whether a compaction would rewrite the dataset; return an exit code.

    Raises:
        ThdpackError: see `pipeline.build.append.compact_dataset.compact`.
        DatasetError: the dataset has an input whose size no given input has, or the reverse.
        OptionError: standard input is one of the inputs.
    """
    existing, _, sources = dry_run_inputs(options, rebuild=True)
    done, left = is_compact(existing), Counter(source.bytes for source in sources)
    missing = []
    for entry in existing.inputs:
        if left[entry.bytes]:
            left[entry.bytes] -= 1
        else:
            missing.append(entry.name)
    if missing:
        raise DatasetError(
            f"{plural(len(missing), 'input')} of the dataset not given, judged by size: "
            f"{as_text(some_names('', missing))}"
        )
    others = [source.name for source in sources if left[source.bytes] > 0]
    if others:
        raise DatasetError(f"not in the dataset, judged by size: {as_text(some_names('', others))}")
    dataset = without_credentials(options.dataset)
    generations = plural(existing.generation, "generation")
    if options.log_json:
        found = {"event": "dry-run", "dataset": dataset, "inputs": len(sources)}
        print(json.dumps({**found, "generation": existing.generation, "compact": done}))
    elif done:
        print(f"nothing to do: all files of {dataset} come from one build")
    else:
        size = sum(source.bytes for source in sources)
        print(f"would read {plural(len(sources), 'input')} with {size:,} bytes")
        print(f"would rewrite {generations} of {dataset} as one build")
    return 0
