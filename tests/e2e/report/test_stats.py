"""`thdpack stats` on the command line: the report in the terminal, inputs and errors."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipeline.report.command as command
from benchmarks.offline.stats import make_records
from pipeline.build.options import PreprocessOptions
from schemas.errors import ThdpackError
from tests.helpers.data.corpus import fasta, made_records, read_manifest
from tests.helpers.processes.command_line import REPO, Run
from tests.helpers.reports.stats import stats
from tests.helpers.stores.stores import http_store


def test_the_terminal_report_has_every_section(run: Run, dataset: Path) -> None:
    done = run("stats", dataset)
    assert (done.returncode, done.stderr) == (0, "")
    manifest = read_manifest(dataset)
    for part in (
        "records",
        "length in residues",
        "composition",
        "splits",
        "padding",
        "20 epochs",
        "the longest records",
        "the most repeated records",
    ):
        assert part in done.stdout
    for number in (
        sum(manifest.records_by_status.values()),
        manifest.residues_in,
        manifest.residues_kept,
        manifest.splits["train"].tokens,
    ):
        assert f"{number:,}" in done.stdout
    assert {"first.fasta", "second.fasta", "train", "valid", "esm2-650m", "next-fit"} <= set(
        re.split(r"\s+", done.stdout)
    )
    # lines of text are not wrapped, so they may be longer than COLUMNS (120)
    assert max(map(len, done.stdout.splitlines())) <= 170


def test_a_terminal_of_80_columns_shows_every_number_in_full(
    run: Run, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the terminal is narrow, long names are cut off, but numbers and column headers are not.

    Names of the files of --against are not cut off, either."""
    monkeypatch.setattr(
        "tests.helpers.processes.command_line.environment",
        lambda: {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
    )
    done = run("stats", dataset)
    assert not re.search(r"[0-9,.%]…", done.stdout)
    for header in (
        "places",
        "spread",
        "sequences in a bucket",
        "one epoch",
        "20 epochs",
        "fp8-delayed",
        "residues",
        "times",
    ):
        assert header in done.stdout
    assert "This packing pools all splits" in " ".join(done.stdout.split())
    path = tmp_path / "a-benchmark-of-proteins-from-newly-sequenced-organisms.fasta"
    path.write_bytes(b">a\nMKV\n")
    shown = run("stats", dataset, "--against", path).stdout.partition("entries of other files")[2]
    table = shown.partition("padding of")[0]
    assert "…" not in table
    assert path.name[-9:] in table


def test_a_report_of_a_remote_dataset_needs_only_manifest_and_records(
    run: Run, dataset: Path
) -> None:
    here = stats(run, dataset)
    for entry in [entry for entries in read_manifest(dataset).shards.values() for entry in entries]:
        (dataset / entry.name).unlink()
    with http_store(dataset) as url:
        there = stats(run, url)
    assert there == {**here, "name": url}


def test_a_remote_folder_without_a_manifest_is_refused(run: Run, tmp_path: Path) -> None:
    with http_store(tmp_path) as url:
        done = run("stats", url)
    assert done.returncode == 1
    assert "no manifest.json" in done.stderr


def test_a_report_is_the_same_for_fasta_gzip_parquet_and_standard_input(
    run: Run, tmp_path: Path
) -> None:
    records = made_records(60)
    plain = fasta(records)
    (tmp_path / "a.fasta").write_bytes(plain)
    (tmp_path / "a.fasta.gz").write_bytes(gzip.compress(plain))
    pq.write_table(
        pa.table(
            {
                "id": [header.split()[0] for header, _ in records],
                "sequence": [text for _, text in records],
            }
        ),
        tmp_path / "a.parquet",
    )
    piped = run("stats", "-", "--json", stdin=plain)
    reports = [stats(run, tmp_path / name) for name in ("a.fasta", "a.fasta.gz", "a.parquet")] + [
        json.loads(piped.stdout)
    ]
    for report in reports:
        report.pop("name")
        report["inputs"] = [{**flow, "name": "", "bytes": 0} for flow in report["inputs"]]
        for key in ("longest", "repeated", "duplicates"):
            report[key] = [{**note, "source": "", "original": ""} for note in report[key]]
    assert all(report == reports[0] for report in reports)


def test_a_large_file_read_by_several_threads_gives_the_same_report(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "a.fasta").write_bytes(fasta(made_records(400)))
    whole = run("stats", tmp_path / "a.fasta", "--json")
    cut = run("stats", tmp_path / "a.fasta", "--json", task_bytes=7_000)
    assert json.loads(cut.stdout) == json.loads(whole.stdout)


def test_memory_grows_by_less_than_250_bytes_per_record(tmp_path: Path) -> None:
    """Compare the peak memory of a report of 400,000 rows with that of 100,000 rows."""
    rows = (100_000, 400_000)
    folders = [tmp_path / str(count) for count in rows]
    manifests = [make_records(folder, count) for folder, count in zip(folders, rows, strict=True)]
    program = """
import re, sys
from pathlib import Path
from pipeline.report.gather.dataset import dataset_report
for folder in sys.argv[1:]:
    report = dataset_report(folder)
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
    print(report.records, sum(flow.records for flow in report.duplicates), peak)
"""
    words = [sys.executable, "-c", program, *map(str, folders)]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=True)
    small, large = ([int(word) for word in line.split()] for line in done.stdout.splitlines())
    assert (small[0], large[0]) == rows
    assert [small[1], large[1]] == [m.records_by_status["duplicate"] for m in manifests]
    grown = 1024 * (large[2] - small[2]) / (large[0] - small[0])
    assert grown < 250  # bytes per row; a row of Python objects would take about 1,000 bytes


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b">empty\n>none\n",
        b"MKV\n",
        b">a\n\x01\x02\n",
        gzip.compress(b">a\nMKV\n", mtime=0)[:-9],
    ],
)
def test_stats_and_preprocess_print_the_same_error_for_invalid_inputs(
    run: Run, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.fasta").write_bytes(content)
    done = run("stats", tmp_path / "a.fasta")
    refused = run("preprocess", tmp_path / "a.fasta", "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (1, "")
    said = done.stderr.splitlines()[-1].removeprefix("thdpack stats: ")
    assert f"thdpack preprocess: {said}" in refused.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "name a dataset"),
        (["DATASET", "DATASET", "DATASET"], 2, "more than two"),
        (["DATASET", "--json", "/dev/null/x"], 1, "cannot write /dev/null/x"),
        (["nothing.fasta"], 2, "nothing.fasta: no such file"),
        (["nothing.fasta", "--capacity", "1"], 2, "--capacity is 1"),
    ],
)
def test_wrong_usage_is_an_error_that_names_the_mistake(
    run: Run, built: Path, arguments: list[str], code: int, message: str
) -> None:
    done = run(
        "stats", *(str(built) if argument == "DATASET" else argument for argument in arguments)
    )
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_names_from_files_cannot_send_terminal_escapes(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\u202e[red].fasta"
    path.write_bytes(b">[bold]x\x1b]0;owned\x07\nMKV\n>y\nMKV\n")
    done = run("stats", path)
    assert done.returncode == 0, done.stderr
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", done.stdout)
    assert "[bold]x\\x1b]0;owned\\x07" in done.stdout
    assert "a\\x1b[31m\\u202e[red].fasta" in done.stdout


def test_without_polars_or_jinja2_the_error_gives_the_pip_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, built: Path
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    options = PreprocessOptions(inputs=(str(built),), out="")
    with pytest.raises(ThdpackError, match=r"polars.*pip install -e .*\[report\]"):
        command.report_of(options)
    with pytest.raises(ThdpackError, match=r"--html needs jinja2.*pip install -e .*\[report\]"):
        command.stats(options, command.Outputs(json=None, csv=None, html="report.html"))
