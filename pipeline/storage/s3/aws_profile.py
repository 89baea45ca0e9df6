"""The active profile of AWS's configuration files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

_FILES: Final = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
}
CONFIGURATION_FILES: Final = tuple(_FILES)
"""Variables that name files of settings."""
_PROFILE: Final = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", *CONFIGURATION_FILES)


def profile() -> Mapping[str, Any]:
    """Return the settings of the active profile by name; an empty dict if there is none."""
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


def file_with(setting: str) -> str:
    """Return the configuration file that holds a setting of the profile, such as
    credential_process."""
    files = [os.environ.get(name, default) for name, default in _FILES.items()]
    for name in files:
        with suppress(OSError), open(os.path.expanduser(name), errors="replace") as file:
            if setting in file.read():
                return name
    return files[0]
