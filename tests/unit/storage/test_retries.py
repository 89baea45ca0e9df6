"""Ctrl-C and `close` end a wait for a store in any thread. Errors name a remedy."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pipeline.storage import retries as remote
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.retries import ClosedError, RemoteStore, call_with_deadline
from schemas.errors import DatasetError, SettingError
from schemas.text.phrases import REBUILD, STORE_REFUSES


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


@pytest.mark.parametrize(
    ("name", "error", "remedy"),
    [
        ("x", PermissionError("Forbidden"), STORE_REFUSES),
        ("train/a-0.arrow", FileNotFoundError("x"), REBUILD),
        ("notes.txt", FileNotFoundError("x"), "FileNotFoundError: x"),
    ],
)
def test_an_error_without_retries_names_the_remedy(name: str, error: OSError, remedy: str) -> None:
    def fetch() -> None:
        raise error

    store = RemoteStore("memory://x", threading.Event())
    with pytest.raises(DatasetError, match=f"^{name}: cannot be read from memory://x: ") as raised:
        store.with_retries(name, fetch)
    assert str(raised.value).endswith(f": {remedy}")


def test_credentials_that_a_store_refuses_are_a_wrong_setting_and_are_not_tried_again() -> None:
    attempts = []

    def fetch() -> None:
        attempts.append(1)
        error = OSError("no")
        error.__cause__ = cause = ValueError()
        cause.response = {"Error": {"Code": "InvalidToken"}}  # type: ignore[attr-defined]
        raise error

    with pytest.raises(SettingError, match=r"^memory://x: .*\(InvalidToken\): unset AWS_SESSION"):
        RemoteStore("memory://x", threading.Event()).with_retries("x", fetch)
    assert len(attempts) == 1
