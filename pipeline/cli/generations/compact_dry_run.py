"""`thdpack compact --dry-run`: print what a compaction would do, and write nothing."""

from __future__ import annotations

import json

from pipeline.build.append.compact_dataset import is_compact, refuse_other_sizes
from pipeline.build.append.options import CompactOptions
from pipeline.cli.generations.dry_run_inputs import dry_run_inputs
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
    refuse_other_sizes(existing, sources)
    done = is_compact(existing)
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
