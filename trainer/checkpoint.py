"""Checkpoints that a crash cannot harm and any number of ranks can read.

    OUT/checkpoints/step-00001000/   tensors, by torch.distributed.checkpoint, and state.json: step, reader's position, best validation
    OUT/checkpoints/latest           name of the newest whole one, replaced by rename

A checkpoint is copied to host memory at once and written while training goes on. It is written under a name that ends in .partial and
renamed when all ranks have written theirs. Reading `.metadata`, DCP unpickles: do not load checkpoints of people you do not trust;
exported models are safetensors.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import secrets
import shutil
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor

from schemas.errors import ThdpackError
from trainer.parallel import Parallel

STATE_VERSION: Final = 1
_PARTIAL: Final = ".partial"


class CheckpointError(ThdpackError):
    """A checkpoint is missing, damaged, or another run's."""


class Checkpoints:
    """The checkpoints of a run, kept to the last few and the best."""

    def __init__(self, folder: Path, parallel: Parallel, *, keep_last: int) -> None:
        self._folder, self._parallel, self._keep_last = folder, parallel, keep_last
        self._pending: tuple[Future[Any], str, str] | None = None
        if parallel.is_main:
            folder.mkdir(parents=True, exist_ok=True)
            for left_over in folder.glob(f"*{_PARTIAL}"):
                shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
        _check_shared(folder, parallel)

    def forget_after(self, step: int) -> None:
        """Remove checkpoints of later steps: somebody went back to this one, and those that come will have their names."""
        if self._parallel.is_main:
            for path in self._folder.glob("step-*"):
                if path.name > self.name(step):
                    _remove(path)
        dist.barrier(self._parallel.checkpoint_group)

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], *, best: str) -> None:
        """Begin to save; training may go on and change the tensors. Waits for the save before, if that is still under way.

        Args:
            state: what JSON can say; the same on all ranks.
            best: name of the checkpoint to keep beside the last ones, or "".
        """
        self.wait()
        name = self.name(step)
        partial = self._folder / (name + _PARTIAL)
        if self._parallel.is_main:
            partial.mkdir(exist_ok=True)  # another rank's writer may have been faster
            (partial / "state.json").write_text(json.dumps({"version": STATE_VERSION, "step": step, **state}, indent=1))
        future = dcp.async_save(dict(tensors), checkpoint_id=partial, process_group=self._parallel.checkpoint_group)
        assert isinstance(future, Future)
        self._pending = (future, name, best)

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
            if self._parallel.is_main:
                _fsync(self._folder / (name + _PARTIAL))
                os.replace(self._folder / (name + _PARTIAL), self._folder / name)
                write(self._folder / "latest", name + "\n")
        except (Exception, dcp.api.CheckpointException) as error:  # the latter is a BaseException
            raise CheckpointError(f"{self._folder / name} could not be written: {error}; the checkpoint before it is whole") from error
        if self._parallel.is_main:
            self._prune(best)

    def load(self, name: str, tensors: Mapping[str, Tensor], *, optional: Mapping[str, Tensor]) -> None:
        """Read tensors in place, from however many ranks they were saved.

        Args:
            optional: read if they are there.
        Raises:
            CheckpointError: one is missing or has another shape.
        """
        path = self._folder / name
        try:
            there = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
            wanted = {**tensors, **{key: tensor for key, tensor in optional.items() if key in there}}
            missing = sorted(set(wanted) - set(there))
            if missing:
                raise CheckpointError(f"{path} lacks {missing[0]} and {len(missing) - 1} more: it is another model's")
            dcp.load(wanted, checkpoint_id=path, process_group=self._parallel.checkpoint_group)
        except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError, dcp.api.CheckpointException) as error:
            latest = self._folder / "latest"
            raise CheckpointError(f"{path} cannot be read: {error}; write the name of another whole checkpoint into {latest}") from error

    def _prune(self, best: str) -> None:
        names = sorted(path.name for path in self._folder.glob("step-*") if not path.name.endswith(_PARTIAL))
        for name in names[: -self._keep_last]:
            if name != best:
                try:
                    _remove(self._folder / name)
                except OSError as error:  # somebody copies it, perhaps; the next start tries again
                    logging.getLogger("thdpack").warning("%s could not be removed: %s", self._folder / name, error)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """What was saved beside the tensors.

    Raises:
        CheckpointError: there is no such checkpoint, or another version's.
    """
    try:
        state = json.loads((checkpoint / "state.json").read_text())
    except (OSError, ValueError) as error:
        latest = checkpoint.with_name("latest")
        raise CheckpointError(f"{checkpoint} cannot be read: {error}; write the name of another whole checkpoint into {latest}") from error
    if state.get("version") != STATE_VERSION:
        raise CheckpointError(f"{checkpoint}: version {state.get('version')!r}, this thdpack reads {STATE_VERSION}")
    return state  # type: ignore[no-any-return]


def _remove(checkpoint: Path) -> None:
    dead = checkpoint.with_name(checkpoint.name + _PARTIAL)
    os.replace(checkpoint, dead)  # what is half removed must not look whole
    shutil.rmtree(dead)


def _check_shared(folder: Path, parallel: Parallel) -> None:
    """Ranks that write into folders of their own would leave checkpoints that lack most of the weights.

    Raises:
        CheckpointError: on all ranks, if one does not see what rank 0 wrote.
    """
    nonce = [secrets.token_hex(8)]
    dist.broadcast_object_list(nonce, src=0, group=parallel.checkpoint_group)
    mark = folder / f"shared-{nonce[0]}{_PARTIAL}"
    if parallel.is_main:
        mark.touch()
    dist.barrier(parallel.checkpoint_group)
    blind = torch.tensor(int(not mark.exists()))
    dist.all_reduce(blind, group=parallel.checkpoint_group)
    if parallel.is_main:
        mark.unlink()
    if blind.item():
        raise CheckpointError(
            f"{blind.item()} of {parallel.world_size} ranks do not see {folder} as rank 0 does: --out has to be on storage that all nodes share"
        )


def write(path: Path, text: str) -> None:
    """A file, whole or not at all."""
    partial = path.with_name(path.name + _PARTIAL)
    with open(partial, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _fsync(folder: Path) -> None:
    """All files of a folder, and the folder, onto the disk."""
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
