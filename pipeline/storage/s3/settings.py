"""Settings of S3: checksums, profile and credentials.

They are checked once per process, when the first file system of S3 is opened. The check creates the
client of AWS's library that the requests then use, so it costs no time of its own.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import TYPE_CHECKING, Any, Final

from pipeline.storage.s3.aws_profile import CONFIGURATION_FILES, profile
from pipeline.storage.s3.endpoint import custom_endpoint
from pipeline.storage.s3.faults import SECRETS, is_temporary, wrong_setting
from pipeline.storage.s3.fsspec_settings import fsspec_settings
from schemas.errors import SettingError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_CHECKSUMS: Final = ("request_checksum_calculation", "response_checksum_validation")
"""Settings of AWS's libraries. By default, these libraries use checksums in uploads and answers.

Stores other than AWS's may compute another checksum or none, and then each request would fail. For
such stores, checksums are used only if a request demands them. thdpack needs no checksums to detect
damage, because it hashes all bytes that it reads.
"""
_AUTHORITIES: Final = "AWS_CA_BUNDLE"
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
        client = await fs.set_session()
        client.meta.events.register_first("needs-retry.s3.HeadBucket", _end_redirects)
        if fs.key is None and not fs.anon and (keys := await fs.session.get_credentials()):
            await keys.get_frozen_credentials()

    log = logging.getLogger("aiobotocore")  # would print a traceback besides our line
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        sync(fs.loop, connect, timeout=_LONGEST)
    except Exception as error:  # each setting has its own type of error
        if not is_temporary(error):  # else the first request is retried
            raise wrong_setting(error) from error
    finally:
        log.setLevel(level)
    _checked.add(environment)


def _end_redirects(request_dict: dict[str, Any], response: Any, **_: object) -> None:
    """Keep AWS's library from following the redirect of a request that asks for a bucket's region.

    To follow a redirect, the library asks for the region. If that request is redirected, too, the
    library would ask again, without end. If the answer names the region, the library reads it from
    the error.
    """
    if response is not None and response[0].status_code in (301, 302, 307):
        request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True


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
    return {"config_kwargs": {**ours, **(fsspec_settings().get("config_kwargs") or {})}}
