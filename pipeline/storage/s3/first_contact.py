"""The first request to a store finds a closed endpoint, a missing bucket or wrong credentials.

These faults are permanent, so a build looks for them before any work is done. Other faults may be
temporary, so later requests are retried for about a minute.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from pipeline.storage.retries import call_with_deadline
from pipeline.storage.urls import answer_of, custom_endpoint, file_system, is_missing
from schemas.errors import DatasetError, InputError

_SECONDS: Final = 5.0
_S3: Final = ("s3://", "s3a://")
_GCS: Final = ("gs://", "gcs://")
_WRONG_KEYS: Final = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"}
)
_NO_KEYS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"})
_SET_KEYS: Final = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"


def refuse_unreachable(url: str) -> None:
    """Send one small request to the store of a dataset's URL; do nothing for other URLs.

    Raises:
        DatasetError: nothing answers, the bucket is missing, or the credentials are refused.
    """
    if not url.startswith((*_S3, *_GCS)):
        return
    try:
        refuse_closed_endpoint(url)
    except InputError as error:
        raise DatasetError(str(error)) from error
    fs, path = file_system(url)
    bucket, _, prefix = path.partition("/")

    def ask() -> None:
        if url.startswith(_S3):
            fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
        else:
            fs.info(bucket)

    try:
        call_with_deadline(ask, 0)
    except Exception as error:  # other faults may be temporary, and later requests are retried
        said = _explained(error, bucket)
        if said is not None:
            raise DatasetError(f"{url}: {said}") from error


def _explained(error: Exception, bucket: str) -> str | None:
    """Return a permanent fault and its remedy as text; None for a fault that may be temporary."""
    _, code, _ = answer_of(error)
    if code in _WRONG_KEYS:
        return f"the store refuses the credentials ({code}): {_SET_KEYS}"
    if type(error).__name__ in _NO_KEYS:
        return f"no credentials for the store ({error}): {_SET_KEYS}"
    if code == "NoSuchBucket" or is_missing(error):
        return f"there is no bucket {bucket!r}: create it, or choose another"
    return None


def refuse_closed_endpoint(url: str) -> None:
    """Refuse an s3:// URL if no store listens at the endpoint that the user has set.

    Raises:
        InputError: the connection was refused, or the host has no address.
    """
    endpoint = custom_endpoint() if url.startswith(_S3) else None
    if endpoint is None or {"HTTP_PROXY", "HTTPS_PROXY"} & {name.upper() for name in os.environ}:
        return
    try:
        _connect(endpoint)
    except (ConnectionRefusedError, socket.gaierror) as error:
        raise InputError(
            f"nothing answers at {endpoint} ({error.strerror or error}): start the store there, "
            "or correct AWS_ENDPOINT_URL",
            source=url,
        ) from error
    except OSError:  # may be temporary, and later requests are retried
        return


@cache
def _connect(endpoint: str) -> None:
    """Connect to an endpoint. After a success, later calls in the process do nothing."""
    parts = urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    socket.create_connection((str(parts.hostname), port), _SECONDS).close()
