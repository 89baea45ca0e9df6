"""The offline stage from inputs to manifest: map, reduce, commit. Killed anywhere, the same command goes on from there.

Work in progress lies in DATASET/.build and nothing else reads it; manifest.json is replaced last, and is the only commit.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from pipeline.executors import Executor, ProcessExecutor, cores
from pipeline.folders import Folder
from pipeline.options import PreprocessOptions, parse_bytes
from pipeline.plan import Plan, plan
from pipeline.progress import Reporter
from pipeline.site import Site, site_of
from pipeline.sources import Source
from pipeline.tasks import HashTask, Job, MapTask, ReduceTask, RestTask, Spill
from schemas import __version__
from schemas.errors import BuildError, DatasetError, InputError, ManifestError
from schemas.manifest import MANIFEST_NAME, InputEntry, Manifest
from schemas.records import Status
from schemas.redact import without_credentials

RESTS_TOGETHER: Final = 64
"""How many partitions' rests are packed by one task."""
WORKER_BYTES: Final = 400 << 20
"""Memory that a worker may need; with --memory, as many run as fit."""


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
    site = site_of(options.out)
    existing = _existing(site, options)
    with site.held():
        planned = plan(options, spool=site.spool(options))
        for name in planned.passed_over:
            report.note(f"passed over {without_credentials(name)}: not named like a sequence file; name it on the command line to read it")
        if existing is not None:
            _refuse_if_other(existing, options, planned.sources, site.out.where())
            site.replaces(existing)
        workers = _workers(options)
        with ProcessExecutor(workers, site.out) as executor:
            return _Build(options, planned, site, executor, report).run(existing)


