"""The FASTA parser reads unusual text and reports broken text. Chunks and ranges do not change its
result."""

from __future__ import annotations

import io

import numpy as np
import pytest

from pipeline.inputs.fasta import FastaParser, FastaSyntaxError, line_of
from pipeline.inputs.record_block import RecordBlock
from schemas.vocabulary import ESM2
from tests.helpers.oracles.oracle import Record

Row = tuple[str, list[int], int, int]


def rows_of(blocks: list[RecordBlock]) -> list[Row]:
    """Return (id, tokens, offset, unknown) of each record."""
    rows = []
    for block in blocks:
        begins, id_begins = np.append(0, block.ends[:-1]), np.append(0, block.id_ends[:-1])
        for i in range(len(block)):
            name = bytes(block.ids[id_begins[i] : block.id_ends[i]]).decode(
                "utf-8", "surrogateescape"
            )
            rows.append(
                (
                    name,
                    block.tokens[begins[i] : block.ends[i]].tolist(),
                    int(block.offset[i]),
                    int(block.unknown[i]),
                )
            )
    return rows


def parse(
    data: bytes,
    *,
    cuts: tuple[int, ...] = (),
    chunk: int = 1 << 16,
    block: int = 1 << 16,
    records: int = 1 << 10,
) -> list[Row]:
    """Return all records, read in ranges that end at `cuts`."""
    rows = []
    edges = [0, *cuts, None]
    parser = FastaParser(ESM2, chunk_bytes=chunk, block_bytes=block, block_records=records)
    for begin, end in zip(edges[:-1], edges[1:], strict=True):
        stream = io.BytesIO(data)
        stream.seek(begin or 0)
        # blocks are views, valid until the next read
        for one in parser.read(stream, begin=begin or 0, end=end):
            rows += rows_of([one])
    return rows


def letters(row: Row) -> str:
    return "".join(ESM2.tokens[t] for t in row[1]).replace("<unk>", "?")


def simply(data: bytes) -> list[tuple[str, str]]:
    return [(row[0], letters(row)) for row in parse(data)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b">a\nMKT\n>b\nAC\n", [("a", "MKT"), ("b", "AC")]),
        (b">a\r\nMKT\r\nAC\r\n", [("a", "MKTAC")]),
        (b">a\rMKT\rAC\r>b\rMK", [("a", "MKTAC"), ("b", "MK")]),
        (b"\xef\xbb\xbf>a\nMK", [("a", "MK")]),
        (b"\n \n;note\n>a\n\nMK\n\nT\n\n", [("a", "MKT")]),
        (b">a one > two\nM K\tT \t\n", [("a", "MK?T")]),
        (b">a\nMK>T\n", [("a", "MK?T")]),
        (b">a\nmkT\n;MMM\nA;C\n", [("a", "MKTA?C")]),
        (b">a\nMK*\n*\n>b\n*\n>c\nMK*T*\n", [("a", "MK?"), ("b", ""), ("c", "MK?T")]),
        (b"> a\nMK\n>\nAC", [("a", "MK"), ("", "AC")]),
        (
            b">x\nM\n> \t a b\nK\n>  \r\nA\n>y\nC\n>\x1c\xff\n>\n>\tz\nG",
            [("x", "M"), ("a", "K"), ("", "A"), ("y", "C"), ("\udcff", ""), ("", ""), ("z", "G")],
        ),
        (
            "> é\xa0\nMK\n>\x0b☺ é\nMé\n>  \xa0\nAC\n".encode(),
            [("é", "MK"), ("☺", "M?"), ("", "AC")],
        ),
        (">é\xa0\nMé☺K\n".encode(), [("é", "M??K")]),
        (b">\xff\nMK\n", [("\udcff", "MK")]),
        (b">a\x01b c\x02\nMK", [("a\x01b", "MK")]),
        (b">a\nJO1\n", [("a", "?O?")]),
        (b">a\n-.XBUZO\n", [("a", "-.XBUZO")]),
        (b">a", [("a", "")]),
        (b"", []),
    ],
)
def test_unusual_text_is_read_as_documented(text: bytes, expected: list[tuple[str, str]]) -> None:
    assert simply(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (b"MKT\n>a\nMK\n", 1, "expected '>'"),
        (b"\n;c\n#x\n>a\nMK\n", 3, "expected '>'"),
        (b">a\nMK\n>b\nM\x00K\n", 4, "binary"),
        (b">a\nMK\n>b\x00\nMK\n", 3, "binary"),
        (b">a\nMK\n;\x00\n", 3, "binary"),
        (b">a\r\nMK\r\n>b\r\nM\xe5\r\n", 4, "not UTF-8: .*; convert text to UTF-8, as in `iconv"),
        (b">a\nMK\t\x07\n", 2, "binary"),
        (b"\x89PNG\r\n\x1a\n", 1, "not text, but binary data: give FASTA, or a table"),
    ],
)
def test_broken_text_is_an_error_that_names_its_line(text: bytes, line: int, message: str) -> None:
    with pytest.raises(FastaSyntaxError, match=message) as caught:
        parse(text)
    assert line_of(io.BytesIO(text), caught.value.offset) == line


