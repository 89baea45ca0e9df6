"""Nucleotides and alignments are refused before a build starts, unless an option allows them."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.build.array_jobs.task_list import plan_tasks
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import PlainReporter
from pipeline.inputs.find import find_sources
from pipeline.inputs.source import Allowed
from schemas.errors import InputError
from tests.helpers.data.corpus import LETTERS, fasta, made_records
from tests.helpers.processes.command_line import Run


def made(letters: str, lengths: list[int]) -> bytes:
    """Return FASTA of random records with these letters and lengths."""
    rng = np.random.default_rng(0)
    return b"".join(
        f">r{i}\n{''.join(rng.choice(list(letters), length))}\n".encode()
        for i, length in enumerate(lengths)
    )


def said_of(path: Path, content: bytes) -> str:
    """Return the error for an input, or "" if the input is accepted."""
    path.write_bytes(content)
    try:
        find_sources((str(path),), "auto", spool=None, allowed=Allowed())
    except InputError as error:
        return str(error)
    return ""


def test_nucleotides_give_a_one_line_error_unless_an_option_allows_them(
    run: Run, tmp_path: Path
) -> None:
    path, out = tmp_path / "x.fasta", tmp_path / "out"
    path.write_bytes(made("ACGT", [500] * 4))
    done = run("preprocess", path, "--out", out)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"thdpack preprocess: {path}: looks like nucleotides (100 % of its 2,000 letters are A, C, "
        "G, T, U or N); thdpack expects proteins. Translate it first, or give --allow-nucleotides"
    ]
    assert not list(out.glob("**/*.arrow"))
    assert "looks like nucleotides" in run("preprocess", path, "--out", out, "--dry-run").stderr
    piped = run("preprocess", "-", "--out", out, stdin=path.read_bytes())
    assert piped.stderr.startswith("thdpack preprocess: standard input: looks like nucleotides")
    with pytest.raises(InputError, match="looks like nucleotides"):
        plan_tasks(PreprocessOptions(inputs=(str(path),), out=str(out)), PlainReporter())
    assert run("preprocess", path, "--out", out, "--allow-nucleotides").returncode == 0
    assert run("stats", path).returncode == 0


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_genomes_genes_and_alignments_are_recognised_with_and_without_compression(
    tmp_path: Path, pack: type[bytes]
) -> None:
    path = tmp_path / "x.fa"
    chromosome = b">chr1\n" + b"N" * 30_000 + b"\n" + made("acgtn", [30_000])[4:]
    genes = made("ACGU", [60] * 3) + made("ACGTRYKM", [5])
    assert "looks like nucleotides" in said_of(path, pack(chromosome))
    assert "looks like nucleotides" in said_of(path, pack(made("ACGU", [60] * 3)))
    assert "looks like nucleotides" in said_of(path, pack(genes.replace(b"\n", b"\r\n") * 9))
    assert "looks like nucleotides" in said_of(path, pack(b">" + b"x" * 9_000 + genes[3:] * 9))
    aligned = made(LETTERS + "---", [70] * 40)
    a3m = b">q\nMKT-AYI\n>h\nMKTvvAYI-\n>i\nM-T-AYa-\n"
    assert "40 of the first 40 records have gaps" in said_of(path, pack(aligned))
    assert "all have 70 columns" in said_of(path, pack(aligned))
    assert "all have 7 columns" in said_of(path, pack(a3m))


def test_proteins_with_few_different_letters_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "x.fasta"
    proteins = fasta(made_records(50))
    repeats = b"".join(f">a{i}\n{'A' * 200}\n>b{i}\n{'GA' * 90}\n".encode() for i in range(40))
    peptides = made("ACGT", [9] * 1000)
    for content in (
        proteins,
        repeats,
        peptides + proteins,
        peptides[:60],
        b">a\nMKT-AYI\n>b\nMKTAYIV\n>c\nMKVAYIV\n",
        b">a\nMKT-AYI\n>b\nMK-TAYIAV\n",
    ):
        assert said_of(path, content) == "", content[:80]


@pytest.mark.parametrize(
    ("content", "looks", "option"),
    [
        (made("ACGT", [500] * 4), "like nucleotides (100 % of its 2,000 letters", "nucleotides"),
        (made("ACGU", [80] * 3), "like nucleotides (100 % of its 240 letters", "nucleotides"),
        (made(LETTERS + "---", [70] * 9), "like an alignment (9 of the first 9", "alignment"),
    ],
)
def test_stats_warns_about_inputs_that_a_build_refuses(
    run: Run, tmp_path: Path, content: bytes, looks: str, option: str
) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(content)
    for words, where in ((("stats", path), path), (("stats", "-"), "standard input")):
        done = run(*words, stdin=content if where != path else None)
        assert done.returncode == 0
        [line] = [line for line in done.stderr.splitlines() if line.startswith("warning")]
        assert line.startswith(f"warning: {where}: looks {looks}")
        assert line.endswith(f"`thdpack preprocess` refuses this input without --allow-{option}")
    page, other = tmp_path / "page.html", tmp_path / "other.fasta"
    other.write_bytes(fasta(made_records(50)))
    report = json.loads(run("stats", path, "--html", page, "--json").stdout)
    said = [f"warning: {warning}" for warning in report["warnings"]]
    assert said == [line.replace("standard input", str(path))]
    assert f"looks {looks}" in page.read_text()
    assert json.loads(run("stats", other, "--html", page, "--json").stdout)["warnings"] == []
    assert 'class="warning"' not in page.read_text()
    path.write_bytes(fasta(made_records(50)))
    assert "warning" not in run("stats", path).stderr


def test_the_error_for_a_genome_in_a_flat_file_asks_for_its_proteins(
    run: Run, tmp_path: Path
) -> None:
    lines = "".join(f"{60 * i + 1:>9} {'acgttgcaca ' * 6}\n" for i in range(20))
    path = tmp_path / "x.gb"
    path.write_text(
        f"LOCUS       X               1200 bp    DNA     linear   BCT 01-JAN-2000\n"
        f"ACCESSION   X\nFEATURES             Location/Qualifiers\n"
        f'     CDS             1..9\n                     /translation="MKT"\n'
        f"ORIGIN\n{lines}//\n"
    )
    said = run("preprocess", path, "--out", tmp_path / "out").stderr
    assert f"{path}: looks like nucleotides (100 % of its 1,200 letters" in said
    assert "Give the proteins of the genes instead, as FASTA (.faa) or GenPept (.gp)" in said
    assert "Translate" not in said


def test_nucleotides_and_alignments_in_a_table_are_refused(run: Run, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    path = tmp_path / "x.parquet"
    for sequence, kind in (("ACGT" * 300, "nucleotides"), ("MKT-AYI", "an alignment")):
        pq.write_table(pa.table({"sequence": [sequence] * 3, "id": ["a", "b", "c"]}), path)
        done = run("preprocess", path, "--out", tmp_path / kind)
        assert f"{path}: looks like {kind}" in done.stderr
        words = ("--allow-nucleotides", "--allow-alignment", "--dedup", "none")
        done = run("preprocess", path, "--out", tmp_path / kind, *words)
        assert done.returncode == 0, done.stderr


def test_allow_nucleotides_and_allow_alignment_do_not_change_the_manifest(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(fasta(made_records(20)))
    manifests = []
    for name, words in (("a", ()), ("b", ("--allow-nucleotides", "--allow-alignment"))):
        assert run("preprocess", path, "--out", tmp_path / name, *words).returncode == 0
        manifests.append((tmp_path / name / "manifest.json").read_bytes())
    assert manifests[0] == manifests[1]


def test_the_error_for_an_empty_pipe_names_standard_input_as_the_input(
    run: Run, tmp_path: Path
) -> None:
    for words in (("preprocess", "-", "--out", tmp_path / "out"), ("stats", "-")):
        done = run(*words, stdin=b"")
        assert done.returncode == 1
        said = done.stderr.splitlines()[-1]
        assert said.startswith(
            f"thdpack {words[0]}: standard input: empty: the command in front"
        ), said
