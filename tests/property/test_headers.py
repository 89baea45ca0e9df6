"""Compare our compiled header parser with a slow one, and check malformed packed headers.

Packed headers are a compact form of the values that the parser found.
"""

from __future__ import annotations

import os
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.inputs.headers import pack_headers, unpack_headers
from tests.helpers.oracles.slow_headers import stated
from tests.unit.inputs.test_headers import joined, rows_of, words

IDS = [
    *["sp", "tr", "gi", "ref", "gb", "pir", "pdb", "|", "|", "|", "P69905", "HBA_HUMAN", "12"],
    *["UniRef50_", "UniRef90_", "UniRef100_", "UniRef10_", "UPI", "0123456789", "ABCDEF0123"],
    *["MGYP", "000851679260", "NP_", "XP_", "000509", ".1", ".", "AAA", "AAAA", "12345", "é", "_"],
    *["A" * 60, "7" * 255],  # the kernels have other code for long texts
]
WORDS = [
    *[" OS=", " OX=", " GN=", " PE=", " SV=", " n=", " Tax=", " TaxID=", " RepID=", " PL=", "OS="],
    *["=", " =", " ", "  ", "\t", "x", "Homo sapiens", "9606", "1", "5", "6", "99999999999", "["],
    *["2147483647", "2147483648", "00", "10", "(Fragment)", "(Fragments)", ", partial", " [", "]"],
    *["\1", "\xff", "é", "x" * 50, "y" * 64, "z " * 127, "w" * 255],
]
# the parser trims blanks around descriptions, and ids have no blanks
HEADERS = st.tuples(
    st.lists(st.sampled_from(IDS), max_size=6).map(lambda words: "".join(words).encode()),
    st.lists(st.sampled_from(WORDS), max_size=10).map(
        lambda words: "".join(words).encode("latin-1").strip()
    ),
)


@settings(max_examples=3_000 if os.environ.get("THDPACK_LONG") else 300)
@given(st.lists(HEADERS, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_any_headers_packed_in_any_order_are_read_as_a_slow_parser_reads_them(
    headers: list[tuple[bytes, bytes]], random: Random
) -> None:
    ids, descriptions = zip(*headers, strict=True)
    order = random.sample(range(len(headers)), len(headers))
    packed = pack_headers(
        *joined(ids), *joined(descriptions), np.array(order), keep_descriptions=True
    )
    columns = unpack_headers(*joined([ids[i] for i in order]), *packed)
    assert rows_of(columns) == [stated(*headers[i]) for i in order]
    assert words(columns.description) == [descriptions[i] or None for i in order]


@pytest.mark.parametrize(
    "header", [b"UniRef50_A0A Protein n=300 Tax=Homo TaxID=9606 RepID=A_B", b"gi|1|gb|A|"]
)
def test_a_packed_header_cut_at_any_byte_is_refused(header: bytes) -> None:
    identifier, _, description = header.partition(b" ")
    ids = joined([identifier])
    packed, _ = pack_headers(*ids, *joined([description]), np.arange(1))
    for size in range(1, packed.size):
        with pytest.raises(AssertionError, match="malformed"):
            unpack_headers(*ids, packed[:size], np.array([0, size]))


@given(st.binary(max_size=12), st.lists(st.binary(max_size=90), min_size=1, max_size=5))
def test_malformed_packed_headers_are_refused_or_yield_only_parts_of_the_input(
    identifier: bytes, packed: list[bytes]
) -> None:
    ids, edges = joined([identifier] * len(packed))
    try:
        columns = unpack_headers(ids, edges, *joined(packed))
    except AssertionError:
        return
    for i, (accession, name, organism) in enumerate(
        zip(words(columns.accession), words(columns.name), words(columns.organism), strict=True)
    ):
        assert (accession or b"") in identifier
        assert (name or b"") in packed[i] or (name or b"") in identifier
        assert (organism or b"") in packed[i]