TRICKY = (
    b"\xef\xbb\xbf;x\n\n>a b\nMKT*\n>b\r\nMK T\r\n;x>\r\nJ1\r\n\r\n> c\nac\tg\t\n*\n>d\n\n"
    b">\xc3\xa9\xc2\xa0\nMKT\xc3\xa9**\r>e\rAC\n>>f\n>g\nMKTAYIAKQRQISFVKSHFSRQ\n"
)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_headers_of_any_length_end_at_their_line_end(line_end: bytes) -> None:
    headers = [b"d" * size for size in (0, 1, *range(500, 530), 1023, 1024, 1025)]
    text = b"".join(b">a " + header + b" \t" + line_end + b"MK" + line_end for header in headers)
    (block,) = FastaParser(ESM2).read(io.BytesIO(text), begin=0, end=None)
    assert bytes(block.descriptions) == b"".join(headers)
    assert block.description_ends.tolist() == np.cumsum([*map(len, headers)]).tolist()
    assert block.ends.tolist() == list(range(2, 2 * len(headers) + 1, 2))


@pytest.mark.parametrize("size", [0, 511, 512, 1024])
def test_the_error_for_a_nul_in_a_header_gives_the_offset_of_the_nul(size: int) -> None:
    with pytest.raises(FastaSyntaxError) as raised:
        parse(b">a " + size * b"d" + b"\0d\r\nMK\n")
    assert raised.value.offset == 3 + size


def test_two_ranges_cut_at_any_byte_find_every_record_once_with_chunks_of_any_size() -> None:
    whole = parse(TRICKY)
    assert [row[0] for row in whole] == ["a", "b", "c", "d", "é", "e", ">f", "g"]
    for cut in range(1, len(TRICKY)):
        for chunk in (1, 2, 3, 7, 64):
            assert parse(TRICKY, cuts=(cut,), chunk=chunk, block=2 * chunk, records=2) == whole, (
                cut,
                chunk,
            )


def test_three_ranges_find_every_record_once() -> None:
    whole = parse(TRICKY)
    for first in range(1, len(TRICKY), 3):
        for second in range(first, len(TRICKY), 3):
            assert parse(TRICKY, cuts=(first, second), chunk=5, block=20) == whole, (first, second)


def test_a_line_without_end_is_an_error_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.inputs.fasta.chunks.MAX_RECORD_BYTES", 1 << 12)

    class Endless(io.RawIOBase):
        read_bytes = 0

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            buffer[:] = b"M" * len(buffer)
            if not self.read_bytes:
                buffer[:1] = b">"
            self.read_bytes += len(buffer)
            return len(buffer)

    stream = Endless()
    with pytest.raises(FastaSyntaxError, match="record of more than"):
        list(FastaParser(ESM2, chunk_bytes=256, block_bytes=256).read(stream))  # type: ignore[arg-type]
    assert stream.read_bytes <= 1 << 14


def test_lines_end_with_lf_crlf_or_cr() -> None:
    text = b"a\nb\r\nc\rd\n\re"
    assert {
        letter: line_of(io.BytesIO(text), text.index(letter))
        for letter in (b"a", b"b", b"c", b"d", b"e")
    } == {b"a": 1, b"b": 2, b"c": 3, b"d": 4, b"e": 6}


def records(rows: list[Row]) -> list[Record]:
    return [(name, tokens) for name, tokens, _, _ in rows]


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0", b"\x7fELF\2\1\1", b"abc\0def"])
def test_binary_data_is_reported_as_binary(data: bytes) -> None:
    with pytest.raises(FastaSyntaxError, match="not text, but binary data"):
        parse(data)
