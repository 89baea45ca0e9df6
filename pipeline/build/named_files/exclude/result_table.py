"""Read a result table of MMseqs2 or BLAST that `--exclude` names.

The table has tabs between its columns. Without a header line, it has the 12 columns of BLAST's
format 6, which MMseqs2 calls m8. Lines that begin with # are comments, as in BLAST's format 7.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.build.exclusion.entries import ENOUGH, NameEntries
from pipeline.build.exclusion.name_index import name_hashes
from pipeline.inputs.error_location import plain_text
from pipeline.inputs.source import Source
from schemas.errors import InputError
from schemas.text.phrases import plural

_M8: Final = (
    *("query", "target", "fident", "alnlen", "mismatch", "gapopen"),
    *("qstart", "qend", "tstart", "tend", "evalue", "bits"),
)
_OTHER_NAMES: Final = {
    "qseqid": "query",
    "sseqid": "target",
    "sstart": "tstart",
    "send": "tend",
}
"""Column names of BLAST, and the names in MMseqs2 that replace them."""
_SPANS: Final = ("qstart", "qend", "tstart", "tend")
_BLOCK: Final = 16 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Columns of a table.

    names: names of all columns
    skipped: number of lines before the first row
    """

    names: tuple[str, ...]
    skipped: int

    @property
    def identity(self) -> str:
        return "pident" if "pident" in self.names else "fident"

    @property
    def coverage(self) -> tuple[str, ...]:
        return tuple(name for name in ("qcov", "tcov") if name in self.names)

    @property
    def spans(self) -> tuple[str, ...]:
        """Columns with the ends of the alignment, used if no column has the coverage."""
        return () if self.coverage else _SPANS

    @property
    def numbers(self) -> tuple[str, ...]:
        return (self.identity, *self.coverage, *self.spans)


def result_names(source: Source, identity: float, coverage: float) -> tuple[NameEntries, int]:
    """Return the names in rows of sufficient identity and coverage, and the number of all rows.

    If the table has no columns of coverage, only the identity is compared here. The entries then
    have numbers of aligned residues, from which the coverage is computed later.

    Args:
        identity, coverage: minimum values, from 0 to 1.
    Raises:
        InputError: the file cannot be read, or is not a result table.
    """
    layout = _layout(source)
    kept: list[dict[str, Any]] = []
    rows = 0
    percent = {"identity": layout.identity == "pident", "coverage": False}
    for batch in result_batches(source, layout):
        rows += batch.num_rows
        values = {name: batch.column(name).to_numpy() for name in layout.numbers}
        percent["identity"] |= bool((values[layout.identity] > 1).any())
        percent["coverage"] |= any(bool((values[name] > 1).any()) for name in layout.coverage)
        chosen = np.flatnonzero(_sufficient(values, layout, percent, identity, coverage))
        texts = {name: batch.column(name).take(pa.array(chosen)) for name in ("query", "target")}
        kept.append({**{name: array[chosen] for name, array in values.items()}, **texts})
    if not kept:
        return _name_entries(*2 * [pa.array([], pa.large_binary())], *2 * [np.empty(0, int)]), 0
    numbers = {name: np.concatenate([part[name] for part in kept]) for name in layout.numbers}
    # a later row may have shown that the numbers are in percent
    chosen = np.flatnonzero(_sufficient(numbers, layout, percent, identity, coverage))
    names = [pa.concat_arrays([part[name] for part in kept]) for name in ("query", "target")]
    query, target = (array.take(pa.array(chosen)) for array in names)
    aligned = [np.full(chosen.size, ENOUGH), np.full(chosen.size, ENOUGH)]
    if layout.spans:
        aligned = [
            np.abs(numbers[end][chosen] - numbers[start][chosen]).astype(np.int64) + 1
            for start, end in (("qstart", "qend"), ("tstart", "tend"))
        ]
    return _name_entries(query, target, *aligned), rows


def _sufficient(
    values: Mapping[str, NDArray[np.float64]],
    layout: Layout,
    percent: Mapping[str, bool],
    identity: float,
    coverage: float,
) -> NDArray[np.bool_]:
    """Return a mask of the rows with sufficient identity and coverage.

    The coverage counts only if the table has columns of coverage.

    Args:
        percent: whether identities and coverages are in percent.
    """
    found = values[layout.identity] / (100 if percent["identity"] else 1) >= identity
    if layout.coverage:
        largest = np.max([values[name] for name in layout.coverage], axis=0)
        found &= largest / (100 if percent["coverage"] else 1) >= coverage
    result: NDArray[np.bool_] = found
    return result


