"""Convert a table of clusters (`--clusters FILE`, `--sample-clusters FILE`) into a work file.

The table is text with two columns, as MMseqs2 writes it: representative, tab, member. A table of
--sample-clusters may have a third column, the member's weight. The order of the rows does not
matter. An id's key is the xxh3_64 of the id. Steps:

1. Read the text in blocks, and compute the keys of both columns. Append each row to one of 256
   temporary files. The upper bits of the member's key choose the file.
2. Sort each temporary file. If a member is in several clusters, note these clusters as pairs to
   join. If it has several weights, the largest weight counts.
3. Join the clusters of all pairs. The smallest key becomes the key of the joined cluster.
4. Write the sorted rows as the work file, which `cluster_table.py` reads.

Two ids with the same key count as one id. This can join clusters by mistake, but never divides one.
Memory is about 200 MB for a table of any size. The disk needs 32 bytes for each row, or 48 with
weights.
"""

from __future__ import annotations

import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from pipeline.build.named_files.clusters.cluster_kernel import parse_clusters
from pipeline.build.named_files.clusters.cluster_table import Rows, write_cluster_table
from pipeline.build.named_files.clusters.joined_keys import (
    JoinedKeys,
    join_keys,
    largest_weights,
    smallest_clusters,
)
from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.named_files.plain_text import named_text
from pipeline.build.task_results import PreparedFile
from pipeline.storage.folder import Folder
from schemas.errors import BuildError, InputError

_BLOCK_BYTES: Final = 16 << 20
_LONGEST_LINE: Final = 1 << 20
_TEMPORARY_FILES: Final = 256
_SMALL_BYTES: Final = 2 << 20
"""Maximum size of a table that is sorted in one temporary file. The text of a compressed table may
be about ten times as large as the stored file."""
_EXAMPLES: Final = 3
"""Number of ids of the table to keep as examples for an error."""
_THIRD_COLUMN: Final = 2
"""Fault of a line with more columns than expected."""
_FAULTS: Final = {
    1: "expected a representative, a tab and a member on each line, but this line has no tab",
    2: "expected two columns, representative and member, but this line has more",
    3: "an id is empty; expected a representative, a tab and a member on each line",
    4: "expected a third column, the member's weight, because the first line has one",
    5: "expected a weight in the third column, a number from 0.000001 to 1000000",
}
_UNWEIGHTED: Final = (
    "this line has more than two columns, but the first line has no weight in a third column"
)


def prepare_clusters(file: NamedFile, name: str, work: Folder) -> PreparedFile:
    """Read a table of clusters, check it, and write its content as the work file `name`.

    Raises:
        InputError: the table cannot be read, is empty, or has a line without two ids.
        BuildError: a file cannot be written.
    """
    with _temporary_paths(file, name, work) as paths:
        examples: list[str] = []
        columns = 2
        with named_text(file) as stream, ExitStack() as opened:
            files = [opened.enter_context(open(path, "ab", buffering=0)) for path in paths]
            for rows in _read(stream, file, examples):
                columns = len(rows)
                _distribute(rows, files)
        if not examples:
            raise InputError("no cluster in this file", source=file.url)
        joined = join_keys(np.concatenate([_sort(path, columns) for path in paths]))
        count, digest = _digest(_sorted_rows(paths, joined, columns), columns)
        written = write_cluster_table(
            _sorted_rows(paths, joined, columns), examples, name, work, weighted=columns > 2
        )
    return PreparedFile(
        option=file.option,
        name=file.name,
        bytes=file.bytes,
        file=written,
        rows=count,
        xxh3_128=digest,
    )


@contextmanager
def _temporary_paths(file: NamedFile, name: str, work: Folder) -> Iterator[list[Path]]:
    """Yield paths for temporary files, in a new folder that is removed at the end.

    If the work folder is on a local disk, the new folder is inside the work folder.

    name: name of the work file, for errors.

    Raises:
        BuildError: a file cannot be written.
    """
    folder = work.where() if work.local else None
    with (
        _disk_errors(work.where(name)),
        tempfile.TemporaryDirectory(prefix="thdpack-clusters-", dir=folder) as scratch,
    ):
        yield [
            Path(scratch) / f"{i:03d}"
            for i in range(1 if file.bytes <= _SMALL_BYTES else _TEMPORARY_FILES)
        ]


@contextmanager
def _disk_errors(name: str) -> Iterator[None]:
    """Turn errors of temporary files into BuildErrors."""
    try:
        yield
    except OSError as error:
        if isinstance(error, InterruptedError):
            raise
        raise BuildError(
            f"cannot write {name}: {error.strerror or error}; "
            "make room, then run the same command to resume"
        ) from error


