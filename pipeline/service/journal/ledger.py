"""The state of the service, which results from the lines of the journal.

| line | meaning |
|---|---|
| `batch` | the service begins to append these files; written before the append |
| `committed` | the batch's files were committed, except those rejected or released before |
| `rejected` | a file is moved to rejected/; written before it is moved |
| `released` | a file of the batch vanished or changed, and is no longer part of the batch |
| `finished` | the files are in taken/, the report is written, and the hook has run |
| `snapshot` | the whole state; earlier lines are not needed |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

_GENERATIONS_KEPT: Final = 50
_REJECTIONS_KEPT: Final = 200

Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """A generation that the service committed.

    time: Unix time in seconds
    generation: number of the generation; unchanged if all files were duplicates
    digest: digest of its manifest
    files: number of files that the generation added
    bytes: size of these files
    records: number of records that it added
    kept: number of these records that are kept
    duplicates: for each file whose content is already in the dataset or in an earlier file of the
        batch, by name: the name of the earlier file
    seconds: duration of each stage
    """

    time: float
    generation: int
    digest: str
    files: int
    bytes: int
    records: int
    kept: int
    duplicates: dict[str, str]
    seconds: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejection:
    """A file that was refused."""

    time: float
    name: str
    bytes: int
    version: str
    reason: str


@dataclass(kw_only=True, slots=True)
class OpenBatch:
    """A batch that is not finished.

    files: size and version of each file, by name
    parent: generation to which the batch is appended
    writer: the service that opened the batch. On a store, two services can write to one journal,
        and a commit of one must not count for the files of the other
    """

    number: int
    parent: int
    files: dict[str, tuple[int, str]]
    commit: Commit | None = None
    writer: str = ""


@dataclass(kw_only=True, slots=True)
class Totals:
    """Sums over the whole life of the journal."""

    batches: int = 0
    taken: int = 0
    taken_bytes: int = 0
    duplicates: int = 0
    rejected: int = 0
    hook_failures: int = 0
    report_failures: int = 0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    stage_count: dict[str, int] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class Ledger:
    """State of the service that survives restarts."""

    totals: Totals = field(default_factory=Totals)
    batch: OpenBatch | None = None
    generations: deque[Commit] = field(default_factory=lambda: deque(maxlen=_GENERATIONS_KEPT))
    rejections: deque[Rejection] = field(default_factory=lambda: deque(maxlen=_REJECTIONS_KEPT))

    def apply(self, line: Mapping[str, Any]) -> None:
        """Add a line of the journal to the state."""
        match line["event"]:
            case "batch":
                self.totals.batches = line["number"]
                self.batch = OpenBatch(
                    number=line["number"],
                    parent=line["parent"],
                    files={name: (size, version) for name, size, version in line["files"]},
                    writer=line.get("writer", ""),
                )
            case "committed":
                batch = self.batch
                written_by = (line.get("number"), line.get("writer", ""))
                if "number" not in line or (
                    batch is not None and written_by == (batch.number, batch.writer)
                ):
                    self._committed(Commit(**line["commit"]))
            case "rejected":
                rejection = Rejection(**line["rejection"])
                self.rejections.append(rejection)
                self.totals.rejected += 1
                self._drop(rejection.name)
            case "released":
                self._drop(line["name"])
            case "finished":
                self.totals.hook_failures += line["hook_failed"]
                self.totals.report_failures += line["report_failed"]
                self.batch = None
            case "snapshot":
                self._restore(line)

    def snapshot(self) -> Line:
        """Return a line that holds the whole state."""
        return {
            "event": "snapshot",
            "totals": asdict(self.totals),
            "batch": None if self.batch is None else asdict(self.batch),
            "generations": [asdict(commit) for commit in self.generations],
            "rejections": [asdict(rejection) for rejection in self.rejections],
        }

    def _committed(self, commit: Commit) -> None:
        assert self.batch is not None
        self.batch.commit = commit
        totals = self.totals
        totals.taken += len(self.batch.files)
        totals.taken_bytes += sum(size for size, _ in self.batch.files.values())
        totals.duplicates += len(commit.duplicates)
        for stage, seconds in commit.seconds.items():
            totals.stage_seconds[stage] = totals.stage_seconds.get(stage, 0.0) + seconds
            totals.stage_count[stage] = totals.stage_count.get(stage, 0) + 1
        if commit.files:
            # a batch may have thousands of duplicates, and 50 commits are in each snapshot
            self.generations.append(replace(commit, duplicates={}))

    def _drop(self, name: str) -> None:
        if self.batch is not None:
            self.batch.files.pop(name, None)
            if not self.batch.files:
                self.batch = None

    def _restore(self, line: Mapping[str, Any]) -> None:
        self.totals = Totals(**line["totals"])
        self.batch = None
        if line["batch"] is not None:
            commit = line["batch"]["commit"]
            self.batch = OpenBatch(
                number=line["batch"]["number"],
                parent=line["batch"]["parent"],
                files={name: (size, tag) for name, (size, tag) in line["batch"]["files"].items()},
                commit=None if commit is None else Commit(**commit),
                writer=line["batch"].get("writer", ""),
            )
        self.generations.clear()
        self.generations.extend(Commit(**each) for each in line["generations"])
        self.rejections.clear()
        self.rejections.extend(Rejection(**each) for each in line["rejections"])
