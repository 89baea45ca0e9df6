"""Tables of mutants: what is read, and errors that name the line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from schemas.errors import InputError, OptionError
from trainer.scores.mutation_table import MutationTable, Substitution, read_mutation_table
from trainer.scores.wild_type import read_wild_type

HEAD = "mutant,mutated_sequence,DMS_score\n"


def read(tmp_path: Path, text: str | bytes) -> MutationTable:
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_mutation_table(str(path))


def test_quotes_blank_lines_a_byte_order_mark_and_lower_case_are_read(tmp_path: Path) -> None:
    text = '\ufeff"mutant",mutated_sequence,DMS_score\r\n\r\n"a1c:d3E","CCE",1e-3\r\nC2A,AAD,\r\n'
    table = read(tmp_path, text)
    assert table.mutants == [
        [Substitution("A", 0, "C"), Substitution("D", 2, "E")],
        [Substitution("C", 1, "A")],
    ]
    assert table.lines == [3, 4]
    assert table.wild_type() == "ACD"
    table.check("ACD")
    assert np.array_equal(table.numbers("DMS_score"), [1e-3, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ": the table has no mutants"),
        (HEAD, ": the table has no mutants"),
        ("A1C\n", ":1: the table has no column mutant: its columns are A1C. "),
        ("mutant\tmutated_sequence\n", ":1: the columns are separated by '\\t': save the table"),
        ("mutant,a,a\n", ":1: two columns have the name 'a'"),
        (HEAD + "A1C,CC,1\nA1D,DC\n", ":3: 2 cells, expected 3"),
        (HEAD + "A1C,CC,1\n\n'A1C',CC,1\n", ":4: mutant is \"'A1C'\", expected substitutions"),
        (HEAD + "A0C,CC,1\n", ":2: mutant is 'A0C', expected substitutions such as A42G"),
        (HEAD + ",CC,1\n", ":2: mutant is '', expected substitutions"),
        (HEAD + "A1C:,CC,1\n", ":2: mutant is 'A1C:', expected substitutions"),
        (HEAD + "A1J,CC,1\n", ":2: mutant is 'A1J', but ESM-2 has no token for J"),
        (HEAD + "A1C:A1D,CC,1\n", ":2: mutant is 'A1C:A1D', which has two mutations at place 1"),
        (HEAD + 'A1C,"C"C,1\n', ":2: not CSV: "),
        (HEAD + 'A1C,"CC,1\n', ": not CSV: unexpected end of data"),
        (b"mutant\n\xff\n", ": this is no text in UTF-8"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(
    tmp_path: Path, text: str | bytes, error: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert error in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (
            "A1C,DC,1\n",
            "t.csv:2: mutated_sequence is not the sequence of the mutant: letter 1 is D",
        ),
        ("A3C,CC,1\n", "t.csv:2: mutated_sequence is not the sequence of the mutant: letter 3 is"),
        ("A1C,CC,1\nA1D,DCC,1\n", "t.csv:3: mutated_sequence has 3 residues, and those before"),
        ("A1C,CC,1\nA1D,DA,1\n", "t.csv:3: mutated_sequence has A at place 2, and those before"),
        ("A1C,CC,1\nD1C,CC,1\n", "t.csv:3: mutated_sequence has D at place 1, and those before"),
    ],
)
def test_mutated_sequences_that_do_not_agree_are_refused(
    tmp_path: Path, rows: str, error: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, HEAD + rows).wild_type()
    assert error in str(caught.value)


def test_a_wild_type_that_does_not_suit_the_mutants_is_refused(tmp_path: Path) -> None:
    table = read(tmp_path, HEAD + "A1C,CC,1\nC2D,AD,x\n")
    with pytest.raises(InputError, match=r"t.csv:3: C2D is outside of the wild type, which has 1 "):
        table.check("A")
    with pytest.raises(InputError, match=r"t.csv:3: C2D replaces C, but residue 2 .* is A\. "):
        table.check("AA")
    with pytest.raises(InputError, match=r"t.csv:3: DMS_score is 'x', expected a number"):
        table.numbers("DMS_score")


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match=f"{path}: cannot read .*column `mutant`"):
            read_mutation_table(str(path))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "the file has 0 FASTA headers, expected one record"),
        (">a\nAC\n>b\nAC\n", "the file has 2 FASTA headers, expected one record"),
        ("AC\n>a\nAC\n", "the file has 1 FASTA header, expected one record"),
        (">a\n", "the wild type has no residues"),
        (">a\nAJC\n", "the wild type has the letter 'J'"),
    ],
)
def test_a_file_that_is_no_wild_type_is_refused(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "wild.fasta").write_text(text)
    with pytest.raises(InputError, match=error):
        read_wild_type(str(tmp_path / "wild.fasta"))
    with pytest.raises(OptionError, match="neither a file nor residues"):
        read_wild_type(str(tmp_path / "none.fasta"))
