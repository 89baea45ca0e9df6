"""Settings of S3: endpoint, checksums, profile and credentials.

They are checked once per process, when the first file system of S3 is opened. The check creates the
client of AWS's library that the requests then use, so it costs no time of its own.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pipeline.storage.s3.faults import CONFIGURATION_FILES, SECRETS, is_temporary, wrong_setting
from schemas.errors import SettingError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_CHECKSUMS: Final = ("request_checksum_calculation", "response_checksum_validation")
"""Settings of AWS's libraries. By default, these libraries use checksums in uploads and answers.

Stores other than AWS's may compute another checksum or none, and then each request would fail. For
such stores, checksums are used only if a request demands them. thdpack needs no checksums to detect
damage, because it hashes all bytes that it reads.
"""
_AWS: Final = (".amazonaws.com", ".amazonaws.com.cn")
_AUTHORITIES: Final = "AWS_CA_BUNDLE"
_PROFILE: Final = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", *CONFIGURATION_FILES)
_SCHEME: Final = re.compile(r"(https?)(?::/*|/+)", re.IGNORECASE)
"""Pattern of a scheme, even if it is misspelt."""
_LONGEST: Final = 60.0
"""Time in seconds in which credentials must arrive. After it, the first request reports the
fault."""

_checked: set[tuple[tuple[str, str], ...]] = set()
"""Environments whose settings this process has checked."""


def refuse_wrong_settings(fs: AbstractFileSystem) -> None:
    """Create the client of a file system of S3, and get its credentials, but send it no request.

    With the same environment, later calls do nothing.

    Raises:
        SettingError: a setting is wrong. The message names the setting and the remedy.
    """
    from fsspec.asyn import sync

    environment = tuple(
        sorted(item for item in os.environ.items() if item[0].startswith(("AWS_", "FSSPEC_S3_")))
    )
    if environment in _checked:
        return
    _refuse_blanks()
    _refuse_unreadable_files()

    async def connect() -> None:
        await fs.set_session()
        if fs.key is None and not fs.anon and (keys := await fs.session.get_credentials()):
            await keys.get_frozen_credentials()

    log = logging.getLogger("aiobotocore")  # would print a traceback besides our line
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        sync(fs.loop, connect, timeout=_LONGEST)
    except Exception as error:  # each setting has its own type of error
        if not is_temporary(error):  # else the first request is retried
            raise wrong_setting(error, profile()) from error
    finally:
        log.setLevel(level)
    _checked.add(environment)


def _refuse_blanks() -> None:
    """Refuse keys that contain whitespace or control characters, such as a line break at the end.

    Raises:
        SettingError: see above.
    """
    for name in SECRETS:
        value = os.environ.get(name, "")
        if any(letter.isspace() or not letter.isprintable() for letter in value):
            raise SettingError(
                f"{name}: the value contains a blank or a line break, which no key has: set it "
                "without (`echo` adds a line break, `echo -n` does not)"
            )


def _refuse_unreadable_files() -> None:
    """Refuse files that variables name, but that cannot be read. AWS's library would ignore them,
    or fail only at the first request.

    A missing configuration file is accepted, because some users name one to turn off the default
    file.

    Raises:
        SettingError: see above.
    """
    for name in (*CONFIGURATION_FILES, _AUTHORITIES):
        path = os.path.expanduser(os.environ.get(name, ""))
        try:
            if path and name == _AUTHORITIES:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
            elif path:
                with open(path, "rb") as file:
                    file.read(1)
        except FileNotFoundError as error:
            if name == _AUTHORITIES:
                raise SettingError(
                    f"{name}: {path}: no such file: correct or unset this variable"
                ) from error
        except ssl.SSLError as error:
            raise SettingError(
                f"{name}: {path}: not a file of certificates in PEM format: correct or unset this "
                "variable"
            ) from error
        except OSError as error:
            raise SettingError(
                f"{name}: {path}: cannot be read ({error.strerror}): correct the file's "
                "permissions, or correct or unset this variable"
            ) from error


def custom_endpoint() -> str | None:
    """Return the endpoint that the environment or a configuration file sets; None for AWS.

    Raises:
        SettingError: the endpoint is not an address that begins with http:// or https://.
    """
    setting, endpoint = _named_endpoint()
    if not endpoint:
        return None
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname or "", parts.port  # reading the port checks it
        if re.search(r"\s", endpoint):
            raise ValueError("it contains a blank or a line break")
    except ValueError as error:
        raise SettingError(
            f"{setting}: {endpoint!r} is not an address ({error}): write it as http://HOST:PORT, "
            "without blanks"
        ) from error
    if not host or not endpoint.startswith(("http://", "https://")):
        raise SettingError(f"{setting}: {endpoint!r} is not an address: write {_hint(endpoint)}")
    return None if host.endswith(_AWS) else endpoint


def endpoint_setting() -> str:
    """Return the name of the setting that sets the endpoint; AWS_ENDPOINT_URL if none does."""
    return _named_endpoint()[0] or "AWS_ENDPOINT_URL"


def _named_endpoint() -> tuple[str, str]:
    """Return the setting that sets the endpoint, and its value; two empty texts if none does.

    Settings of fsspec are passed to AWS's library as arguments, so they come first.
    """
    named = {
        "endpoint_url of fsspec's configuration (FSSPEC_S3_ENDPOINT_URL)": _of_fsspec().get(
            "endpoint_url"
        )
        or _of_fsspec().get("client_kwargs", {}).get("endpoint_url"),
        "AWS_ENDPOINT_URL_S3": os.environ.get("AWS_ENDPOINT_URL_S3"),
        "AWS_ENDPOINT_URL": os.environ.get("AWS_ENDPOINT_URL"),
        "endpoint_url of AWS's profile": profile().get("endpoint_url"),
    }
    return next(((name, str(url)) for name, url in named.items() if url), ("", ""))


def _hint(endpoint: str) -> str:
    """Return the correct form of an endpoint without scheme or host, or with a misspelt scheme."""
    scheme = _SCHEME.match(endpoint)
    bare = endpoint[scheme.end() :] if scheme else endpoint.rpartition("://")[2].lstrip("/")
    bare = bare or "HOST:PORT"
    return f"{scheme[1].lower()}://{bare}" if scheme else f"http://{bare} or https://{bare}"


def s3_options() -> dict[str, Any]:
    """Return options for stores other than AWS's; an empty dict for AWS itself.

    With these options, only requests that demand checksums use checksums. Settings of the user take
    precedence.

    Raises:
        SettingError: see `custom_endpoint`.
    """
    if custom_endpoint() is None:
        return {}
    stored = profile()
    ours = {
        name: "when_required"
        for name in _CHECKSUMS
        if f"AWS_{name.upper()}" not in os.environ and name not in stored
    }
    return {"config_kwargs": {**ours, **_of_fsspec().get("config_kwargs", {})}}


def _of_fsspec() -> dict[str, Any]:
    """Return the S3 settings in FSSPEC_S3 variables and in fsspec's configuration files.

    Raises:
        SettingError: a setting that holds other settings is not a mapping.
    """
    from fsspec.config import conf

    found: dict[str, Any] = conf.get("s3", {})
    for name in ("client_kwargs", "config_kwargs"):
        if not isinstance(found.get(name, {}), dict):
            raise SettingError(
                f"{name} of fsspec's configuration: {found[name]!r} is not an object of JSON: "
                f"correct or unset FSSPEC_S3_{name.upper()}"
            )
    return found


def profile() -> Mapping[str, Any]:
    """Return the active profile of AWS's configuration file; an empty dict if there is none."""
    return _profile(*map(os.environ.get, _PROFILE))


@cache
def _profile(*_names: str | None) -> dict[str, Any]:
    try:
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped] # no types
        from botocore.session import Session  # type: ignore[import-untyped] # no types
    except ImportError:  # thdpack's extra `s3` is not installed
        return {}
    try:
        found: dict[str, Any] = Session().get_scoped_config()
    except BotoCoreError:  # `refuse_wrong_settings` reports the error
        return {}
    return found
