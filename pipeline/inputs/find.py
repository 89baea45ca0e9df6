"""Find the input files that the user named, and divide them into byte ranges for tasks."""

from __future__ import annotations

import os
import stat
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, cast

from pipeline.inputs.composition.first_letters import LOOK_BYTES, refuse_other_letters
from pipeline.inputs.decompress import detect
from pipeline.inputs.file_names import Skipped, as_text, suffix
from pipeline.inputs.formats.registry import FORMATS, Format, recognised
from pipeline.inputs.named.expand import Named, expand, special
from pipeline.inputs.named.ignore import IgnoredFiles, found_in, with_ignore, with_others
from pipeline.inputs.named.lists import errors_of_list, listed, refuse_twins
from pipeline.inputs.source import ANYTHING, Allowed, Source
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.open_input import input_errors, open_input
from pipeline.storage.probe.first_contact import refuse_unreachable_inputs
from pipeline.storage.ranged_file import request_with_retries
from pipeline.storage.retries import AT_ONCE, RemoteStore
from pipeline.storage.urls import file_system, is_url, version_tag_of
from schemas.errors import InputError
from schemas.text.redact import without_credentials

TASK_BYTES: Final = 128 << 20
"""Approximate number of input bytes that one map task of a large job reads."""
FEWEST_TASKS: Final = 32
"""Minimum number of map tasks of a job that reads at least 1 GiB. The tasks of a smaller job read a
quarter of TASK_BYTES each. With many small tasks, fewer cores are idle at the end of a job."""
PIECE_BYTES: Final = 16 << 20
"""Size in bytes of a piece. Each piece of an input is hashed separately, so that several tasks can
hash one input. The content hash in the manifest depends on this size."""

_UNTAGGED: Final = "-unmarked-"
"""Part of the fingerprint of a web input whose server sends neither an ETag nor a time. A random
number follows this part, so that no build reuses another build's results: the input may have
changed in between."""


def find_sources(
    inputs: tuple[str, ...],
    format: Format,
    *,
    spool: str | None,
    allowed: Allowed = ANYTHING,
    ignore: Sequence[str] = (),
) -> tuple[list[Source], list[Skipped]]:
    """Return the inputs in the order of the command line. Files of a folder are in byte order.

    Args:
        inputs: arguments of the command line.
        format: format of all inputs. `auto` detects each file's format.
        spool: file to which standard input was written, if it is one of the inputs.
        allowed: whether FASTA of nucleotides, and of alignments, is accepted.
        ignore: patterns. Files of folders and globs are left out if a pattern matches them.
    Returns:
        Sources, and the skipped files of input folders and globs.
    Raises:
        InputError: an input is missing, cannot be read, or looks like nucleotides or an alignment;
            or a pattern of `ignore` matches no file.
        OptionError: an input is named twice.
    """
    named: list[Named] = []
    in_folders: set[str] = set()
    ignored = IgnoredFiles(ignore)
    passed_over: list[Skipped] = []
    arguments = list(listed(inputs))
    refuse_unreachable_inputs([text for text, _ in arguments])
    places: list[str] = []
    for text, place in arguments:
        with errors_of_list(place):
            found, others = expand(text, format)
            kept, skipped = ignored.kept(text, found, others)
        places += [place] * len(kept)
        named += kept
        passed_over += skipped
        if found_in(text, found):
            in_folders.update(url for url, _ in kept)
    ignored.refuse_unused()
    refuse_twins([url for url, _ in named], places)
    names = relative_names([url for url, _ in named])
    for url, name in names.items():
        if as_text(name) != name:
            raise InputError(
                "its name is not UTF-8, but the manifest needs names in UTF-8; rename the file, "
                "or pass it as standard input",
                source=as_text(url),
            )

    def source_of(input_and_listing: Named) -> Source | InputError:
        url, info = input_and_listing
        found = url in in_folders
        try:
            source, head = _source(url, names[url], format, spool, info)
            if source.format == "fasta":
                refuse_other_letters(source, head, allowed)
        except InputError as error:
            return with_ignore(error, url, found=found)
        return replace(source, found=found)

    with ThreadPoolExecutor(AT_ONCE if any(is_url(url) for url, _ in named) else 1) as threads:
        results = list(threads.map(source_of, named))
    if errors := [result for result in results if isinstance(result, InputError)]:
        place = dict(zip((url for url, _ in named), places, strict=True)).get(errors[0].source, "")
        with errors_of_list(place):
            raise with_others(errors)
    return [result for result in results if isinstance(result, Source)], passed_over


def relative_names(urls: list[str]) -> dict[str, str]:
    """Return the name of each input: its path below the folder that contains all inputs.

    If the inputs have different protocols, a folder is determined for each protocol, and the names
    begin with the protocol. The name of standard input is `-`.
    """
    groups: dict[str, list[str]] = {}
    for url in urls:
        groups.setdefault(
            url.partition("://")[0] if is_url(url) else "-" if url == "-" else "file", []
        ).append(url)
    names = {}
    for protocol, members in groups.items():
        paths = {
            u: u
            if u == "-"
            else without_credentials(u).partition("://")[2]
            if is_url(u)
            else os.path.abspath(u)
            for u in members
        }
        common = (
            os.path.commonpath([os.path.dirname(p) for p in paths.values()])
            if protocol != "-"
            else ""
        )
        for url, path in paths.items():
            relative = os.path.relpath(path, common) if common else path
            names[url] = (
                f"{protocol}/{relative}" if len(groups) > 1 and protocol != "-" else relative
            )
    return _told_apart(names)