def _workers(options: PreprocessOptions) -> int:
    """How many processes fit the options and the memory."""
    memory = parse_bytes(options.memory) if options.memory is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(options.workers or cores(), memory // WORKER_BYTES))


def _existing(site: Site, options: PreprocessOptions) -> Manifest | None:
    """The dataset that is there already; None if there is none, or a broken one that may be overwritten.

    Raises:
        DatasetError: a manifest that cannot be trusted, and --overwrite was not given.
    """
    content = site.manifest()
    if content is None:
        return None
    try:
        return Manifest.from_json(content, where=site.out.where(MANIFEST_NAME))
    except ManifestError as error:
        if options.overwrite:
            return None
        raise ManifestError(f"{error}; --overwrite replaces it") from error


def _refuse_if_other(existing: Manifest, options: PreprocessOptions, sources: Sequence[Source], out: str) -> None:
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


class _Build:
    """One run of the three stages."""

    def __init__(self, options: PreprocessOptions, planned: Plan, site: Site, executor: Executor, report: Reporter) -> None:
        self._options = options
        self._plan = planned
        self._site = site
        self._out = site.out
        self._work = site.work(planned, options)
        self._executor = executor
        self._report = report

    def run(self, existing: Manifest | None) -> Built:
        from pipeline.manifest_of import manifest_of

        if existing is not None and self._same_inputs(existing):
            problem = _missing(existing, self._out)
            if problem is None:
                self._site.clear(existing, self._work)
                return Built(manifest=existing, fresh=False)
            if not self._options.overwrite:
                raise DatasetError(f"{problem}; the dataset is damaged: build it again with --overwrite")
        maps, inputs = self._map()
        names = tuple(source.name for source in self._plan.sources)
        first = [0]
        for result in maps[:-1]:
            first.append(first[-1] + result["records"])
        spills = tuple(
            Spill(name=result["spills"][0][0], source=source, first_ordinal=ordinal)
            for result, ordinal, (source, _, _) in zip(maps, first, self._plan.ranges, strict=True)
        )
        build = build_digest(self._options, inputs)
        job = Job(build=build, options=self._options, source_names=names, out=self._out, work=self._work)
        tasks = [ReduceTask(job=job, partition=p, partitions=self._plan.partitions, spills=spills) for p in range(self._plan.partitions)]
        parts = self._phase("deduplicate, shuffle, pack", tasks, sum(result["residues"] for result in maps))
        parts += self._pack_rests(job, [task.rest for task in tasks])
        manifest = manifest_of(self._options, build, inputs, parts)
        if not manifest.records_by_status[Status.KEPT]:
            left_out = ", ".join(f"{count:,} {status}" for status, count in manifest.records_by_status.items() if count)
            raise DatasetError(f"no record was kept ({left_out}): nothing was committed; see --min-residues, --long and --on-invalid")
        self._verify(manifest)
        self._site.commit(manifest)
        self._site.clear(manifest, self._work)
        return Built(manifest=manifest, fresh=True)

    def _pack_rests(self, job: Job, rests: list[str]) -> list[dict[str, Any]]:
        """Pack what the partitions left, so many at a time that memory stays bounded."""
        parts: list[dict[str, Any]] = []
        level = 0
        while len(rests) > RESTS_TOGETHER:
            groups = [tuple(rests[i : i + RESTS_TOGETHER]) for i in range(0, len(rests), RESTS_TOGETHER)]
            tasks = [RestTask(job=job, level=level, index=i, rests=group, final=False) for i, group in enumerate(groups)]
            parts += self._phase("pack the rests", tasks, 0)
            rests = [task.rest for task in tasks]
            level += 1
        return parts + self._phase("pack the rest", [RestTask(job=job, level=level, index=0, rests=tuple(rests), final=True)], 0)

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

    def _map(self) -> tuple[list[dict[str, Any]], list[InputEntry]]:
        """Map results in task order, and the inputs with their hashes.

        Raises:
            InputError: an input holds no residue.
        """
        sources, ranges = self._plan.sources, self._plan.ranges
        tasks = [
            MapTask(index=i, source=sources[s], begin=begin, end=end, partitions=self._plan.partitions, options=self._options, work=self._work)
            for i, (s, begin, end) in enumerate(ranges)
        ]
        hashed = [i for i, source in enumerate(sources) if not source.streamed]
        hashes = self._hash_tasks(hashed)
        results = self._phase("read, tokenize, partition", [*tasks, *hashes], self._plan.input_bytes)
        digests = {i: result["input_xxh3_128"] for i, result in zip(hashed, results[len(tasks) :], strict=True)}
        maps = results[: len(tasks)]
        records, residues = [0] * len(sources), [0] * len(sources)
        for (s, _, _), result in zip(ranges, maps, strict=True):
            records[s] += result["records"]
            residues[s] += result["residues"]
            digests.setdefault(s, result["input_xxh3_128"])
        for i, source in enumerate(sources):
            if residues[i] == 0:
                raise InputError("no residue in this file", source=source.url, line=last_line(source))
        return maps, [InputEntry(name=source.name, bytes=source.bytes, xxh3_128=digests[i], records=records[i]) for i, source in enumerate(sources)]

    def _hash_tasks(self, indices: Sequence[int]) -> list[Any]:
        sources = self._plan.sources
        return [HashTask(index=i, url=sources[i].url, fingerprint=sources[i].fingerprint, work=self._work) for i in indices]

    def _same_inputs(self, existing: Manifest) -> bool:
        """Whether the dataset that is there came of these very inputs and options. Reads all inputs.

        Raises:
            DatasetError: it did not, and --overwrite was not given.
        """
        sources = self._plan.sources
        if [(s.name, s.bytes) for s in sources] != [(e.name, e.bytes) for e in existing.inputs]:
            return False
        results = self._phase("compare inputs", self._hash_tasks(range(len(sources))), self._plan.input_bytes)
        found = [
            InputEntry(name=source.name, bytes=source.bytes, xxh3_128=result["input_xxh3_128"], records=entry.records)
            for source, result, entry in zip(sources, results, existing.inputs, strict=True)
        ]
        if build_digest(self._options, found) == existing.build:
            return True
        if not self._options.overwrite:
            raise DatasetError(f"{self._out.where()}: the inputs changed since this dataset was built; choose another --out, or replace it with --overwrite")
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


def _missing(manifest: Manifest, out: Folder) -> str | None:
    """A file that the manifest names and that is not there in its size."""
    with ThreadPoolExecutor(16) as threads:  # a store takes its time over each
        sizes = threads.map(out.size, (entry.name for entry in manifest.files()))
        for entry, size in zip(manifest.files(), sizes, strict=True):
            if size != entry.bytes:
                return f"{out.where(entry.name)}: missing or of another size"
    return None


def last_line(source: Source) -> int | None:
    """The number of the file's last line, where it has lines to count."""
    if source.format != "fasta":
        return None
    from pipeline.formats import line_at

    return line_at(source, sys.maxsize)


def build_digest(options: PreprocessOptions, inputs: Sequence[InputEntry]) -> str:
    """What names this build's files: 16 hexadecimal digits of inputs, options and version."""
    contents = [[entry.name, entry.bytes, entry.xxh3_128] for entry in inputs]
    values = {"thdpack": __version__, "options": options.shape(), "inputs": contents}
    return xxhash.xxh3_64_hexdigest(json.dumps(values, sort_keys=True).encode())
