"""Find the files that --exclude, --clusters, --sample-clusters and --metadata name.

`mmseqs:` before a value asks for a run of MMseqs2. `--exclude mmseqs:FILE` searches FILE, and
`--clusters mmseqs:0.5` clusters the records themselves and names no file.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pipeline.build.mmseqs.binary import find_mmseqs, mmseqs_version
from pipeline.build.mmseqs.linclust import linclust_identity
from pipeline.inputs.find import size_and_fingerprint
from pipeline.inputs.source import ANYTHING, Allowed
from pipeline.storage.open_input import input_errors
from pipeline.storage.probe.first_contact import refuse_unreachable_inputs
from pipeline.storage.urls import is_url
from schemas.errors import InputError
from schemas.manifest_entries import FileOption
from schemas.text.redact import without_credentials

MMSEQS: Final = "mmseqs:"
CLUSTER_OPTIONS: Final[tuple[FileOption, ...]] = ("clusters", "sample-clusters")
"""Options that name a table of clusters. A build has at most one of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedFile:
    """A file that an option names.

    url: local path or URL; empty for `--clusters mmseqs:0.5`
    name: name in the manifest: the last part of the url, with the prefix `mmseqs:` if the value has
        it; for `--clusters mmseqs:0.5`, the value itself
    bytes: size in bytes of the file as stored, before decompression
    fingerprint: text that changes when the file or the version of MMseqs2 changes. It is
        made without reading the file.
    mmseqs: True if the value began with `mmseqs:`
    mmseqs_version: version of MMseqs2 if `mmseqs` is True
    min_identity, min_coverage: for a file of --exclude, the values of --exclude-identity and
        --exclude-coverage; else 0
    allowed: for a file of --exclude, kinds of suspicious input that the user allows
    """

    option: FileOption
    url: str
    name: str
    bytes: int
    fingerprint: str
    mmseqs: bool = False
    mmseqs_version: str = ""
    min_identity: float = 0.0
    min_coverage: float = 0.0
    allowed: Allowed = ANYTHING

    @property
    def mmseqs_suffix(self) -> str:
        """Last part of the fingerprint, with the version of MMseqs2; empty if `mmseqs` is False."""
        return f"-mmseqs-{self.mmseqs_version}" if self.mmseqs else ""


class FileOptions(Protocol):
    """Options that name files."""

    @property
    def exclude(self) -> tuple[str, ...]: ...

    @property
    def exclude_identity(self) -> float: ...

    @property
    def exclude_coverage(self) -> float: ...

    @property
    def allowed(self) -> Allowed: ...

    @property
    def clusters(self) -> str | None: ...

    @property
    def sample_clusters(self) -> str | None: ...

    @property
    def metadata(self) -> str | None: ...


def named_files(options: FileOptions) -> tuple[NamedFile, ...]:
    """Return the files of all options that name files, without reading them.

    Raises:
        InputError: a file is missing, or is a folder.
        OptionError: the identity in the value of --clusters or --sample-clusters is wrong; or a
            value begins with `mmseqs:`, but MMseqs2 is not installed.
    """
    excluded = [
        replace(
            _named_file("exclude", value),
            min_identity=options.exclude_identity,
            min_coverage=options.exclude_coverage,
            allowed=options.allowed,
        )
        for value in options.exclude
    ]
    values: list[tuple[FileOption, str]] = []
    if options.clusters is not None:
        values.append(("clusters", options.clusters))
    if options.sample_clusters is not None:
        values.append(("sample-clusters", options.sample_clusters))
    if options.metadata is not None:
        values.append(("metadata", options.metadata))
    return (*excluded, *(_named_file(option, value) for option, value in values))


def without_mmseqs(value: str) -> tuple[str, bool]:
    """Return the value of an option without the prefix `mmseqs:`, and whether it had the prefix."""
    rest = value.removeprefix(MMSEQS)
    return rest, rest != value


def _refuse_unreadable(option: FileOption, value: str, url: str) -> None:
    """Refuse an empty value, a folder, and a misspelt `mmseqs:`.

    Raises:
        InputError: the value is refused.
    """
    if not url:
        raise InputError("expected the path or URL of a file", source=f"--{option} {value!r}")
    if is_url(url):
        return
    if os.path.isdir(url):
        more = ", and may be repeated for several files" if option == "exclude" else ""
        raise InputError(f"this is a folder, but --{option} expects a file{more}", source=url)
    is_identity = re.fullmatch(r"[01]?\.\d+|mmseqs", url)
    if option in CLUSTER_OPTIONS and not os.path.exists(url) and is_identity:
        identity = "0.5" if url == "mmseqs" else url
        raise InputError(f"no such file; did you mean {MMSEQS}{identity}?", source=url)
    prefix, colon, rest = value.partition(":")
    close = difflib.get_close_matches(f"{prefix.lower()}:", [MMSEQS], cutoff=0.8)
    if url == value and option != "metadata" and colon and close and not os.path.exists(url):
        raise InputError(f"no such file; did you mean {MMSEQS}{rest}?", source=url)


def _named_file(option: FileOption, value: str) -> NamedFile:
    url, mmseqs = without_mmseqs(value)
    if option in CLUSTER_OPTIONS and mmseqs:
        linclust_identity(value, option)  # refuse a wrong identity before any work
    version = mmseqs_version(find_mmseqs(option)) if mmseqs else ""
    if option in CLUSTER_OPTIONS and mmseqs:
        size, fingerprint, url, name = 0, value, "", value
    else:
        _refuse_unreadable(option, value, url)
        try:
            refuse_unreachable_inputs([url])
            with input_errors(url):
                size, fingerprint = size_and_fingerprint(url)
        except InputError as error:
            raise error.changed(source=f"--{option} {error.source}") from error
        name = without_credentials(url).rstrip("/").rpartition("/")[2]
        name = f"{MMSEQS}{name}" if mmseqs else name
    file = NamedFile(
        option=option,
        url=url,
        name=name,
        bytes=size,
        fingerprint=fingerprint,
        mmseqs=mmseqs,
        mmseqs_version=version,
    )
    return replace(file, fingerprint=fingerprint + file.mmseqs_suffix)
