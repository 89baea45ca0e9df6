"""Builds and task lists that run in this process, and a function that disturbs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.build.array_jobs.run_listed import commit, run_tasks
from pipeline.build.array_jobs.task_list import STAGES, TaskList, load_task_list, plan_tasks
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import reporter
from schemas.manifest import Manifest

OUT = "memory://bucket/out"
SMALL: dict[str, Any] = {"capacity": 1024, "max_seq_len": 512}
BuildHere = Callable[..., Manifest]


def once(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, meanwhile: Callable[..., object]
) -> None:
    """Replace a method so that its next call runs `meanwhile` first."""
    method = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, method)
        meanwhile(*arguments)
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, call)


def listed(corpus: Path, out: str, **options: Any) -> TaskList:
    with reporter(as_json=False) as report:
        return plan_tasks(
            PreprocessOptions(inputs=(str(corpus),), out=out, **SMALL, **options), report
        )


def work_off(out: str, digest: str, *, commits: bool = True) -> Manifest | None:
    """Run all tasks of a task list one after another, and commit if `commits` is true.

    Returns:
        The committed manifest; None if nothing was committed.
    """
    with reporter(as_json=False) as report:
        for stage in STAGES:
            found = load_task_list(out, digest)
            if found is None:
                return None
            run_tasks(found, stage, 0, 1, report)
        found = load_task_list(out, digest)
        return commit(found, 1, report).manifest if found is not None and commits else None
