"""Markers and task lists that someone damaged or changed.

A marker is a file that records the result of a finished task. A changed marker is ignored, or names
only files of its own task. A changed task list is accepted or refused. A damaged plan-*.json (the
saved sum of the results of map tasks) is computed again. No change makes a build open a file that
an attacker chose.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash

from pipeline.build import task_markers as markers
from pipeline.build.array_jobs.run_listed import run_tasks
from pipeline.build.array_jobs.task_list import load_task_list, plan_tasks
from pipeline.build.build_plan import plan
from pipeline.build.map_stage.map_results import load_map_outcome
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import reporter
from pipeline.build.run_task import run_once
from pipeline.build.task_markers import finished
from pipeline.build.tasks import MapTask, Task
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.signed_json import signed
from schemas.code_digest import code_digest
from schemas.errors import BuildError, ThdpackError
from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.data.hostile import damaged, mutated
from tests.helpers.processes.command_line import use_few_small_tasks

SMALL: dict[str, Any] = {"capacity": 1024, "max_seq_len": 512}
MUTATIONS = 40_000 if "THDPACK_LONG" in os.environ else 300


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Run all tasks of a build, but commit nothing. Write `precious` outside the build's folder."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "made.fasta").write_bytes(fasta(made_records(200)))
    out = tmp_path / "deep" / "out"
    with reporter(as_json=False) as report:
        plan_tasks(
            PreprocessOptions(inputs=(str(tmp_path / "made.fasta"),), out=str(out), **SMALL), report
        )
        for stage in ("map", "reduce"):
            listed = load_task_list(str(out), None)
            assert listed is not None
            run_tasks(listed, stage, 0, 1, report)
    return out


def tasks_of(place: Path) -> list[Task[Any]]:
    listed = load_task_list(str(place), None)
    assert listed is not None
    from pipeline.build.array_jobs.listed_results import map_outcome_of
    from pipeline.build.stages import reduce_tasks

    job = listed.job(map_outcome_of(listed).build)
    return [listed.maps[0], reduce_tasks(job, listed.plan.partitions)[0]]


class Seen:
    """List of the paths outside `folder` that this process opens, removes or renames."""

    def __init__(self, folder: Path) -> None:
        self.paths: list[str] = []
        self.on = False
        self._folder = str(folder)
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (
            self.on
            and event in ("open", "os.remove", "os.rename", "os.mkdir", "os.rmdir")
            and isinstance(arguments[0], str | os.PathLike)
        ):
            path = os.path.abspath(os.fspath(arguments[0]))
            if not path.startswith(self._folder):
                self.paths.append(path)


@pytest.fixture
def seen(place: Path) -> Iterator[Seen]:
    watch = Seen(place)
    yield watch
    watch.on = False


def hostile_contents(content: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield damaged files, and changed files with a matching hash."""
    noted = json.loads(content)["noted"]
    for _ in range(MUTATIONS // 2):
        yield damaged(content, rng)
    for _ in range(MUTATIONS // 2):
        yield signed(mutated(noted, rng))
    deep = b"[" * 100_000 + b"]" * 100_000
    yield deep
    for inside in (
        deep,
        b'{"result": ' + deep + b"}",
        b'{"identity": "", "version_tags": [], "result": ' + deep + b"}",
    ):
        yield b'{"xxh3_128": "%s", "noted": %s}' % (
            xxhash.xxh3_128_hexdigest(inside).encode(),
            inside,
        )
    yield from (content[: len(content) // 2], b"", b"null", b"[]", b"\xff\xfe", content + content)


def files_of(task: Task[Any], result: object, out: LocalFolder) -> list[tuple[str, int, str]]:
    return [
        (file.name, file.bytes, file.xxh3_128) for _, file in markers._outputs(task, result, out)
    ]


@pytest.mark.parametrize("index", [0, 1])
def test_a_changed_marker_is_ignored_or_names_only_files_of_its_task(
    place: Path, seen: Seen, index: int
) -> None:
    task = tasks_of(place)[index]
    out = LocalFolder(place, place / ".build")
    marker = place / ".build" / f"{task.name}.json"
    content = marker.read_bytes()
    whole = markers.believed(task, out)
    assert whole is not None
    rng = random.Random(1)
    believed = 0
    seen.on = True
    for hostile in hostile_contents(content, rng):
        marker.write_bytes(hostile)
        finished(task, out)
        found = markers.believed(task, out)
        if found is None:
            assert not marker.exists()
        else:
            believed += 1
            assert set(files_of(task, found, out)) <= set(files_of(task, whole, out))
    seen.on = False
    assert seen.paths == []
    assert (place.parents[1] / "precious").read_text() == "mine"
    assert believed < MUTATIONS / 4, "most changed markers must be ignored"


def test_a_marker_written_by_another_version_of_the_code_is_ignored(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tasks_of(place)[0]
    out = LocalFolder(place, place / ".build")
    assert finished(task, out) is not None
    monkeypatch.setattr(markers, "code_digest", lambda: "0" * 16)
    assert finished(task, out) is None
    assert not run_once(task, lambda _: None, out=out).skipped


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("code_digest", r"planned by other code of thdpack .* install the same code on every"),
        ("version", r"planned with pyarrow \d.*, here is 0{16}: install the same version on every"),
    ],
)
def test_a_task_list_written_by_another_version_of_the_code_or_of_pyarrow_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setattr(f"pipeline.build.array_jobs.task_list_file.{name}", lambda *_: "0" * 16)
    with pytest.raises(BuildError, match=said):
        load_task_list(str(place), None)


def test_the_code_digest_changes_with_any_source_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("schemas", "packers", "pipeline/build/map_stage"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text("x = 1")
    monkeypatch.setattr(
        "schemas.code_digest.__file__", str(tmp_path / "schemas" / "code_digest.py")
    )
    digests = set()
    for changed in ("packers", "pipeline/build/map_stage"):
        for change in ("x = 1", "x = 2", "x = 1 "):
            (tmp_path / changed / "a.py").write_text(change)
            digests.add(code_digest.__wrapped__())
    assert len(digests) == 5


@pytest.mark.parametrize("name", ["plan.json", "mapped-*.json", "plan-*.json"])
def test_changed_files_of_a_task_list_are_accepted_or_raise_a_thdpack_error(
    place: Path, seen: Seen, name: str
) -> None:
    path = next((place / ".build").glob(name))
    content = path.read_bytes()
    rng = random.Random(2)
    refused = 0
    work = LocalFolder(place / ".build", place / ".build")
    for number, hostile in enumerate(hostile_contents(content, rng)):
        if number % 9:
            continue
        path.write_bytes(hostile)
        seen.on = True
        try:
            if name == "mapped-*.json":
                load_mapped_anew(work, path.name)
            else:
                listed = load_task_list(str(place), None)
                assert listed is not None
                if name == "plan-*.json":
                    from pipeline.build.array_jobs.listed_results import map_outcome_of

                    map_outcome_of(listed)
        except ThdpackError:
            refused += 1
        seen.on = False
    assert [found for found in seen.paths if "precious" in found or found.startswith("/etc")] == []
    # a damaged plan-*.json is computed again
    assert refused > 0 or name == "plan-*.json", "no change was refused"


def load_mapped_anew(work: LocalFolder, name: str) -> None:
    import pipeline.build.map_stage.map_results

    pipeline.build.map_stage.map_results._last_loaded = None
    load_map_outcome(work, name)


def test_a_work_file_replaced_by_a_link_is_written_again(place: Path) -> None:
    """A link is refused even if its target has the right bytes, because the target may change."""
    task = tasks_of(place)[0]
    assert isinstance(task, MapTask)
    spill = place / ".build" / task.spill
    elsewhere = spill.rename(place.parent / "elsewhere.arrow")
    spill.symlink_to(elsewhere)
    out = LocalFolder(place, place / ".build")
    assert not run_once(task, lambda _: None, out=out).skipped
    assert not spill.is_symlink()
    assert spill.read_bytes() == elsewhere.read_bytes()


def test_the_plan_of_these_tests_has_several_tasks(tmp_path: Path) -> None:
    (tmp_path / "made.fasta").write_bytes(fasta(made_records(200)))
    planned = plan(
        PreprocessOptions(inputs=(str(tmp_path / "made.fasta"),), out=str(tmp_path), **SMALL)
    )
    assert len(planned.ranges) > 1
