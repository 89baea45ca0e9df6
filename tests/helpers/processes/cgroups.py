"""Real cgroups, of version 1 or 2. They need root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_MOUNT: Final = Path("/sys/fs/cgroup")
ENTER: Final = """
import os, sys
for folder in os.environ["CGROUPS"].split(":"):
    with open(folder + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
"""
"""Python source code with which a process enters the cgroups in the environment variable CGROUPS,
separated by colons."""


@contextmanager
def cgroups(*, cores: int, memory: int) -> Iterator[list[Path]]:
    """Make cgroups that may use so many cores and so many bytes of memory. Yield their folders.

    Raises:
        OSError: this process may not make cgroups.
    """
    own = dict.fromkeys(("cpu", "memory"), "/")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(set(controllers.split(",")) & own.keys(), path)
    name = f"thdpack-test-{os.getpid()}"
    old = (_MOUNT / "memory" / "memory.limit_in_bytes").exists()
    folders = (
        [_MOUNT / each / own[each].lstrip("/") / name for each in ("cpu", "memory")]
        if old
        else [_MOUNT / name]
    )
    try:
        for folder in folders:
            folder.mkdir()
        if old:
            (folders[0] / "cpu.cfs_quota_us").write_text(str(100_000 * cores))
            (folders[1] / "memory.limit_in_bytes").write_text(str(memory))
        else:
            (folders[0] / "cpu.max").write_text(f"{100_000 * cores} 100000")
            (folders[0] / "memory.max").write_text(str(memory))
        yield folders
    finally:
        for folder in folders:
            with suppress(OSError):
                folder.rmdir()


def killed_for_memory(folders: list[Path]) -> int:
    """Return the number of processes that the kernel has killed for lack of memory."""
    for name in ("memory.oom_control", "memory.events"):
        path = folders[-1] / name
        if path.exists():
            found = dict(line.split() for line in path.read_text().splitlines())
            return int(found["oom_kill"])
    raise OSError(f"{folders[-1]} counts no killed processes")


def anonymous_bytes(folders: list[Path]) -> int:
    """Return the memory of the processes in the cgroup, without the page cache, in bytes."""
    lines = (folders[-1] / "memory.stat").read_text().splitlines()
    found = dict(line.split() for line in lines)
    return int(found.get("rss") or found["anon"])
