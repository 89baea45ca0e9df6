"""Read a table of mutants: a CSV file with ProteinGym's columns.

| column | contents |
|---|---|
| mutant | A42G or A42G:L50P: letter of the wild type, place from 1, new letter |
| mutated_sequence | the whole mutant; needed only to recover the wild type |

All other columns are kept as they are. Each error names the file and the line.

Source of the format: Notin et al., ProteinGym, NeurIPS 2023.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.errors import InputError
from schemas.vocabulary import ESM2

MUTANT: Final = "mutant"
SEQUENCE: Final = "mutated_sequence"
_SUBSTITUTION: Final = re.compile(r"([A-Z.-])(\d{1,9})([A-Z.-])")


class Substitution(NamedTuple):
    """A letter of the wild type, its place (counted from 0), and the letter that replaces it."""

    old: str
    place: int
    new: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MutationTable:
    """A table of N mutants.

    source: path of the file, as the user named it.
    columns: names of the columns.
    rows: cells of each row.
    lines: number of each row's line in the file, counted from 1.
    mutants: substitutions of each row.
    """

    source: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[int]
    mutants: Sequence[Sequence[Substitution]]

    def wild_type(self) -> str:
        """Return the wild type: undo the mutations of each mutated sequence.

        Raises:
            InputError: there is no column of mutated sequences, a sequence does not have the new
                letters of its mutant, or two sequences give different wild types.
        """
        if SEQUENCE not in self.columns:
            raise self._error(
                f"the table has no column {SEQUENCE}, which would give the wild type: add it, or "
                "name the wild type with `thdpack score --wild-type`",
                line=1,
            )
        wild_type = ""
        for row, line, mutant in zip(self.rows, self.lines, self.mutants, strict=True):
            letters = list(row[self.columns.index(SEQUENCE)].strip().upper())
            for old, place, new in mutant:
                if place >= len(letters) or letters[place] != new:
                    found = letters[place] if place < len(letters) else "missing"
                    raise self._error(
                        f"{SEQUENCE} is not the sequence of the mutant: letter {place + 1} is "
                        f"{found}, expected {new} ({old}{place + 1}{new})",
                        line=line,
                    )
                letters[place] = old
            found = "".join(letters)
            if not wild_type:
                wild_type = found
            elif found != wild_type:
                raise self._error(
                    f"{_difference(found, wild_type)}, if the mutations are undone. The table must "
                    "be about one wild type, and its mutants must be substitutions",
                    line=line,
                )
        return wild_type

    def check(self, wild_type: str) -> None:
        """Check that the wild type has the letters that the mutants replace.

        Raises:
            InputError: a mutant has another letter, or a place outside of the wild type.
        """
        for line, mutant in zip(self.lines, self.mutants, strict=True):
            for old, place, new in mutant:
                if place >= len(wild_type):
                    raise self._error(
                        f"{old}{place + 1}{new} is outside of the wild type, which has "
                        f"{len(wild_type)} residues",
                        line=line,
                    )
                if wild_type[place] != old:
                    raise self._error(
                        f"{old}{place + 1}{new} replaces {old}, but residue {place + 1} of the "
                        f"wild type is {wild_type[place]}. Places are counted from 1: is this the "
                        "right wild type, and is it whole?",
                        line=line,
                    )

    def numbers(self, column: str) -> NDArray[np.float64]:
        """Return a column of numbers, float64[N]. Empty cells are NaN.

        Raises:
            InputError: there is no such column, or a cell is not a number.
        """
        if column not in self.columns:
            raise self._error(
                f"the table has no column {column}: its columns are {', '.join(self.columns)}",
                line=1,
            )
        index = self.columns.index(column)
        found = np.empty(len(self.rows))
        for number, (row, line) in enumerate(zip(self.rows, self.lines, strict=True)):
            try:
                found[number] = float(row[index] or math.nan)
            except ValueError:
                raise self._error(
                    f"{column} is {row[index]!r}, expected a number or an empty cell", line=line
                ) from None
        return found

    def _error(self, message: str, *, line: int) -> InputError:
        return InputError(message, source=self.source, line=line)


def read_mutation_table(path: str) -> MutationTable:
    """Read a table of mutants.

    Raises:
        InputError: the file cannot be read, is no such table, or has a mutant that is not a list of
            substitutions.
    """
    with _read_errors(path), open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        columns: list[str] = []
        rows, lines, mutants = [], [], []
        try:
            for row in reader:
                line = reader.line_num
                if not row:
                    continue
                if not columns:
                    columns = row
                    _check_columns(columns, path)
                    at = columns.index(MUTANT)
                    continue
                if len(row) != len(columns):
                    raise InputError(
                        f"{len(row)} cells, expected {len(columns)}, as in the first line",
                        source=path,
                        line=line,
                    )
                rows.append(row)
                lines.append(line)
                mutants.append(_substitutions(row[at], path, line))
        except csv.Error as error:
            raise InputError(f"not CSV: {error}", source=path, line=reader.line_num) from error
    if not rows:
        raise InputError("the table has no mutants", source=path)
    return MutationTable(source=path, columns=columns, rows=rows, lines=lines, mutants=mutants)


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    """Turn errors of opening and decoding a file into errors that name the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError("this is no text in UTF-8", source=path) from error
    except OSError as error:
        remedy = "a table of mutants is a CSV file with a column `mutant`"
        raise InputError(
            f"cannot read the table: {error.strerror}", source=path, remedy=remedy
        ) from error


def _check_columns(columns: Sequence[str], path: str) -> None:
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two columns have the name {twice!r}", source=path, line=1)
    if MUTANT not in columns:
        mark = next((mark for mark in "\t;|" if len(columns) == 1 and mark in columns[0]), None)
        if mark is not None:
            raise InputError(
                f"the columns are separated by {mark!r}: save the table with commas",
                source=path,
                line=1,
            )
        raise InputError(
            f"the table has no column {MUTANT}: its columns are {', '.join(columns)}. The first "
            "line must have the names of the columns, separated by commas",
            source=path,
            line=1,
        )


def _substitutions(cell: str, path: str, line: int) -> list[Substitution]:
    """Return the substitutions of a cell, such as A42G:L50P."""
    found: dict[int, Substitution] = {}
    for word in cell.strip().upper().split(":"):
        match = _SUBSTITUTION.fullmatch(word)
        if match is None or int(match[2]) == 0:
            raise InputError(
                f"{MUTANT} is {cell!r}, expected substitutions such as A42G or A42G:L50P, with "
                "places counted from 1",
                source=path,
                line=line,
            )
        old, place, new = match[1], int(match[2]) - 1, match[3]
        for letter in (old, new):
            if letter not in ESM2.letters:
                raise InputError(
                    f"{MUTANT} is {cell!r}, but ESM-2 has no token for {letter}",
                    source=path,
                    line=line,
                )
        if place in found:
            raise InputError(
                f"{MUTANT} is {cell!r}, which has two mutations at place {place + 1}",
                source=path,
                line=line,
            )
        found[place] = Substitution(old, place, new)
    return list(found.values())


def _difference(found: str, expected: str) -> str:
    """Return how a sequence differs from the wild type of earlier rows, in words."""
    if len(found) != len(expected):
        return f"{SEQUENCE} has {len(found)} residues, and those before have {len(expected)}"
    place = next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
    return (
        f"{SEQUENCE} has {found[place]} at place {place + 1}, and those before have "
        f"{expected[place]}"
    )
