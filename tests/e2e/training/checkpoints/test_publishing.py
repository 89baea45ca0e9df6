"""A run killed while it publishes a checkpoint resumes from that checkpoint or the one before.
If there is none, the run starts again. An older checkpoint is removed only when the newer
checkpoint is on the disk.
"""

from __future__ import annotations

import os
import shutil
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


def test_an_older_checkpoint_is_removed_only_after_the_newer_one_is_on_the_disk(
    many_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run syncs a checkpoint's files and folder, renames the folder, then replaces `latest`.

    After each of these two renames, the run syncs the parent folder. Exports are written in the
    same way. The test records the real calls.
    """
    done: list[tuple[str, str]] = []
    sync, replace, remove = os.fsync, os.replace, shutil.rmtree

    def noted_sync(descriptor: int) -> None:
        done.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def noted_replace(old: Path, new: Path) -> None:
        done.append(("rename", str(new)))
        replace(old, new)

    def noted_remove(path: Path) -> None:
        done.append(("remove", str(path)))
        remove(path)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    monkeypatch.setattr(shutil, "rmtree", noted_remove)
    folder = (
        train(
            many_shards,
            tmp_path / "run",
            "--keep-last",
            "1",
            "--validate-every",
            "0",
            "--warmup-steps",
            "2",
            steps=8,
        )
        / "checkpoints"
    )
    until = done[: done.index(("remove", f"{folder}/step-00000004.partial"))]
    named = until.index(("rename", f"{folder}/step-00000008"))
    partial = f"{folder}/step-00000008.partial"
    for name in (
        f"{partial}/__0_0.distcp",
        f"{partial}/.metadata.tmp",
        f"{partial}/state.json.partial",
        f"{partial}/hashes.json.partial",
        partial,
    ):
        assert ("sync", name) in until[:named], name
    assert ("sync", str(folder)) in until[named:]
    latest = named + until[named:].index(("rename", f"{folder}/latest"))
    assert ("sync", str(folder)) in until[latest:]
    export = folder.parent / "export"
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        assert ("sync", f"{export}/{name}.partial") in done, name
        renamed = done.index(("rename", f"{export}/{name}"))
        assert ("sync", str(export)) in done[renamed:], name
