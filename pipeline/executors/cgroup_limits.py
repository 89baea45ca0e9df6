"""Limits on cores and memory of this process's cgroup: of a container, a Slurm job or a service.

Without them, a build in a container would start a worker for each core of the host. Both versions
of Linux's cgroups are read. A limit of any ancestor applies, too. On other systems, there are no
limits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UNLIMITED: Final = 1 << 60
"""Version 1 states about 2^63 if the memory is not limited."""


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """Limits of a cgroup; None if there is no limit.

    cores: number of cores whose time the processes may use; a fraction is possible
    memory: bytes
    """

    cores: float | None
    memory: int | None


def cgroup_limits(root: Path = Path("/")) -> CgroupLimits:
    """Return the limits of this process's cgroup.

    Args:
        root: folder that holds /proc and /sys.
    """
    cores, memory = [], []
    for folder in _folders(root):
        if (quota := _quota(folder)) is not None:
            cores.append(quota)
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _number(folder / name)
            if limit is not None and limit < _UNLIMITED:
                memory.append(limit)
    return CgroupLimits(min(cores, default=None), min(memory, default=None))


def machine_memory() -> int:
    """Return the memory in bytes of this machine, or of this process's cgroup if that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(memory, cgroup_limits().memory or memory)


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folder of each of this process's cgroups, and of each ancestor."""
    mount = root / "sys/fs/cgroup"
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":  # version 2
            tops = [mount, mount / "unified"]
        elif {"cpu", "memory"} & set(controllers.split(",")):
            tops = [mount / controllers]
        else:
            continue
        own = Path(path.lstrip("/"))
        for top in tops:
            # inside a container, the path may be the host's, and only the top exists
            yield from (top / each for each in (own, *own.parents) if (top / each).is_dir())


def _quota(folder: Path) -> float | None:
    """Return the number of cores that a cgroup may use."""
    if (text := _text(folder / "cpu.max")) is not None:  # version 2
        quota, _, period = text.partition(" ")
        return None if quota == "max" else int(quota) / int(period)
    used, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return used / period_us if used is not None and used > 0 and period_us else None


def _number(path: Path) -> int | None:
    text = _text(path)
    return None if text is None or text == "max" else int(text)


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
