"""Checkpoints that a crash cannot harm and any number of ranks can read.

    OUT/checkpoints/step-00001000/   tensors, by torch.distributed.checkpoint; state.json (run_state.py); hashes.json (file_hashes.py)
    OUT/checkpoints/latest           name of the newest whole one, replaced by rename
    OUT/checkpoints/after-step-…/    checkpoints that were there when the run went back to an earlier one

A checkpoint is copied to host memory at once; it is written, hashed and fsynced while training goes on. It is written under a name that
ends in .partial and renamed when all ranks have written theirs. Older ones are removed only when the new name is on the disk.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from schemas.errors import CheckpointError
from trainer.checkpoints.atomic_write import PARTIAL, publish, write
from trainer.checkpoints.file_hashes import damage
from trainer.checkpoints.hashed_storage import CheckedReader, HashedWriter
from trainer.checkpoints.run_lock import RunLock
from trainer.checkpoints.run_state import STATE, RunState
from trainer.distributed.rank_message import say
from trainer.distributed.topology import Topology

CHECKPOINTS: Final = "checkpoints"
"""Folder of the checkpoints in the folder of a run."""
LATEST: Final = "latest"
_NEXT: Final = "latest.next"
"""What `latest` will say, and what it says: there while a checkpoint is published."""
_NAME: Final = re.compile(r"step-\d{8,}")


class Checkpoints:
    """The checkpoints of a run, kept to the last few and the best."""

    def __init__(self, folder: Path, topology: Topology, lock: RunLock, *, keep_last: int) -> None:
        """lock: of the run's folder."""
        self._folder, self._topology, self._lock, self._keep_last = (
            folder,
            topology,
            lock,
            keep_last,
        )
        self._pending: tuple[Future[Any], str, str] | None = None
        if topology.is_main:
            folder.mkdir(parents=True, exist_ok=True)
            for left_over in folder.glob(f"*{PARTIAL}"):
                shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
        _check_shared(folder, topology)

    def set_aside_after(self, step: int) -> None:
        """Move checkpoints of later steps into a folder of their own: the run goes back to this one, and others will have their names."""
        if self._topology.is_main:
            later = [name for name in names(self._folder) if int(name[5:]) > step]
            if later:
                aside = self._folder / f"after-{self.name(step)}"
                number = next(
                    n
                    for n in range(1, 1 << 30)
                    if not aside.with_name(f"{aside.name}.{n}").exists()
                )
                aside = aside.with_name(f"{aside.name}.{number}")
                aside.mkdir()
                for name in later:
                    publish(self._folder / name, aside / name)
                moved = f"later checkpoints ({', '.join(later)}) were moved to {aside}"
                say(
                    0,
                    f"the run goes back to step {step:,}; {moved}: remove them when you no longer need them",
                )
        dist.barrier(self._topology.checkpoint_group)

    def save(self, state: RunState, tensors: Mapping[str, Tensor]) -> None:
        """Begin to save; training may go on and change the tensors. Waits for the save before, if that is still under way.

        Args:
            state: the same on all ranks. Its best checkpoint is kept beside the last ones.
        """
        self.wait()
        name = self.name(state.step)
        writer = HashedWriter(self._folder / (name + PARTIAL), {STATE: state.to_json()})
        group = self._topology.checkpoint_group
        stager = DefaultStager(
            StagingOptions(False, False, False, False)
        )  # the writer's own does not copy what is on the CPU
        future = dcp.async_save(
            dict(tensors), storage_writer=writer, async_stager=stager, process_group=group
        )
        assert isinstance(future, Future)
        future.add_done_callback(lambda _: stager.close())
        self._pending = (future, name, state.best.checkpoint)

    @staticmethod
    def name(step: int) -> str:
        return f"step-{step:08}"

    def poll(self) -> None:
        """Publish a save that has ended meanwhile. Cheap: to be called at each step.

        Raises:
            CheckpointError: it failed; the checkpoint before is as it was.
        """
        if self._pending is not None and self._pending[0].done():
            self.wait()

    def wait(self) -> None:
        """Wait for the save under way, if any, and publish it.

        Raises:
            CheckpointError: it failed; the checkpoint before is as it was.
        """
        if self._pending is None:
            return
        future, name, best = self._pending
        self._pending = None
        try:
            future.result()
            if self._topology.is_main:
                self._lock.check()
                _publish(self._folder, name)
        except (Exception, dcp.api.CheckpointException) as error:  # the latter is a BaseException
            raise CheckpointError(
                f"{self._folder / name} could not be written: {error}; the checkpoint before it is whole"
            ) from error
        if self._topology.is_main:
            self._prune(best)

    def load(
        self, name: str, tensors: Mapping[str, Tensor], *, optional: Mapping[str, Tensor]
    ) -> None:
        """Read tensors in place, from however many ranks they were saved.

        Args:
            optional: read if they are there.
        Raises:
            CheckpointError: one is missing or has another shape.
        """
        path = self._folder / name
        try:
            reader = CheckedReader(path)
            reader.read_metadata()
            there = reader.shapes
            wanted = {
                **tensors,
                **{key: tensor for key, tensor in optional.items() if key in there},
            }
            missing = sorted(set(wanted) - set(there))
            if missing:
                raise CheckpointError(
                    f"{path} lacks {missing[0]} and {len(missing) - 1} more: it is another model's"
                )
            _check_shapes(path, there, wanted, optional)
            dcp.load(wanted, storage_reader=reader, process_group=self._topology.checkpoint_group)
        except (OSError, ValueError, RuntimeError, EOFError, dcp.api.CheckpointException) as error:
            raise CheckpointError(f"{path} cannot be loaded: {error}") from error

    def _prune(self, best: str) -> None:
        for name in names(self._folder)[: -self._keep_last]:
            if name != best:
                try:
                    _remove(self._folder / name)
                except OSError as error:  # somebody copies it, perhaps; the next start tries again
                    logging.getLogger("thdpack").warning(
                        "%s could not be removed: %s", self._folder / name, error
                    )


