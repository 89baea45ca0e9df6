"""The plan of a build: its map tasks, hash tasks and number of partitions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import msgspec
import xxhash

from pipeline.build.filters.where import COLUMNS, Columns, check_where
from pipeline.build.named_files.named_file import NamedFile, named_files
from pipeline.build.options import PreprocessOptions
from pipeline.inputs.file_names import Skipped
from pipeline.inputs.find import cut, every_range, find_sources, task_bytes
from pipeline.inputs.formats.registry import FORMATS
from pipeline.inputs.named.ignore import with_ignore
from pipeline.inputs.source import InputRange, Source
from pipeline.storage.folder import Folder
from pipeline.storage.signed_json import read_signed
from pipeline.storage.urls import is_url
from schemas import __version__
from schemas.errors import InputError
from schemas.manifest import Manifest

PLAN: Final = ".build/plan.json"
"""Name of the file in the dataset's folder that holds the task list of an array job."""
UNREADABLE: Final = "unreadable"
"""Placeholder for a plan's name if its task list is damaged, or was written by another version."""
PARTITION_BYTES: Final = 56 << 20
"""Approximate bytes of FASTA in a partition. A reduce task holds one partition in memory, and
writes about one shard."""
_EXPANSION: Final = {"none": 1, "gzip": 3, "zstd": 3, "xz": 4, "bzip2": 4}
"""Assumed ratio of decompressed to compressed size. The number of partitions depends on this
ratio."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The inputs of a build, the range of each map and hash task, and the number of partitions."""

    sources: tuple[Source, ...]
    passed_over: tuple[Skipped, ...]
    """Skipped files of the input folders and globs."""
    ranges: tuple[tuple[int, int, int], ...]
    """Range of each map task: index of the source, first byte, and the byte after the last one."""
    hashed: tuple[tuple[int, int, int], ...]
    """Range of each hash task, in the same form as `ranges`. Only tables have hash tasks, because
    map tasks read a table by columns and cannot hash its bytes."""
    partitions: int
    """Number of partitions. The dataset's bytes depend on this number. Therefore the number depends
    only on the sizes and compression of the inputs, and not on the machine."""
    named_files: tuple[NamedFile, ...] = ()
    """Files that options name."""

    @property
    def input_bytes(self) -> int:
        return sum(source.bytes for source in self.sources)

    @property
    def fasta_bytes(self) -> int:
        return fasta_bytes(self.sources)


def fasta_bytes(sources: Sequence[Source]) -> int:
    """Return the estimated size of the decompressed inputs in bytes."""
    return sum(source.bytes * _EXPANSION[source.compression] for source in sources)


def absolute(planned: Plan) -> Plan:
    """Return the plan with absolute paths, for tasks that run in another working directory."""
    return replace(
        planned,
        sources=tuple(
            s if is_url(s.url) else replace(s, url=os.path.abspath(s.url)) for s in planned.sources
        ),
        named_files=tuple(
            f if is_url(f.url) or not f.url else replace(f, url=os.path.abspath(f.url))
            for f in planned.named_files
        ),
    )


def plan_digest(options: PreprocessOptions, planned: Plan) -> str:
    """Return a plan's name: two digests of 16 hexadecimal digits each, joined by a hyphen.

    The first digest is the `dataset_digest`. The second digest covers the files, the ranges, and
    the numbers of partitions and variants.
    """
    described = {**asdict(absolute(planned)), "passed_over": []}
    for source in described["sources"]:
        del source["found"]  # the user may name a file or its folder: the input is the same
    described["variants"] = options.variants
    files = json.dumps(described, sort_keys=True)
    dataset = dataset_digest(
        options.shape(),
        ((s.name, s.bytes) for s in planned.sources),
        ((f.option, f.name, f.bytes) for f in planned.named_files),
    )
    return f"{dataset}-{xxhash.xxh3_64_hexdigest(files.encode())}"


def dataset_digest(
    shape: Mapping[str, Any],
    inputs: Iterable[tuple[str, int]],
    named: Iterable[tuple[str, str, int]],
    version: str = __version__,
) -> str:
    """Return a digest of the options, the version, and the names and sizes of all input files.

    A manifest belongs to a plan if both have the same digest.

    Args:
        inputs: name and size of each input.
        named: option, name and size of each file that an option names.
    """
    return xxhash.xxh3_64_hexdigest(
        json.dumps([shape, list(inputs), list(named), version], sort_keys=True).encode()
    )


