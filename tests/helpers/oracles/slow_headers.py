"""A slow, simple parser of FASTA headers. Tests compare the compiled parser with it.

docs/reference/format.md states the rules. The parser works on bytes, because headers may be in any
encoding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

BARS = {
    b"sp": "Swiss-Prot",
    b"tr": "TrEMBL",
    b"ref": "RefSeq",
    b"gb": "GenBank",
    b"emb": "EMBL",
    b"dbj": "DDBJ",
    b"pdb": "PDB",
    b"pir": "PIR",
    b"prf": "PRF",
}
BLANKS = b" \t\n\v\f\r"


@dataclass
class Stated:
    """Values that a header states; None for a value that it does not state."""

    accession: bytes | None = None
    name: bytes | None = None
    organism: bytes | None = None
    gene: bytes | None = None
    taxid: int | None = None
    pe: int | None = None
    fragment: bool = False
    cluster_size: int | None = None
    database: str | None = None


def stated(identifier: bytes, description: bytes) -> Stated:
    """Return the values that a header states."""
    if found := re.fullmatch(rb"UniRef(50|90|100)_(.+)", identifier, re.DOTALL):
        return uniref(found[1].decode(), found[2], description)
    if re.fullmatch(rb"UPI[0-9A-F]{10}", identifier):
        return Stated(accession=identifier, database="UniParc")
    if re.fullmatch(rb"MGYP[0-9]{9,}", identifier):
        completeness = keys(description).get(b"PL", b"00")
        return Stated(accession=identifier, database="MGnify", fragment=completeness != b"00")
    if b"|" in identifier:
        return with_bars(identifier.split(b"|"), description)
    if re.fullmatch(rb"[A-Z]P_[0-9]{6,}(\.[0-9]+)?", identifier):
        return ncbi(Stated(accession=identifier, database="RefSeq"), description)
    if re.fullmatch(rb"[A-Z]{3}[0-9]{5,7}\.[0-9]+", identifier):
        return ncbi(Stated(accession=identifier, database="GenBank"), description)
    return Stated()


def uniref(level: str, accession: bytes, description: bytes) -> Stated:
    found = keys(description)
    return Stated(
        accession=accession,
        name=found.get(b"RepID") or None,
        organism=found.get(b"Tax") or None,
        taxid=number(found.get(b"TaxID")),
        cluster_size=number(found.get(b"n")),
        fragment=is_fragment(description),
        database=f"UniRef{level}",
    )


def with_bars(words: list[bytes], description: bytes) -> Stated:
    if words[0] == b"gi":
        words = words[2:]
    if len(words) < 2 or words[0] not in BARS:
        return Stated()
    accession, name = words[1], words[2] if len(words) > 2 else b""
    if not accession:
        accession, name = name, b""
    result = Stated(accession=accession or None, name=name or None, database=BARS[words[0]])
    found = keys(description)
    if words[0] not in (b"sp", b"tr") or not found:
        return ncbi(result, description)
    result.organism = found.get(b"OS") or None
    result.gene = found.get(b"GN") or None
    result.taxid = number(found.get(b"OX"))
    level = found.get(b"PE", b"")
    result.pe = int(level) if re.fullmatch(rb"[1-5]", level) else None
    result.fragment = is_fragment(description)
    return result


def ncbi(result: Stated, description: bytes) -> Stated:
    title = description.split(b"\x01")[0].rstrip(BLANKS)
    depth = 0
    for i in reversed(range(len(title)) if title.endswith(b"]") else range(0)):
        depth += {b"]": 1, b"[": -1}.get(title[i : i + 1], 0)
        if depth == 0:
            result.organism = title[i + 1 : -1] or None
            title = title[:i].rstrip(BLANKS)
            break
    result.fragment = title.endswith(b", partial")
    return result


KEY = re.compile(rb"(?:(?<=\A)|(?<= ))[A-Za-z]+=")


def keys(description: bytes) -> dict[bytes, bytes]:
    """Return the values of a description's keys. If a key occurs twice, the last value counts."""
    found = list(KEY.finditer(description))
    ends = [*(match.start() for match in found[1:]), len(description)]
    return {
        match[0][:-1]: description[match.end() : end].strip(BLANKS)
        for match, end in zip(found, ends, strict=False)
    }


def is_fragment(description: bytes) -> bool:
    first = KEY.search(description)
    title = description[: first.start() if first else None].rstrip(BLANKS)
    return title.endswith((b"(Fragment)", b"(Fragments)"))


def number(text: bytes | None) -> int | None:
    if text is None or not re.fullmatch(rb"[0-9]{1,10}", text) or int(text) >= 1 << 31:
        return None
    return int(text)
