"""A process that appends one batch: `python -m pipeline.service.children.append_process`.

The process reads an `AppendRequest` as one line of JSON. It prints the JSON objects of
`--log-json`, and then one with the outcome. If its standard input is closed, the service has been
killed: the process then ends, and the next service resumes the append.
"""

from __future__ import annotations

import bisect
import os
import sys
import threading
from collections import Counter
from collections.abc import Sequence

import msgspec

from pipeline.build.append.append_dataset import append
from pipeline.build.append.options import AppendOptions
from pipeline.build.assemble_manifest import Built
from pipeline.build.generations.merge_manifests import entry_of
from pipeline.build.progress.reporter import JsonReporter
from pipeline.executors.processes import preload
from pipeline.inputs.find import find_sources
from pipeline.inputs.source import Allowed
from pipeline.service.children.append_request import Appended, AppendRequest, Failed, Refused
from pipeline.service.dataset_totals import dataset_totals
from pipeline.storage.file_hash import hash_file
from schemas.errors import BusyError, InputError, ThdpackError


def main() -> None:
    """Append the batch that standard input names, and print the outcome."""
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=AppendRequest)
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    if request.executor == "processes":
        preload("pipeline.build.run_task")
    sys.argv = request.command
    try:
        outcome = _outcome(request)
    except KeyboardInterrupt:
        os._exit(130)
    print(msgspec.json.encode(outcome).decode(), flush=True)
    os._exit(0)


def _end_with_the_service() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _outcome(request: AppendRequest) -> Appended | Refused | Failed:
    twins: dict[str, str] = {}
    try:
        twins = _twins(request.files)
        files = [url for url in request.files if url not in twins]
        # if a file is refused, the next append is of the other files
        built = append(_options(request, files), JsonReporter(), discard_refused=True)
        return _appended(built, request, twins)
    except InputError as error:
        refused = {error.source: _reason(error)}
        # find all refused files now, because the next attempt starts from the beginning
        for url in request.files:
            if url not in twins and url not in refused:
                refused |= _refusal(url, request)
        return Refused(messages=refused)
    except ThdpackError as error:
        return Failed(message=str(error), busy=isinstance(error, BusyError))


def _options(request: AppendRequest, files: Sequence[str]) -> AppendOptions:
    return AppendOptions(
        dataset=request.dataset,
        inputs=tuple(files),
        exclude=request.exclude,
        clusters=request.clusters,
        metadata=request.metadata,
        source_release=request.source_release,
        executor=request.executor,
        ray_address=request.ray_address,
        workers=request.workers,
        memory=request.memory,
        allow_nucleotides=request.allow_nucleotides,
        allow_alignment=request.allow_alignment,
        log_json=True,
    )


def _twins(files: dict[str, int]) -> dict[str, str]:
    """Find files that have the same content as an earlier file of the batch. Return the earlier
    file of each.

    Only files of equal size are read.

    Raises:
        InputError: a file cannot be read.
    """
    sizes = Counter(files.values())
    first: dict[tuple[int, str], str] = {}
    twins = {}
    for url, size in files.items():
        if sizes[size] > 1:
            earlier = first.setdefault(hash_file(url), url)
            if earlier != url:
                twins[url] = earlier
    return twins


def _refusal(url: str, request: AppendRequest) -> dict[str, str]:
    """Examine the first bytes of a file; return its error as {url: message}, or {}."""
    allowed = Allowed(nucleotides=request.allow_nucleotides, alignment=request.allow_alignment)
    try:
        find_sources((url,), "auto", spool=None, allowed=allowed)
    except InputError as error:
        return {url: _reason(error)}
    return {}


def _reason(error: InputError) -> str:
    """Return an error's message without the name of the file."""
    return error.message if error.line is None else f"line {error.line}: {error.message}"


def _appended(built: Built, request: AppendRequest, twins: dict[str, str]) -> Appended:
    """Return what the batch added to the dataset.

    If an earlier run of the service committed this batch and was then killed, this append finds all
    files in the dataset. Files in generations after the batch's parent were then added by this
    batch. Files in the parent and in earlier generations are duplicates.
    """
    manifest = built.manifest
    entries = [*manifest.history, entry_of(manifest)]
    ends = [entry.inputs for entry in entries]
    index = {entry.name: i for i, entry in enumerate(manifest.inputs)}
    found = {
        url: (name, 1 + bisect.bisect_right(ends, index[name])) for url, name in built.known.items()
    }
    generation = manifest.generation
    if not built.fresh:
        later = [number for _, number in found.values() if number > request.parent]
        generation = max(later, default=generation)
    duplicates = {
        url: f"{name} of generation {number}"
        for url, (name, number) in found.items()
        if built.fresh or number <= request.parent
    }
    duplicates |= {url: earlier.rpartition("/")[2] for url, earlier in twins.items()}
    added = len(request.files) - len(duplicates)
    entry, before = entries[generation - 1], entries[max(generation - 2, 0)]
    return Appended(
        generation=generation,
        digest=entry.digest,
        added=added,
        records=entry.records - before.records if added else 0,
        kept=entry.kept - before.kept if added else 0,
        duplicates=duplicates,
        dataset=dataset_totals(manifest),
    )


if __name__ == "__main__":
    main()
