"""The file `latest` names the checkpoint to resume from. A crash at any time leaves the file
intact.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist

from schemas.errors import CheckpointError
from trainer.checkpoints.atomic_write import PARTIAL, publish, write
from trainer.checkpoints.file_hashes import damage
from trainer.distributed.topology import Topology

LATEST: Final = "latest"
_NEXT: Final = "latest.next"
"""Name of a file that exists while a checkpoint is published. The first line of this file is the
new content of `latest`, and the second line is the old content."""
_NAME: Final = re.compile(r"step-\d{8,}")


def names(folder: Path) -> list[str]:
    """Return the names of a run's checkpoints, oldest first."""
    found = (path.name for path in folder.glob("step-*"))
    return sorted((name for name in found if _NAME.fullmatch(name)), key=lambda name: int(name[5:]))


def read_latest(folder: Path) -> str:
    """Return the name of the checkpoint to resume from; "" if there is none. First complete a
    publication that a crash interrupted (see `publish_checkpoint`).
    """
    following = folder / _NEXT
    if following.exists():
        name, _, before = following.read_text(errors="replace").partition("\n")
        published = _NAME.fullmatch(name) and (folder / name).is_dir()
        # If `latest` has changed since the publication began, a user has chosen another checkpoint.
        # Keep the user's choice.
        if published and before == latest_content(folder):
            write(folder / LATEST, name + "\n")
        following.unlink()
    return latest_content(folder).strip()


def publish_checkpoint(folder: Path, name: str) -> None:
    """Remove the suffix .partial from a checkpoint's folder, and write its name into `latest`. The
    checkpoint must already be on the disk. After a crash, the next start completes the publication.
    """
    write(folder / _NEXT, f"{name}\n{latest_content(folder)}")
    publish(folder / (name + PARTIAL), folder / name)
    write(folder / LATEST, name + "\n")
    (folder / _NEXT).unlink()


def latest_content(folder: Path) -> str:
    """Return the content of `latest`; "" if the file does not exist. Nothing is written."""
    try:
        return (folder / LATEST).read_text(errors="replace")
    except FileNotFoundError:
        return ""


def check_latest(folder: Path, latest: str, topology: Topology) -> None:
    """Compare all files of the checkpoint `latest` with their hashes. All ranks must call this.

    Raises:
        CheckpointError: a file is damaged, or `latest` names no checkpoint. The message names the
            newest complete checkpoint, if there is one, and says how to resume from it.
    """
    wrong = (
        damage(folder / latest, topology)
        if _NAME.fullmatch(latest)
        else f"{folder / LATEST} holds {latest!r}, which is not the name of a checkpoint"
    )
    if not wrong:
        return
    others: list[Any] = [[name for name in reversed(names(folder)) if name != latest]]
    dist.broadcast_object_list(others, src=0, group=topology.checkpoint_group)
    for name in others[0]:
        if not damage(folder / name, topology):
            how = f"echo {name} > {shlex.quote(str(folder / LATEST))}"
            raise CheckpointError(
                f"{wrong}. The newest complete checkpoint is {name}: to resume from it, run "
                f"`{how}`, then the same command. {KEPT}"
            )
    raise CheckpointError(
        f"{wrong}. {folder} has no other complete checkpoint: restore a checkpoint from a backup, "
        "or start a new run with another --out"
    )


KEPT: Final = "This removes no checkpoint: checkpoints of later steps move to another folder"


def last_checkpoint(folder: Path) -> str:
    """Return a sentence that names the last checkpoint, and says how to resume from it.

    No checkpoint is read.
    """
    try:
        latest = latest_content(folder).strip()
    except OSError:
        latest = ""
    if not latest:
        return "there is no checkpoint yet: the same command starts again from the beginning"
    return f"{latest} is the last checkpoint and is complete: run the same command to resume"
