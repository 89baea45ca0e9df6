"""Detect the kind of a file that is not FASTA from its first bytes, for error messages."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from textwrap import shorten
from typing import Final

from pipeline.inputs.decompress import detect

HEAD_BYTES: Final = 1 << 16
"""Number of bytes to examine, enough to reach the third line of a FASTQ file."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A file that is not FASTA.

    description: kind of the file, and perhaps general advice
    remedy: advice that names options of `thdpack preprocess`; see `InputError`
    """

    description: str
    remedy: str = ""


_UNPACK: Final = "unpack it, and give FASTA"
_UNZIP: Final = f"{_UNPACK}; if it is an Excel file, export its table as CSV"
CONVERT: Final = "give FASTA, or a table with a sequence column"
"""Advice for a file that thdpack does not read."""
TO_UTF8: Final = "as in `iconv -f LATIN1 -t UTF-8 FILE > NEW_FILE`"
"""Advice for text in another encoding, to follow "convert it to UTF-8"."""
_FROM_STRUCTURE: Final = "give its sequences as FASTA"
_STARTS: Final[tuple[tuple[bytes, str, str], ...]] = (
    (b"PK\x03\x04", "a zip archive", _UNZIP),
    (b"PK\x05\x06", "a zip archive", _UNZIP),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (b"Rar!\x1a\x07", "a rar archive", _UNPACK),
    (
        b"\x1f\x9d",
        "a file packed by compress (.Z)",
        "unpack it, as in `uncompress -c FILE | thdpack preprocess -`",
    ),
    (
        b"\x04\x22\x4d\x18",
        "an lz4 archive",
        "unpack it, as in `lz4 -dc FILE | thdpack preprocess -`",
    ),
    (b"BAM\x01", "a BAM file", CONVERT),
    (b"CRAM", "a CRAM file", CONVERT),
    (b"\x1a\x41\x27\x43", "a 2bit file of nucleotides", CONVERT),
    (b"\x43\x27\x41\x1a", "a 2bit file of nucleotides", CONVERT),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", CONVERT),
    (b"SQLite format 3\x00", "an SQLite database", CONVERT),
    (b"%PDF-", "a PDF document", CONVERT),
    (b"CLUSTAL", "a Clustal alignment", CONVERT),
    (b"# STOCKHOLM", "a Stockholm alignment", CONVERT),
    (b"##gff-version", "a GFF file", CONVERT),
    (b"#NEXUS", "a NEXUS alignment", CONVERT),
    (b"!!AA_MULTIPLE_ALIGNMENT", "an MSF alignment", CONVERT),
    (b"##fileformat=VCF", "a VCF file", CONVERT),
    (b"@HD\t", "a SAM file", CONVERT),
    (b"HEADER    ", "a PDB structure", _FROM_STRUCTURE),
    (b"ATOM  ", "a PDB structure", _FROM_STRUCTURE),
    (b"data_", "an mmCIF structure", _FROM_STRUCTURE),
    (b"\x93NUMPY", "a NumPy array", CONVERT),
)
_TABLES: Final = (
    (b"PAR1", "a Parquet file", "parquet"),
    (b"ARROW1", "an Arrow file", "arrow"),
)
"""First bytes, name and --format of tables that thdpack reads."""
_BYTE_ORDER: Final = (b"\xff\xfe", b"\xfe\xff", b">\x00", b"\x00>")
_MARKUP: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE
)
_XML: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml\b")
_FASTQ: Final = re.compile(rb"@[^\r\n]*\r?\n[^\r\n]+\r?\n\+")
_FLAT_FILE: Final = re.compile(rb"ID {3}\S")
_EMBL: Final = re.compile(rb"ID {3}[^\r\n]*\bBP\.\s*$", re.MULTILINE)
_GENBANK: Final = re.compile(rb"LOCUS [^\r\n]*")
_BASE_PAIRS: Final = re.compile(rb" \d+ bp\b")
_JSON: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*["}]|\[\s*[\[{"\]])')
_CSV: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\w\" .-]+([,\t])[\w\" .()\[\]-]*(?:\1[^\r\n]*)?\r?\n")
_MOST_WORDS: Final = 4
"""Maximum number of words in a table's column name."""
_ROWS: Final = 20
"""Number of lines in which to count cells, to distinguish a table from prose with commas."""
_HEADER: Final = re.compile(rb"(?:\xef\xbb\xbf|^)>", re.MULTILINE)
BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x7f]")
"""Control characters that text does not hold."""
_RESIDUES: Final = re.compile(rb"[A-Z*-]*|[a-z*-]*")
_LINES: Final = 100
"""Number of lines to examine to distinguish residues from other text."""
_SHOWN: Final = 50
"""Maximum length, in characters, of the text that a message quotes."""
_TAR: Final = slice(257, 262)


