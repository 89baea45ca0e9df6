"""Nucleotides and alignments are refused even in the middle or at the end of a file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.data.corpus import LETTERS
from tests.helpers.processes.command_line import Run


def records(name: str, letters: str, count: int, length: int) -> bytes:
    """Return FASTA of random records that consist of these letters."""
    chosen = np.random.default_rng(0).choice(list(letters.encode()), (count, length))
    rows = chosen.astype(np.uint8)
    return b"".join(b">%s%d\n%s\n" % (name.encode(), i, rows[i].tobytes()) for i in range(count))


PROTEINS = records("p", LETTERS, 1_500, 400)
GENES = records("gene", "ACGT", 900, 700)
CHROMOSOME = records("chr", "ACGT", 1, 600_000)
ALIGNED = records("row", LETTERS + "---", 900, 700)


@pytest.mark.parametrize(
    ("odd", "looks", "record", "option"),
    [
        (GENES, "looks like nucleotides (100 % of 262,144 letters from", "gene", "nucleotides"),
        (CHROMOSOME, "looks like nucleotides (100 % of 262,144 letters", "chr0", "nucleotides"),
        (ALIGNED, "looks like an alignment (374 of 374 records from", "row", "alignment"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_nucleotides_and_alignments_after_proteins_are_refused(
    run: Run, tmp_path: Path, pack: type[bytes], odd: bytes, looks: str, record: str, option: str
) -> None:
    path = tmp_path / "x.fa"
    for name, content in (("end", PROTEINS + odd), ("middle", PROTEINS + odd + PROTEINS)):
        path.write_bytes(pack(content))
        words = ("preprocess", path, "--out", tmp_path / name)
        done = run(*words)
        assert done.returncode == 1
        said = done.stderr.splitlines()[-1]
        assert said.startswith(f"thdpack preprocess: {path}: {looks}")
        assert f" from record '{record}" in said
        assert said.endswith(f", or give --allow-{option}")
        warned = run("stats", path).stderr.splitlines()
        [line] = [line for line in warned if line.startswith("warning")]
        assert line.startswith(f"warning: {path}: {looks}")
        assert run(*words, f"--allow-{option}").returncode == 0


def test_every_task_checks_its_own_range_of_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(PROTEINS * 5 + GENES)
    done = run("preprocess", path, "--out", tmp_path / "out", task_bytes=600_000)
    assert f"{path}: looks like nucleotides" in done.stderr
    warned = run("stats", path, task_bytes=100_000).stderr
    assert warned.count("warning: ") == 1


def test_a_few_odd_records_among_proteins_are_accepted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.fa"
    few = records("gene", "ACGT", 50, 700) + records("row", LETTERS + "---", 50, 700)
    peptides = records("peptide", "ACGT", 4_000, 9)
    path.write_bytes(PROTEINS + few + PROTEINS + peptides + b">none\n\n" * 2_000)
    done = run("preprocess", path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr


def test_records_without_residues_are_accepted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.fa"
    path.write_bytes(b">none\n" * 2_000 + PROTEINS[:3_000] + b">none\n" * 2_000)
    done = run("preprocess", path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
