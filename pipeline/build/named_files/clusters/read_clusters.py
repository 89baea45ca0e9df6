"""Convert a table of clusters (`--clusters FILE`) into a work file.

The table is text with two columns, as MMseqs2 writes it: representative, tab, member. The order of
its rows does not matter. An id's key is the xxh3_64 of the id. Steps:

1. Read the text in blocks, compute the keys of both columns, and append each row to one of 256
   temporary files (buckets), chosen by the upper bits of the member's key.
2. Sort each bucket. If a member is in several clusters, note these clusters as pairs to join.
3. Join the clusters of all pairs. The smallest key becomes the key of the joined cluster.
4. Write the sorted rows as the work file, which `cluster_table.py` reads.

Two ids with the same key count as one id. This can only join clusters, never cut one in two. Memory
is about 200 MB, whatever the size of the table. The disk needs 32 bytes for each row.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from pipeline.build.named_files.clusters.cluster_kernel import parse_clusters
from pipeline.build.named_files.clusters.cluster_table import write_cluster_table
from pipeline.build.named_files.clusters.joined_keys import JoinedKeys, join_keys, smallest_clusters
from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.named_files.plain_text import named_text
from pipeline.build.task_results import PreparedFile
from pipeline.storage.folder import Folder
from schemas.errors import BuildError, InputError

_BLOCK_BYTES: Final = 16 << 20
_LONGEST_LINE: Final = 1 << 20
_BUCKETS: Final = 256
_SMALL_BYTES: Final = 2 << 20
"""Maximum size of a table file that is sorted as one bucket. If the file is compressed, its text is
at most about ten times as large."""
_EXAMPLES: Final = 3
"""Number of ids to keep, for an error that shows what ids of the table look like."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_FAULTS: Final = {
    1: "expected a representative, a tab and a member on each line, but this line has no tab",
    2: "expected two columns, representative and member, but this line has more",
    3: "an id is empty; expected a representative, a tab and a member on each line",
}

Rows = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""Keys of members and of their clusters, each uint64[N]."""


def prepare_clusters(file: NamedFile, name: str, work: Folder) -> PreparedFile:
    """Read a table of clusters, check it, and write its content as the work file `name`.

    Raises:
        InputError: the table cannot be read, is empty, or has a line without two ids.
        BuildError: a file cannot be written.
    """
    with _buckets_of(file, name, work) as buckets:
        examples: list[str] = []
        with named_text(file) as stream, ExitStack() as opened:
            files = [opened.enter_context(open(path, "ab", buffering=0)) for path in buckets]
            for members, clusters in _read(stream, file.url, examples):
                _distribute(members, clusters, files)
        if not examples:
            raise InputError("no cluster in this file", source=file.url)
        joined = join_keys(np.concatenate([_sort(path) for path in buckets]))
        rows, digest = _digest(_sorted_rows(buckets, joined))
        written = write_cluster_table(_sorted_rows(buckets, joined), examples, name, work)
    return PreparedFile(
        option="clusters",
        name=file.name,
        bytes=file.bytes,
        file=written,
        rows=rows,
        xxh3_128=digest,
    )


@contextmanager
def _buckets_of(file: NamedFile, name: str, work: Folder) -> Iterator[list[Path]]:
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
            Path(scratch) / f"{i:03d}" for i in range(1 if file.bytes <= _SMALL_BYTES else _BUCKETS)
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


def _read(stream: BinaryIO, url: str, examples: list[str]) -> Iterator[Rows]:
    """Yield the rows of a table in blocks, and append the first members to `examples`.

    Raises:
        InputError: a line does not have two ids.
    """
    lines, rest = 0, b""
    while block := stream.read(_BLOCK_BYTES):
        text = rest + block
        if not lines:
            text = text.removeprefix(_BYTE_ORDER_MARK)
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        if len(rest) > _LONGEST_LINE:
            lines += text.count(b"\n") + 1
            raise InputError(
                "this line has more than 1 MiB, so the file is not a table of clusters",
                source=url,
                line=lines,
            )
        if end:
            yield _parsed(text[:end], lines, url, examples)
            lines += text.count(b"\n")
    if rest:
        yield _parsed(rest, lines, url, examples)


def _parsed(text: bytes, lines: int, url: str, examples: list[str]) -> Rows:
    """Return the rows of some lines.

    lines: number of lines before the text.

    Raises:
        InputError: a line does not have two ids.
    """
    most = text.count(b"\n") + 1
    members, clusters = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.uint64)
    rows, read, fault = parse_clusters(np.frombuffer(text, dtype=np.uint8), members, clusters)
    if fault:
        raise InputError(f"{_FAULTS[fault]}", source=url, line=lines + read)
    if rows and len(examples) < _EXAMPLES:
        for line in text.split(b"\n", 2 * _EXAMPLES)[: 2 * _EXAMPLES]:
            _, tab, member = line.strip().partition(b"\t")
            if tab and len(examples) < _EXAMPLES:
                examples.append(member.decode("utf-8", "backslashreplace"))
    return members[:rows], clusters[:rows]


def _distribute(
    members: NDArray[np.uint64], clusters: NDArray[np.uint64], files: Sequence[BinaryIO]
) -> None:
    """Append each row to the file that the upper bits of its member's key choose.

    Raises:
        BuildError: a file cannot be written.
    """
    bucket = ((members >> np.uint64(56)) * np.uint64(len(files)) >> np.uint64(8)).astype(np.uint8)
    order = np.argsort(bucket, kind="stable")
    rows = np.empty((members.size, 2), dtype=np.uint64)
    rows[:, 0], rows[:, 1] = members[order], clusters[order]
    edges = np.searchsorted(bucket[order], np.arange(len(files) + 1)).tolist()
    for file, first, last in zip(files, edges[:-1], edges[1:], strict=True):
        if last > first:
            with _disk_errors(file.name):
                file.write(rows[first:last].data)


def _sort(path: Path) -> NDArray[np.uint64]:
    """Sort a file's rows by member, and keep one row for each member.

    Returns:
        uint64[M, 2], pairs of clusters that share a member.
    """
    rows = np.fromfile(path, dtype=np.uint64).reshape(-1, 2)
    members, clusters, pairs = smallest_clusters(rows[:, 0], rows[:, 1])
    path.write_bytes(members.tobytes() + clusters.tobytes())
    return pairs


def _sorted_rows(buckets: Sequence[Path], joined: JoinedKeys) -> Iterator[Rows]:
    """Yield the sorted rows of all files. If a cluster was joined with others, the key of the
    joined cluster replaces the cluster's own key."""
    for path in buckets:
        members, clusters = np.fromfile(path, dtype=np.uint64).reshape(2, -1)
        yield members, joined.of(clusters)


def _digest(sorted_rows: Iterable[Rows]) -> tuple[int, str]:
    """Return the number of rows and their hash, which does not depend on how the rows are divided
    into parts."""
    rows, columns = 0, (xxhash.xxh3_128(), xxhash.xxh3_128())
    for part in sorted_rows:
        for hashed, values in zip(columns, part, strict=True):
            hashed.update(values.data)
        rows += part[0].size
    return rows, xxhash.xxh3_128_hexdigest(columns[0].digest() + columns[1].digest())
