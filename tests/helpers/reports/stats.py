"""Helpers for tests of `thdpack stats`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schemas.manifest import Manifest
from tests.helpers.data.corpus import read_manifest
from tests.helpers.processes.command_line import Run


def stats(run: Run, *arguments: object) -> dict[str, Any]:
    done = run("stats", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rewritten(dataset: Path, change: Callable[[Manifest], Manifest]) -> None:
    """Replace the manifest with the result of `change`, and update the digest in it."""
    (dataset / "manifest.json").write_text(change(read_manifest(dataset)).to_json())