def _name_entries(
    query: pa.Array, target: pa.Array, q_aligned: NDArray[np.int64], t_aligned: NDArray[np.int64]
) -> NameEntries:
    """Return an entry for each id. The matches of an id are the other ids in the rows that have the
    id: the targets of a query, or the queries of a target."""
    both = pa.concat_arrays([query, target]).dictionary_encode()
    texts = both.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=lambda i: texts[i])
    rank = np.empty(len(texts), dtype=np.int64)
    rank[order] = np.arange(len(texts))
    ids = [texts[i] for i in order]
    codes = rank[both.indices.to_numpy()]
    name, match = codes, np.roll(codes, len(query))
    aligned = np.concatenate((q_aligned, t_aligned))
    hashes = name_hashes(ids)
    by_hash = np.argsort(hashes.view("S16"))
    place = np.empty(len(ids), dtype=np.int64)
    place[by_hash] = np.arange(len(ids))
    # if a pair has several alignments, the longest counts
    rows = np.lexsort((-aligned, match, place[name]))
    pairs = place[name[rows]] * len(ids) + match[rows]
    rows = rows[np.diff(pairs, prepend=-1) != 0]
    return NameEntries(
        ids=np.frombuffer(b"".join(ids), dtype=np.uint8),
        id_edges=np.cumsum([0, *map(len, ids)], dtype=np.int64),
        hash=hashes[by_hash].view(np.uint8),
        first=np.searchsorted(place[name[rows]], np.arange(len(ids) + 1)),
        match=match[rows],
        aligned=aligned[rows],
    )


def _layout(source: Source) -> Layout:
    """Return the columns of a table.

    Raises:
        InputError: the table has neither a header line nor 12 columns, or lacks a column.
    """
    with plain_text(source) as stream:
        for number, line in enumerate(iter(stream.readline, b"")):
            text = (line.removeprefix(BOM_UTF8) if number == 0 else line).strip(b"\r\n")
            if text.strip() and not text.startswith(b"#"):
                break
    words = text.decode("utf-8", "replace").split("\t")
    names = tuple(_OTHER_NAMES.get(word, word) for word in words)
    if "query" not in names or "target" not in names:
        if len(names) != len(_M8):
            raise InputError(
                f"not a result table of MMseqs2 or BLAST, which has the {len(_M8)} columns of "
                "format m8, or a header line with query, target, fident, qcov and tcov; this line "
                f"has {plural(len(names), 'column')} with other names. To leave out proteins of "
                "another table, give them as FASTA or as a list of ids (one on each line)",
                source=source.url,
                line=number + 1,
            )
        return Layout(names=_M8, skipped=number)
    layout = Layout(names=names, skipped=number + 1)
    missing = [name for name in layout.numbers if names.count(name) != 1]
    if missing:
        raise InputError(
            f"no column {missing[0]!r} in the header line, or more than one; expected query, "
            "target, fident (or pident), and the coverages (qcov, tcov or both) or the ends of the "
            "alignment (qstart, qend, tstart and tend)",
            source=source.url,
            line=number + 1,
        )
    return layout


def result_batches(source: Source, layout: Layout) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table: query and target as binary, the layout's numbers as double.

    Raises:
        InputError: the file cannot be read, a row has another number of columns, or a row has text
            where a number is expected.
    """
    from pyarrow import csv

    kinds = {name: pa.float64() for name in layout.numbers}
    kinds |= {"query": pa.large_binary(), "target": pa.large_binary()}
    with plain_text(source) as stream:
        try:
            yield from csv.open_csv(
                pa.PythonFile(stream, mode="r"),
                read_options=csv.ReadOptions(
                    column_names=list(layout.names),
                    skip_rows=layout.skipped,
                    use_threads=False,
                    block_size=_BLOCK,
                ),
                parse_options=csv.ParseOptions(
                    delimiter="\t",
                    quote_char=False,
                    invalid_row_handler=lambda row: "skip" if row.text.startswith("#") else "error",
                ),
                convert_options=csv.ConvertOptions(
                    include_columns=list(kinds), column_types=kinds, null_values=[]
                ),
            )
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise _refused_row(source, layout) or InputError(
                f"pyarrow cannot read this table: {error}", source=source.url
            ) from error


def _refused_row(source: Source, layout: Layout) -> InputError | None:
    """Read a table again; return an error that names the first wrong row; None if there is none."""
    with plain_text(source) as stream:
        for number, line in enumerate(iter(stream.readline, b""), start=1):
            values = line.rstrip(b"\r\n").split(b"\t")
            if number <= layout.skipped or values[0].startswith(b"#") or values == [b""]:
                continue
            if len(values) != len(layout.names):
                problem = f"{len(values)} columns, expected {len(layout.names)} as in other lines"
                return InputError(problem, source=source.url, line=number)
            for name, value in zip(layout.names, values, strict=True):
                if name in layout.numbers and not _is_number(value):
                    text = value.decode("utf-8", "replace")
                    problem = f"{text!r} in column {name} is not a number"
                    return InputError(problem, source=source.url, line=number)
    return None


def _is_number(value: bytes) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
