"""Commit a generation that only retires records. Its shards and records/ files are those of its
parent, the generation before."""

from __future__ import annotations

import json
from dataclasses import replace

import xxhash

from pipeline.build.append.find_retired import Retirement
from pipeline.build.generations.merge_manifests import entry_of
from pipeline.build.retire.retired_files import retired_problems, write_retired
from pipeline.storage.folder import Folder
from schemas import __version__
from schemas.errors import BuildError
from schemas.manifest import Manifest


def with_retired(manifest: Manifest, retirement: Retirement, out: Folder) -> Manifest:
    """Write the records that a generation retires to a new file of retired/. Return the manifest of
    the generation with this file added; if it retires no record, return the manifest unchanged.

    Args:
        manifest: manifest of the generation. Its `retired` names only the files of the parent.
    Raises:
        BuildError: the file cannot be written, or cannot be read back.
    """
    if not retirement.ordinal.size:
        return manifest
    entry = write_retired(out, manifest.build, retirement.ordinal, retirement.id)
    whole = replace(manifest, retired=(*manifest.retired, entry))
    for problem in retired_problems(out, whole):
        raise BuildError(f"{problem}; nothing was committed; run the same command again")
    return whole


def retiring_manifest(
    existing: Manifest, retirement: Retirement, source_release: str | None, out: Folder
) -> Manifest:
    """Return the manifest of a generation without new records, and write its file of retired/.

    Args:
        existing: manifest of the current generation.
        source_release: new release of the inputs; None to keep that of the current generation.
    Raises:
        BuildError: the file cannot be written, or cannot be read back.
    """
    values = {"thdpack": __version__, "parent": existing.digest, "retired": retirement.digest}
    options = existing.options
    if source_release is not None:
        options = {**options, "source_release": source_release}
    manifest = replace(
        existing,
        build=xxhash.xxh3_64_hexdigest(json.dumps(values, sort_keys=True).encode()),
        options=options,
        generation=existing.generation + 1,
        parent=existing.digest,
        history=(*existing.history, entry_of(existing)),
    )
    return with_retired(manifest, retirement, out)
