"""Compare the compiled parser of headers with a slow one on random headers."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.data.slow_headers import stated
from tests.unit.inputs.test_headers import parsed

IDS = [
    *["sp", "tr", "gi", "ref", "gb", "pir", "pdb", "|", "|", "|", "P69905", "HBA_HUMAN", "12"],
    *["UniRef50_", "UniRef90_", "UniRef100_", "UniRef10_", "UPI", "0123456789", "ABCDEF0123"],
    *["MGYP", "000851679260", "NP_", "XP_", "000509", ".1", ".", "AAA", "AAAA", "12345", "é", "_"],
]
WORDS = [
    *[" OS=", " OX=", " GN=", " PE=", " SV=", " n=", " Tax=", " TaxID=", " RepID=", " PL=", "OS="],
    *["=", " =", " ", "  ", "\t", "x", "Homo sapiens", "9606", "1", "5", "6", "99999999999", "["],
    *["2147483647", "2147483648", "00", "10", "(Fragment)", "(Fragments)", ", partial", " [", "]"],
    *["\1", "\xff", "é"],
]
# the parser trims blanks around descriptions, and ids have no blanks
HEADERS = st.tuples(
    st.lists(st.sampled_from(IDS), max_size=6).map(lambda words: "".join(words).encode()),
    st.lists(st.sampled_from(WORDS), max_size=10).map(
        lambda words: "".join(words).encode("latin-1").strip()
    ),
)


@settings(deadline=None, max_examples=3_000 if os.environ.get("THDPACK_LONG") else 300)
@given(st.lists(HEADERS, min_size=1, max_size=20))
def test_any_headers_are_read_as_a_slow_parser_reads_them(
    headers: list[tuple[bytes, bytes]],
) -> None:
    assert parsed(headers) == [stated(*header) for header in headers]
