"""What Biopython reads, we read: on generated text, cut into chunks and ranges anywhere."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.fasta import FastaSyntaxError
from tests.oracle import beyond_biopython, biopython
from tests.unit.test_fasta import parse, records

PIECES = [">", "\n", "\r", "\r\n", "\n>", ">a", "MKTAYI", "acd", "*", " ", "\t", ";", "J", "1", "é", "\xa0", "\x1c", "\x0b", "\u2028", "☺", "-.", "\x01"]
ASCII = [">", "\n", "\r\n", "\n>", "\n>id text\n", "MKTAYIAKQR", "lagv", "*", " ", "B", "J", "X-."]
text = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.lists(st.sampled_from(ASCII), max_size=60).map("".join)


@pytest.mark.long
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text.map(str.encode), st.integers(1, 70), st.integers(0, 200), st.booleans())
def test_ids_and_residues_are_biopythons_wherever_both_accept(data: bytes, chunk: int, cut: int, at_start: bool) -> None:
    data = b">" + data if at_start else data
    expected = biopython(data)
    assert expected is not None
    try:
        found = records(parse(data, cuts=(min(cut, len(data)),) if cut and data else (), chunk=chunk, block=2 * chunk, records=3))
    except FastaSyntaxError:
        # DESIGN.md: text before the first `>`, and binary data
        assert beyond_biopython(data) or b"\x01" in data
        return
    if not beyond_biopython(data):
        assert found == expected


@settings(max_examples=2_000, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 40))
def test_any_bytes_are_read_as_biopython_does_or_refused(data: bytes, chunk: int) -> None:
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


@settings(max_examples=2_000, deadline=None)
@given(text.map(str.encode), st.data())
def test_cutting_never_shows(data: bytes, draw: st.DataObject) -> None:
    try:
        whole = parse(b">" + data)
    except FastaSyntaxError as error:
        with pytest.raises(FastaSyntaxError) as caught:
            parse(b">" + data, chunk=draw.draw(st.integers(1, 9)), block=32)
        assert caught.value.offset == error.offset
        return
    cuts = tuple(sorted(draw.draw(st.lists(st.integers(1, len(data) + 1), max_size=4))))
    assert parse(b">" + data, cuts=cuts, chunk=draw.draw(st.integers(1, 30)), block=32, records=2) == whole