def names(folder: Path) -> list[str]:
    """Return the names of a run's checkpoints, oldest first."""
    found = (path.name for path in folder.glob("step-*"))
    return sorted((name for name in found if _NAME.fullmatch(name)), key=lambda name: int(name[5:]))


def read_latest(folder: Path) -> str:
    """Return the name of the checkpoint to resume from; "" if there is none. Finish what a crash interrupted."""
    following = folder / _NEXT
    if following.exists():
        name, _, before = following.read_text(errors="replace").partition("\n")
        published = _NAME.fullmatch(name) and (folder / name).is_dir()
        if published and before == _content(folder):  # else somebody has chosen another one since
            write(folder / LATEST, name + "\n")
        following.unlink()
    return _content(folder).strip()


def _publish(folder: Path, name: str) -> None:
    """Rename a checkpoint that is on the disk and let `latest` name it. Killed in between, the next start finishes this."""
    write(folder / _NEXT, f"{name}\n{_content(folder)}")
    publish(folder / (name + PARTIAL), folder / name)
    write(folder / LATEST, name + "\n")
    (folder / _NEXT).unlink()


def _content(folder: Path) -> str:
    """What `latest` says; "" if it is not there."""
    try:
        return (folder / LATEST).read_text(errors="replace")
    except FileNotFoundError:
        return ""


def check_latest(folder: Path, latest: str, topology: Topology) -> None:
    """Compare all files of the checkpoint to resume from with their hashes, before one is read. To be called by all ranks.

    Raises:
        CheckpointError: they differ; names the newest checkpoint that is whole, and says how to resume from it.
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
                f"{wrong}. The newest checkpoint that is whole is {name}: to resume from it, run `{how}`, then the same command. {KEPT}"
            )
    raise CheckpointError(
        f"{wrong}. No other checkpoint in {folder} is whole: restore one from a copy, or start anew with another --out"
    )


KEPT: Final = "That removes no checkpoint: those of later steps are moved aside"


def _check_shapes(
    path: Path,
    there: Mapping[str, tuple[int, ...]],
    wanted: Mapping[str, Tensor],
    optional: Mapping[str, Tensor],
) -> None:
    """Raises: CheckpointError, for a tensor of another shape."""
    for key, tensor in wanted.items():
        if there[key] != tuple(tensor.shape):
            found = f"{path}: {key} has shape {there[key]}, this run's has {tuple(tensor.shape)}"
            if key.startswith("scaling."):
                raise CheckpointError(
                    f"{found}: another version of Transformer Engine wrote it. Resume with that version, or with --precision bf16 or fp8-current, "
                    f"which have no such state; a later resume with fp8-delayed then begins a new history"
                )
            raise CheckpointError(
                f"{found}: "
                + (
                    "another version of torch wrote it"
                    if key in optional
                    else "it is another model's"
                )
            )


def _remove(checkpoint: Path) -> None:
    dead = checkpoint.with_name(checkpoint.name + PARTIAL)
    os.replace(checkpoint, dead)  # what is half removed must not look whole
    shutil.rmtree(dead)


def _check_shared(folder: Path, topology: Topology) -> None:
    """Ranks that write into folders of their own would leave checkpoints that lack most of the weights.

    Raises:
        CheckpointError: on all ranks, if one does not see what rank 0 wrote.
    """
    nonce = [secrets.token_hex(8)]
    dist.broadcast_object_list(nonce, src=0, group=topology.checkpoint_group)
    mark = folder / f"shared-{nonce[0]}{PARTIAL}"
    if topology.is_main:
        mark.touch()
    dist.barrier(topology.checkpoint_group)
    blind = torch.tensor(int(not mark.exists()))
    dist.all_reduce(blind, group=topology.checkpoint_group)
    if topology.is_main:
        mark.unlink()
    if blind.item():
        raise CheckpointError(
            f"{blind.item()} of {topology.world_size} ranks do not see {folder} as rank 0 does: --out has to be on storage that all nodes share"
        )