def _told_apart(names: dict[str, str]) -> dict[str, str]:
    """Add numbers to equal names of URLs that differ only in their query.

    A name must not contain the query, because a query may hold a secret.
    """
    occurrences = Counter(names.values())
    seen: Counter[str] = Counter()
    for url, name in names.items():
        if occurrences[name] > 1:
            seen[name] += 1
            names[url] = f"{name}~{seen[name]}"
    return names


def _source(
    url: str, name: str, format: Format, spool: str | None, info: dict[str, Any] | None
) -> tuple[Source, bytes]:
    """Return an input, and the first bytes of the file."""
    place = spool if url == "-" and spool is not None else url
    _refuse_special(place)
    with open_input(place) as file:
        head = file.read(LOOK_BYTES)
        size, fingerprint = size_and_fingerprint(place, info)
    if not head:
        raise InputError(
            "empty: the command in front of thdpack wrote nothing"
            if url == "-"
            else "the file is empty; write or download it again",
            source=place,
        )
    compression = detect(head)
    if format == "auto":
        format = recognised(head, suffix(url))
    if FORMATS[format].is_table and compression != "none":
        raise InputError(
            f"a {compression} archive of a table; unpack it, because {format} files have internal "
            "compression",
            source=place,
        )
    source = Source(
        url=place,
        name=name,
        bytes=size,
        fingerprint=fingerprint,
        format=format,
        compression=compression,
        piece=PIECE_BYTES,
    )
    return source, head


def _refuse_special(url: str) -> None:
    """Refuse files that can be read only once, because a build reads inputs more than once.

    Raises:
        InputError: the file is a pipe, socket or device, or it is missing.
    """
    if is_url(url):
        return
    with input_errors(url):
        mode = os.stat(url).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(
            f"{special(mode)}, not a file; pass its output as standard input: "
            "… | thdpack preprocess -",
            source=url,
        )


def size_and_fingerprint(url: str, info: dict[str, Any] | None = None) -> tuple[int, str]:
    """Return a file's size in bytes, and its fingerprint.

    The fingerprint includes ctime, because mtime can be set back.
    """
    if not is_url(url):
        found = os.stat(url)
        return (
            found.st_size,
            f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}-{found.st_ino}",
        )
    if info is None:
        fs, path = file_system(url)
        fs.invalidate_cache()  # a cached listing may be outdated
        info = cast(
            "dict[str, Any]",
            request_with_retries(RemoteStore(url, INTERRUPTED), lambda: fs.info(path), 0),
        )
    size, tag = int(info.get("size") or 0), version_tag_of(info)
    return size, tag if "-" in tag else f"{size}{_UNTAGGED}{uuid.uuid4().hex}"


def unchanged(source: Source) -> bool:
    """Return whether a source is unchanged since it was found.

    Inodes are not compared, because each machine may see a different inode of the same file.

    Raises:
        InputError: the source is missing.
    """
    with input_errors(source.url):
        found = size_and_fingerprint(source.url)[1]
    if _UNTAGGED in source.fingerprint:
        return found.partition(_UNTAGGED)[0] == source.fingerprint.partition(_UNTAGGED)[0]
    parts = None if is_url(source.url) else 3  # size, mtime and ctime
    return found.split("-")[:parts] == source.fingerprint.split("-")[:parts]


def task_bytes(sources: Sequence[Source]) -> int:
    """Return the approximate number of bytes for each map task, from the sizes of the inputs."""
    return max(
        TASK_BYTES // 4, min(TASK_BYTES, sum(source.bytes for source in sources) // FEWEST_TASKS)
    )


def cut(source: Source, size: int) -> list[tuple[int, int]]:
    """Return ranges of about `size` bytes for map tasks; one range if the source cannot be cut."""
    if FORMATS[source.format].can_be_cut and source.compression == "none":
        return _cut_anywhere(source, size)
    return [(0, source.bytes)]


def _cut_anywhere(source: Source, size: int) -> list[tuple[int, int]]:
    """Return byte ranges of about `size` bytes. Each range consists of whole pieces."""
    pieces = max(1, -(-source.bytes // source.piece))
    tasks = min(pieces, max(1, -(-source.bytes // size)))
    edges = [min(source.bytes, pieces * i // tasks * source.piece) for i in range(tasks + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def every_range(sources: Sequence[Source]) -> list[tuple[int, int, int]]:
    """Return ranges that cover all sources: (index of the source, begin, end) of each range."""
    size = task_bytes(sources)
    return [
        (i, begin, end)
        for i, source in enumerate(sources)
        for begin, end in _cut_anywhere(source, size)
    ]
