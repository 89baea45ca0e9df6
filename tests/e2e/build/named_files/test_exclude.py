"""Builds with `--exclude`: their counts, messages and bytes, also after kills and with MMseqs2."""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.helpers.data.corpus import digest, fasta, made_records, read_manifest
from tests.helpers.oracles.exclusion_files import HEADERS, rows_of, write_files
from tests.helpers.oracles.slow_exclusion import KINDS, Excluded, expected
from tests.helpers.processes import started
from tests.helpers.processes.command_line import preprocess

LONG = "THDPACK_LONG" in os.environ
needs_mmseqs = pytest.mark.skipif(shutil.which("mmseqs") is None, reason="MMseqs2 is not installed")
SIZES = {"task_bytes": 6_000, "partition_bytes": 9_000}
SHAPE = ("--capacity", "512", "--max-seq-len", "128", "--split", "train=0.8,valid=0.1,test=0.1")


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    """Return random proteins. Some are copies, and some headers have accessions."""
    made = made_records(300, seed=5, longest=150)
    return [(HEADERS[i % len(HEADERS)].format(i), text) for i, (_, text) in enumerate(made)]


@pytest.fixture(scope="module")
def excluded(records: list[tuple[str, str]]) -> Excluded:
    """Return files of `--exclude`. Together they match records in all ways that KINDS lists."""
    residues = [text for _, text in records]
    entries = [
        *((f"whole{i}", residues[i]) for i in range(0, 30, 3)),
        *((f"part{i}", residues[i][5:-5]) for i in range(30, 60, 4)),
        *((f"longer{i}", "WWW" + residues[i] + "HHH") for i in range(60, 90, 5)),
        ("peptide", "MKV"),
    ]
    rows = [
        (f"P{i}" if i % 2 else f"test{i}", f"test{i}" if i % 2 else f"P{i}", i / 300, 1, i, 2, i)
        for i in range(90, 300, 7)
    ]
    listed = [f"P{i}" for i in range(100, 130, 2)] + ["N201_HUMAN", "UniRef50_P202", "plain203"]
    return Excluded(fastas={"set.fa": entries}, lists={"ids": listed}, tables={"m8": rows})


@pytest.fixture
def corpus(records: list[tuple[str, str]], tmp_path: Path) -> Path:
    path = tmp_path / "records.fasta"
    path.write_bytes(fasta(records))
    return path


def words_for(paths: list[str]) -> list[str]:
    return [word for path in paths for word in ("--exclude", path)]


def test_excluded_records_are_counted_and_inspect_shows_their_matches(
    run: Run,
    records: list[tuple[str, str]],
    excluded: Excluded,
    corpus: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    words = words_for(write_files(tmp_path, excluded))
    done = run("preprocess", corpus, "--out", out, *SHAPE, *words, **SIZES)
    assert done.returncode == 0, done.stderr
    early = [None if residues else "too_short" for _, residues in records]
    found = expected(records, early, excluded, dedup="exact", longest=126)
    assert rows_of(out) == found
    kinds = Counter(match[0] for _, match in found if match is not None)
    assert set(kinds) == set(KINDS)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS)
    assert f"{sum(kinds.values())} excluded" in done.stdout
    assert f"left out (records: {counts})" in done.stdout
    assert f"left out (records: {counts})" in run("inspect", out).stdout
    assert read_manifest(out).records_by_status["excluded"] == sum(kinds.values())
    assert run("verify", out, "--deep").returncode == 0
    assert run("stats", out).returncode == 0
    shown = {
        kind: run("inspect", out, "--record", header.split()[0]).stdout
        for (header, _), (_, match) in zip(records, found, strict=True)
        if match is not None
        for kind in match[:1]
    }
    assert "excluded: the same residues as whole" in shown["equal"]
    assert "excluded: contains part" in shown["contains"]
    assert "excluded: contained in longer" in shown["contained"]
    assert " is listed in ids (--exclude)" in shown["listed"]
    assert " in m8 (--exclude)" in shown["similar"]


