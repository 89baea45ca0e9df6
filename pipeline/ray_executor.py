"""Tasks on a Ray cluster, or on one that this build starts on its machine and stops again.

Ray runs a task again when its worker or node dies; markers make that safe, and all data goes through the dataset's file system, so Ray moves
only tasks and their results, a few KB each. Starting Ray takes 3 to 5 seconds: on one machine processes are the better choice.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from schemas.errors import BuildError, ThdpackError

if TYPE_CHECKING:
    from pipeline.folders import Folder
    from pipeline.markers import Outcome
    from pipeline.tasks import Task

RETRIES: Final = 8
"""How often a task is run again after its worker or node died."""
_QUEUED: Final = 2
"""Tasks that Ray is given for each core: one to run, one to follow without asking us."""
_PROBE_SECONDS: Final = 60.0
_CONNECT_SECONDS: Final = 5.0
_STORE_BYTES: Final = 80 << 20
"""Ray's own object store holds next to nothing here; this is about the least it accepts."""


class RayExecutor:
    """Tasks as Ray core tasks of one core each; the first error ends all of them."""

    def __init__(self, out: Folder, *, address: str | None, workers: int | None) -> None:
        """
        Args:
            out: the dataset's folder, which every node has to see.
            address: of a cluster; None starts one here.
            workers: tasks at once; None for every core of the cluster.
        Raises:
            BuildError: Ray is not installed, or there is no cluster at the address.
        """
        self._ray = _ray()
        self._out = out
        self._workers = workers
        self._unproven = address is not None
        self._running: dict[Any, int] = {}
        self._ours = not self._ray.is_initialized()
        if self._ours:
            _connect(self._ray, address, workers)
        self._task = self._ray.remote(_work).options(num_cpus=1, max_retries=RETRIES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._ours:
            self._ray.shutdown()  # the cluster kills what still runs for a driver that left; ray.cancel(force=True) sometimes aborts the driver instead
            return
        for reference in self._running:
            self._ray.cancel(reference)

    def run(self, tasks: Sequence[Task], on_outcome: Callable[[int, Outcome], None], on_bytes: Callable[[int], None]) -> None:
        """Run all tasks; the first error ends it.

        Args:
            on_outcome: called with each task's index and outcome, in the order they finish.
            on_bytes: called with the bytes that a task read, when it has ended.
        Raises:
            ThdpackError: what a task raises; BuildError if a task's worker died every time, or the cluster is gone.
        """
        waiting = iter(range(len(tasks)))
        with _cluster_errors(self._ray):
            if self._unproven:
                self._refuse_unlike()
                self._unproven = False
            self._submit(tasks, waiting)
            while self._running:
                done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0)
                for reference in done:
                    outcome, read = self._ray.get(reference)
                    index = self._running.pop(reference)
                    if isinstance(outcome, ThdpackError):
                        raise outcome
                    on_bytes(read)
                    on_outcome(index, outcome)
                on_bytes(0)
                self._submit(tasks, waiting)

    def _refuse_unlike(self) -> None:
        """Refuse a cluster with a node that does not see the dataset's folder, this very one, or has other versions, which write other bytes.

        Raises:
            BuildError: names the node.
        """
        if not self._out.local:
            return self._refuse_answers(None)
        name = f".build/probe-{uuid.uuid4().hex}.tmp"  # a folder of the same path that is each node's own does not hold it
        with self._out.written(name, durable=False):
            pass
        try:
            return self._refuse_answers(self._out.where(name))
        finally:
            self._out.remove(name)

    def _refuse_answers(self, path: str | None) -> None:
        """See _refuse_unlike. path: of a file that every node has to see."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe, asked, ours = self._ray.remote(seen_there), {}, seen_there(None)[1]
        for node in self._ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
                asked[probe.options(num_cpus=0, scheduling_strategy=there).remote(path)] = node["NodeManagerHostname"]
        answered, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=_PROBE_SECONDS)
        for reference in answered:
            seen, versions = self._ray.get(reference)
            if not seen:
                raise BuildError(f"{self._out.where()}: node {asked[reference]} does not see it; use a folder that all nodes share, or URLs")
            if versions != ours:
                raise BuildError(f"node {asked[reference]} has {versions}, this machine {ours}: the same versions write the same bytes")

    def _has_other_nodes(self) -> bool:
        """Whether tasks may run on machines that can be lost without this one, and what is in their page caches with them."""
        here = self._ray.get_runtime_context().get_node_id()
        return any(node["Alive"] and node["NodeID"] != here for node in self._ray.nodes())

    def _submit(self, tasks: Sequence[Task], waiting: Iterator[int]) -> None:
        """Keep every core of the cluster busy, however many it has by now."""
        most = self._workers or _QUEUED * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        durable = self._has_other_nodes()
        while len(self._running) < most:
            index = next(waiting, None)
            if index is None:
                return
            self._running[self._task.remote(tasks[index], self._out, durable)] = index


def _ray() -> Any:
    """The ray module.

    Raises:
        BuildError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a tool that reads your data calls nobody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise BuildError(f'--executor ray needs Ray ({error}): pip install "thdpack[ray]"') from error
    return ray


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    """Join a cluster, or start one of this machine.

    Raises:
        BuildError: it does not answer.
    """
    if address is not None:
        _refuse_unanswered(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    own = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _STORE_BYTES} if address is None else {}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError, ImportError) as error:
        raise BuildError(f"--ray-address {address}: no cluster answers ({error})") from error
    finally:
        signal.signal(signal.SIGTERM, handler)  # Ray's exits where ours stops cleanly


def _refuse_unanswered(address: str) -> None:
    """Ray itself would go on asking.

    Raises:
        BuildError: there is no connection to a `host:port`.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise BuildError(f"--ray-address {address}: no cluster answers ({error.strerror or error})") from error


@contextmanager
def _cluster_errors(ray: Any) -> Iterator[None]:
    """Turn what Ray says of lost workers into a BuildError."""
    try:
        yield
    except (ray.exceptions.RayTaskError, ray.exceptions.RaySystemError, ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
        raise BuildError(f"Ray gave up: {str(error).strip().splitlines()[-1]}; run the same command to go on") from error
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise BuildError(f"Ray gave up ({type(error).__name__}): workers killed {RETRIES + 1} times, or no memory; run the same command to go on") from error


def seen_there(path: str | None) -> tuple[bool, str]:
    """On a node: whether it sees a file, and its versions of what shapes a dataset's bytes."""
    import pyarrow as pa

    from schemas import __version__

    return path is None or os.path.exists(path), f"thdpack {__version__} with pyarrow {pa.__version__}"


def _work(task: Task, out: Folder, durable: bool) -> tuple[Outcome | ThdpackError, int]:
    """On a worker: the task's outcome, or what is wrong with the user's data, and the bytes read."""
    from pipeline.markers import run_once

    read = 0

    def count(number: int) -> None:
        nonlocal read
        read += number

    try:
        return run_once(task, out, count, durable=durable), read
    except ThdpackError as error:
        return error, read
