"""Ctrl-C and `close` end a wait for a store in any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pipeline.storage import retries as remote
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.retries import ClosedError, RemoteStore, call_with_deadline


def fails() -> None:
    raise ConnectionResetError("the store hung up")


@pytest.mark.parametrize(
    "wait",
    [
        lambda: call_with_deadline(threading.Event().wait, 0),
        lambda: RemoteStore("memory://x", threading.Event()).with_retries("x", fails),
    ],
)
def test_ctrl_c_ends_a_wait_for_a_store(
    wait: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE", 3600)  # without Ctrl-C, the test would time out
    threading.Timer(0.1, INTERRUPTED.set).start()
    try:
        with pytest.raises(ClosedError):
            wait()
    finally:
        INTERRUPTED.clear()


def test_closing_a_file_does_not_wait_for_its_requests() -> None:
    stopped = threading.Event()
    threading.Timer(0.1, stopped.set).start()
    with pytest.raises(ClosedError):
        call_with_deadline(threading.Event().wait, 0, stopped)
