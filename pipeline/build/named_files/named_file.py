"""Find the files that --exclude, --clusters and --metadata name.

`mmseqs:` before a value asks for a run of MMseqs2. `--exclude mmseqs:FILE` searches FILE, and
`--clusters mmseqs:0.5` clusters the records themselves and names no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from pipeline.inputs.find import size_and_fingerprint
from pipeline.storage.open_input import input_errors
from schemas.manifest_entries import FileOption

MMSEQS: Final = "mmseqs:"


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedFile:
    """A file that an option names.

    url: local path or URL; empty for `--clusters mmseqs:0.5`
    name: last part of the url, for the manifest; the value itself for `--clusters mmseqs:0.5`
    bytes: size in bytes of the file as stored, before decompression
    fingerprint: text that changes when the file changes; it is made without reading the file
    mmseqs: True if the value began with `mmseqs:`
    """

    option: FileOption
    url: str
    name: str
    bytes: int
    fingerprint: str
    mmseqs: bool = False


class FileOptions(Protocol):
    """Options that name files."""

    @property
    def exclude(self) -> tuple[str, ...]: ...

    @property
    def clusters(self) -> str | None: ...

    @property
    def metadata(self) -> str | None: ...


def named_files(options: FileOptions) -> tuple[NamedFile, ...]:
    """Return the files that options name, without reading them.

    Raises:
        InputError: a file is missing.
    """
    values: list[tuple[FileOption, str]] = [("exclude", value) for value in options.exclude]
    if options.clusters is not None:
        values.append(("clusters", options.clusters))
    if options.metadata is not None:
        values.append(("metadata", options.metadata))
    return tuple(_named_file(option, value) for option, value in values)


def _named_file(option: FileOption, value: str) -> NamedFile:
    url = value.removeprefix(MMSEQS)
    if option == "clusters" and url != value:
        return NamedFile(option=option, url="", name=value, bytes=0, fingerprint=value, mmseqs=True)
    with input_errors(url):
        size, fingerprint = size_and_fingerprint(url)
    return NamedFile(
        option=option,
        url=url,
        name=url.rstrip("/").rpartition("/")[2],
        bytes=size,
        fingerprint=fingerprint,
        mmseqs=url != value,
    )
