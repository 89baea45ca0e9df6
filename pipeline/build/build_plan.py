"""What a build will do, told from the sizes and names of its inputs: the cut into map tasks and partitions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import msgspec
import xxhash

from pipeline.build.options import PreprocessOptions
from pipeline.inputs.find import cut, every_range, find_sources, task_bytes
from pipeline.inputs.source import Source
from pipeline.storage.folder import Folder
from pipeline.storage.signed_json import read_signed
from pipeline.storage.urls import is_url
from schemas import __version__
from schemas.manifest import Manifest

PLAN: Final = ".build/plan.json"
"""Where in a dataset's folder the task list of a build is that a scheduler works off."""
UNREADABLE: Final = "unreadable"
"""Instead of the digest of a task list that is damaged, or of another version."""
PARTITION_BYTES: Final = 56 << 20
"""About how much FASTA goes into one partition: what a reduce task holds in memory, and about one shard."""
_EXPANSION: Final = {"none": 1, "gzip": 3, "zstd": 3, "xz": 4, "bzip2": 4}
"""How much larger than its archive FASTA is taken to be, for the number of partitions only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a build will do, from sizes and names alone."""

    sources: tuple[Source, ...]
    passed_over: tuple[str, ...]
    """A line for each thing in a named folder that is not read."""
    ranges: tuple[tuple[int, int, int], ...]
    """(source index, begin, end) of each map task."""
    hashed: tuple[tuple[int, int, int], ...]
    """(source index, begin, end) of each hash task: of sources that map tasks do not read from first byte to last."""
    partitions: int
    """A function of the inputs' sizes alone: it shows in the dataset."""

    @property
    def input_bytes(self) -> int:
        return sum(source.bytes for source in self.sources)

    @property
    def fasta_bytes(self) -> int:
        return fasta_bytes(self.sources)


def fasta_bytes(sources: Sequence[Source]) -> int:
    """The inputs' size decompressed, as far as it can be guessed."""
    return sum(source.bytes * _EXPANSION[source.compression] for source in sources)


def absolute(planned: Plan) -> Plan:
    """The same plan for tasks that start in other folders."""
    return replace(
        planned,
        sources=tuple(
            s if is_url(s.url) else replace(s, url=os.path.abspath(s.url)) for s in planned.sources
        ),
    )


def plan_digest(options: PreprocessOptions, planned: Plan) -> str:
    """Names a plan: 16 hexadecimal digits of the dataset it is for, 16 of the very files and the cut."""
    files = json.dumps({**asdict(absolute(planned)), "passed_over": []}, sort_keys=True)
    return f"{dataset_digest(options.shape(), ((s.name, s.bytes) for s in planned.sources))}-{xxhash.xxh3_64_hexdigest(files.encode())}"


def dataset_digest(
    shape: Mapping[str, Any], inputs: Iterable[tuple[str, int]], version: str = __version__
) -> str:
    """What a manifest can tell of the plan it came of: options, inputs' names and sizes, version."""
    return xxhash.xxh3_64_hexdigest(
        json.dumps([shape, list(inputs), version], sort_keys=True).encode()
    )


class _Planned(msgspec.Struct):
    """What a task list says of itself."""

    digest: str


def planned_here(out: Folder) -> str | None:
    """The digest of the task list that waits here to be worked off; None if none does."""
    content = out.content(PLAN)
    there = read_signed(content, _Planned)
    return None if content is None else UNREADABLE if there is None else there.digest


def comes_of(manifest: Manifest, plan: str) -> bool:
    """Whether a manifest is what a plan, told by its digest, was for: of the same options and version, and of inputs of the same names and sizes."""
    return plan.partition("-")[0] == dataset_digest(
        manifest.options, ((entry.name, entry.bytes) for entry in manifest.inputs), manifest.version
    )


def plan(options: PreprocessOptions, *, spool: str | None = None) -> Plan:
    """Find the inputs and cut them into tasks; reads a few bytes of each.

    Raises:
        InputError: an input is missing, unreadable or named twice.
    """
    sources, passed_over = find_sources(options.inputs, options.format, spool=spool)
    size = task_bytes(sources)
    ranges = [
        (i, begin, end) for i, source in enumerate(sources) for begin, end in cut(source, size)
    ]
    return Plan(
        sources=tuple(sources),
        passed_over=tuple(passed_over),
        ranges=tuple(ranges),
        hashed=tuple(
            (i, begin, end) for i, begin, end in every_range(sources) if not sources[i].streamed
        ),
        partitions=max(1, -(-fasta_bytes(sources) // PARTITION_BYTES)),
    )
