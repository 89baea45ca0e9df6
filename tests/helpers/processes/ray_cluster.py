"""A Ray cluster of several nodes on this machine, and functions that kill its processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.processes.started import Started

ONE_CORE = {
    "num_cpus": 1,
    "object_store_memory": 80 << 20,
    "no_monitor": True,
    "include_log_monitor": False,
}


@contextmanager
def ray_cluster(nodes: int, *, timeout: float) -> Iterator[Any]:
    """Start a cluster of nodes with one core each. Stop it at the end of the context.

    Args:
        timeout: time limit for the start, in seconds.
    """
    # lazy: slow to import, and few tests need it
    import ray
    from ray.cluster_utils import Cluster

    start_process = ray._private.services.start_ray_process
    with pytest.MonkeyPatch.context() as patch:
        # without a dashboard, the API server only reports usage, but takes a second to start
        patch.setattr("ray._private.node.Node.start_api_server", lambda *_, **__: None)
        patch.setattr(
            "ray._private.services.start_ray_process",
            lambda command, *words, **options: start_process(
                without_agents(command), *words, **options
            ),
        )
        head = {**ONE_CORE, "include_dashboard": False}
        started = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(nodes - 1):
                started.add_node(wait=False, **ONE_CORE)
            started.wait_for_nodes(timeout=timeout)
            yield started
        finally:
            started.shutdown()


def without_agents(command: list[str]) -> list[str]:
    """Return the command line of a node, changed so that the node starts no agents.

    An agent is a Python process for metrics or for installing packages, which no build uses. It
    takes a CPU second to start. A node waits for an agent only if the agent's port is not given.
    """
    names = [word.partition("=")[0] for word in command]
    changed = {
        "--dashboard_agent_command": "sleep infinity",
        "--runtime_env_agent_command": "sleep infinity",
        "--metrics-agent-port": "1",
        "--metrics_export_port": "1",
        "--runtime_env_agent_port": "1",
    }
    if "--dashboard_agent_command" not in names:
        return command  # not the command of a node
    return [
        f"{name}={changed[name]}" if name in changed else word
        for name, word in zip(names, command, strict=True)
    ] + ["--dashboard_agent_listen_port=1"]


def raylet(node: Any) -> int:
    """Return the id of the process that starts all workers of a node."""
    return int(node.all_processes["raylet"][0].process.pid)


def descendants(root: int) -> list[int]:
    """Return all descendants of a process."""
    started: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = int(file.read_text().rpartition(")")[2].split()[1])
            started.setdefault(parent, []).append(int(file.parent.name))
    found = [root]
    for pid in found:
        found += started.get(pid, [])
    return found[1:]


def works(process: int) -> bool:
    """Return whether a process runs a task of a build. Ray replaces the command line of such a
    process with the name of the task.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return b"ray::_work" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def kill_one_at_work(process: Started, cluster: Any, rng: random.Random) -> bool:
    """Kill a worker while it runs a task of a build. Return False if the build ends first."""
    while process.poll() is None:
        below = [pid for node in cluster.list_all_nodes() for pid in descendants(raylet(node))]
        at_work = list(filter(works, below))
        if at_work and kill(rng.choice(at_work)):
            return True
        # sleep to leave the CPU to Ray, but more briefly than any task runs, so that no task is
        # missed
        time.sleep(0.002)
    return False


def kill(process: int) -> bool:
    """Kill a process. Return whether it existed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
        return True
    return False


def kill_node(cluster: Any) -> None:
    """Send SIGKILL to a node on which no driver runs, and add a new node."""
    victim = min(cluster.worker_nodes, key=raylet)
    assert kill(raylet(victim))
    cluster.remove_node(victim, allow_graceful=False)
    cluster.add_node(wait=False, **ONE_CORE)
