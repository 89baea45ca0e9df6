"""Say in plain words why a request to a store failed.

s3fs turns an error code of S3 into an error number of the operating system, such as 121 ("Remote
I/O error"). These numbers tell users nothing, so messages show the store's own answer instead.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from pipeline.storage.s3.faults import answer_of
from schemas.text.one_line import on_one_line

_NO_CONNECTION: Final = frozenset(
    {
        "ClientConnectorError",
        "ConnectTimeoutError",
        "EndpointConnectionError",
        "ProxyConnectionError",
    }
)
"""Names of errors of AWS's library, and of aiohttp, if no connection is made. Errors are recognized
by their names, because the libraries may not be installed."""
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
"""Variables that name a proxy."""
_FULL: Final = ("InsufficientStorage", "StorageFull", "QuotaExceeded")
"""Parts of the error codes with which stores say that they are full."""
_NO_SPACE: Final = ("no space left on device", "disk quota exceeded")
"""Parts of the messages of stores that pass on an error of their own disk."""
_INSUFFICIENT_STORAGE: Final = 507
"""HTTP status of a full store."""


def no_bucket(bucket: str) -> str:
    """Return the error and the remedy for a missing bucket."""
    return f"there is no S3 bucket {bucket!r}: create it, or choose another"


def is_full(error: BaseException) -> bool:
    """Return whether a store has refused a write because it is full."""
    status, code, message = answer_of(error)
    text = f"{message} {error}".lower()
    return (
        status == _INSUFFICIENT_STORAGE
        or any(part in code for part in _FULL)
        or any(part in text for part in _NO_SPACE)
        or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT))
    )


def reason_of(error: BaseException, url: str) -> str:
    """Return the cause of a failed request as text, with a remedy if the cause needs one.

    For HTTP, fsspec reports a refused connection as a missing file, so the error's own text would
    be wrong.

    Args:
        url: URL of the folder or file that was requested.
    """
    status, code, message = answer_of(error)
    if code == "NoSuchBucket":
        return no_bucket(url.partition("://")[2].partition("/")[0])
    if is_full(error):
        said = _answer(status, code, message) if code else _text(error)
        return f"the store is full ({said}): make room there, or raise its quota"
    if code:
        return f"the store's answer was {_answer(status, code, message)}"
    is_file = isinstance(error, FileNotFoundError) and error.__cause__ is not None
    cause = error.__cause__ if is_file and error.__cause__ is not None else error
    if type(cause).__name__ in _NO_CONNECTION:
        proxies = [name for name in _PROXIES if os.environ.get(name)]
        places = " and ".join(["the network", *proxies])
        return f"the store cannot be reached ({_text(cause)}): check that it runs, and {places}"
    return (
        _text(cause) if _has_number(cause) else f"{type(cause).__name__}: {on_one_line(str(cause))}"
    )


def _answer(status: int | None, code: str, message: str) -> str:
    """Return an answer of S3 as text, such as "503 SlowDown: reduce the rate"."""
    # without a body, AWS's library takes the status for the code
    words = [str(status)] if status is not None and str(status) != code else []
    return " ".join([*words, code]) + (f": {message.rstrip('.')}" if message else "")


def _text(error: BaseException) -> str:
    """Return the text of an error, without the error number of the operating system."""
    if isinstance(error, OSError) and _has_number(error):
        return str(error.strerror)
    return on_one_line(str(error) or type(error).__name__).rstrip(".")


def _has_number(error: BaseException) -> bool:
    return isinstance(error, OSError) and bool(error.strerror) and str(error).startswith("[Errno ")
