"""Compare our FASTA parser with Biopython's on random text, in random chunks and ranges.

Hypothesis draws one string of letters, and each letter is replaced by a piece of FASTA. Drawing
each piece separately would take six times as long.

Set THDPACK_LONG to try ten times as many texts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.inputs.fasta import FastaSyntaxError
from tests.helpers.oracles.oracle import beyond_biopython, biopython
from tests.unit.inputs.test_fasta import parse, records

LINES = [">", "\n", "\r", "\r\n", "\n>", ">a"]
LETTERS = ["MKTAYI", "acd", "*", " ", "\t", ";", "J", "1", "-."]
ODD = ["é", "\xa0", "\x1c", "\x0b", "\u2028", "☺", "\x01"]
ASCII = [">", "\n", "\r\n", "\n>", "\n>id text\n", "MKTAYIAKQR", "lagv", "*", " ", "B", "J", "X-."]


def spelled(pieces: Sequence[str], *, least: int, most: int) -> st.SearchStrategy[bytes]:
    """Return a strategy for texts of `least` to `most` pieces, encoded as UTF-8."""
    names = [chr(ord("A") + i) for i in range(len(pieces))]
    table = str.maketrans(dict(zip(names, pieces, strict=True)))
    drawn = st.text("".join(names), min_size=least, max_size=most)
    return drawn.map(lambda text: text.translate(table).encode())


# With `least` 0, hypothesis draws five pieces on average, so `least` is larger in two strategies.
TEXTS = st.one_of(
    spelled(LINES + LETTERS + ODD, least=0, most=40),
    spelled(LINES + LETTERS + ODD, least=15, most=40),
    spelled(ASCII, least=20, most=60),
)
MANY = 10 if os.environ.get("THDPACK_LONG") else 1
FREELY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings(FREELY, max_examples=1_000 * MANY)
@given(TEXTS, st.integers(1, 70), st.integers(0, 200), st.booleans())
def test_ids_and_residues_agree_with_biopython_for_files_that_both_parsers_accept(
    data: bytes,
    chunk: int,
    cut: int,
    at_start: bool,
) -> None:
    data = b">" + data if at_start else data
    expected = biopython(data)
    assert expected is not None
    cuts = (min(cut, len(data)),) if cut and data else ()
    try:
        found = records(parse(data, cuts=cuts, chunk=chunk, block=2 * chunk, records=3))
    except FastaSyntaxError:
        # docs/reference/format.md excludes text before the first `>` and binary data
        assert beyond_biopython(data) or b"\x01" in data
        return
    if not beyond_biopython(data):
        assert found == expected


@settings(FREELY, max_examples=500 * MANY)
@given(st.binary(max_size=60), st.integers(1, 40))
def test_any_bytes_are_read_as_biopython_reads_them_or_refused(data: bytes, chunk: int) -> None:
    data = b">" + data
    try:
        found = records(parse(data, chunk=chunk, block=2 * chunk, records=3))
    except FastaSyntaxError as error:
        if not 0 <= error.offset <= len(data):
            raise
        return
    expected = biopython(data)
    if expected is None:  # a header that is not UTF-8
        assert len(found) == data.replace(b"\r", b"\n").count(b"\n>") + 1
    elif not beyond_biopython(data):
        assert found == expected


@settings(FREELY, max_examples=500 * MANY)
@given(TEXTS, st.lists(st.integers(0, 400), max_size=4), st.integers(1, 30))
def test_records_do_not_depend_on_where_a_text_is_cut(
    data: bytes,
    places: list[int],
    chunk: int,
) -> None:
    data = b">" + data
    try:
        whole = parse(data)
    except FastaSyntaxError as error:
        with pytest.raises(FastaSyntaxError) as caught:
            parse(data, chunk=chunk, block=32)
        assert caught.value.offset == error.offset
        return
    cuts = tuple(sorted(1 + place % len(data) for place in places))
    assert parse(data, cuts=cuts, chunk=chunk, block=32, records=2) == whole
