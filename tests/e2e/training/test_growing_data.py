"""A run keeps the generation of its dataset that it began with, while the dataset grows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import trainer.readers.choose_generations
from pipeline.reader import ShardReader
from pipeline.storage.read_manifest import read_manifest
from tests.helpers.data.grown import append
from tests.helpers.processes.runs import ROUNDING, cut, losses, start, train
from tests.helpers.stores.reading import tokens
from trainer.config import DataOptions, TrainOptions


@pytest.fixture(scope="module")
def appended(many_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of many_shards, to which records were appended."""
    folder = tmp_path_factory.mktemp("appended")
    data = shutil.copytree(many_shards, folder / "dataset")
    append(data, seed=9)
    with ShardReader(data, generation=1) as first, ShardReader(data) as second:
        assert tokens(first, 4) != tokens(second, 4), "the tests could not tell generations apart"
    return data


def test_a_run_resumed_after_an_append_has_the_losses_of_an_uninterrupted_run(
    appended: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(appended, cut(whole, tmp_path / "run", 8))
    assert f"reading generation 1 of {appended}, not generation 2" in capsys.readouterr().err
    for kind in ("train", "valid"):
        assert losses(run, kind) == losses(whole, kind)
    state = json.loads((run / "checkpoints" / "step-00000016" / "state.json").read_text())
    assert state["manifests"] == [read_manifest(appended, 1).digest]


def test_two_ranks_resume_on_the_generation_of_the_run(
    appended: Path, whole: Path, tmp_path: Path
) -> None:
    run = cut(whole, tmp_path / "run", 12)
    start(appended, run, ranks=2).finish()
    expected, found = losses(whole), losses(run)
    assert found.keys() == expected.keys()
    assert max(abs(found[step] - expected[step]) for step in expected) < ROUNDING


def test_a_dataset_that_grows_between_two_jobs_of_a_mixture_changes_no_loss(
    many_shards: Path, appended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One dataset has two generations when the run begins, and three when it resumes."""
    one, two = (
        shutil.copytree(path, tmp_path / path.parent.name) for path in (many_shards, appended)
    )
    words = ("--data", f"{two}=1", "--checkpoint-every", "2", "--validate-every", "2")
    whole = train(f"{one}=1", tmp_path / "whole", *words, steps=4)
    said = capsys.readouterr().err
    assert f"reading generation 2 of {two}, which is the latest" in said
    assert f"of {one}, " not in said.partition("mixes")[0]
    append(one, seed=21, inputs=tmp_path)
    append(two, seed=22, inputs=tmp_path)
    resumed = train(f"{one}=1", cut(whole, tmp_path / "resumed", 2), *words, steps=4)
    said = capsys.readouterr().err
    assert f"reading generation 1 of {one}, not generation 2" in said
    assert f"reading generation 2 of {two}, not generation 3" in said
    for kind in ("train", "valid"):
        assert losses(resumed, kind) == losses(whole, kind)
    named = ("--generation", "1", "--generation", "2")
    again = train(f"{one}=1", tmp_path / "again", *words, *named, steps=4)
    assert losses(again) == losses(whole)


def test_a_finished_run_is_evaluated_on_the_generation_that_it_was_trained_on(
    many_shards: Path, appended: Path, whole: Path, tmp_path: Path
) -> None:
    found = []
    for number, data in enumerate((many_shards, appended)):
        run = shutil.copytree(whole, tmp_path / f"run-{number}")
        train(data, run, "--valid-split", "test")
        found.append(losses(run, "test"))
    assert found[0] == found[1] != {}


def test_a_new_run_reads_the_latest_generation_or_the_one_that_is_named(
    many_shards: Path, appended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = losses(train(many_shards, tmp_path / "expected", steps=2))
    assert "reading generation" not in capsys.readouterr().err
    latest = train(appended, tmp_path / "latest", steps=2)
    assert f"reading generation 2 of {appended}, which is the latest" in capsys.readouterr().err
    assert losses(latest) != expected
    digest = read_manifest(many_shards).digest
    for number, generation in enumerate(("1", digest)):
        run = train(appended, tmp_path / str(number), "--generation", generation, steps=2)
        assert losses(run) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--generation", "latest"),
            "the state of a run on another generation of {data} than generation 2: omit "
            "--generation to resume that run, or choose another --out for a run on generation 2",
        ),
        (("--generation", "2"), "than generation 2: omit --generation"),
        (("--generation", "9"), "no generation 9; the dataset has generations 1 to 2"),
        (("--generation", "x"), "--generation is x, expected the number of a generation"),
        (("--generation", "1", "--generation", "2"), "names 2 generations for 1 dataset: name one"),
    ],
)
def test_a_resume_with_another_generation_is_refused_with_the_remedy(
    appended: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: str,
) -> None:
    with pytest.raises(SystemExit):
        train(appended, cut(whole, tmp_path / "run", 12), *options)
    error = capsys.readouterr().err
    assert said.format(data=appended) in error
    assert error.count("\n") == 1


def test_a_resume_names_its_own_generation_again(
    appended: Path, whole: Path, tmp_path: Path
) -> None:
    run = train(appended, cut(whole, tmp_path / "run", 12), "--generation", "1")
    assert losses(run) == losses(whole)


def test_a_run_whose_generation_was_removed_does_not_resume_on_other_data(
    appended: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shutil.copytree(appended, tmp_path / "data")
    shutil.rmtree(data / "generations")
    run = cut(whole, tmp_path / "run", 8)
    with pytest.raises(SystemExit):
        train(data, run)
    said = capsys.readouterr().err
    assert f"{data}: generation 1 was removed" in said
    assert "or choose another --out for a new run" in said


def test_a_rank_reads_the_generation_that_rank_0_found(
    appended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 has read the manifest before the append, and this rank reads it afterwards."""
    answer = (1, read_manifest(appended, 1).digest)
    topology: Any = None
    options = TrainOptions(data=DataOptions(data=(str(appended),)))
    monkeypatch.setattr(trainer.readers.choose_generations, "run_on_main", lambda *_: answer)
    [chosen] = trainer.readers.choose_generations.choose_generations(
        [str(appended)], options, None, topology, {}
    )
    assert chosen.manifest.digest == answer[1]
