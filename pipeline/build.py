"""The offline stage from inputs to manifest: map, reduce, commit. Killed anywhere, the same command goes on from there.

Work in progress lies in DATASET/.build and nothing else reads it; manifest.json is replaced last, and is the only commit.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from pipeline.executors import Executor, ProcessExecutor, cores
from pipeline.mapped_stage import Mapped, build_digest, mapped_of
from pipeline.options import PreprocessOptions, parse_bytes
from pipeline.plan import Plan, plan
from pipeline.progress import Reporter
from pipeline.sources import Source
from pipeline.stages import hash_tasks, map_tasks, reduce_tasks, rest_levels
from pipeline.storage import input_errors, is_url, sync_folder, written_atomically
from pipeline.tasks import Job
from schemas import __version__
from schemas.errors import BuildError, DatasetError, ManifestError
from schemas.manifest import MANIFEST_NAME, InputEntry, Manifest
from schemas.records import Status

if TYPE_CHECKING:
    from pipeline.ray_executor import RayExecutor

WORKER_BYTES: Final = 400 << 20
"""Memory that a worker may need; with --memory, as many run as fit."""

_OURS: Final = re.compile(r"[0-9a-f]{16}-(\d{5,}|rest(\d+x\d{5,})?)(-\d+)?\.(arrow|parquet)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A dataset that is there.

    fresh: False if it was there already.
    """

    manifest: Manifest
    fresh: bool


def build(options: PreprocessOptions, report: Reporter) -> Built:
    """Build a dataset, or resume, or find that it is there.

    Raises:
        InputError: an input cannot be read or breaks a rule.
        DatasetError: another dataset is there and --overwrite was not given.
        BuildError: the disk is full, a worker was killed, another build runs here.
    """
    if is_url(options.out):
        raise BuildError(f"--out {options.out}: datasets are written to local folders for now; copy it to the store afterwards")
    out = Path(options.out)
    existing = existing_dataset(out, options)
    with locked(out) as work:
        planned = plan(options, spool=spool_stdin(options, work))
        for name in planned.passed_over:
            report.note(f"passed over {name}: not named like a sequence file; name it on the command line to read it")
        if existing is not None:
            refuse_if_other(existing, options, planned.sources, out)
        with executor_of(options, out, work) as executor:
            return Build(options, planned, out, work, executor, report).run(existing)


def executor_of(options: PreprocessOptions, out: Path, work: Path) -> ProcessExecutor | RayExecutor:
    """What --executor names.

    Raises:
        BuildError: it is not installed or does not answer.
    """
    if options.executor != "ray":
        return ProcessExecutor(workers_of(options), out)
    from pipeline.ray_executor import RayExecutor

    if options.ray_address is None:
        return RayExecutor(out, work, address=None, workers=workers_of(options))
    return RayExecutor(out, work, address=options.ray_address, workers=options.workers)


