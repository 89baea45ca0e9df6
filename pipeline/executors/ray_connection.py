"""Connect to a Ray cluster: import Ray, join or start a cluster, translate Ray's errors."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from pipeline.executors.ray_address import refuse_unanswered
from schemas.errors import BuildError, OptionError
from schemas.text.one_line import on_one_line
from schemas.text.phrases import install_command

RETRIES: Final = 8
"""Maximum number of retries of a task whose worker or node died."""
_STORE_BYTES: Final = 80 << 20
"""Size of Ray's object store in bytes. The store stays almost empty, so its size is about the
minimum that Ray accepts."""
_DETAILS: Final = "RAY_BACKEND_LOG_LEVEL"
"""Variable of Ray. If the user sets it, the messages that Ray prints itself are not hidden."""
_LOGS: Final = "Ray's logs, in /tmp/ray/session_latest/logs of each machine, have the details"

_first_task: Any = None
"""The task that `join` submitted."""


def first_task() -> Any:
    """Return the task that `join` submitted; None if `join` was not called."""
    return _first_task


def join(address: str) -> None:
    """Connect to a cluster, so that its workers start while the command imports other modules.

    Workers take a second to start. Only the command line calls this function. The function submits
    a single task. Ray then starts a process for each core of a node. If a second task were
    submitted before those processes run, Ray would start one process too many.

    Raises:
        OptionError: Ray is not installed.
        BuildError: no cluster answers at the address.
    """
    global _first_task
    ray = import_ray(address)
    # Ray's exit handler would wait needlessly for the thread that leaves the cluster
    atexit.unregister(ray.shutdown)
    connect(ray, address, None)
    _first_task = ray.remote(_nothing).options(num_cpus=1).remote()


def _nothing() -> None:
    """Do nothing. The only purpose of this task is to make Ray start workers."""


def import_ray(address: str | None) -> Any:
    """Return the ray module.

    Args:
        address: cluster that the build will join; None if it starts its own.

    Raises:
        OptionError: Ray is not installed.
    """
    # disable usage statistics: a tool that reads users' data must not send anything
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address is not None:
        use_token()
    gc.disable()  # garbage collection would take an eighth of the import's time
    try:
        import ray
    except ImportError as error:
        remedy = install_command("ray")
        raise OptionError(f"--executor ray needs Ray ({error}): {remedy}") from error
    finally:
        gc.enable()
    return ray


def connect(ray: Any, address: str | None, workers: int | None) -> None:
    """Join a cluster, or start one on this machine.

    Raises:
        BuildError: the cluster does not answer, or Ray cannot start on this machine.
    """
    if address is not None:
        refuse_unanswered(address)
    own = (
        {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
        if address is None
        else {}
    )
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with _own_lines_hidden() if address is not None else nullcontext():
            ray.init(
                address=address or "local",
                job_config=_job_config(ray),
                log_to_driver=False,
                logging_level=logging.ERROR,
                **own,
            )
        _silence_listener(ray)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError, ImportError) as error:
        if address is None:
            reason = on_one_line(str(error))  # some have several lines
            raise BuildError(
                f"Ray did not start on this machine ({reason}): use --executor processes, which "
                f"does without Ray, or --ray-address for a cluster that runs. {_LOGS}"
            ) from error
        # replace Ray's message for `auto`, which names options of Ray's commands
        if address == "auto" and "RAY_ADDRESS" not in os.environ:
            reason = (
                "no Ray cluster runs on this machine: start one with `ray start --head`, give the "
                "HOST:PORT of a cluster, or omit --ray-address"
            )
        else:
            reason = (
                f"the cluster does not accept the connection ({error}). Run the build on a machine "
                "where `ray start` ran. If the cluster checks tokens, as newer versions of Ray do "
                "by default, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to its token, which is in "
                "~/.ray/auth_token on the machine where it was started. To see Ray's own messages, "
                f"set {_DETAILS}=info"
            )
        raise BuildError(f"--ray-address {address}: {reason}") from error
    finally:
        # Ray has installed a handler that exits immediately; restore ours, which stops cleanly
        signal.signal(signal.SIGTERM, handler)


def use_token() -> None:
    """Send this user's token to the cluster, if there is one and the user did not choose a mode.

    `ray start --head` checks tokens if it finds a token, but a driver that connects to HOST:PORT
    sends one only in this mode. Clusters that check no token accept any.
    """
    if "RAY_AUTH_MODE" in os.environ or "ray" in sys.modules:
        return  # after Ray's import, only the processes that it starts would notice a change
    path = os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")
    if "RAY_AUTH_TOKEN" in os.environ or Path(path).expanduser().is_file():
        os.environ["RAY_AUTH_MODE"] = "token"


def _job_config(ray: Any) -> Any:
    """Return settings that make workers import our packages, not packages of the current folder.

    Ray puts the current folder of the driver (the process that runs the build) first on its
    workers' sys.path unless `_client_job` is set. For submitted jobs, return None, because Ray
    itself sets the path.
    """
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ:
        return None
    folder = str(Path(__file__).parents[2])
    return ray.job_config.JobConfig(_client_job=True, _py_driver_sys_path=[folder])


@contextmanager
def _own_lines_hidden() -> Iterator[None]:
    """Hide what Ray writes about a connection that fails: up to 20 lines, and ours says it in one.

    Ray's compiled part writes to file descriptor 2, and before the connection it ignores all
    settings of its log. If the connection succeeds, the lines are shown afterwards.
    """
    if _DETAILS in os.environ:
        yield
        return
    with tempfile.TemporaryFile() as lines:
        sys.stderr.flush()
        shown = os.dup(2)
        os.dup2(lines.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(shown, 2)
            os.close(shown)
        lines.seek(0)
        os.write(2, lines.read())


def _silence_listener(ray: Any) -> None:
    """Silence the thread of Ray that prints messages of the cluster, such as the last 20 lines of
    a log. It would print them on standard output, where scripts read the objects of --log-json."""
    if _DETAILS not in os.environ:
        ray._private.worker._worker_logs_enabled = False


@contextmanager
def cluster_errors(ray: Any) -> Iterator[None]:
    """Turn Ray's errors about lost workers into a BuildError."""
    try:
        yield
    except (
        ray.exceptions.RayTaskError,
        ray.exceptions.RaySystemError,
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.NodeDiedError,
    ) as error:
        raise BuildError(
            f"Ray gave up: {str(error).strip().splitlines()[-1]}; run the same command to resume"
        ) from error
    except ray.exceptions.LocalRayletDiedError as error:
        raise BuildError(
            "Ray's process on this machine (raylet) was killed or ended. Start the cluster again, "
            f"and run the same command to resume. {_LOGS}"
        ) from error
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise BuildError(
            f"Ray gave up ({type(error).__name__}): workers were killed {RETRIES + 1} times, "
            f"or memory ran out; run the same command to resume. {_LOGS}"
        ) from error
