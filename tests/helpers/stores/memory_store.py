"""fsspec's in-memory store, for tests in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem


def empty_memory_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty the store; make it raise FileNotFoundError for missing objects, like other stores."""
    monkeypatch.setattr(MemoryFileSystem, "store", {})

    def plainly(method: Callable[..., Any]) -> Callable[..., Any]:
        def asked(self: MemoryFileSystem, path: str, *arguments: Any, **named: Any) -> Any:
            if not self.exists(path):
                raise FileNotFoundError(path)
            return method(self, path, *arguments, **named)

        return asked

    for name in ("cat_file", "rm_file"):
        monkeypatch.setattr(MemoryFileSystem, name, plainly(getattr(MemoryFileSystem, name)))