def workers_of(options: PreprocessOptions) -> int:
    """How many processes fit the options and the memory."""
    memory = parse_bytes(options.memory) if options.memory is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(options.workers or cores(), memory // WORKER_BYTES))


def existing_dataset(out: Path, options: PreprocessOptions) -> Manifest | None:
    """The dataset that is there already; None if there is none, or a broken one that may be overwritten.

    Raises:
        DatasetError: `out` is no folder, or holds a manifest that cannot be trusted and --overwrite was not given.
    """
    if out.exists() and not out.is_dir():
        raise DatasetError(f"{out}: is a file, --out names a folder")
    path = out / MANIFEST_NAME
    if not path.exists():
        return None
    try:
        return Manifest.from_json(path.read_bytes(), where=str(path))
    except ManifestError as error:
        if options.overwrite:
            return None
        raise ManifestError(f"{error}; --overwrite replaces it") from error


def refuse_if_other(existing: Manifest, options: PreprocessOptions, sources: Sequence[Source], out: Path) -> None:
    """Refuse what can be told apart without reading the inputs.

    Raises:
        DatasetError: the dataset there is of other options or inputs, and --overwrite was not given.
    """
    if options.overwrite:
        return
    shape, there = options.shape(), existing.options
    changed = [f"--{name.replace('_', '-')} {there.get(name)} → {value}" for name, value in shape.items() if there.get(name) != value]
    if [(s.name, s.bytes) for s in sources] != [(e.name, e.bytes) for e in existing.inputs]:
        changed.append("the inputs differ")
    if existing.version != __version__:
        changed.append(f"thdpack {existing.version} → {__version__}")
    if changed:
        raise DatasetError(f"{out}: holds another dataset ({'; '.join(changed)}); choose another --out, or replace it with --overwrite")


@contextmanager
def locked(out: Path, *, shared: bool = False) -> Iterator[Path]:
    """The work folder, held by this process alone, or shared by those that run tasks of one plan.

    Raises:
        BuildError: another build runs here, or the folder cannot be made.
    """
    work = out / ".build"
    try:
        work.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(work / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise BuildError(f"cannot write to {out}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            raise BuildError(f"{out}: another build is running here; wait for it, or choose another --out") from error
        for unfinished in () if shared else work.glob("*.tmp"):
            unfinished.unlink(missing_ok=True)
        yield work
    finally:
        os.close(descriptor)


def spool_stdin(options: PreprocessOptions, work: Path) -> Path | None:
    """Standard input as a file, if it is one of the inputs: tasks read it twice, and a rerun compares it."""
    if "-" not in options.inputs:
        return None
    spool = work / "stdin"
    with input_errors("standard input"), written_atomically(spool, scratch=work, durable=False) as file:
        shutil.copyfileobj(sys.stdin.buffer, cast(BinaryIO, file), 1 << 20)
    return spool


class Build:
    """One run of the three stages."""

    def __init__(self, options: PreprocessOptions, planned: Plan, out: Path, work: Path, executor: Executor, report: Reporter) -> None:
        self._options = options
        self._plan = planned
        self._out = out
        self._work = work
        self._executor = executor
        self._report = report

    def run(self, existing: Manifest | None) -> Built:
        if existing is not None and self._same_inputs(existing):
            problem = missing_file(existing, self._out)
            if problem is None:
                self.clear(existing)
                return Built(manifest=existing, fresh=False)
            if not self._options.overwrite:
                raise DatasetError(f"{problem}; the dataset is damaged: build it again with --overwrite")
        mapped = self._map()
        job = Job(build=mapped.build, options=self._options, out=self._out, work=self._work)
        mapped.save(job)
        tasks = reduce_tasks(job, self._plan.partitions)
        parts = self._phase("deduplicate, shuffle, pack", tasks, mapped.residues)
        return self.finish(job, mapped, parts)

    def finish(self, job: Job, mapped: Mapped, parts: list[dict[str, Any]]) -> Built:
        """What is left once every partition is reduced: pack the rests, verify, commit.

        Args:
            parts: results of all reduce tasks, in order.
        Raises:
            DatasetError: no record was kept.
        """
        from pipeline.manifest_of import manifest_of

        for level in rest_levels(job, [task.rest for task in reduce_tasks(job, self._plan.partitions)]):
            parts = parts + self._phase("pack the rest" if level[0].final else "pack the rests", level, 0)
        manifest = manifest_of(self._options, mapped.build, mapped.inputs, parts)
        if not manifest.records_by_status[Status.KEPT]:
            left_out = ", ".join(f"{count:,} {status}" for status, count in manifest.records_by_status.items() if count)
            raise DatasetError(f"no record was kept ({left_out}): nothing was committed; see --min-residues, --long and --on-invalid")
        self._verify(manifest)
        self._commit(manifest)
        return Built(manifest=manifest, fresh=True)

    def _phase(self, name: str, tasks: Sequence[Any], total_bytes: int) -> list[dict[str, Any]]:
        """Run the tasks of a phase; results in their order."""
        self._report.phase(name, total_bytes)
        results: list[dict[str, Any]] = [{}] * len(tasks)
        skipped = 0

        def keep(index: int, outcome: Any) -> None:
            nonlocal skipped
            results[index] = outcome.result
            skipped += outcome.skipped

        self._executor.run(tasks, keep, self._report.advance)
        if skipped:
            self._report.note(f"{name}: {skipped} of {len(tasks)} tasks were finished by an earlier run, skipped", skipped=skipped, tasks=len(tasks))
        return results

    def _map(self) -> Mapped:
        maps, hashes = map_tasks(self._plan, self._options, self._work), hash_tasks(self._plan, self._work)
        results = self._phase("read, tokenize, partition", [*maps, *hashes], self._plan.input_bytes)
        return mapped_of(self._options, self._plan, maps, hashes, results)

    def _same_inputs(self, existing: Manifest) -> bool:
        """Whether the dataset that is there came of these very inputs and options. Reads all inputs.

        Raises:
            DatasetError: it did not, and --overwrite was not given.
        """
        sources = self._plan.sources
        if [(s.name, s.bytes) for s in sources] != [(e.name, e.bytes) for e in existing.inputs]:
            return False
        results = self._phase("compare inputs", hash_tasks(self._plan, self._work, every=True), self._plan.input_bytes)
        found = [
            InputEntry(name=source.name, bytes=source.bytes, xxh3_128=result["input_xxh3_128"], records=entry.records)
            for source, result, entry in zip(sources, results, existing.inputs, strict=True)
        ]
        if build_digest(self._options, found) == existing.build:
            return True
        if not self._options.overwrite:
            raise DatasetError(f"{self._out}: the inputs changed since this dataset was built; choose another --out, or replace it with --overwrite")
        return False

    def _verify(self, manifest: Manifest) -> None:
        """Read everything back before it is committed.

        Raises:
            BuildError: what was written is not what was meant.
        """
        from pipeline.verify import check_totals, verify_tasks

        total = sum(entry.bytes for entry in manifest.files())
        problems = check_totals(manifest)
        for result in self._phase("verify", verify_tasks(manifest, self._out, self._work), total):
            problems += result["problems"]
        if problems:
            raise BuildError("the dataset does not verify, nothing was committed:\n" + "\n".join(problems))

    def _commit(self, manifest: Manifest) -> None:
        """Replace the manifest, then remove what no manifest names any more."""
        for folder in sorted({(self._out / entry.name).parent for entry in manifest.files()}):
            sync_folder(folder)  # every name the manifest mentions is on the disk before it is
        with written_atomically(self._out / MANIFEST_NAME, scratch=self._work) as file:
            file.write(manifest.to_json().encode())
        sync_folder(self._out)
        self.clear(manifest)

    def clear(self, manifest: Manifest) -> None:
        """Remove the work of this build, and shards and records that an earlier generation left."""
        named = {entry.name for entry in manifest.files()}
        for folder in ("train", "valid", "records"):
            for path in (self._out / folder).glob("*"):
                if _OURS.fullmatch(path.name) and f"{folder}/{path.name}" not in named:
                    path.unlink()
        shutil.rmtree(self._work)


def missing_file(manifest: Manifest, out: Path) -> str | None:
    """A file that the manifest names and that is not there in its size."""
    for entry in manifest.files():
        path = out / entry.name
        if not path.is_file() or path.stat().st_size != entry.bytes:
            return f"{path}: missing or of another size"
    return None
