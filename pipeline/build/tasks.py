"""The steps of a build as plain data, which crosses to another process or machine; `run_task.py` runs them.

A task's `identity` names all that its result depends on; see `pipeline.build.task_markers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

from pipeline.build.options import DatasetOptions
from pipeline.build.task_results import (
    HashResult,
    MapResult,
    PackResult,
    ReduceResult,
    VerifyResult,
)
from pipeline.inputs.source import Source
from pipeline.storage.folder import Folder
from pipeline.storage.urls import is_url
from schemas.manifest_entries import RecordsEntry, ShardEntry

OnBytes = Callable[[int], None]
"""Told how many bytes a task has read since it was last told."""

Result = TypeVar("Result", covariant=True)

_REST: Final = "rest-of-"


def writer_of(name: str) -> str:
    """Return the name of the task that wrote a spill or a rest."""
    return name.removeprefix(_REST).removesuffix(".arrow")


class Task(Protocol[Result]):
    """One step of a build, independent of all that run beside it."""

    @property
    def result_type(self) -> type[Result]: ...

    @property
    def name(self) -> str:
        """Names the task's marker and files, uniquely within a build."""
        ...

    @property
    def work(self) -> Folder:
        """The folder for unfinished files and markers."""
        ...

    def identity(self) -> dict[str, Any] | None:
        """What the result depends on, as JSON; None: it is not to be believed later, and no marker is left."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class MapTask:
    """Read the records of `source` that belong to the bytes [begin, end), tokenize them, and sort them into partitions."""

    result_type: ClassVar[type[MapResult]] = MapResult

    index: int
    source: Source
    begin: int
    end: int
    partitions: int
    options: DatasetOptions
    work: Folder

    @property
    def name(self) -> str:
        return f"map-{self.index:06d}"

    @property
    def spill(self) -> str:
        """Where the records go, in the work folder."""
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
            "url": self.source.url
            if is_url(self.source.url)
            else "",  # a web server's marks tell versions of one address apart, not addresses
            "range": [self.begin, self.end],
            "partitions": self.partitions,
            "options": self.options.shape(),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class HashTask:
    """Take the content hash of the bytes [begin, end) of `source`, which map tasks do not read from first to last."""

    result_type: ClassVar[type[HashResult]] = HashResult

    index: int
    source: Source
    begin: int
    end: int
    work: Folder

    @property
    def name(self) -> str:
        return f"hash-{self.index:06d}"

    def identity(self) -> dict[str, Any]:
        return {
            "url": self.source.url,
            "fingerprint": self.source.fingerprint,
            "range": [self.begin, self.end],
            "piece": self.source.piece,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What all reduce and rest tasks of a build share. `build` stands for inputs, options and version.

    What the map stage found, which grows with the input, is not in here but in the file `mapped` (see pipeline.build.map_stage.map_results):
    a task has the same few bytes however large the job.
    """

    build: str
    options: DatasetOptions
    out: Folder
    work: Folder

    @property
    def mapped(self) -> str:
        """Where in the work folder it says what the map stage found."""
        return f"mapped-{self.build}.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class _PackingTask:
    """A task of a job that may leave sequences that fill no bucket: its rest."""

    job: Job

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def work(self) -> Folder:
        return self.job.work

    @property
    def rest(self) -> str:
        """Where the rest goes, in the work folder."""
        return f"{_REST}{self.name}.arrow"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReduceTask(_PackingTask):
    """Finish one partition, but for the sequences that fill no bucket: those are its rest."""

    result_type: ClassVar[type[ReduceResult]] = ReduceResult

    partition: int
    partitions: int

    @property
    def name(self) -> str:
        return f"reduce-{self.partition:06d}"

    @property
    def stem(self) -> str:
        """What the names of its shards begin with, and of its records/ file."""
        return f"{self.job.build}-{self.partition:05d}"

    def identity(self) -> dict[str, Any]:
        return {"build": self.job.build, "partition": self.partition}


@dataclass(frozen=True, kw_only=True, slots=True)
class RestTask(_PackingTask):
    """Pack what other tasks left; with `final` everything, otherwise leaving a smaller rest."""

    result_type: ClassVar[type[PackResult]] = PackResult

    level: int
    index: int
    rests: tuple[str, ...]
    final: bool

    @property
    def name(self) -> str:
        return f"rest-{self.level}-{self.index:06d}"

    @property
    def stem(self) -> str:
        """What the names of its shards begin with, and of its records/ file."""
        return (
            f"{self.job.build}-rest"
            if self.final
            else f"{self.job.build}-rest{self.level}x{self.index:05d}"
        )

    def identity(self) -> dict[str, Any]:
        return {"build": self.job.build, "rests": list(self.rests), "final": self.final}


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketRules:
    """What every bucket of a dataset has to obey. Lengths in tokens."""

    vocabulary: str
    capacity: int
    max_seq_len: int
    length_multiple: int
    max_seqs: int
    slots: int


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyTask:
    """Check some shards and records/ files of a dataset against what its manifest says of them."""

    result_type: ClassVar[type[VerifyResult]] = VerifyResult

    index: int
    shards: tuple[ShardEntry, ...]
    records: tuple[RecordsEntry, ...]
    rules: BucketRules
    out: Folder
    work: Folder

    @property
    def name(self) -> str:
        return f"verify-{self.index:06d}"

    def identity(self) -> None:
        """What was right, or wrong, when an earlier run looked says nothing of the files that are there now."""
