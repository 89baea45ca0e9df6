"""Settings of S3 in FSSPEC_S3, in FSSPEC_S3_… variables and in fsspec's configuration files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from schemas.errors import SettingError

_WHOLE: Final = "FSSPEC_S3"
"""Variable that holds all settings as an object of JSON."""
_TABLE: Final = "an object of JSON"
_SECONDS: Final = "a number of seconds"
_KINDS: Final[dict[tuple[str, ...], tuple[tuple[type, ...], str]]] = {
    ("client_kwargs",): ((dict,), _TABLE),
    ("client_kwargs", "verify"): ((bool, str), "true, false or the name of a file"),
    ("config_kwargs",): ((dict,), _TABLE),
    ("config_kwargs", "connect_timeout"): ((int, float), _SECONDS),
    ("config_kwargs", "max_pool_connections"): ((int,), "a whole number"),
    ("config_kwargs", "proxies"): ((dict,), _TABLE),
    ("config_kwargs", "read_timeout"): ((int, float), _SECONDS),
    ("config_kwargs", "retries"): ((dict,), _TABLE),
    ("config_kwargs", "s3"): ((dict,), _TABLE),
}
"""Types of settings, and their descriptions. AWS's library does not check these types."""


def refuse_broken_variable() -> None:
    """Refuse an FSSPEC_S3 that is not an object of JSON. fsspec would only print a warning.

    Raises:
        SettingError: see above.
    """
    text = os.environ.get(_WHOLE)
    if text is None:
        return
    try:
        value = json.loads(text)
    except ValueError as error:  # the text may hold a secret, so it is not shown
        raise SettingError(
            f"{_WHOLE}: the value is not JSON ({error}): correct or unset this variable"
        ) from error
    if not isinstance(value, dict):
        raise SettingError(f"{_WHOLE}: the value is not {_TABLE}: correct or unset this variable")


def fsspec_settings() -> dict[str, Any]:
    """Return the settings by name.

    Raises:
        SettingError: FSSPEC_S3 is not an object of JSON, or a setting has a wrong type.
    """
    refuse_broken_variable()
    from fsspec.config import conf

    found: dict[str, Any] = conf.get("s3", {})
    for path, (kinds, described) in _KINDS.items():
        value: Any = found
        for name in path:
            value = value.get(name)
            if value is None:
                break
        else:
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise SettingError(
                    f"{variable_of(*path)}: {value!r} is not {described}: correct or unset this "
                    "setting"
                )
    return found


def variable_of(name: str, *inside: str) -> str:
    """Return the variable that holds a setting, such as FSSPEC_S3_ANON, or "anon in FSSPEC_S3".

    Args:
        inside: names within the setting's value, from the outermost.
    """
    own = f"{_WHOLE}_{name.upper()}"
    if own in os.environ:
        return " in ".join((*reversed(inside), own))
    described = " in ".join((*reversed(inside), name))
    if name in json.loads(os.environ.get(_WHOLE, "{}")):
        return f"{described} in {_WHOLE}"
    return f"{described} of fsspec's configuration"


def named_values() -> dict[str, str]:
    """Return the settings within settings whose values are texts, by the names for messages."""
    return dict(_named(fsspec_settings(), ()))


def _named(settings: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _named(value, (*path, name))
        elif path and isinstance(value, str):
            yield variable_of(*path, name), value


def key_settings() -> list[str]:
    """Return the names for messages of the key and the secret; an empty list if neither is set."""
    names = (("key", "username"), ("secret", "password"))  # s3fs accepts both names
    found = fsspec_settings()
    return [
        variable_of(next(name for name in pair if found.get(name)))
        for pair in names
        if any(found.get(name) for name in pair)
    ]


def anonymous_setting() -> str | None:
    """Return the setting that makes requests anonymous; None if requests have credentials.

    Any text counts as true, even "no".
    """
    return variable_of("anon") if fsspec_settings().get("anon") else None