def test_the_bytes_do_not_depend_on_order_compression_or_layout_of_exclusion_files(
    excluded: Excluded, corpus: Path, tmp_path: Path
) -> None:
    random.seed(1)
    other = Excluded(
        fastas={k: random.sample(v, len(v)) for k, v in excluded.fastas.items()},
        lists={k: random.sample([*v, *v], 2 * len(v)) for k, v in excluded.lists.items()},
        tables={k: random.sample(v, len(v)) for k, v in excluded.tables.items()},
    )
    found = []
    for name, files in (("one", excluded), ("other", other)):
        folder = tmp_path / name
        folder.mkdir()
        paths = write_files(folder, files)
        if name == "other":
            for path in map(Path, paths):
                content = path.read_bytes()
                if path.name == "m8":  # identities in percent, with a comment and a header
                    rows = [line.split(b"\t") for line in content.splitlines()]
                    names = b"qseqid sseqid pident a b c qstart qend sstart send e s".split()
                    rows = [[*r[:2], b"%r" % (100 * float(r[2])), *r[3:]] for r in rows]
                    content = b"# BLASTP\n" + b"\n".join(map(b"\t".join, [names, *rows]))
                path.write_bytes(gzip.compress(content.replace(b"\n", b"\r\n")))
        out = preprocess(corpus, tmp_path / f"out-{name}", *SHAPE, *words_for(paths), **SIZES)
        files_of_dataset = digest(out)
        del files_of_dataset["manifest.json"]  # contains the sizes of the files of --exclude
        found.append(files_of_dataset)
    assert found[0] == found[1]


def test_killed_builds_and_task_lists_with_exclusions_give_the_bytes_of_an_uninterrupted_build(
    run: Run, excluded: Excluded, corpus: Path, tmp_path: Path
) -> None:
    options = (*SHAPE, *words_for(write_files(tmp_path, excluded)))
    whole = digest(preprocess(corpus, tmp_path / "whole", *options, **SIZES))
    killed = tmp_path / "killed"
    setup = started.stopping_after_outcomes(4)
    words = ("preprocess", corpus, "--out", killed, *options)
    process = started.start(*words, "--workers", "2", setup=setup, **SIZES)
    process.wait_until_stopped()
    process.kill()
    process.communicate(timeout=100)
    work = next((killed / ".build").glob("prepared-*.arrow"))
    work.write_bytes(work.read_bytes()[:-9])  # a power cut may truncate the file
    assert run(*words, **SIZES).returncode == 0
    assert digest(killed) == whole
    assert not (killed / ".build").exists()
    listed = tmp_path / "listed"
    assert run("plan-tasks", corpus, "--out", listed, *options, **SIZES).returncode == 0
    for stage in ("map", "reduce"):
        done = run("run-task", listed, "--stage", stage, "--index", 0, "--array-size", 1, **SIZES)
        assert done.returncode == 0, done.stderr
    assert run("commit", listed, **SIZES).returncode == 0
    assert digest(listed) == whole


def test_an_exclusion_file_that_matches_no_record_or_has_changed_is_reported(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "ids").write_text("nobody\nnothing\n")
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--exclude", tmp_path / "ids")
    assert done.returncode == 0
    line = "--exclude ids: no record matches its 2 entries"
    assert f"{line}\n" in done.stderr
    assert f"note  {line}\n" in done.stdout
    again = run("preprocess", corpus, "--out", tmp_path / "out", "--exclude", tmp_path / "ids")
    assert "already built" in again.stdout
    (tmp_path / "ids").write_text("nobody\nnothinG\n")
    changed = run("preprocess", corpus, "--out", tmp_path / "out", "--exclude", tmp_path / "ids")
    assert changed.returncode == 1
    assert "changed since this dataset was built" in changed.stderr
    omitted = run("preprocess", corpus, "--out", tmp_path / "out")
    assert "holds another dataset (--exclude ids → not given)" in omitted.stderr
    filtered = ("--where", "length > 60", "--exclude", tmp_path / "ids", "--overwrite")
    done = run("preprocess", corpus, "--out", tmp_path / "out", *filtered)
    compared = "not compared: [0-9]+ records that --where left out"
    assert re.search(f"note  {line}; {compared}\n", done.stdout)
    shown = run("inspect", tmp_path / "out").stdout
    assert "--exclude  ids (2 entries)\n" in shown
    assert "--where 'length > 60'" in shown
    assert "None" not in shown
    assert "False" not in shown