def _read(stream: BinaryIO, file: NamedFile, examples: list[str]) -> Iterator[Rows]:
    """Yield the rows of a table in blocks, and append the first members to `examples`.

    The first line that is not blank decides whether a table of --sample-clusters has weights.

    Raises:
        InputError: a line does not have two ids.
    """
    lines, rest = 0, b""
    weighted: bool | None = None if file.option == "sample-clusters" else False
    while block := stream.read(_BLOCK_BYTES):
        text = rest + block
        if not lines:
            text = text.removeprefix(BOM_UTF8)
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        if len(rest) > _LONGEST_LINE:
            lines += text.count(b"\n") + 1
            raise InputError(
                "this line has more than 1 MiB, so the file is not a table of clusters",
                source=file.url,
                line=lines,
            )
        if end:
            if weighted is None:
                weighted = _has_weights(text[:end])
            yield _parsed(text[:end], lines, file, examples, weighted=bool(weighted))
            lines += text.count(b"\n")
    if rest:
        if weighted is None:
            weighted = _has_weights(rest)
        yield _parsed(rest, lines, file, examples, weighted=bool(weighted))


def _has_weights(text: bytes) -> bool | None:
    """Return whether the first line that is not blank has a third column; None for blank text."""
    line = text.lstrip(b"\r\n ").partition(b"\n")[0]
    return line.count(b"\t") > 1 if line else None


def _parsed(
    text: bytes, lines: int, file: NamedFile, examples: list[str], *, weighted: bool
) -> Rows:
    """Return the rows of some lines.

    lines: number of lines before the text.

    Raises:
        InputError: a line does not have two ids, or lacks a valid weight.
    """
    most = text.count(b"\n") + 1
    members, clusters = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.uint64)
    weights = np.empty(most if weighted else 0, dtype=np.uint64)
    rows, read, fault = parse_clusters(
        np.frombuffer(text, dtype=np.uint8), members, clusters, weights
    )
    if fault:
        sampled = file.option == "sample-clusters"
        message = _UNWEIGHTED if sampled and fault == _THIRD_COLUMN else _FAULTS[fault]
        raise InputError(message, source=file.url, line=lines + read)
    if rows and len(examples) < _EXAMPLES:
        for line in text.split(b"\n", 2 * _EXAMPLES)[: 2 * _EXAMPLES]:
            _, tab, member = line.strip().partition(b"\t")
            if tab and len(examples) < _EXAMPLES:
                id = member.partition(b"\t")[0]
                examples.append(id.decode("utf-8", "backslashreplace"))
    found = members[:rows], clusters[:rows]
    return (*found, weights[:rows]) if weighted else found


def _distribute(columns: Rows, files: Sequence[BinaryIO]) -> None:
    """Append each row to the file that the upper bits of its member's key choose.

    Raises:
        BuildError: a file cannot be written.
    """
    chosen = ((columns[0] >> np.uint64(56)) * np.uint64(len(files)) >> np.uint64(8)).astype(
        np.uint8
    )
    order = np.argsort(chosen, kind="stable")
    rows = np.stack([column[order] for column in columns], axis=1)
    edges = np.searchsorted(chosen[order], np.arange(len(files) + 1)).tolist()
    for file, first, last in zip(files, edges[:-1], edges[1:], strict=True):
        if last > first:
            with _disk_errors(file.name):
                file.write(rows[first:last].data)


def _sort(path: Path, columns: int) -> NDArray[np.uint64]:
    """Sort a file's rows by member, and keep one row for each member.

    Args:
        columns: number of columns of the rows.
    Returns:
        uint64[M, 2], pairs of clusters that share a member.
    """
    rows = np.fromfile(path, dtype=np.uint64).reshape(-1, columns)
    members, clusters, pairs = smallest_clusters(rows[:, 0], rows[:, 1])
    weights = [largest_weights(rows[:, 0], rows[:, column]) for column in range(2, columns)]
    path.write_bytes(b"".join(column.tobytes() for column in (members, clusters, *weights)))
    return pairs


def _sorted_rows(paths: Sequence[Path], joined: JoinedKeys, columns: int) -> Iterator[Rows]:
    """Yield the sorted rows of all files. If a cluster was joined with others, the key of the
    joined cluster replaces the cluster's own key."""
    for path in paths:
        members, clusters, *weights = np.fromfile(path, dtype=np.uint64).reshape(columns, -1)
        yield members, joined.of(clusters), *weights


def _digest(sorted_rows: Iterable[Rows], columns: int) -> tuple[int, str]:
    """Return the number of rows and their hash. The hash does not depend on how the rows are
    divided into parts."""
    rows, hashes = 0, [xxhash.xxh3_128() for _ in range(columns)]
    for part in sorted_rows:
        for hashed, values in zip(hashes, part, strict=True):
            hashed.update(values.data)
        rows += part[0].size
    return rows, xxhash.xxh3_128_hexdigest(b"".join(hashed.digest() for hashed in hashes))
