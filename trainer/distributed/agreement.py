"""Agreement of ranks: send values of rank 0 to all ranks, and check facts that have to be equal
before a run starts.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import metadata
from typing import Any, Final

import torch
import torch.distributed as dist

import schemas
from schemas.code_digest import code_digest
from schemas.errors import CheckpointError, ThdpackError
from trainer.config import TrainOptions, flag
from trainer.distributed.topology import Topology

_OF_A_NODE: Final = ("data", "cache_dir", "out")
"""Options that are paths, which may differ between nodes. The dataset's manifest and the run's
folder are compared by content instead.
"""
_PACKAGES: Final = ("schemas", "pipeline", "trainer")


def run_on_main(topology: Topology, ask: Callable[[], Any]) -> Any:
    """Run a function on rank 0 and return its result on all ranks. To be called by all ranks.

    Raises:
        CheckpointError, ValueError: rank 0 found an error.
    """
    box: list[Any] = [None]
    if topology.is_main:
        try:
            box = [ask()]
        except CheckpointError as error:
            box = [CheckpointError(str(error))]
        except (ValueError, OSError, ThdpackError) as error:
            box = [ValueError(str(error))]
    dist.broadcast_object_list(box, src=0, group=topology.checkpoint_group)
    if isinstance(box[0], Exception):
        raise box[0]
    return box[0]


def all_gather(topology: Topology, value: Any) -> list[Any]:
    """Return the values of all ranks, in order. To be called by all ranks."""
    each: list[Any] = [None] * topology.world_size
    dist.all_gather_object(each, value, group=topology.checkpoint_group)
    return each


def check_same(topology: Topology, facts: Mapping[str, str]) -> None:
    """Compare facts, by name, with those of rank 0. To be called by all ranks.

    Raises:
        ValueError: a rank differs; raised on all ranks. Names the first such rank, its host, and
            all differences.
    """
    if topology.world_size == 1:
        return
    each: list[tuple[str, Mapping[str, str]]] = all_gather(topology, (socket.gethostname(), facts))
    host, expected = each[0]
    differing = [rank for rank, (_, found) in enumerate(each) if found != expected]
    if differing:
        where, found = each[differing[0]]
        names = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
        differences = "; ".join(
            f"{name} {found.get(name)}, there {expected.get(name)}" for name in names
        )
        others = f"; {len(differing)} ranks differ from rank 0" if differing[1:] else ""
        raise ValueError(
            f"rank {differing[0]} on {where} differs from rank 0 on {host}: it has "
            f"{differences}{others}. All ranks need the same"
        )


def versions() -> dict[str, str]:
    """Return versions of packages, and a digest of our source code, which may differ at the same
    version.
    """
    return {
        "thdpack": f"{schemas.__version__} (code {code_digest(*_PACKAGES)})",
        "torch": torch.__version__,
        "Transformer Engine": _version("transformer-engine"),
    }


def options_of(options: TrainOptions) -> dict[str, str]:
    """Return the options that have to be equal on all ranks, by flag, without credentials."""
    sections: dict[str, dict[str, Any]] = asdict(options.public())
    return {
        flag(name): str(value)
        for section in sections.values()
        for name, value in section.items()
        if name not in _OF_A_NODE
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
