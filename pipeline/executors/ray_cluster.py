"""Tasks on a Ray cluster, or on one that this build starts on its machine and stops again.

Ray runs a task again when its worker or node dies; markers make that safe, and all data goes through the dataset's file system, so Ray moves
only tasks and their results, a few KB each. Starting Ray takes 3 to 5 seconds: on one machine processes are the better choice.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import islice
from operator import length_hint
from types import TracebackType
from typing import Any, Final, Self

from pipeline.executors.executor import OnBytes, TaskT, Work
from pipeline.executors.worker_memory import keep_memory
from pipeline.storage.folder import Folder
from schemas import __version__
from schemas.code_digest import code_digest
from schemas.errors import BuildError, ThdpackError

RETRIES: Final = 8
"""How often a task is run again after its worker or node died."""
_QUEUED: Final = 2
"""Lots of tasks that Ray is given for each core: one to run, one to follow without asking us."""
_TOGETHER: Final = 8
"""Tasks that Ray is given as one, at most: from one to the next a worker waits 3 ms, 2 % of a short task. Towards a stage's end they are fewer."""
_LOOK_SECONDS: Final = 1.0
"""How often the cluster is asked for its size: each time takes some milliseconds."""
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
        self._shared = address is not None and out.local
        self._driver = NodeRequirements(None, versions())
        self._running: dict[Any, int] = {}  # what Ray was given, with the index of its first task
        self._leaving: threading.Thread | None = None
        there = self._ray.is_initialized()
        if not there:
            _connect(self._ray, address, workers)
        self._connected = _first_task is not None or not there
        self._looked, self._most, self._durable = 0.0, 0, False
        self._task = self._ray.remote(_work).options(num_cpus=1, max_retries=RETRIES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        if self._leaving is not None and (error is not None or _first_task is None):
            self._leaving.join()

    def end(self) -> None:
        """No task follows: leave the cluster, beside what else is to do. It is told at once; then Ray waits 0.25 s for a thread of its own."""
        if self._leaving is not None:
            return
        if self._driver.file is not None:
            self._out.remove(self._driver.file)
        if not self._connected:
            for reference in self._running:
                self._ray.cancel(reference)
            return
        # the cluster kills what still runs for a driver that left; ray.cancel(force=True) sometimes aborts the driver instead
        self._leaving = threading.Thread(target=self._ray.shutdown, name="leave-ray", daemon=True)
        self._leaving.start()

    def run(
        self,
        work: Work[TaskT, Any],
        tasks: Sequence[TaskT],
        on_outcome: Callable[[int, Any], None],
        on_bytes: OnBytes,
    ) -> None:
        """Run all tasks; the first error ends it.

        Args:
            work: does one task; a module-level function, which crosses to the workers by name.
            on_outcome: called with each task's index and outcome, in the order they finish.
            on_bytes: called with the bytes that a task read, when it has ended.
        Raises:
            ThdpackError: what a task raises; BuildError if a task's worker died every time, or the cluster is gone.
        """
        waiting = iter(range(len(tasks)))
        with _cluster_errors(self._ray):
            if self._shared and self._driver.file is None:
                self._leave_a_file()
            while _first_task is not None and not self._ray.wait([_first_task], timeout=1.0)[0]:
                on_bytes(0)
            self._submit(work, tasks, waiting)
            while self._running:
                done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0)
                for reference in done:
                    outcomes, read = self._ray.get(reference)
                    first = self._running.pop(reference)
                    on_bytes(read)
                    for index, outcome in enumerate(outcomes, first):
                        if isinstance(outcome, ThdpackError):
                            self._give_up()
                            raise outcome
                        on_outcome(index, outcome)
                on_bytes(0)
                self._submit(work, tasks, waiting)

    def _give_up(self) -> None:
        """Nobody waits for what was given to Ray: an outcome of it must not be taken for one of the tasks that run next."""
        for reference in self._running:
            self._ray.cancel(reference)
        self._running.clear()

    def _leave_a_file(self) -> None:
        """For tasks to see: a folder of the same path that is each node's own does not hold it."""
        name = f".build/shared-{uuid.uuid4().hex}.tmp"
        with self._out.written(name, durable=False):
            pass
        self._driver = replace(self._driver, file=name)

    def _has_other_nodes(self) -> bool:
        """Whether tasks may run on machines that can be lost without this one, and what is in their page caches with them."""
        here = self._ray.get_runtime_context().get_node_id()
        return any(node["Alive"] and node["NodeID"] != here for node in self._ray.nodes())

    def _submit(
        self, work: Work[TaskT, Any], tasks: Sequence[TaskT], waiting: Iterator[int]
    ) -> None:
        """Keep every core of the cluster busy, however many it has by now; what is left is given out in ever smaller lots, so that all end together."""
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._most = self._workers or _QUEUED * max(
                1, int(self._ray.cluster_resources().get("CPU", 1))
            )
            self._durable = self._has_other_nodes()
            self._looked = time.monotonic()
        while len(self._running) < self._most:
            together = list(
                islice(waiting, max(1, min(_TOGETHER, length_hint(waiting) // self._most)))
            )
            if not together:
                return
            lot = [tasks[index] for index in together]
            self._running[self._task.remote(work, lot, self._out, self._durable, self._driver)] = (
                together[0]
            )


_first_task: Any = None
"""What `join` asked of the cluster."""


def join(address: str) -> None:
    """For the command alone: connect to a cluster before anything else is loaded, and have workers start meanwhile, which takes a second.

    Asked for one task, Ray starts a process for each core of a node; for each more that it is asked for before these are there, it starts one too many.

    Raises:
        BuildError: Ray is not installed, or there is no cluster at the address.
    """
    global _first_task
    ray = _ray()
    atexit.unregister(
        ray.shutdown
    )  # which would wait for the thread that leaves; the command ends without
    _connect(ray, address, None)
    _first_task = ray.remote(_nothing).options(num_cpus=1).remote()


def _nothing() -> None:
    """On a worker: being there is all."""


def _ray() -> Any:
    """The ray module.

    Raises:
        BuildError: it is not installed.
    """
    os.environ.setdefault(
        "RAY_USAGE_STATS_ENABLED", "0"
    )  # a tool that reads your data calls nobody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    gc.disable()  # an import makes no garbage, and looking for it takes an eighth of its time
    try:
        import ray
    except ImportError as error:
        raise BuildError(
            f'--executor ray needs Ray ({error}): pip install "thdpack[ray]"'
        ) from error
    finally:
        gc.enable()
    return ray


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    """Join a cluster, or start one of this machine.

    Raises:
        BuildError: it does not answer.
    """
    if address is not None:
        _refuse_unanswered(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    own = (
        {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
        if address is None
        else {}
    )
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own
        )
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
        raise BuildError(
            f"--ray-address {address}: no cluster answers ({error.strerror or error})"
        ) from error


@contextmanager
def _cluster_errors(ray: Any) -> Iterator[None]:
    """Turn what Ray says of lost workers into a BuildError."""
    try:
        yield
    except (
        ray.exceptions.RayTaskError,
        ray.exceptions.RaySystemError,
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.NodeDiedError,
    ) as error:
        raise BuildError(
            f"Ray gave up: {str(error).strip().splitlines()[-1]}; run the same command to go on"
        ) from error
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise BuildError(
            f"Ray gave up ({type(error).__name__}): workers killed {RETRIES + 1} times, or no memory; run the same command to go on"
        ) from error


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """What a node has to have in common with the driver.

    file: in the dataset's folder, which every node has to see; None if there is nothing to share.
    versions: of what shapes a dataset's bytes.
    """

    file: str | None
    versions: str

    def refuse_other(self, out: Folder) -> None:
        """Refuse to work on a node that is not like it.

        Raises:
            BuildError: names the node.
        """
        if self.file is not None and out.size(self.file) is None:
            raise BuildError(
                f"{out.where()}: node {socket.gethostname()} does not see it; use a folder that all nodes share, or URLs"
            )
        if versions() != self.versions:
            raise BuildError(
                f"node {socket.gethostname()} has {versions()}, the driver {self.versions}: the same versions write the same bytes"
            )


@cache
def versions() -> str:
    """Of what shapes a dataset's bytes, here."""
    return f"thdpack {__version__} (code {code_digest()}) with pyarrow {version('pyarrow')}"


def _work(
    work: Work[TaskT, Any],
    tasks: Sequence[TaskT],
    out: Folder,
    durable: bool,
    driver: NodeRequirements,
) -> tuple[list[Any], int]:
    """On a worker: the tasks' outcomes, to the first that found what is wrong with the user's data or this node, and the bytes read."""
    keep_memory()
    outcomes: list[Any] = []
    read = 0

    def count(number: int) -> None:
        nonlocal read
        read += number

    try:
        driver.refuse_other(out)
        for task in tasks:
            outcomes.append(work(task, count, durable=durable))
    except ThdpackError as error:
        outcomes.append(error)
    return outcomes, read
