"""If a checkpoint does not fit on the disk, the error is one line. It names the last complete
checkpoint, if there is one."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.processes.runs import cut, train


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
    assert said.startswith(f"thdpack train: {named} could not be written: File too large; ")
    assert ("step-00000008 is the last checkpoint" in said) is bool(step)
    assert ("there is no checkpoint yet" in said) is not bool(step)