class _Planned(msgspec.Struct):
    """The field of a task list that holds the name of the plan."""

    digest: str


def planned_here(out: Folder) -> str | None:
    """Return the name of the plan of the unfinished task list in a dataset's folder.

    Return None without a task list, and UNREADABLE if the task list cannot be read.
    """
    content = out.content(PLAN)
    task_list = read_signed(content, _Planned)
    return None if content is None else UNREADABLE if task_list is None else task_list.digest


def comes_of(manifest: Manifest, plan: str) -> bool:
    """Return whether a manifest and a plan have the same options, version, file names and sizes.

    plan: name of the plan (see `plan_digest`).
    """
    return plan.partition("-")[0] == dataset_digest(
        manifest.options,
        ((entry.name, entry.bytes) for entry in manifest.inputs),
        ((entry.option, entry.name, entry.bytes) for entry in manifest.named_files),
        manifest.version,
    )


def plan(options: PreprocessOptions, *, spool: str | None = None) -> Plan:
    """Find the inputs, read a few bytes of each input, and cut the inputs into tasks.

    Raises:
        InputError: an input is missing or unreadable, a table on a disk lacks a column, or a file
            that an option names is missing.
        OptionError: an input is named twice, or the expression of --where is wrong.
    """
    named = named_files(options)
    _check_metadata(options, named)
    sources, passed_over = find_sources(
        options.inputs,
        options.format,
        spool=spool,
        allowed=options.allowed,
        ignore=options.ignore,
    )
    _check_columns(options, sources)
    return plan_of(sources, passed_over, named)


def plan_of(
    sources: Sequence[Source],
    passed_over: Sequence[Skipped] = (),
    named: tuple[NamedFile, ...] = (),
) -> Plan:
    """Cut inputs into tasks.

    Args:
        passed_over: files of input folders and globs that are not read.
        named: files that options name.
    """
    size = task_bytes(sources)
    ranges = [
        (i, begin, end) for i, source in enumerate(sources) for begin, end in cut(source, size)
    ]
    return Plan(
        sources=tuple(sources),
        passed_over=tuple(passed_over),
        ranges=tuple(ranges),
        hashed=tuple(
            (i, begin, end)
            for i, begin, end in every_range(sources)
            if FORMATS[sources[i].format].is_table
        ),
        partitions=max(1, -(-fasta_bytes(sources) // PARTITION_BYTES)),
        named_files=named,
    )


def _check_metadata(options: PreprocessOptions, named: Sequence[NamedFile]) -> None:
    """Check the names of the columns of --metadata, and the expression of --where.

    Raises:
        InputError: the table of --metadata cannot be read, or the name or type of a column is not
            allowed.
        OptionError: the expression of --where is wrong.
    """
    columns: Columns = ()
    final = True
    for file in named:
        if file.option == "metadata":
            # imported here, because pyarrow.compute takes 0.2 s to import
            from pipeline.build.named_files.metadata.table_file import table_file

            types, final = table_file(file).types()
            columns = tuple(types.items())
            for name in types:
                if name in COLUMNS:
                    message = f"column {name!r} already has a meaning in --where: rename it"
                    raise InputError(message, source=file.url)
    if options.where is not None:
        check_where(options.where, columns, final=final)


def _check_columns(options: PreprocessOptions, sources: Sequence[Source]) -> None:
    """Check the columns of the tables on this machine's disks, before any task runs.

    Only map tasks check tables at URLs, because each check here would cost several requests.

    Raises:
        InputError: a table cannot be read, or lacks a column.
    """
    for source in sources:
        check = FORMATS[source.format].check_columns
        if check is None or is_url(source.url):
            continue
        part = InputRange(
            source=source,
            begin=0,
            end=source.bytes,
            sequence_column=options.sequence_column,
            id_column=options.id_column,
        )
        try:
            check(part)
        except InputError as error:
            raise with_ignore(error, source.url, found=source.found) from error
