"""The thdpack command: help, exit codes, interrupts, inspect, machine-readable output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pipeline.cli.arguments import _COMMANDS
from pipeline.cli.inspect_dataset import show_record
from tests.helpers.data.corpus import digest, read_manifest
from tests.helpers.processes.command_line import REPO, Run, command, environment, run_process


@pytest.fixture(scope="module")
def dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of the sample with the command. Tests must not change it."""
    out = tmp_path_factory.mktemp("sample") / "out"
    assert run_process("preprocess", sample, "--out", out).returncode == 0
    return out


SHAPE = (
    "capacity",
    "max-seq-len",
    "long",
    "min-residues",
    "on-invalid",
    "dedup",
    "split",
    "seed",
    "packer",
    "max-seqs",
    "length-multiple",
)
OPTIONS = (*SHAPE, "compression", "shard-mb", "workers", "memory", "overwrite", "dry-run")


def test_the_help_of_preprocess_shows_options_choices_a_default_and_an_example(run: Run) -> None:
    text = run("preprocess", "--help").stdout
    assert all(f"--{option}" in text for option in OPTIONS)
    assert "{truncate,crop,split,drop}" in text
    assert "INPUT [INPUT …]" in text
    assert "--where SQL" in text
    assert "(default: 16384)" in re.sub(r"\s+", " ", text)
    assert "Example: thdpack preprocess" in text


def imported(*arguments: str) -> set[str]:
    """Return the names of the modules that a new Python process imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stderr.splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def test_help_imports_the_option_parser_and_little_else() -> None:
    """Imports take nearly all the time of `--help`. The test counts imported modules, because the
    time depends on the load of the machine. It leaves out modules of the standard library, because
    each version of Python imports others.
    """
    parser = imported("-c", "import dataclasses, json, tyro")
    more = {
        name
        for name in imported("-m", "pipeline", "--help") - parser
        if name.partition(".")[0] not in sys.stdlib_module_names
    }
    ours = {"packers", "pipeline", "schemas", "thdpack"}
    assert "pipeline.cli.main" in more
    assert {name.partition(".")[0] for name in more} <= ours | {"tyro"}
    assert len(more) < len(parser) / 2


def test_the_command_without_arguments_prints_its_usage(run: Run) -> None:
    done = run()
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == "usage: thdpack COMMAND …"
    assert {line.split()[0] for line in lines if line.startswith("  ")} == set(_COMMANDS)
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 24  # one screen


def test_help_as_a_command_prints_the_same_usage(run: Run) -> None:
    done = run("help")
    assert (done.returncode, done.stdout) == (0, run().stderr)


def test_a_traceback_shows_no_credentials() -> None:
    program = """
import pipeline.cli.main
def broken(arguments):
    raise RuntimeError("GET https://me:hunter2@host/x?X-Amz-Signature=5ba5e5")
pipeline.cli.main._run = broken
pipeline.cli.main.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "RuntimeError: GET https://host/x" in done.stderr
    assert not re.search("hunter2|5ba5e5", done.stderr.replace(program, ""))


