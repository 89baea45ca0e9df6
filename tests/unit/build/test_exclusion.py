"""The search of --exclude finds the same matches as Python's operator `in`. Errors in a file of
--exclude name the file, and the line if one line is wrong.

The entries of a file of sequences are stored as one text. A window is WINDOW tokens of this text.
Sequences shorter than a window do not count as contained.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.build.exclusion.containment_kernel import WINDOW, window_codes
from pipeline.build.exclusion.entries import NameEntries, SequenceEntries, read_entries
from pipeline.build.exclusion.sequence_index import ContainedIn, Containing, prefix_free
from pipeline.build.exclusion.suffix_order import suffix_order
from pipeline.build.named_files.exclude.exclude_file import prepare_exclusions
from pipeline.build.named_files.named_file import NamedFile, named_files
from pipeline.build.options import PreprocessOptions
from pipeline.build.task_results import PreparedFile
from pipeline.inputs.find import size_and_fingerprint
from pipeline.storage.local_folder import LocalFolder
from schemas.errors import InputError

pieces = st.lists(st.sampled_from([b"\4", b"\5", b"\4" * 7, b"\5\4" * 6]), min_size=1, max_size=12)
sequences = st.lists(pieces.map(b"".join), min_size=1, max_size=8)


def entries_of(texts: list[bytes]) -> SequenceEntries:
    text = np.frombuffer(b"".join(t + b"\0" for t in texts), dtype=np.uint8)
    return SequenceEntries(
        ids=np.empty(0, dtype=np.uint8),
        id_edges=np.zeros(len(texts) + 1, dtype=np.int64),
        text=text,
        starts=np.cumsum([0, *(len(t) + 1 for t in texts)]),
        order=suffix_order(text),
    )


def joined(texts: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    edges = np.cumsum([0, *map(len, texts)])
    return np.frombuffer(b"".join(texts), dtype=np.uint8), edges, np.arange(len(texts))


@given(sequences)
@settings(derandomize=True)
def test_windows_are_sorted_by_the_text_from_their_start_to_the_end_of_the_entry(
    texts: list[bytes],
) -> None:
    text = entries_of(texts).text.tobytes()
    windows = [i for i in range(len(text)) if 0 not in text[i : i + WINDOW].ljust(WINDOW, b"\0")]
    expected = sorted(windows, key=lambda i: (text[i : text.index(0, i)], i))
    assert suffix_order(np.frombuffer(text, dtype=np.uint8)).tolist() == expected


@given(sequences, sequences)
@settings(derandomize=True)
def test_the_first_entry_that_contains_a_record_is_found(
    texts: list[bytes], records: list[bytes]
) -> None:
    found = ContainedIn(entries_of(texts)).find(*joined(records))
    assert found.tolist() == [
        next((i for i, t in enumerate(texts) if len(r) >= WINDOW and r in t), -1) for r in records
    ]


@given(sequences, sequences)
@settings(derandomize=True)
def test_the_first_of_the_shortest_entries_that_a_record_contains_is_found(
    texts: list[bytes], records: list[bytes]
) -> None:
    texts = sorted(set(texts), key=lambda text: (len(text), text))
    keys = np.arange(len(texts))
    found = Containing([entries_of(texts)], keys, keys).find(*joined(records))
    assert found.tolist() == [
        next((i for i, t in enumerate(texts) if len(t) >= WINDOW and t in r), -1) for r in records
    ]


def test_an_entry_that_begins_with_a_shorter_entry_is_not_searched_for() -> None:
    """Each of the 400 entries begins with all shorter entries."""
    texts = [b"\5" * (WINDOW + i) for i in range(400)]
    entries = entries_of(texts)
    begin, end, rank = entries.starts[:-1], entries.starts[1:] - 1, np.arange(len(texts))
    codes = window_codes(entries.text)[begin]
    assert prefix_free(entries.text, begin, end, codes, rank).tolist() == [0]
    record = [b"\5" * 300, b"\5" * 412, b"\4" + b"\5" * 20]
    assert Containing([entries], rank, rank).find(*joined(record)).tolist() == [0, 0, 0]
    assert ContainedIn(entries).find(*joined(record)).tolist() == [300 - WINDOW, -1, -1]


def test_the_first_entry_that_contains_a_record_is_found_among_thousands_of_occurrences() -> None:
    """The sorted windows fill several blocks. Windows near the end of an entry are sorted first."""
    texts = [b"\5" * 3000, b"\5" * 2990 + b"\4" * 20, b"\5" * 5000]
    record = [b"\5" * size for size in (12, 2990, 3000, 3001, 5000)]
    found = ContainedIn(entries_of(texts)).find(*joined(record))
    assert found.tolist() == [0, 0, 0, 2, 2]


def prepare(path: Path, *, mmseqs: bool = False) -> PreparedFile:
    size, fingerprint = size_and_fingerprint(str(path))
    file = NamedFile(
        option="exclude",
        url=str(path),
        name=path.name,
        bytes=size,
        fingerprint=fingerprint,
        mmseqs=mmseqs,
        min_identity=0.3,
        min_coverage=0.5,
    )
    work = LocalFolder(path.parent, path.parent)
    return prepare_exclusions(file, "prepared-000000.arrow", work)


def test_the_prefix_mmseqs_is_refused_for_a_list_of_ids(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    path.write_text("P1\nP2\n")
    with pytest.raises(InputError, match=r"ids:1: not FASTA.*a list of ids .* omit mmseqs:"):
        prepare(path, mmseqs=True)


def no_such_value(value: str) -> str:
    """Return the error about a value of --exclude."""
    with pytest.raises(InputError) as error:
        named_files(PreprocessOptions(inputs=(), out="", exclude=(value,)))
    return str(error.value)


def test_an_error_names_a_misspelt_prefix_an_empty_value_and_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(">a\nMKV\n")
    for prefix in ("mmseq:", "mmseqs2:", "MMseqs:"):
        said = f"{prefix}{path}: no such file; did you mean mmseqs:{path}?"
        assert no_such_value(f"{prefix}{path}") == said
    for value, meant in (("0.5", "0.5"), (".3", ".3"), ("mmseqs", "0.5")):
        with pytest.raises(InputError, match=f"did you mean mmseqs:{meant}"):
            named_files(PreprocessOptions(inputs=(), out="", clusters=value))
    assert no_such_value("") == "--exclude '': expected the path or URL of a file"
    assert f"{tmp_path}: this is a folder, but --exclude expects" in no_such_value(str(tmp_path))


M8 = "P1\tt1\t{}\t9\t0\t0\t1\t9\t1\t9\t1e-5\t50\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": no sequence, id or result in this file"),
        (b"# nothing\n\n", ": no sequence, id or result in this file"),
        (b">a\n\n>b\n", ": no sequence, id or result in this file"),
        (b"PAR1\x00\x01", ": binary data, expected FASTA, a list of ids (one on each line), or a"),
        (b"P1\nP2 kinase\n", ":2: 2 words, expected one id on each line of a list of ids"),
        (b"a\tb\n1\t2\n", ":1: not a result table of MMseqs2 or BLAST, which has the 12 columns"),
        (b"Entry,Name\nP1,x\n", ":1: 'Entry,Name' looks like a line of CSV, expected FASTA, a"),
        (b"# x\nEntry;Name\n", ":2: 'Entry;Name' looks like a line of CSV, expected FASTA, a"),
        (b"query\ttarget\tfident\n", ":1: no column 'qstart' in the header line"),
        (b"query\ttarget\tqcov\n", ":1: no column 'fident' in the header line"),
        (M8.format("0.5").encode() + b"P1\tt1\n", ":2: 2 columns, expected 12"),
        (b"# x\n" + M8.format("much").encode(), ":2: 'much' in column fident is not a number"),
        (b"query\ttarget\tfident\tqcov\nP1\tt1\t\t1\n", ":2: '' in column fident is not a number"),
    ],
)
def test_an_error_names_the_file_and_the_line_if_one_line_is_wrong(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        prepare(path)
    assert str(error.value).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    ("header", "row", "kept"),
    [
        ("query\ttarget\tfident\tqcov\ttcov", "q\tt\t0.3\t0.1\t0.5", True),
        ("query\ttarget\tfident\tqcov\ttcov", "q\tt\t0.29\t0.9\t0.9", False),
        ("query\ttarget\tfident\tqcov\ttcov", "q\tt\t0.9\t0.4\t0.49", False),
        ("tcov\tpident\ttarget\tquery", "50\t30\tt\tq", True),
        ("tcov\tpident\ttarget\tquery", "0.5\t0.9\tt\tq", False),
        ("qseqid\tsseqid\tpident\tqstart\tqend\tsstart\tsend", "q\tt\t30\t9\t3\t1\t5", True),
        ("", "q\tt\t30.0\t9\t0\t0\t1\t9\t1\t9\t1e-5\t50", True),
        ("", "q\tt\t29.9\t9\t0\t0\t1\t9\t1\t9\t1e-5\t50", False),
    ],
)
def test_only_rows_with_enough_identity_and_coverage_are_kept(
    tmp_path: Path, header: str, row: str, kept: bool
) -> None:
    path = tmp_path / "table"
    path.write_text("\n".join(filter(None, ["# comment", header, row, ""])))
    prepared = prepare(path)
    entries = read_entries(LocalFolder(tmp_path, tmp_path), prepared.file)
    assert isinstance(entries, NameEntries)
    assert prepared.rows == 1
    assert (entries.match.size == 2) == kept
    assert [entries.id(i) for i in range(entries.id_edges.size - 1)] == [b"q", b"t"] * kept
