"""`thdpack gc`: list or remove the files that no kept generation of a dataset needs."""

from __future__ import annotations

import json

from pipeline.build.garbage.collect_garbage import Garbage, collect_garbage
from pipeline.cli.generations.options import GcOptions
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials
from schemas.text.time_span import parse_span


def run_gc(options: GcOptions) -> int:
    """List or remove files, print a summary, and return an exit code.

    Raises:
        ThdpackError: see `collect_garbage`.
    """
    grace = parse_span(options.grace, name="--grace")
    found = collect_garbage(options.dataset, keep=options.keep, grace=grace, delete=options.delete)
    if options.json:
        values = {
            "dataset": without_credentials(options.dataset),
            "deleted": options.delete,
            "kept_generations": found.kept,
            "removed_generations": found.dropped,
            "files": found.files,
            "bytes": found.bytes,
            "too_young": found.waiting,
            "unfinished_builds": found.unfinished.old,
            "recent_unfinished_builds": found.unfinished.young,
            "unfinished_array_job": found.unfinished.listed,
        }
        print(json.dumps(values))
        return 0
    for line in _lines(found, options):
        print(line)
    return 0


def _lines(found: Garbage, options: GcOptions) -> list[str]:
    lines = (
        []
        if options.delete
        else [f"{size:>16,} bytes  {name}" for name, size in found.files.items()]
    )
    if not options.delete:
        lines += [
            f"{size:>16,} bytes  {name}  (unfinished build)"
            for name, size in found.unfinished.old.items()
        ]
    lines += _kept(found.kept, options)
    removed = "removed" if options.delete else "would remove"
    if found.dropped:
        lines.append(f"{removed}: {_generations(found.dropped)}")
    old = found.unfinished.old
    if found.files:
        size = f"{sum(found.files.values()):,} bytes"
        lines.append(f"{removed}: {plural(len(found.files), 'file')}, {size}")
    if old:
        lines.append(
            f"{removed}: intermediate files of unfinished builds, {sum(old.values()):,} bytes. "
            f"{'These builds' if options.delete else 'After that, these builds'} cannot be "
            "resumed: the same command starts again from the beginning"
        )
    if not found.files and not old:
        lines.append("nothing to remove")
    if found.waiting:
        lines.append(
            f"not removed: {plural(found.waiting, 'file')} written less than {options.grace} ago; "
            "see --grace"
        )
    if found.unfinished.young:
        builds = plural(found.unfinished.young, "unfinished build")
        lines.append(
            f"not removed: {builds} with files written less than {options.grace} ago; see --grace"
        )
    if found.unfinished.listed:
        lines.append(
            "not removed: an unfinished array job; finish it with `thdpack commit`, or discard it "
            "by removing the folder .build"
        )
    if (found.files or old) and not options.delete:
        lines.append("add --delete to remove these files")
    return lines


def _kept(kept: tuple[int, ...], options: GcOptions) -> list[str]:
    """Return a line for each reason to keep generations. Numbers of `kept` ascend, and the last one
    is the latest generation."""
    latest = kept[-1]
    among = [number for number in kept[:-1] if number > latest - options.keep]
    young = [number for number in kept[:-1] if number <= latest - options.keep]
    reasons = (
        (young, f"replaced less than --grace {options.grace} ago"),
        (among, f"among the last --keep {options.keep}"),
        ([latest], "the latest"),
    )
    return [f"kept: {_generations(tuple(each))} ({why})" for each, why in reasons if each]


def _generations(numbers: tuple[int, ...]) -> str:
    word = "generation" if len(numbers) == 1 else "generations"
    return f"{word} {', '.join(map(str, numbers))}"