def test_inspect_draws_a_bucket_and_prints_the_status_of_a_record(
    run: Run,
    run_process: Run,
    dataset: Path,
    sample: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = run_process("inspect", dataset, "--bucket", "0").stdout
    assert "bucket 0 of train" in drawn
    assert "<cls>" in drawn
    assert "█" in drawn
    monkeypatch.setattr(
        "tests.helpers.processes.command_line.environment", lambda: {**os.environ, "COLUMNS": "40"}
    )
    piped = run("inspect", dataset, "--bucket", "0").stdout
    assert re.search(r"^\d+ sequences, .* tokens .*, Σ length² [\d,]+$", piped, re.MULTILINE)
    identifier = sample.read_text()[1:].split()[0]
    accession, name = identifier.split("|")[1:]
    for wanted in (identifier, accession, name):
        said = run("inspect", dataset, "--record", wanted).stdout
        assert re.search(
            rf"{re.escape(identifier)}: record 0, .*\n +Swiss-Prot, accession {accession}, .*\n"
            r".*hash .*\n +kept: train, train/.*, row \d+",
            said,
        )
    assert "records in" in run("inspect", dataset).stdout
    for arguments in (
        ["--record", "nobody"],
        ["--bucket", "10000"],
        ["--bucket", "0", "--split", "test"],
    ):
        done = run("inspect", dataset, *arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_inspect_explains_why_a_record_was_left_out(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.fasta"
    path.write_text(">a\nMKTAYI\n>b\nmktayi*\n>c\nMK\n>d\nMKJ1\n>e\n" + "M" * 50)
    out = tmp_path / "out"
    done = run(
        "preprocess",
        path,
        "--out",
        out,
        "--min-residues",
        "3",
        "--on-invalid",
        "skip",
        "--max-seq-len",
        "32",
        "--long",
        "drop",
    )
    assert done.returncode == 0
    for name, reason in (
        ("a", "kept"),
        ("b", "the same residues as record 0 (a)"),
        ("c", "fewer than 3"),
        ("d", "outside the vocabulary"),
        ("e", "more than 30"),
    ):
        show_record(read_manifest(out), out, name)
        assert reason in capsys.readouterr().out


def test_a_build_that_keeps_no_record_is_an_error(run: Run, sample: Path, tmp_path: Path) -> None:
    done = run("preprocess", sample, "--out", tmp_path / "out", "--min-residues", "100000")
    assert done.returncode == 1
    assert "no record was kept (1,008 too short)" in done.stderr
    assert not (tmp_path / "out" / "manifest.json").exists()


def end_with_closed_output(*words: str) -> tuple[int, str]:
    """Run a command whose output is closed immediately, as in `thdpack … | head -0`.

    Returns:
        Exit code and standard error.
    """
    process = subprocess.Popen(
        command(*words),
        cwd=REPO,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read().decode()
    process.stderr.close()
    return process.wait(), said


def test_a_closed_pipe_ends_the_command_quietly(dataset: Path) -> None:
    for words in (("inspect", str(dataset)), ("train", "--help"), ("train", "esm2-8m", "--help")):
        assert end_with_closed_output(*words) == (141, "")


def test_an_interrupt_during_an_import_ends_the_command_with_one_line() -> None:
    program = """
import sys, thdpack
class Interrupted:
    def find_spec(self, name, *_):
        if name.startswith("pipeline"):
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
thdpack.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "thdpack: interrupted\n")


def test_stats_writes_all_files_even_if_its_output_is_closed(sample: Path, tmp_path: Path) -> None:
    page, tables = tmp_path / "r.html", tmp_path / "csv"
    words = ("stats", str(sample), "--html", str(page), "--csv", str(tables))
    code, said = end_with_closed_output(*words)
    assert code == 141
    assert said.splitlines()[-2:] == [f"wrote {tables}", f"wrote {page}"]
    assert page.read_text().rstrip().endswith("</html>")
    assert (tables / "summary.csv").exists()


def test_log_json_prints_one_object_per_line(run: Run, sample: Path, tmp_path: Path) -> None:
    done = run("preprocess", sample, "--out", tmp_path / "out", "--log-json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["event"] for e in events][-1] == "summary"
    assert sum(events[-1]["records"].values()) == 1008
    assert {"phase", "summary"} <= {e["event"] for e in events}
    times = [datetime.fromisoformat(e["time"]) for e in events if e["event"] == "phase"]
    assert times == sorted(times)
    assert {time.utcoffset() for time in times} == {timedelta(0)}


def test_memory_and_workers_do_not_change_the_bytes(
    run_process: Run,
    sample: Path,
    tmp_path: Path,
    dataset: Path,
) -> None:
    assert (
        run_process(
            "preprocess", sample, "--out", tmp_path / "b", "--memory", "300M", "--workers", "7"
        ).returncode
        == 0
    )
    assert digest(dataset) == digest(tmp_path / "b")
