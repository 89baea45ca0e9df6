"""Release and licence of the inputs: from the manifest, or from the options of `thdpack card`."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import OptionError
from schemas.manifest import Manifest
from schemas.text.option_checks import flag


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """Release and licence of the inputs, as a card states them. None means not stated."""

    source_release: str | None = None
    license: str | None = None


def stated_by(manifest: Manifest, given: Stated) -> Stated:
    """Return the values of the manifest, and `given` for values that the manifest does not have.

    Raises:
        OptionError: the manifest has another value than `given`.
    """
    return Stated(
        source_release=_one("source_release", manifest.source_release, given.source_release),
        license=_one("license", manifest.license, given.license),
    )


def _one(name: str, built: str | None, given: str | None) -> str | None:
    if built is not None and given is not None and built != given:
        raise OptionError(
            f"{flag(name)} is {given!r}, but the dataset was built with {built!r}: omit "
            f"{flag(name)}, or build the dataset again with the other value"
        )
    return given if built is None else built
