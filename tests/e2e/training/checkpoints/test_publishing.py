"""A run killed while it publishes a checkpoint resumes from that checkpoint or the one before.
If there is none, the run starts again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.processes.ranks import Job
from tests.helpers.processes.runs import arguments, cut, losses, train

KILLED_AFTER = """
import os, sys
replace = os.replace
def replace_and_die(old, new):
    replace(old, new)
    if str(new).endswith(sys.argv[1]):
        os.kill(os.getpid(), 9)
os.replace = replace_and_die
from trainer.train import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("renamed", "resumed"),
    [
        ("checkpoints/latest.next", 0),
        ("checkpoints/latest", 4),
        *([("checkpoints/step-00000004", 4)] if "THDPACK_LONG" in os.environ else []),
    ],
)
def test_a_run_killed_while_it_publishes_its_first_checkpoint_can_be_resumed(
    many_shards: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    renamed: str,
    resumed: int,
) -> None:
    out = tmp_path / "run"
    assert Job(KILLED_AFTER, [renamed, *arguments(many_shards, out)]).wait() == -9
    train(many_shards, out)
    said = capsys.readouterr().err
    assert (f"resuming from step {resumed} of " if resumed else "starting:") in said
    assert losses(out) == losses(whole)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == sorted(
        path.name for path in (whole / "checkpoints").iterdir()
    )


@pytest.mark.parametrize(
    ("latest", "following", "resumed"),
    [
        # killed before `latest` was written
        (
            "step-00000004\n",
            "step-00000008\nstep-00000004\n",
            8,
        ),
        ("step-00000004\n", "step-00000008\nstep-00000012\n", 4),  # the user edited `latest`
        # killed before the checkpoint was renamed
        (
            "step-00000004\n",
            "step-00000099\nstep-00000004\n",
            4,
        ),
        ("step-00000004\n", "../../elsewhere\nstep-00000004\n", 4),
        ("step-00000004\n", "", 4),
    ],
)
def test_an_interrupted_publication_is_finished_if_its_checkpoint_exists_and_latest_is_unchanged(
    many_shards: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    latest: str,
    following: str,
    resumed: int,
) -> None:
    folder = cut(whole, tmp_path / "run", 8) / "checkpoints"
    (folder / "latest").write_text(latest)
    (folder / "latest.next").write_text(following)
    train(
        many_shards,
        tmp_path / "run",
        "--validate-every",
        "0",
        "--checkpoint-every",
        "0",
        "--warmup-steps",
        "2",
        steps=9,
    )
    assert f"resuming from step {resumed} of " in capsys.readouterr().err
    assert not (folder / "latest.next").exists()
    assert (folder / "step-00000008").exists() == (resumed == 8)
