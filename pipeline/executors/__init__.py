"""Executors run the tasks of a build: in processes of this machine, or on a Ray cluster.

They move tasks and results only; the bytes written do not depend on them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.executors.processes import Executor, ProcessExecutor, SerialExecutor
    from pipeline.executors.ray_cluster import RayExecutor
else:
    from schemas.lazy_exports import lazy_exports

    __getattr__ = lazy_exports(
        __name__,
        processes=(
            "Executor",
            "ProcessExecutor",
            "SerialExecutor",
        ),
        ray_cluster=("RayExecutor",),
    )

__all__ = ["Executor", "ProcessExecutor", "RayExecutor", "SerialExecutor"]