@needs_mmseqs
def test_mmseqs_excludes_similar_records_and_their_copies(run: Run, tmp_path: Path) -> None:
    made = [text.upper() for _, text in made_records(30, seed=7, longest=300) if len(text) > 150]
    relative = "".join("A" if i % 5 == 0 else letter for i, letter in enumerate(made[0]))
    records = [*((f"r{i}", text) for i, text in enumerate(made)), ("copy", made[0])]
    (tmp_path / "x.fasta").write_bytes(fasta(records))
    (tmp_path / "test.fasta").write_bytes(fasta([("b", relative), ("a", relative)]))
    out = tmp_path / "out"
    excluded = ("--exclude", f"mmseqs:{tmp_path / 'test.fasta'}", "--exclude-identity", "0.7")
    done = run("preprocess", tmp_path / "x.fasta", "--out", out, *excluded, "--dedup", "none")
    assert done.returncode == 0, done.stderr
    assert re.search(r"speed  .* MB/s of input \(.* s, besides \d+\.\d s of MMseqs2\)", done.stdout)
    similar = ("excluded", ("similar", "a", "mmseqs:test.fasta"))
    last = len(made)
    assert rows_of(out) == [
        similar if i in (0, last) else ("kept", None) for i in range(len(records))
    ]
    assert "--exclude  mmseqs:test.fasta (2 entries)\n" in run("inspect", out).stdout


@needs_mmseqs
@pytest.mark.skipif(not LONG, reason="takes seconds; set THDPACK_LONG=1")
def test_mmseqs_excludes_the_same_records_as_a_table_of_its_results(
    run: Run, records: list[tuple[str, str]], corpus: Path, tmp_path: Path
) -> None:
    random.seed(3)
    test_set = tmp_path / "test.fasta"
    entries = []
    for i in range(0, 60, 2):
        letters = list(records[i][1].upper())
        for place in random.sample(range(len(letters)), len(letters) // 4):
            letters[place] = random.choice("LAGVSERTIDPKQNFYMHWC")
        entries.append((f"t{i}", "".join(letters)))
    test_set.write_bytes(fasta([entry for entry in entries if entry[1]]))
    out = tmp_path / "out"
    words = ("preprocess", corpus, "--out", out, "--exclude", f"mmseqs:{test_set}", *SHAPE)
    similar = ("--exclude-identity", "0.6", "--exclude-coverage", "0.7")
    setup = started.stopping_after_outcomes(9)
    process = started.start(*words, *similar, "--workers", "2", setup=setup, **SIZES)
    process.wait_until_stopped()
    process.kill()
    process.communicate(timeout=100)
    done = run(*words, *similar, **SIZES)
    assert done.returncode == 0, done.stderr
    table, columns = tmp_path / "table.tsv", "query,target,fident,qcov,tcov"
    command = ["mmseqs", "easy-search", corpus, test_set, table, tmp_path / "tmp"]
    more = ["--format-mode", "4", "--format-output", columns, "-v", "1", "--threads", "3"]
    subprocess.run([*command, *more], check=True, stdout=subprocess.DEVNULL)
    by_table = tmp_path / "by_table"
    preprocess(corpus, by_table, "--exclude", str(table), *similar, *SHAPE, **SIZES)
    found = rows_of(out)
    assert [row[0] for row in found] == [row[0] for row in rows_of(by_table)]
    matches = [match for _, match in found if match is not None]
    assert len(matches) > 10
    assert {match[0] for match in matches} == {"similar"}
    assert {match[2] for match in matches} == {"mmseqs:test.fasta"}
