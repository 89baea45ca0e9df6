"""A dry run makes the same checks as a run, prints its first lines, and writes nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import preprocess
from tests.helpers.processes.runs import arguments, cut, train
from trainer.monitoring import trackers
from trainer.train import main

END = "dry run: nothing was trained or written"


def files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Return the modification time and the content of each file of a folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


@pytest.mark.parametrize("start", ["new", "resumed", "finished"])
def test_a_dry_run_prints_the_first_lines_of_the_run_and_writes_nothing(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], start: str
) -> None:
    out = tmp_path / "new" / "run"
    if start != "new":
        cut(whole, out, 12 if start == "resumed" else 16)
    # a new run needs only one step to print its first lines
    words = arguments(many_shards, out, steps=1 if start == "new" else 16)
    before = files(tmp_path)
    main([*words, "--dry-run"])
    said = capsys.readouterr().out.splitlines()
    assert files(tmp_path) == before
    assert (tmp_path / "new").exists() == (start != "new")
    assert said[-1] == END
    assert re.match(r"memory: the run needs at least \d\.\d GiB of the \d+ GiB of this", said[-2])
    first = {"new": "starting: ", "resumed": "resuming from step 12 of 16: "}
    assert said[0].startswith(first.get(start, "nothing is left to train: "))
    main(words)
    assert capsys.readouterr().err.splitlines()[: len(said) - 2] == said[:-2]


def test_a_dataset_without_buckets_for_validation_is_described_with_a_larger_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path := tmp_path / "x.fasta").write_bytes(fasta(made_records(10)))
    data = preprocess(path, tmp_path / "data", "--split", "valid=0.0001")
    capsys.readouterr()
    main([*arguments(data, tmp_path / "run", steps=1), "--dry-run"])
    said = "none for validation: thdpack preprocess --split train=0.5,valid=0.5 would set aside"
    assert said in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_dry_run_of_a_model_that_needs_a_gpu_says_so(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("esm2-15b", "--data", str(many_shards), "--out", str(tmp_path / "run"), "--dry-run")
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "torch found no GPU, and on the CPU this run needs" in capsys.readouterr().err


@pytest.mark.parametrize("is_new", [True, False])
def test_a_dry_run_removes_a_new_cache_and_keeps_an_existing_one(
    many_shards: Path, tmp_path: Path, is_new: bool
) -> None:
    cache = tmp_path / "parent" / "cache"
    if not is_new:
        cache.mkdir(parents=True)
    train(many_shards, tmp_path / "run", "--cache-dir", str(cache), "--dry-run")
    assert cache.parent.exists() is cache.exists() is not is_new


@pytest.mark.parametrize(
    ("option", "package"),
    [(("--tensorboard",), "tensorboard"), (("--wandb-project", "p"), "wandb")],
)
def test_a_missing_package_is_reported_before_the_folder_of_the_run_is_created(
    many_shards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: tuple[str, ...],
    package: str,
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    for dry in (("--dry-run",), ()):
        with pytest.raises(SystemExit):
            train(many_shards, tmp_path / "run", *option, *dry)
        assert f"{option[0]} needs the package {package}: pip install" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_a_dry_run_gives_the_same_errors_as_a_run(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    resumed = cut(whole, tmp_path / "resumed", 12)
    for out, options, code in (
        (tmp_path / "run", ("--data", str(tmp_path / "none")), 1),
        (tmp_path / "run", ("--init-from", str(tmp_path / "none")), 1),
        (tmp_path / "run", ("--buckets-per-step", "3", "--buckets-per-micro-batch", "2"), 2),
        (file / "run", (), 1),
        (Path("/proc/run"), (), 1),  # root passes its permissions, but nothing can be created
        (resumed, ("--seed", "7"), 2),
    ):
        messages = []
        for dry in (("--dry-run",), ()):
            with pytest.raises(SystemExit) as stopped:
                train(many_shards, out, *options, *dry)
            assert stopped.value.code == code
            messages.append(capsys.readouterr().err)
        assert messages[0].startswith("thdpack train: ")
        assert messages[0].rpartition(": '")[0] == messages[1].rpartition(": '")[0]
        assert not (tmp_path / "run").exists()


def test_a_folder_of_other_files_is_refused_and_an_empty_folder_or_one_of_logs_is_used(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "docs"
    out.mkdir()
    (out / "paper.tex").touch()
    for dry in (("--dry-run",), ()):
        with pytest.raises(SystemExit) as stopped:
            train(many_shards, out, *dry)
        assert stopped.value.code == 2
        assert capsys.readouterr().err == (
            f"thdpack train: --out {out} is neither empty nor the folder of a run (it holds "
            f"paper.tex): choose a new folder, such as {out}/run\n"
        )
        assert [path.name for path in out.iterdir()] == ["paper.tex"]
    (out / "paper.tex").rename(out / "slurm-1.out")
    main([*arguments(many_shards, out, steps=1)])
    (out / "notes.txt").touch()  # the folder of a run may hold other files
    main([*arguments(many_shards, out, steps=1), "--dry-run"])
    assert capsys.readouterr().out.endswith(f"{END}\n")


def test_a_run_from_a_trained_model_notes_that_it_has_the_learning_rate_of_pretraining(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--init-from", str(whole / "export"), "--dry-run")
    note = "the learning rate is 0.002, as for training from random weights; fine-tuning usually"
    for rate, count in ((), 1), (("--lr", "4e-4"), 0):
        train(many_shards, tmp_path / "run", *words, *rate)
        assert capsys.readouterr().out.count(note) == count
