"""The file `latest`: it names the checkpoint to resume from, and survives a crash at any time."""

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
"""Name of the file with the next and the current content of `latest`. It exists while a checkpoint
is being published."""
_NAME: Final = re.compile(r"step-\d{8,}")


def names(folder: Path) -> list[str]:
    """Return the names of a run's checkpoints, oldest first."""
    found = (path.name for path in folder.glob("step-*"))
    return sorted((name for name in found if _NAME.fullmatch(name)), key=lambda name: int(name[5:]))


def read_latest(folder: Path) -> str:
    """Return the name of the checkpoint to resume from, "" if there is none. Completes what a crash
    interrupted.
    """
    following = folder / _NEXT
    if following.exists():
        name, _, before = following.read_text(errors="replace").partition("\n")
        published = _NAME.fullmatch(name) and (folder / name).is_dir()
        # otherwise a user has chosen another checkpoint meanwhile
        if published and before == _content(folder):
            write(folder / LATEST, name + "\n")
        following.unlink()
    return _content(folder).strip()


def publish_checkpoint(folder: Path, name: str) -> None:
    """Rename a checkpoint that is on the disk, and write its name into `latest`. After a crash in
    between, the next start completes this.
    """
    write(folder / _NEXT, f"{name}\n{_content(folder)}")
    publish(folder / (name + PARTIAL), folder / name)
    write(folder / LATEST, name + "\n")
    (folder / _NEXT).unlink()


def _content(folder: Path) -> str:
    """Return the content of `latest`; "" if the file does not exist."""
    try:
        return (folder / LATEST).read_text(errors="replace")
    except FileNotFoundError:
        return ""


def check_latest(folder: Path, latest: str, topology: Topology) -> None:
    """Compare all files of the checkpoint to resume from with their hashes, before any is read. To
    be called by all ranks.

    Raises:
        CheckpointError: a file differs. The message names the newest complete checkpoint, and says
            how to resume from it.
    """
    wrong = (
        damage(folder / latest, topology)
        if _NAME.fullmatch(latest)
        else f"{folder / LATEST} names no checkpoint: {latest!r}"
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
        f"{wrong}. No other checkpoint in {folder} is complete: restore one from a copy, or start "
        "a new run with another --out"
    )


KEPT: Final = "This removes no checkpoint: those of later steps are moved aside"