def foreign(head: bytes, *, packed: bool) -> Foreign | None:
    """Return the kind of a file that is not FASTA, and a remedy.

    Return None if the kind is unknown, or if the file may be FASTA.

    Args:
        head: first bytes of the file, after decompression, at most HEAD_BYTES.
        packed: whether the file was compressed.
    """
    inner = detect(head)
    if packed and inner != "none":
        return Foreign(f"a {inner} archive inside an archive: unpack the outer archive")
    for start, name, remedy in _STARTS:
        if head.startswith(start):
            return Foreign(f"{name}: {remedy}")
    for start, name, option in _TABLES:
        if head.startswith(start):
            return Foreign(
                f"{name}: if it is compressed (.gz, .zst), decompress it",
                f"omit --format or give --format {option}",
            )
    if head[_TAR] == b"ustar":
        return Foreign("a tar archive: unpack it, and give the files in it")
    if head.startswith(_BYTE_ORDER):
        return Foreign("UTF-16 text: convert it, as in `iconv -f UTF-16 -t UTF-8`")
    if _MARKUP.match(head):
        return Foreign("an HTML page: did a web site send an error page instead of the file?")
    if _XML.match(head):
        return Foreign(f"XML: {CONVERT}")
    if _FASTQ.match(head):
        return Foreign("FASTQ, reads with qualities: convert it, as in `seqkit fq2fa`")
    if _FLAT_FILE.match(head):
        name, option = ("an EMBL", "embl") if _EMBL.match(head) else ("a Swiss-Prot", "swiss")
        return Foreign(f"{name} flat file", f"read it with --format {option}")
    locus = _GENBANK.match(head)
    if locus and _BASE_PAIRS.search(locus[0]):
        return Foreign(
            "a GenBank file of nucleotides: give the proteins of its genes, as FASTA (.faa) or "
            "GenPept (.gp)"
        )
    if locus:
        return Foreign("a GenBank file of proteins (GenPept)", "read it with --format genbank")
    if _JSON.match(head):
        return Foreign(f"JSON: {CONVERT}")
    table = _CSV.match(head)
    if table and _is_table(head, table.group(1).decode()):
        name = "csv" if table.group(1) == b"," else "tsv"
        return Foreign(f"{name.upper()}, a table of text", f"read it with --format {name}")
    return None if _HEADER.search(head) or BINARY.search(head) else _plain_text(head)


def _is_table(head: bytes, delimiter: str) -> bool:
    """Return whether a text is a table, and not prose with commas.

    The first line of a table has names of columns, which are short. The other lines have as many
    cells as the first.
    """
    text = head.decode("utf-8-sig", "replace")
    lines = text.splitlines()[: _ROWS + 1]
    if len(head) >= HEAD_BYTES:
        lines = lines[:-1]  # the last line may be incomplete
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return False
    names = rows[0]
    return (
        len(rows) > 1
        and all(len(row) == len(names) for row in rows)
        and all(len(name.split()) <= _MOST_WORDS and not name.endswith(".") for name in names)
    )


def _plain_text(head: bytes) -> Foreign:
    """Return the kind of a text without a header, or its first words, and a remedy."""
    words = head.decode("utf-8", "replace").removeprefix("\ufeff").split()
    if not words:
        return Foreign("a file with only white space: give FASTA")
    if all(_RESIDUES.fullmatch(line) for line in head.splitlines()[:_LINES]):
        return Foreign(
            "residues without a header: write a line such as >name above each sequence, because "
            "FASTA has no other way to tell sequences apart"
        )
    begins = shorten(" ".join(words), _SHOWN, placeholder="…")
    return Foreign(
        f"plain text, which begins with {begins!r}: give FASTA, in which each record begins with "
        "a line such as >name",
        "for a table, give --format csv or --format tsv",
    )


def ids_and_residues_on_one_line(head: bytes) -> bool:
    """Return whether the first line looks like `>id<TAB>RESIDUES`."""
    return (
        re.match(rb"(?:\xef\xbb\xbf)?\s*>[^\t\r\n]*\t[A-Za-z*.-]+[ \t]*(?:[\r\n]|$)", head)
        is not None
    )
