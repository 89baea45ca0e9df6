"""List the options of a build that had an effect on its dataset."""

from __future__ import annotations

from typing import Final

from schemas.manifest import Manifest

_OF_EXCLUDE: Final = ("exclude_identity", "exclude_coverage")


def used_options(manifest: Manifest) -> dict[str, bool | int | float | str | None]:
    """Return the options in the manifest, by name, without those that had no effect.

    The limits of --exclude have an effect only if the build was given --exclude.
    """
    excluded = any(file.option == "exclude" for file in manifest.named_files)
    return {
        name: value
        for name, value in manifest.options.items()
        if excluded or name not in _OF_EXCLUDE
    }
