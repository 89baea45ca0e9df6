"""Tasks: the steps of a build, as plain data that can be sent to other processes and machines.

`run_task.py` runs tasks. A task's `identity` holds everything that its result depends on. A
finished task leaves a marker, a JSON file that holds a digest of the identity.

Tasks write work files for later tasks. The two main kinds are the spill of a map task (records
sorted by partition) and the rest of a packing task (sequences that did not fill a bucket).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

from pipeline.build.generations.parent import Parent
from pipeline.build.named_files.named_file import CLUSTER_OPTIONS
from pipeline.build.options import DatasetOptions
from pipeline.build.task_results import (
    MapResult,
    PackResult,
    PreparedFile,
    ReduceResult,
)
from pipeline.inputs.source import ANYTHING, Allowed, Source
from pipeline.storage.folder import Folder
from pipeline.storage.urls import is_url

OnBytes = Callable[[int], None]
"""Function that a task calls with the number of bytes read since the last call."""

Result = TypeVar("Result", covariant=True)

_REST: Final = re.compile(r"rest-(v\d+-)?of-")


def writer_of(name: str) -> str:
    """Return the name of the task that wrote a work file."""
    return _REST.sub("", name, count=1).removesuffix(".arrow")


class Task(Protocol[Result]):
    """One step of a build, independent of the other tasks of its stage."""

    @property
    def result_type(self) -> type[Result]: ...

    @property
    def name(self) -> str:
        """Name of the task's marker and files, unique within a build."""
        ...

    @property
    def work(self) -> Folder:
        """Folder for work files and markers."""
        ...

    def identity(self) -> dict[str, Any] | None:
        """Return everything that the result depends on, as JSON. Return None for a task that runs
        every time and leaves no marker."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class MapTask:
    """Read the records in bytes [begin, end) of `source`, tokenize and partition them.

    prepared: files that options name
    section: number of the section of an archive that the task reads; `begin` and `end` are then
        positions in the decompressed text. None if the task reads the source itself.
    allowed: kinds of suspicious input that the user allows. The identity does not include
        `allowed`, because it does not change the result.
    """

    result_type: ClassVar[type[MapResult]] = MapResult

    index: int
    source: Source
    begin: int
    end: int
    partitions: int
    options: DatasetOptions
    work: Folder
    prepared: tuple[PreparedFile, ...] = ()
    allowed: Allowed = ANYTHING
    section: int | None = None

    @property
    def name(self) -> str:
        section = "" if self.section is None else f"s{self.section:05d}"
        return f"map-{self.index:06d}{section}"

    @property
    def section_file(self) -> str:
        """Name of the work file that holds the section's text."""
        return f"{self.name}.fasta"

    @property
    def spill(self) -> str:
        """Name of the spill file, in the work folder."""
        return f"{self.name}.arrow"

    def identity(self) -> dict[str, Any]:
        return {
            "source": [
                self.source.name,
                self.source.fingerprint,
                self.source.format,
                self.source.compression,
                self.source.piece,
            ],
            # a fingerprint from a web server is unique only within one URL
            "url": self.source.url if is_url(self.source.url) else "",
            "range": [self.begin, self.end],
            "section": self.section,
            "partitions": self.partitions,
            "options": self.options.shape(),
            "prepared": [[file.option, file.xxh3_128] for file in self.prepared],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Everything that the tasks after the map stage share.

    build: digest of inputs, options and version of thdpack
    prepared: files that options name
    variants: numbers of the variants to build. A variant is a pass over the kept records with its
        own seed. If variant 0 is not among them, the build adds variants to an existing dataset.
    parent: the generation to which the build appends; None for a new dataset

    The results of the map stage may be large. Therefore tasks read them from the file `mapped`.
    """

    build: str
    options: DatasetOptions
    out: Folder
    work: Folder
    prepared: tuple[PreparedFile, ...] = ()
    variants: range = range(1)
    parent: Parent | None = None

    @property
    def mapped(self) -> str:
        """Name of the file with the results of the map stage, in the work folder."""
        return f"mapped-{self.build}.json"

    @property
    def joined(self) -> str:
        """Name of the file with the result of the link stage, in the work folder."""
        return f"joined-{self.build}.arrow"

    @property
    def intervals(self) -> str:
        """Name of the file with the result of the draw stage, in the work folder."""
        return f"intervals-{self.build}.arrow"

    @property
    def clustered(self) -> bool:
        """True if the build has a table of clusters, and therefore a link stage."""
        return any(file.option in CLUSTER_OPTIONS for file in self.prepared)

    @property
    def sampled(self) -> bool:
        """True with --sample-clusters. The build then has a draw stage."""
        return any(file.option == "sample-clusters" for file in self.prepared)

    @property
    def clusters(self) -> PreparedFile:
        """The table of clusters."""
        return next(file for file in self.prepared if file.option in CLUSTER_OPTIONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobTask:
    """Base of the tasks after the map stage."""

    job: Job

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def work(self) -> Folder:
        return self.job.work


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionTask(JobTask):
    """Base of tasks that read one partition: a subset of the records, chosen by hash.

    partition: number of the partition
    partitions: number of partitions of the build
    """

    partition: int
    partitions: int

    @property
    def links(self) -> str:
        """Name of the partition's link file, in the work folder."""
        return f"link-{self.partition:06d}.arrow"

    def identity(self) -> dict[str, Any]:
        return {"build": self.job.build, "partition": self.partition}


@dataclass(frozen=True, kw_only=True, slots=True)
class _PackingTask(JobTask):
    """Base of tasks that pack sequences, and may write a rest."""

    def rest(self, variant: int) -> str:
        """Return the name of a variant's rest file, in the work folder."""
        return f"rest-{_prefix(variant)}of-{self.name}.arrow"

    def stem(self, variant: int) -> str:
        """Return the beginning of the names of a variant's shards. For variant 0, it is also the
        beginning of the name of the records/ file."""
        return f"{self.job.build}-{_prefix(variant)}{self._part}"

    @property
    def _part(self) -> str:
        """Part of the stem that differs between the tasks of a build."""
        raise NotImplementedError


def _prefix(variant: int) -> str:
    """Return the part of a file's name that states the variant; empty for variant 0."""
    return f"v{variant}-" if variant else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceTask(_PackingTask, PartitionTask):
    """Deduplicate one partition. For each variant, shuffle and pack it."""

    result_type: ClassVar[type[ReduceResult]] = ReduceResult

    @property
    def final(self) -> bool:
        """True if this task must pack all its sequences, because there is only one partition."""
        return self.partitions == 1

    @property
    def name(self) -> str:
        return f"reduce-{self.partition:06d}"

    @property
    def _part(self) -> str:
        return f"{self.partition:05d}"

    def identity(self) -> dict[str, Any]:
        variants = [self.job.variants.start, self.job.variants.stop]
        return {**PartitionTask.identity(self), "variants": variants}


@dataclass(frozen=True, kw_only=True, slots=True)
class RestTask(_PackingTask):
    """Pack the rests of other tasks, for one variant. A `final` task packs all sequences; other
    tasks may write a rest."""

    result_type: ClassVar[type[PackResult]] = PackResult

    level: int
    index: int
    rests: tuple[str, ...]
    final: bool
    variant: int = 0

    @property
    def name(self) -> str:
        return f"rest-{_prefix(self.variant)}{self.level}-{self.index:06d}"

    @property
    def _part(self) -> str:
        return "rest" if self.final else f"rest{self.level}x{self.index:05d}"

    def identity(self) -> dict[str, Any]:
        return {"build": self.job.build, "rests": list(self.rests), "final": self.final}
