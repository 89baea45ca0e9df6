"""Agreement between ranks: send values of rank 0 to all ranks. Before a run starts, check that all
ranks have the same options and package versions.
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
from schemas.errors import CheckpointError, OptionError, ThdpackError
from trainer.config import TrainOptions, flag
from trainer.distributed.topology import Topology

_OF_A_NODE: Final = ("data", "cache_dir", "out")
"""Options whose paths may differ between nodes. Only the content of the dataset's manifest and of
the run's folder must be the same.
"""
_PACKAGES: Final = ("schemas", "pipeline", "trainer")


def run_on_main(topology: Topology, ask: Callable[[], Any]) -> Any:
    """Run a function on rank 0 and return its result on all ranks. All ranks must call this.

    Raises:
        CheckpointError, OptionError, ThdpackError, ValueError: the function failed on rank 0. All
            ranks raise this error. An OSError becomes a ThdpackError.
    """
    box: list[Any] = [None]
    if topology.is_main:
        try:
            box = [ask()]
        except CheckpointError as error:
            box = [CheckpointError(str(error))]
        except OptionError as error:
            box = [OptionError(str(error))]
        except (OSError, ThdpackError) as error:
            box = [ThdpackError(str(error))]
        except ValueError as error:
            box = [ValueError(str(error))]
    dist.broadcast_object_list(box, src=0, group=topology.checkpoint_group)
    if isinstance(box[0], Exception):
        raise box[0]
    return box[0]


def all_gather(topology: Topology, value: Any) -> list[Any]:
    """Return the values of all ranks, in the order of ranks. All ranks must call this."""
    each: list[Any] = [None] * topology.world_size
    dist.all_gather_object(each, value, group=topology.checkpoint_group)
    return each


def check_same(topology: Topology, facts: Mapping[str, str]) -> None:
    """Check that the facts of all ranks equal those of rank 0. All ranks must call this.

    Args:
        facts: value of each fact, such as a package version, by name.
    Raises:
        ValueError: a rank differs from rank 0. All ranks raise this error. The message names the
            first differing rank, its host, and all its differences.
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
            f"{name} {found.get(name)} (rank 0: {expected.get(name)})" for name in names
        )
        others = f"; {len(differing)} ranks differ from rank 0" if differing[1:] else ""
        raise ValueError(
            f"rank {differing[0]} on {where} differs from rank 0 on {host}. Rank {differing[0]} "
            f"has {differences}{others}. All ranks need the same values"
        )


def versions() -> dict[str, str]:
    """Return versions of packages. thdpack's version contains a digest of the source code, because
    the code may change without a new version number.
    """
    return {
        "thdpack": f"{schemas.__version__} (code {code_digest(*_PACKAGES)})",
        "torch": torch.__version__,
        "Transformer Engine": _version("transformer-engine"),
    }


def options_of(options: TrainOptions) -> dict[str, str]:
    """Return the options that must be equal on all ranks, by flag, without credentials."""
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
