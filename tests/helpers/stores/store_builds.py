"""Builds on an object store, each in its own process."""

from __future__ import annotations

import time
from collections.abc import Callable

import fsspec
import pytest

import pipeline.storage.retries
from tests.helpers.processes import started
from tests.helpers.processes.started import Started
from tests.helpers.stores.faulty_proxy import Faults

SIZES = {"task_bytes": 150_000, "partition_bytes": 100_000}
OPTIONS = ("--capacity", "1024", "--max-seq-len", "512")
OUT = "s3://bucket/sets/made"
STOP = started.stopping_after_outcomes(1)
ONE_PROCESS = "from tests.helpers.processes.command_line import without_workers; without_workers()"
"""Value for `setup` that makes a build start no workers, because they would slow a small build."""


def quick_s3(patch: pytest.MonkeyPatch) -> None:
    """Set short timeouts and pauses for s3:// in this process; disable retries of botocore."""
    config = {"read_timeout": 0.5, "connect_timeout": 0.5, "retries": {"max_attempts": 0}}
    patch.setitem(fsspec.config.conf, "s3", {"config_kwargs": config})
    patch.setattr(pipeline.storage.retries, "FIRST_PAUSE", 0.01)


def start(out: str, *more: str, workers: int = 1, setup: str = "") -> Started:
    """Start a build.

    Args:
        setup: Python statement to run first.
    """
    source = "s3://bucket/in/made.fasta"
    return started.start(
        "preprocess",
        source,
        "--out",
        out,
        *OPTIONS,
        "--workers",
        workers,
        *more,
        setup=setup,
        **SIZES,
    )


def until(condition: Callable[[], object], *processes: Started) -> None:
    """Wait until a condition is true. Fail if one of the processes ends before that."""
    deadline = time.monotonic() + 100
    while not condition():
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def asked(faults: Faults, rule: str) -> int:
    """Return the number of requests so far that match a rule, "METHOD part-of-path"."""
    method, part = rule.split(" ")
    return sum(request.startswith(method) and part in request for request in list(faults.requests))
