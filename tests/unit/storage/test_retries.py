"""Ctrl-C and `close` end a wait for a store in any thread. Errors name a remedy."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pipeline.storage import retries as remote
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.retries import ClosedError, RemoteStore, call_with_deadline
from pipeline.storage.s3.answers import reason_of
from schemas.errors import DatasetError, SettingError
from schemas.text.phrases import REBUILD, STORE_REFUSES

FULL = "make room there, or raise its quota"


def answered(error: OSError, status: int, code: str, message: str) -> OSError:
    """Return an error as s3fs raises it for an answer of S3."""
    error.__cause__ = cause = ValueError()
    answer = {"Code": code, "Message": message}
    response = {"Error": answer, "ResponseMetadata": {"HTTPStatusCode": status}}
    cause.response = response  # type: ignore[attr-defined]
    return error


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
        (
            "train/a-0.arrow",
            answered(FileNotFoundError("x"), 404, "NoSuchBucket", "x"),
            "there is no S3 bucket 'x': create it, or choose another",
        ),
        (
            "x",
            answered(OSError(5, "x"), 507, "InsufficientStorage", "Full."),
            f"the store is full (507 InsufficientStorage: Full): {FULL}",
        ),
        (
            "x",
            answered(PermissionError("x"), 403, "QuotaExceeded", ""),
            f"the store is full (403 QuotaExceeded): {FULL}",
        ),
        ("x", OSError(121, "No space left on device"), f"(No space left on device): {FULL}"),
    ],
)
def test_an_error_without_retries_names_the_remedy(name: str, error: OSError, remedy: str) -> None:
    def fetch() -> None:
        raise error

    store = RemoteStore("memory://x", threading.Event())
    with pytest.raises(DatasetError, match=f"^{name}: cannot be read from memory://x: ") as raised:
        store.with_retries(name, fetch)
    assert str(raised.value).endswith(remedy)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            answered(OSError(121, "Try later."), 500, "InternalError", "Try later."),
            "the store's answer was 500 InternalError: Try later",
        ),
        (
            answered(OSError(121, "Internal Error"), 500, "500", "Internal Error"),
            "the store's answer was 500: Internal Error",
        ),
        (OSError(121, "Remote trouble"), "Remote trouble"),
        (TimeoutError("no byte for 60 s"), "TimeoutError: no byte for 60 s"),
    ],
)
def test_the_reason_of_a_failure_is_the_answer_of_the_store_without_error_numbers(
    error: OSError, said: str
) -> None:
    assert reason_of(error, "s3://x/y") == said


def test_an_unreachable_store_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    error = type("ProxyConnectionError", (Exception,), {})("x")
    said = "the store cannot be reached (x): check that it runs, and the network and HTTP_PROXY"
    assert reason_of(error, "s3://x/y") == said


def test_the_last_error_of_a_store_says_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0)

    def fetch() -> None:
        raise answered(OSError(121, "x"), 500, "InternalError", "x")

    said = "last error: the store's answer was 500 InternalError: x: the store may be full or over"
    with pytest.raises(DatasetError, match=said):
        RemoteStore("memory://x", threading.Event()).with_retries("x", fetch)


def test_credentials_that_a_store_refuses_are_a_wrong_setting_and_are_not_tried_again() -> None:
    attempts = []

    def fetch() -> None:
        attempts.append(1)
        raise answered(OSError("no"), 400, "InvalidToken", "")

    with pytest.raises(SettingError, match=r"^memory://x: .*\(InvalidToken\): unset AWS_SESSION"):
        RemoteStore("memory://x", threading.Event()).with_retries("x", fetch)
    assert len(attempts) == 1
