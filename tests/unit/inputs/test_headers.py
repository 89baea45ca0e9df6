"""Values in headers: an example of each family (the format of one database, such as UniProt), and
real headers compared with a slow parser."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.inputs.fasta.headers import divided
from pipeline.inputs.headers import HeaderColumns, Text, parse_headers
from schemas.records import DATABASES
from tests.helpers.data.real_corpora import corpus_text
from tests.helpers.oracles.slow_headers import Stated, stated


def parsed(headers: Sequence[tuple[bytes, bytes]]) -> list[Stated]:
    """Return the values that the compiled parser finds in each pair of an id and a description."""
    ids, descriptions = ([pair[i] for pair in headers] for i in (0, 1))
    return rows_of(parse_headers(*joined(ids), *joined(descriptions)))


def rows_of(columns: HeaderColumns) -> list[Stated]:
    """Return the values of each header."""

    def numbers(values: Any) -> list[int | None]:
        return [None if value < 0 else value for value in values.tolist()]

    databases = [None if code < 0 else DATABASES[code] for code in columns.database.tolist()]
    rows = zip(
        words(columns.accession),
        words(columns.name),
        words(columns.organism),
        words(columns.gene),
        numbers(columns.taxid),
        numbers(columns.pe),
        columns.fragment.tolist(),
        numbers(columns.cluster_size),
        databases,
        strict=True,
    )
    return [Stated(*row) for row in rows]


def words(text: Text) -> list[bytes | None]:
    return [bytes(text.values[a:b]) or None for a, b in pairwise(text.edges.tolist())]


def joined(texts: Sequence[bytes]) -> tuple[Any, Any]:
    edges = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return np.frombuffer(b"".join(texts), dtype=np.uint8), edges


EXAMPLES = {
    "sp|P69905|HBA_HUMAN Hemoglobin alpha OS=Homo sapiens OX=9606 GN=HBA1 PE=1 SV=2": Stated(
        b"P69905", b"HBA_HUMAN", b"Homo sapiens", b"HBA1", 9606, 1, False, None, "Swiss-Prot"
    ),
    "tr|W0FSK4|W0FSK4_9FLAV Polyprotein (Fragment) OS=Dengue virus 3 PE=4 SV=1 Split=0": Stated(
        b"W0FSK4", b"W0FSK4_9FLAV", b"Dengue virus 3", None, None, 4, True, None, "TrEMBL"
    ),
    "UniRef50_P12345 Aminotransferase n=12 Tax=Oryctolagus cuniculus TaxID=9986 RepID=A_B": Stated(
        b"P12345", b"A_B", b"Oryctolagus cuniculus", None, 9986, None, False, 12, "UniRef50"
    ),
    "UniRef90_UPI002AA79715": Stated(accession=b"UPI002AA79715", database="UniRef90"),
    "UPI0000000001 status=active": Stated(accession=b"UPI0000000001", database="UniParc"),
    "MGYP000851679260 PL=10 UP=0 BIOMES=1000000000000 LEN=23 CR=0": Stated(
        accession=b"MGYP000851679260", fragment=True, database="MGnify"
    ),
    "MGYP000851679260 PL=00 UP=0": Stated(accession=b"MGYP000851679260", database="MGnify"),
    "NP_000509.1 hemoglobin subunit beta, partial [Homo sapiens]": Stated(
        accession=b"NP_000509.1", organism=b"Homo sapiens", fragment=True, database="RefSeq"
    ),
    "AAA12345.1 a protein [[Clostridium] symbiosum]": Stated(
        accession=b"AAA12345.1", organism=b"[Clostridium] symbiosum", database="GenBank"
    ),
    "gi|4504349|ref|NP_000509.1| beta [Homo sapiens]\1gi|1|gb|X| other [Pan]": Stated(
        accession=b"NP_000509.1", organism=b"Homo sapiens", database="RefSeq"
    ),
    "pir||A12345 old": Stated(accession=b"A12345", database="PIR"),
    "sp|P69905.2|HBA_HUMAN RecName: Full=Hemoglobin [Homo sapiens]": Stated(
        accession=b"P69905.2", name=b"HBA_HUMAN", database="Swiss-Prot"
    ),
    "protein_1 some words OS=not read": Stated(),
    "gi|12|": Stated(),
    "sp|": Stated(database="Swiss-Prot"),
    "sp|A|B OS=a PE=6 OX=2147483648 GN= PE=": Stated(b"A", b"B", b"a", database="Swiss-Prot"),
    "UniRef50_A n=2147483647 TaxID=0 RepID=": Stated(
        accession=b"A", taxid=0, cluster_size=2147483647, database="UniRef50"
    ),
    f"sp|{'A' * 200}|B x OS={'long ' * 4000}end GN={'g' * 128}": Stated(
        b"A" * 200, b"B", b"long " * 4000 + b"end", b"g" * 128, database="Swiss-Prot"
    ),
    "": Stated(),
}


@pytest.mark.parametrize(("header", "expected"), EXAMPLES.items())
def test_values_of_each_family_of_headers_are_read(header: str, expected: Stated) -> None:
    pair = divided(b">" + header.encode())
    assert parsed([pair]) == [expected]
    assert stated(*pair) == expected


@pytest.mark.parametrize("name", ["one_line_20000.fasta.gz", "yeast_proteome.fasta.gz"])
def test_real_headers_are_read_as_a_slow_parser_reads_them(name: str) -> None:
    path = Path(__file__).parents[4] / "shared" / "data" / name
    if not path.is_file():
        pytest.skip("../shared/data is absent")
    lines = [line for line in corpus_text(path).splitlines() if line.startswith(b">")]
    pairs = [divided(line) for line in lines]
    found = parsed(pairs)
    assert found == [stated(*pair) for pair in pairs]
    assert all(row.organism and row.pe for row in found)
