"""Choose the number of worker processes of a build."""

from __future__ import annotations

from typing import Final, Protocol

from pipeline.executors.cgroup_limits import machine_memory
from pipeline.executors.processes import cores
from schemas.text.byte_size import parse_bytes

WORKER_BYTES: Final = 400 << 20
"""Memory in bytes that a worker may need. `workers_of` uses it to limit the number of workers."""


class WorkerOptions(Protocol):
    """Options that limit the number of workers."""

    @property
    def workers(self) -> int | None: ...

    @property
    def memory(self) -> str | None: ...


def workers_of(options: WorkerOptions) -> int:
    """Return the number of worker processes.

    The limits are --workers, and the cores and the memory of this machine or of its cgroup.
    """
    if options.memory is not None:
        memory = parse_bytes(options.memory, name="--memory")
    else:
        memory = machine_memory()
    return max(1, min(options.workers or cores(), memory // WORKER_BYTES))
