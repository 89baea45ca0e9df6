"""If a checkpoint does not fit on the disk, the error is one line. It names the last complete
checkpoint, if there is one."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.processes.runs import arguments, cut, train
from trainer.train import main


@contextmanager
def small_files() -> Iterator[None]:
    """Limit each file of this process to 50 kB, so that writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("step", [0, 8])
def test_a_checkpoint_that_does_not_fit_on_the_disk_is_a_one_line_error(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], step: int
) -> None:
    out = cut(whole, tmp_path / "run", step) if step else tmp_path / "run"
    every = ("--checkpoint-every", "1", "--validate-every", "0")
    with small_files(), pytest.raises(SystemExit) as stopped:
        train(many_shards, out, *every)
    assert stopped.value.code == 1
    [said] = [line for line in capsys.readouterr().err.splitlines() if "thdpack train:" in line]
    named = out / "checkpoints" / f"step-{step + 1:08}"
    assert said.startswith(
        f"thdpack train: {named} could not be written: File too large: raise the lim"
    )
    assert ("step-00000008 is the last checkpoint" in said) is bool(step)
    assert ("there is no checkpoint yet" in said) is not bool(step)


@pytest.mark.parametrize(
    ("free", "code", "said"),
    [
        (
            100_000,
            1,
            ": the disk has 0.1 MB of free space, but a checkpoint of this model needs 0.",
        ),
        (700_000, 0, "warning: the disk has 0.7 MB of free space, but this run needs up to "),
        (10_000_000, 0, ""),
    ],
)
def test_a_run_whose_checkpoints_cannot_fit_on_the_disk_is_refused_before_it_starts(
    many_shards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    code: int,
    said: str,
) -> None:
    disk = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr("shutil.disk_usage", lambda _: disk)
    words = arguments(many_shards, tmp_path / "run", "--hidden-size", "64")
    try:
        main([*words, "--dry-run"])
        done = 0
    except SystemExit as stopped:
        done = int(stopped.code or 0)
    printed = "".join(capsys.readouterr())
    assert done == code
    assert said in printed
    assert ("of free space" in printed) is bool(said)
