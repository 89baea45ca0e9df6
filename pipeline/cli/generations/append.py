"""`thdpack append`: add records to a dataset as a new generation."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from pipeline.build.append.options import AppendOptions
from pipeline.build.assemble_manifest import Built
from pipeline.build.progress.reporter import reporter
from pipeline.cli.generations.append_dry_run import print_append_plan
from pipeline.cli.generations.retired_words import retired_words, unknown_words
from pipeline.cli.summary import speed, summary_lines
from schemas.errors import OptionError
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials


def run_append(options: AppendOptions) -> int:
    """Append records, print a summary, and return an exit code.

    Raises:
        ThdpackError: see `pipeline.build.append`.
        OptionError: neither an input nor --retire is given.
    """
    if not options.inputs and options.retire is None:
        raise OptionError(
            "no input given: name files, folders, globs, URLs, or - for standard input; or give "
            "--retire FILE"
        )
    if options.dry_run:
        return print_append_plan(options)
    from pipeline.build.append.append_dataset import append  # imported here, as in preprocess.py

    started = time.perf_counter()
    with reporter(as_json=options.log_json) as report:
        built = append(options, report)
    seconds = time.perf_counter() - started
    _print(built, without_credentials(options.dataset), options.log_json, seconds)
    return 0


def _print(built: Built, dataset: str, as_json: bool, seconds: float) -> None:
    """Print what an append added, and the totals of the dataset."""
    manifest, added = built.manifest, built.added
    if as_json:
        summary = {
            "event": "summary",
            "fresh": built.fresh,
            "dataset": dataset,
            "generation": manifest.generation,
            "manifest_digest": manifest.digest,
            "seconds": round(seconds, 3),
            "added_records": {} if added is None else dict(added.records_by_status),
            "records": dict(manifest.records_by_status),
        }
        if built.retired is not None:
            summary["retired"] = asdict(built.retired)
        print(json.dumps(summary), flush=True)
        return
    if added is not None:
        print(f"generation {manifest.generation} adds:")
        for name, value in summary_lines(added, built.fates, advises_split=False):
            print(f"{name:>16}  {value}")
        print(f"{'speed':>16}  {speed(added, seconds, resumed=built.resumed)}")
    elif built.fresh:
        print(f"generation {manifest.generation} retires records, and adds none:")
    elif built.retired is None:
        print(f"generation {manifest.generation} already has all inputs; nothing to do")
    else:
        print(
            f"generation {manifest.generation} has no new input or record to retire; nothing to do"
        )
    if built.retired is not None:
        print(f"{'retired':>16}  {retired_words(built.retired)}")
        if built.retired.unknown:
            print(f"{'warning':>16}  {unknown_words(built.retired)}")
    kept, buckets = manifest.records_by_status["kept"], manifest.splits["train"].buckets
    print(f"{'in total':>16}  {kept:,} records kept, {plural(buckets, 'bucket')} of train")
    print(f"{'dataset':>16}  {dataset}")
