"""Executors run the tasks of a build: in processes of this machine, or on a Ray cluster.

Executors transfer only tasks and results. The bytes that tasks write do not depend on the executor.
Start reading at `executor.py`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.executors.executor import Executor, SerialExecutor
    from pipeline.executors.processes import ProcessExecutor
    from pipeline.executors.ray_cluster import RayExecutor
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        executor=(
            "Executor",
            "SerialExecutor",
        ),
        processes=("ProcessExecutor",),
        ray_cluster=("RayExecutor",),
    )

__all__ = ["Executor", "ProcessExecutor", "RayExecutor", "SerialExecutor"]
