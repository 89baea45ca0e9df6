"""The first request to a store finds a silent or closed endpoint, a missing bucket or wrong keys.

These faults are permanent, so each command looks for them before any work is done. The request has
STALL_SECONDS. Other faults may be temporary, so later requests are retried for about a minute.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from pipeline.storage import retries
from pipeline.storage.retries import call_with_deadline
from pipeline.storage.s3.answers import no_bucket
from pipeline.storage.s3.endpoint import custom_endpoint, endpoint_setting
from pipeline.storage.s3.faults import UNTRUSTED, answer_of, refused_setting, refused_without_keys
from pipeline.storage.urls import S3, file_system, is_missing
from schemas.errors import (
    DatasetError,
    InputError,
    MissingBucketError,
    MissingInputError,
    OptionError,
    SettingError,
)
from schemas.manifest import MANIFEST_NAME

_SECONDS: Final = 5.0
_GCS: Final = ("gs://", "gcs://")
_WEB: Final = ("http://", "https://")


def refuse_unreachable(url: str, *, reading: str | None = None) -> None:
    """Send one small request to the store or web server of a dataset's URL.

    Paths, and URLs of other protocols, are not checked.

    Args:
        reading: name of a file in the folder. On S3, the first byte of this file is read. With
            None, the folder is listed, which fails for users who may read files but not list them.
            A web server is asked for the file's size. With None, only a connection is opened.
    Raises:
        MissingPackageError: no file system is installed for the protocol.
        UrlError: the URL is misspelt or names no bucket.
        MissingBucketError: the bucket is missing.
        DatasetError: nothing answers in time.
        SettingError: a setting is wrong, or the store refuses it, such as the credentials.
    """
    try:
        refuse_closed_endpoint(url)
        asked = url.startswith((*S3, *_GCS)) or (url.startswith(_WEB) and reading is not None)
        fault = _fault_of_store(url, reading) if asked else None
    except OptionError:
        raise
    except InputError as error:
        raise DatasetError(str(error)) from None
    if fault is not None:
        kind = MissingBucketError if fault.no_bucket else DatasetError
        raise kind(f"{url}: {fault.said}")


def refuse_unreachable_inputs(urls: Iterable[str]) -> None:
    """Check each bucket and each web server among the inputs once, as `refuse_unreachable` does.

    Raises:
        MissingInputError: the bucket is missing.
        InputError: nothing answers in time.
        SettingError: a setting is wrong, or the store refuses it, such as the credentials.
    """
    seen = set()
    for url in urls:
        place = url.split("/", 3)[:3]  # s3:, "" and the bucket
        if tuple(place) in seen or not url.startswith((*S3, *_GCS, *_WEB)):
            continue
        seen.add(tuple(place))
        refuse_closed_endpoint(url)
        fault = _fault_of_input_store(url)
        if fault is not None:
            kind = MissingInputError if fault.no_bucket else InputError
            raise kind(fault.said, source=url)


class _Fault(NamedTuple):
    """Permanent fault of a store, and its remedy.

    Attributes:
        no_bucket: the bucket is missing. Then the URL is wrong, and not the store.
    """

    said: str
    no_bucket: bool = False


def _fault_of_input_store(url: str) -> _Fault | None:
    """Return a permanent fault of an input's store, or None.

    If the input is a whole bucket of S3, the bucket is listed. From any other input on S3, a byte
    is read, because users may have the right to read an object, but not the right to list.
    """
    if url.startswith(_WEB):
        return _fault_of_store(url, "")
    folder, _, name = url.rstrip("/").rpartition("/")
    return _fault_of_store(url, None) if folder.endswith("/") else _fault_of_store(folder, name)


def _fault_of_store(url: str, reading: str | None) -> _Fault | None:
    """Send one small request; return a permanent fault, or None.

    To check an object on S3, the request reads the object's first byte. A request for the object's
    size would fail without an error code. On Google Cloud, only the bucket is looked up. A web
    server is asked for the object's size.

    Args:
        reading: name of the object in the folder `url`; "" if `url` is the object itself.
    Raises:
        SettingError: the request failed because of a setting.
    """
    fs, path = file_system(url)
    bucket, _, prefix = path.partition("/")

    def first_byte(name: str) -> bytes:
        first: bytes = fs.cat_file(f"{path.rstrip('/')}/{name}", start=0, end=1)
        return first

    def refuse_web_page(first: bytes) -> None:
        if first.startswith(b"<"):  # no manifest begins so
            raise SettingError(
                f"{url}: the server of the endpoint answers with a web page, not as an S3 store. "
                f"It may be the store's web console: correct {endpoint_setting()}"
            )

    def ask() -> None:
        if url.startswith(_WEB):
            fs.info(f"{path.rstrip('/')}/{reading}" if reading else path)
        elif reading is not None and url.startswith(S3):
            first = first_byte(reading)
            if reading == MANIFEST_NAME:
                refuse_web_page(first)
        elif url.startswith(S3):
            try:
                fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
            except OSError as error:
                # AWS's library takes any answer that it cannot parse for a fault of the server
                if answer_of(error)[0] == 500:
                    with suppress(OSError):
                        refuse_web_page(first_byte(MANIFEST_NAME))
                raise
        else:
            fs.info(bucket)

    try:
        call_with_deadline(ask, 0)
    except TimeoutError:
        return _Fault(_silent(url))
    except SettingError:
        raise
    except Exception as error:  # other faults may be temporary, and later requests are retried
        refused = refused_setting(error)
        # for an input, the request is a guess: the name may be a folder's, which nobody may read
        if reading in (None, MANIFEST_NAME):
            refused = refused or refused_without_keys(error, url)
        status, code, _ = answer_of(error)
        # without a code of S3, AWS's library reports "" or the status
        if status == 404 and (code == "" or (code == "404" and reading is None)):
            refused = (
                "the server of the endpoint answers with status 404 and no error code of S3, so it "
                f"is no S3 store: correct {endpoint_setting()}"
            )
        if refused is not None:
            place = f"{url}/{reading}" if reading else url
            raise SettingError(f"{place}: {refused}") from error
        return _explained(error, "" if url.startswith(_WEB) else bucket)
    return None


def _silent(url: str) -> str:
    """Return the fault of a store or web server that sends no byte, and its remedy as text."""
    address = "the address" if url.startswith(_WEB) else endpoint_setting()
    to_check = "the network connection" + ("" if url.startswith(_GCS) else f" and {address}")
    return (
        f"no byte arrived in {retries.STALL_SECONDS:g} s: check {to_check}, and run the same "
        "command again"
    )


def _explained(error: Exception, bucket: str) -> _Fault | None:
    """Return a permanent fault; None for a fault that may be temporary.

    Args:
        bucket: name of the bucket; "" for a web server, where a missing file is no fault of the
            server.
    """
    _, code, _ = answer_of(error)
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return _Fault(UNTRUSTED)
    if bucket and (code == "NoSuchBucket" or (not code and is_missing(error))):
        return _Fault(no_bucket(bucket), no_bucket=True)
    return None


def refuse_closed_endpoint(url: str) -> None:
    """Refuse a URL if no server listens at its address.

    The address of an http:// or https:// URL is its host. The address of an s3:// URL is the
    endpoint that the user has set.

    Raises:
        InputError: the connection was refused, the host has no address, or the server of a web
            address speaks https instead of http, or the reverse.
        SettingError: the endpoint is no address, or has http instead of https, or the reverse.
    """
    is_web = url.startswith(_WEB)
    endpoint = url if is_web else custom_endpoint() if url.startswith(S3) else None
    if endpoint is None or {"HTTP_PROXY", "HTTPS_PROXY"} & {name.upper() for name in os.environ}:
        return
    parts = urlsplit(endpoint)
    scheme, host = parts.scheme, str(parts.hostname)
    port = parts.port or (443 if scheme == "https" else 80)
    shown = endpoint if not is_web else f"{scheme}://{parts.netloc.rpartition('@')[2]}"
    to_correct = "the address" if is_web else endpoint_setting()
    server = "server" if is_web else "store"
    try:
        spoken = _spoken(scheme, host, port)
    except (socket.gaierror, UnicodeError) as error:  # the latter: no name can look like this
        raise InputError(unknown_host(host, error, to_correct), source=url) from error
    except ConnectionRefusedError as error:
        raise InputError(
            f"nothing answers at {shown} ({error.strerror or error}): start the {server} there, "
            f"or correct {to_correct}",
            source=url,
        ) from error
    except OSError:  # may be a temporary fault, and later requests are retried
        return
    if spoken != scheme:
        said = f"the server at {shown} speaks {spoken}, not {scheme}: write {spoken}:// in "
        if not is_web:
            raise SettingError(f"{url}: {said}{to_correct}")
        raise InputError(f"{said}{to_correct}", source=url)


def unknown_host(host: str, error: OSError | UnicodeError, to_correct: str) -> str:
    """Return a text with the remedy: a host's name has no address, or cannot be looked up.

    Args:
        to_correct: the thing that holds the name, such as "the address".
    """
    if isinstance(error, OSError) and error.errno == socket.EAI_AGAIN:
        return (
            f"the name {host!r} cannot be looked up ({error.strerror}): check the network "
            f"connection, or correct {to_correct}"
        )
    return f"no host has the name {host!r}: correct {to_correct}"


@cache
def _spoken(scheme: str, host: str, port: int) -> str:
    """Connect to a server, and return the scheme that it speaks, http or https.

    If the server may speak either, return `scheme`. After a success, later calls with the same
    arguments do not connect.

    Raises:
        OSError: no connection, or no answer in time.
    """
    if scheme == "https":
        return "http" if not _speaks_tls(host, port) and _http_status(host, port) else "https"
    # many servers with TLS answer a request without TLS with status 400
    return (
        "https" if _http_status(host, port) in ("", "400") and _speaks_tls(host, port) else "http"
    )


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False  # certificates are checked by the requests that follow
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, port), _SECONDS) as connection:
        try:
            context.wrap_socket(connection, server_hostname=host).close()
        except OSError:  # no TLS, or a temporary fault
            return False
    return True


def _http_status(host: str, port: int) -> str:
    """Return the status, such as "200", of a server's answer without TLS; "" if there is none."""
    with socket.create_connection((host, port), _SECONDS) as connection:
        connection.sendall(f"HEAD / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        try:
            answer = connection.recv(12)
        except ConnectionError:
            return ""
    return answer[9:].decode("ascii", "replace") if answer.startswith(b"HTTP/") else ""
