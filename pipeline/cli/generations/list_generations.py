"""`thdpack generations`: list the generations of a dataset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from pipeline.build.generations.merge_manifests import entry_of
from pipeline.build.retire.retired_files import retired_files
from pipeline.cli.generations.added_files import added_files
from pipeline.cli.generations.options import GenerationsOptions
from pipeline.storage.folder import Folder
from pipeline.storage.hub.revision import pinned
from pipeline.storage.open_folder import folder_of
from pipeline.storage.read_manifest import generation_name, read_manifest
from schemas.manifest import Manifest
from schemas.manifest_entries import GenerationEntry

_COLUMNS = (
    "generation",
    "written",
    "inputs",
    "records",
    "kept",
    "buckets",
    "retired",
    "bytes",
    "digest",
    "note",
)
_ADDED = ("inputs", "records", "kept", "buckets")


def run_generations(options: GenerationsOptions) -> int:
    """Print a line for each generation, and return an exit code.

    Raises:
        ManifestError: the manifest is missing or damaged.
    """
    dataset = pinned(options.dataset)
    rows = list(_rows(read_manifest(dataset), folder_of(dataset)))
    if options.json:
        for row in rows:
            print(json.dumps(row))
        return 0
    # most datasets have no retired records
    columns = [name for name in _COLUMNS if name != "retired" or any(row[name] for row in rows)]
    lines = [[_text(name, row[name]) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *lines, strict=True)]
    for line in (columns, *lines):
        cells = [f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)]
        print("  ".join([*cells[:-1], line[-1]]).rstrip())
    return 0


def _text(name: str, value: int | str) -> str:
    """Return a cell of the table. Counts that a generation adds have a sign."""
    if name == "written" and isinstance(value, str):
        return f"{datetime.fromisoformat(value):%Y-%m-%d %H:%M UTC}" if value else ""
    if isinstance(value, str):
        return value
    return f"{value:+,}" if name in _ADDED and value else f"{value:,}"


def _rows(manifest: Manifest, out: Folder) -> Iterator[dict[str, int | str]]:
    """Yield what each generation added, how many records it retired, its digest, and a note.

    `bytes` is the size of the files that the generation added and that still exist. `written` is
    the time of the newest of these, or "" if it is unknown.

    The note says that a generation was removed by `thdpack gc`, or that it is a compaction.

    Args:
        out: the dataset's folder.
    """
    retired = {file.generation: file.entry.rows for file in retired_files(manifest)}
    before = GenerationEntry(
        digest="0" * 32, build="0" * 16, inputs=0, records=0, kept=0, buckets=0
    )
    entries = (*manifest.history, entry_of(manifest))
    for number, (entry, files) in enumerate(
        zip(entries, added_files(out, entries), strict=True), 1
    ):
        added = {name: getattr(entry, name) - getattr(before, name) for name in _ADDED}
        counts = {"generation": number, **added, "retired": retired.get(number, 0)}
        notes = []
        if number > 1 and not added["inputs"] and not counts["retired"]:
            notes.append("compacted")
        if number < manifest.generation and out.size(generation_name(number)) is None:
            notes.append("removed")
        written = ""
        if files.written is not None:
            written = datetime.fromtimestamp(files.written, UTC).isoformat(timespec="seconds")
        counts |= {"written": written, "bytes": files.bytes}
        yield {**counts, "digest": entry.digest, "note": ", ".join(notes)}
        before = entry
