"""`--where` keeps exactly the records that a plain Python filter keeps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.build.filters.complexity_kernel import BITS, WINDOW, low_complexity
from pipeline.build.filters.where import where
from schemas.errors import OptionError
from schemas.vocabulary import ESM2
from tests.conftest import Run
from tests.helpers.data.corpus import digest, fasta, made_records, read_manifest, read_records
from tests.helpers.oracles.slow_headers import Stated, stated

FAMILIES = (
    "sp|P{0:05d}|N{0}_HUMAN Protein (Fragment) OS=Homo sapiens OX=9606 GN=G{0} PE=1 SV=1",
    "tr|Q{0:05d}|N{0}_YEAST Protein OS=Saccharomyces cerevisiae OX=559292 PE=4 SV=1",
    "UniRef50_A{0:05d} Protein n={0} Tax=Homo sapiens TaxID=9606 RepID=A{0}_HUMAN",
    "NP_{0:06d}.1 a kinase, partial [Homo sapiens]",
    "plain{0}",
)
Kept = Callable[[str, Stated, str], bool]
FILTERS: dict[str, Kept] = {
    "taxid = 9606 and not fragment": lambda _, h, s: h.taxid == 9606 and not h.fragment,
    "pe <= 2 or cluster_size between 10 and 30": lambda _, h, s: (
        (h.pe is not None and h.pe <= 2)
        or (h.cluster_size is not None and 10 <= h.cluster_size <= 30)
    ),
    "length between 20 and 90": lambda _, h, s: 20 <= len(s) <= 90,
    "database in ('Swiss-Prot', 'UniRef50')": lambda _, h, s: (
        h.database in ("Swiss-Prot", "UniRef50")
    ),
    "taxid is null or taxid <> 9606": lambda _, h, s: h.taxid != 9606,
    "regexp_like(description, 'kinase') or id like 'plain%'": lambda d, h, s: (
        "kinase" in d or h.database is None
    ),
    "lower(organism) = 'homo sapiens' and gene is not null": lambda _, h, s: (
        h.organism == b"Homo sapiens" and h.gene is not None
    ),
    "ambiguous_fraction < 0.02": lambda _, h, s: sum(s.count(c) for c in "BXZ") < 0.02 * len(s),
    "unknown_fraction = 0": lambda _, h, s: not set(s) - set(ESM2.letters),
    "low_complexity_fraction < 0.1": lambda _, h, s: slow_low_complexity(s) < 0.1 * len(s),
}


def slow_low_complexity(residues: str) -> int:
    """Return the number of residues in windows of low complexity."""
    found = set()
    for i in range(len(residues) - WINDOW + 1):
        counts = Counter(residues[i : i + WINDOW]).values()
        entropy = -sum(n / WINDOW * math.log2(n / WINDOW) for n in counts)
        if entropy <= BITS + 1e-9:
            found.update(range(i, i + WINDOW))
    return len(found)


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    """Return records whose headers follow FAMILIES. Some sequences have odd or repeated letters."""
    found = []
    made = [residues.upper() for _, residues in made_records(300, longest=120) if residues]
    for i, residues in enumerate(made):
        odd = {1: "J", 2: "XB", 3: "QQQQQQQQQQQQQQQ", 4: "PGPGPGPGPGPGPG"}.get(i % 7, "")
        found.append((FAMILIES[i % len(FAMILIES)].format(i), residues + odd))
    return found


@pytest.fixture(scope="module")
def corpus(records: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("where") / "records.fasta"
    path.write_bytes(fasta(records))
    return path


@pytest.mark.parametrize("expression", FILTERS)
def test_where_keeps_what_a_plain_filter_keeps(
    run: Run, records: list[tuple[str, str]], corpus: Path, tmp_path: Path, expression: str
) -> None:
    out = tmp_path / "out"
    done = run("preprocess", corpus, "--out", out, "--where", expression, "--dedup", "none")
    assert done.returncode == 0, done.stderr
    expected = []
    for header, residues in records:
        identifier, _, description = header.partition(" ")
        values = stated(identifier.encode(), description.encode())
        expected.append(FILTERS[expression](description, values, residues))
    rows = read_records(out)
    assert [row["status"] == "kept" for row in rows] == expected
    assert {row["status"] for row in rows} == {"kept", "filtered"}
    filtered = len(records) - sum(expected)
    assert read_manifest(out).records_by_status["filtered"] == filtered
    assert f"left out  {filtered} filtered" in done.stdout
    assert run("verify", out, "--deep").returncode == 0
    report = run("stats", out)
    assert report.returncode == 0, report.stderr
    assert f"{filtered} filtered" in report.stdout


def test_a_record_that_equals_a_filtered_record_is_not_its_duplicate(
    run: Run, tmp_path: Path
) -> None:
    source, out = tmp_path / "x.fasta", tmp_path / "out"
    source.write_text(">short\nMKTAYIAKQR\n>sp|P1|A_B x OS=y OX=1\nMKTAYIAKQR\n>other\nMKV\n")
    assert run("preprocess", source, "--out", out, "--where", "taxid = 1").returncode == 0
    assert [row["status"] for row in read_records(out)] == ["filtered", "kept", "filtered"]


def test_the_bytes_of_a_filtered_dataset_do_not_depend_on_the_number_of_workers(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    words = ("preprocess", corpus, "--where", "length > 50")
    for workers in ("1", "2"):
        run(*words, "--out", tmp_path / workers, "--workers", workers)
    assert digest(tmp_path / "1") == digest(tmp_path / "2")
    other = run("preprocess", corpus, "--where", "length > 51", "--out", tmp_path / "1")
    assert "--where length > 50 → length > 51" in other.stderr


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("taxidd = 1", "--where names 'taxidd' (do you mean taxid?)"),
        ("organism = Human", "'Human', which is not a column; texts need single quotes"),
        (
            "length > avg(length)",
            "uses the function avg, but may only use functions of a single record",
        ),
        ("length > (select 1)", "--where"),
        (
            "regexp_like(description, 'kinase[')",
            "regex parse error: unclosed character class; correct the pattern",
        ),
        ("taxid = 'x'", "cannot be evaluated: cannot compare string with numeric type"),
        ("taxid = 'x'", "; compare taxid with a number without quotes"),
        ("organism = 9606 and fragment = 'x'", "organism with a text in single quotes"),
        ("length > 3 && fragment", "uses &&: write and instead"),
        ("length > 3 & fragment", "uses &: write and instead"),
        ("length > 3 || fragment", "uses ||: write or instead; to join texts, use concat"),
        ("!fragment", "uses !: write not instead"),
        ("gene name = 'x'", "names with blanks need double quotes"),
        ("length", "'length' is neither true nor false"),
        ("length >", "is not an SQL expression"),
        ("", "--where is empty: is a shell variable unset?"),
        (" ", "is not an SQL expression"),
        ("row_number() over (order by length) > 2", "uses the function row_number"),
        ("1 = 1", "names no column"),
        ("length > 3 and current_timestamp is not null", "depends on the time"),
    ],
)
def test_a_wrong_expression_prints_one_error_line_before_any_work(
    run: Run, corpus: Path, tmp_path: Path, expression: str, said: str
) -> None:
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--where", expression)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_note_names_the_columns_that_have_no_value_in_any_record(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    source = tmp_path / "x.fasta"
    source.write_text(">sp|P1|A_B x OS=y OX=1\nMKTAYIAKQR\n>other\nMKV\n")
    words = ("--where", "cluster_size > 1 or gene = 'x' or taxid = 1", "--out", tmp_path / "out")
    note = "no record has a value for cluster_size or gene, which the expression uses"
    assert note in run("preprocess", source, *words).stderr
    assert "no record has a value" not in run("preprocess", corpus, *words, "--overwrite").stderr


def test_operators_and_parentheses_inside_string_literals_are_part_of_a_text() -> None:
    assert where("description = 'a & b || !c' and length != 3").names
    assert where("description = 'avg(x) it''s (y)' and (length > 3 or not (fragment))").names
    with pytest.raises(OptionError, match="function sum"):
        where("description = 'x' or sum(length) > 3")


def test_low_complexity_counts_equal_those_of_a_plain_python_program() -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("AQ" if i % 2 else "ACDEFGHIKL"), i)) for i in range(60)]
    tokens = np.array([ESM2.letters[c] for text in texts for c in text], dtype=np.uint8)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    seen = np.concatenate(([0], np.cumsum(low_complexity(tokens, ends))))
    found = np.diff(seen[ends], prepend=0).tolist()
    assert found == [slow_low_complexity(text) for text in texts]
    assert 0 < sum(found) < tokens.size
