"""Task lists whose plan or dataset another command replaces or commits; the size of their tasks."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pipeline.build.array_jobs.run_listed import run_tasks
from pipeline.build.array_jobs.task_list import TaskList, load_task_list
from pipeline.build.build_plan import PLAN, Plan
from pipeline.build.destination.destination import open_destination
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import reporter
from pipeline.build.stages import reduce_tasks
from pipeline.inputs.source import Source
from pipeline.storage.object_folder import ObjectFolder
from pipeline.storage.signed_json import signed
from schemas.errors import BuildError, DatasetError, OptionError
from tests.helpers.processes.command_line import InThisProcess
from tests.helpers.processes.disturbed_builds import OUT, SMALL, BuildHere, listed, work_off


def test_only_overwrite_replaces_an_unfinished_plan_whose_tasks_then_fail(
    build_here: BuildHere, corpus: Path, place: str
) -> None:
    mine = listed(corpus, place, seed=1).digest
    assert listed(corpus, place, seed=1, workers=3).digest == mine  # planned again
    with pytest.raises(DatasetError, match=r"another plan .* --overwrite"):
        listed(corpus, place, seed=2)
    with pytest.raises(DatasetError, match=r"another plan .* --overwrite"):
        build_here(corpus, place, **SMALL)
    other = listed(corpus, place, seed=2, overwrite=True).digest
    with pytest.raises(BuildError, match=f"another plan is here .{other}., not {mine}"):
        work_off(place, mine)
    build_here(corpus, place, overwrite=True, **SMALL)
    for gone in (mine, other):
        with pytest.raises(
            DatasetError,
            match=f"plan {gone} is not here, and the dataset here belongs to another plan",
        ):
            work_off(place, gone)
    assert load_task_list(place, None) is None


def test_planning_notes_that_local_inputs_of_a_dataset_in_a_store_must_be_mounted(
    corpus: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    listed(corpus, place)
    note = f"{corpus} is not in a store: every node that runs map tasks must mount its folder"
    assert (note in capsys.readouterr().err) == (place == OUT)


def test_the_tasks_of_a_plan_that_is_already_committed_do_nothing(
    build_here: BuildHere, corpus: Path, place: str
) -> None:
    digest = listed(corpus, place, seed=1).digest
    made = work_off(place, digest)
    assert made is not None
    assert made.seed == 1
    assert work_off(place, digest) is None
    again = listed(corpus, place, seed=2, overwrite=True).digest
    assert work_off(place, again, commits=False) is None
    # a build may finish the plan of a task list
    assert build_here(corpus, place, seed=2, overwrite=True, **SMALL).seed == 2
    assert work_off(place, again) is None


def test_a_task_list_on_a_store_does_not_replace_a_dataset_committed_after_planning(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.build.array_jobs.run_listed.ProcessExecutor", InThisProcess)
    build_here(corpus, OUT, **SMALL)
    digest = listed(corpus, OUT, seed=1, overwrite=True).digest
    with (
        pytest.raises(BuildError, match="map tasks have not finished"),
        reporter(as_json=False) as report,
    ):
        run_tasks(the(load_task_list(OUT, digest)), "reduce", 0, 1, report)
    with pytest.raises(OptionError, match="is beyond the"), reporter(as_json=False) as report:
        run_tasks(the(load_task_list(OUT, digest)), None, 99, None, report)
    ObjectFolder(OUT).remove(PLAN)
    planned = signed(listed(corpus, OUT, seed=1, overwrite=True).to_json())
    build_here(corpus, OUT, seed=2, overwrite=True, **SMALL)
    # write the plan only now, because the other build must not see it
    with ObjectFolder(OUT).written(PLAN) as file:
        file.write(planned)
    with pytest.raises(BuildError, match="another build committed"):
        work_off(OUT, digest)


def the(found: TaskList | None) -> TaskList:
    assert found is not None
    return found


def test_the_pickled_size_of_a_task_does_not_grow_with_the_number_of_inputs(tmp_path: Path) -> None:
    options = PreprocessOptions(
        inputs=tuple(
            f"/a/rather/long/path/to/the/sequences/{i:05d}.fasta.gz" for i in range(10_000)
        ),
        out=str(tmp_path),
        **SMALL,
    )
    sources = tuple(
        Source(
            url=u,
            name=u,
            bytes=9,
            fingerprint="9-1-1-1",
            format="fasta",
            compression="gzip",
            piece=9,
        )
        for u in options.inputs
    )
    planned = Plan(
        sources=sources,
        passed_over=(),
        ranges=tuple((i, 0, 9) for i in range(9)),
        hashed=(),
        partitions=3,
    )
    listed = TaskList(options=options, plan=planned, destination=open_destination(str(tmp_path)))
    assert (
        max(
            len(pickle.dumps(task))
            for task in (*listed.maps, *reduce_tasks(listed.job("0" * 16), 3))
        )
        < 2500
    )
