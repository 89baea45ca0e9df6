"""Checkpoints that a crash cannot damage and any number of ranks can read.

    OUT/checkpoints/step-00001000/   tensors (torch.distributed.checkpoint), and two files:
                                     state.json (run_state.py), hashes.json (file_hashes.py)
    OUT/checkpoints/latest           name of the newest complete checkpoint (latest.py)
    OUT/checkpoints/after-step-…/    checkpoints of later steps, which were moved here when the run
                                     resumed from the step in the name

A checkpoint is written in four steps:
1. The tensors are copied to host memory. Then training continues.
2. All ranks write, hash and fsync their files, in a folder whose name ends in .partial.
3. Rank 0 renames the folder and updates `latest`.
4. Rank 0 removes old checkpoints.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import warnings
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
from schemas.text.phrases import plural
from trainer.checkpoints.atomic_write import PARTIAL, publish
from trainer.checkpoints.failures import advice, reason
from trainer.checkpoints.hashed_storage import CheckedReader, HashedWriter
from trainer.checkpoints.latest import last_checkpoint, names, publish_checkpoint
from trainer.checkpoints.run_lock import RunLock
from trainer.checkpoints.run_state import STATE, RunState
from trainer.distributed.rank_message import say
from trainer.distributed.topology import Topology

CHECKPOINTS: Final = "checkpoints"
"""Folder of the checkpoints, inside the folder of a run."""


class Checkpoints:
    """Checkpoints of a run: the last few checkpoints, and the checkpoint of the best validation."""

    def __init__(self, folder: Path, topology: Topology, lock: RunLock, *, keep_last: int) -> None:
        """Args:
        lock: lock of the run's folder.
        keep_last: number of checkpoints to keep, besides the checkpoint of the best validation.
        """
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
        """Move checkpoints of steps after `step` into a separate folder. The run resumes from
        `step`, and will write checkpoints with the same names.
        """
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
                    f"the run resumes from step {step:,}; {moved}: remove them when you no longer "
                    "need them",
                )
        dist.barrier(self._topology.checkpoint_group)

    def save(self, state: RunState, tensors: Mapping[str, Tensor]) -> None:
        """Begin to save a checkpoint, after waiting for the previous save. When this returns,
        training may change the tensors.

        Args:
            state: state of the run, the same on all ranks. The checkpoint that `state.best` names
                is kept in addition to the last checkpoints.
        """
        self.wait()
        name = self.name(state.step)
        writer = HashedWriter(self._folder / (name + PARTIAL), {STATE: state.to_json()})
        group = self._topology.checkpoint_group
        # the writer's own stager does not copy tensors that are on the CPU
        stager = DefaultStager(StagingOptions(False, False, False, False))
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
        """Publish the checkpoint if its save has finished. This is cheap: call it after each step.

        Raises:
            CheckpointError: the save failed. The previous checkpoint is unchanged.
        """
        if self._pending is not None and self._pending[0].done():
            self.wait()

    def wait(self) -> None:
        """Wait for the save in progress, if there is one, and publish its checkpoint.

        Raises:
            CheckpointError: the save failed. The previous checkpoint is unchanged.
        """
        if self._pending is None:
            return
        future, name, best = self._pending
        self._pending = None
        try:
            future.result()
            if self._topology.is_main:
                self._lock.check()
                publish_checkpoint(self._folder, name)
        except (Exception, dcp.api.CheckpointException) as error:
            # CheckpointException is listed, because it does not derive from Exception
            raise CheckpointError(
                f"{self._folder / name} could not be written: {reason(error)}{advice(error)}; "
                f"{last_checkpoint(self._folder)}"
            ) from error
        if self._topology.is_main:
            self._prune(best)

    def load(
        self, name: str, tensors: Mapping[str, Tensor], *, optional: Mapping[str, Tensor]
    ) -> None:
        """Read a checkpoint's values into `tensors` and `optional`. The run that saved the
        checkpoint may have had another number of ranks.

        Args:
            optional: tensors that the checkpoint may lack. Missing tensors stay unchanged.
        Raises:
            CheckpointError: the checkpoint cannot be read, lacks a tensor, or has a tensor of
                another shape.
        """
        group = self._topology.checkpoint_group
        _load(self._folder / name, tensors, optional, process_group=group)

    def _prune(self, best: str) -> None:
        for name in names(self._folder)[: -self._keep_last]:
            if name != best:
                try:
                    _remove(self._folder / name)
                except OSError as error:  # the next start tries again
                    logging.getLogger("thdpack").warning(
                        "%s could not be removed: %s", self._folder / name, error
                    )


def read_tensors(checkpoint: Path, tensors: Mapping[str, Tensor]) -> None:
    """Read a checkpoint's values into `tensors`, in this process alone.

    Raises:
        CheckpointError: see `Checkpoints.load`.
    """
    with warnings.catch_warnings():
        # torch warns about `no_dist`, even though the caller asks for it
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        _load(checkpoint, tensors, {}, no_dist=True)


def _load(
    path: Path, tensors: Mapping[str, Tensor], optional: Mapping[str, Tensor], **how: Any
) -> None:
    """Read a checkpoint's values; see `Checkpoints.load`.

    Args:
        how: `process_group` or `no_dist` of torch.distributed.checkpoint.load.
    """
    try:
        reader = CheckedReader(path)
        reader.read_metadata()
        saved_shapes = reader.shapes
        wanted = {
            **tensors,
            **{key: tensor for key, tensor in optional.items() if key in saved_shapes},
        }
        missing = sorted(set(wanted) - set(saved_shapes))
        if missing:
            raise CheckpointError(
                f"{path} lacks {plural(len(missing), 'tensor')}, such as {missing[0]}: "
                "the checkpoint belongs to another model"
            )
        _check_shapes(path, saved_shapes, wanted, optional)
        dcp.load(wanted, storage_reader=reader, **how)
    except (OSError, ValueError, RuntimeError, EOFError, dcp.api.CheckpointException) as error:
        raise CheckpointError(f"{path} cannot be loaded: {reason(error)}") from error


def _check_shapes(
    path: Path,
    saved_shapes: Mapping[str, tuple[int, ...]],
    wanted: Mapping[str, Tensor],
    optional: Mapping[str, Tensor],
) -> None:
    """Check that the tensors of a checkpoint have the shapes of this run's tensors.

    Raises:
        CheckpointError: a tensor has another shape.
    """
    for key, tensor in wanted.items():
        if saved_shapes[key] != tuple(tensor.shape):
            shape = f"{saved_shapes[key]}, but {tuple(tensor.shape)} in this run"
            found = f"{path}: {key} has shape {shape}"
            if key.startswith("scaling."):
                raise CheckpointError(
                    f"{found}: another version of Transformer Engine wrote the checkpoint. Resume "
                    "with that version, or with --precision bf16 or fp8-current, which have no "
                    "scaling state. A later resume with fp8-delayed then starts a new scaling "
                    "history"
                )
            raise CheckpointError(
                f"{found}: "
                + (
                    "another version of torch wrote the checkpoint"
                    if key in optional
                    else "the checkpoint belongs to another model"
                )
            )


def _remove(checkpoint: Path) -> None:
    dead = checkpoint.with_name(checkpoint.name + PARTIAL)
    os.replace(checkpoint, dead)  # after a crash, a half-removed folder must not look complete
    shutil.rmtree(dead)


def _check_shared(folder: Path, topology: Topology) -> None:
    """Check that all ranks write into the same folder. If ranks wrote into several folders, no
    folder would have all weights.

    Raises:
        CheckpointError: a rank does not see a file that rank 0 wrote. All ranks raise this.
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
            f"{blind.item()} of {topology.world_size} ranks do not see the files that rank 0 "
            f"writes into {folder}: choose an --out on storage that all nodes share"
        )
