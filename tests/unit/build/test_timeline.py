"""The file of --timeline has all phases and tasks, in the format that Perfetto reads."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.processes.command_line import Run


def test_a_timeline_has_every_phase_and_its_tasks(
    run_process: Run, tmp_path: Path, sample: Path
) -> None:
    path = tmp_path / "build.json"
    words = ("--out", tmp_path / "out", "--workers", "2", "--timeline", path)
    done = run_process("preprocess", sample, *words, task_bytes=100_000, partition_bytes=200_000)
    assert done.returncode == 0, done.stderr
    events = json.loads(path.read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert rows[0] == "phases"
    assert all(name.startswith("worker ") for row, name in rows.items() if row)
    boxes = [event for event in events if event["ph"] == "X"]
    phases = {event["name"]: event for event in boxes if event["tid"] == 0}
    assert list(phases)[:2] == ["read, tokenize, partition", "deduplicate, shuffle, pack"]
    tasks = [event for event in boxes if event["tid"]]
    assert {event["args"]["phase"] for event in tasks} == set(phases)
    assert {"map-000000", "reduce-000000"} <= {event["name"] for event in tasks}
    for event in tasks:
        phase = phases[event["args"]["phase"]]
        # times are rounded to microseconds
        assert phase["ts"] - 1 <= event["ts"]
        assert event["ts"] + event["dur"] <= phase["ts"] + phase["dur"] + 2
    for row in rows:
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in boxes if e["tid"] == row)
        assert all(end <= begin + 1 for (_, end), (begin, _) in zip(own, own[1:], strict=False))


def test_the_summary_has_the_time_of_each_stage(run: Run, tmp_path: Path, sample: Path) -> None:
    done = run("preprocess", sample, "--out", tmp_path / "out")
    assert "stages  read, tokenize, partition: " in done.stdout
    assert "start, commit, removal of intermediate files: " in done.stdout
    done = run("preprocess", sample, "--out", tmp_path / "json", "--log-json")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert [stage["name"] for stage in summary["stages"]][-1] == "verify"


def test_a_timeline_that_cannot_be_written_is_refused_before_any_work(
    run: Run, tmp_path: Path, sample: Path
) -> None:
    for path, message in (
        ("s3://bucket/build.json", "a URL, expected a path on a local disk"),
        (str(tmp_path), "a folder, expected a file"),
        (str(tmp_path / "no" / "build.json"), "does not exist: create it"),
    ):
        done = run("preprocess", sample, "--out", tmp_path / "out", "--timeline", path)
        assert done.returncode == 2
        assert f"--timeline {path}: {message}" in done.stderr or message in done.stderr
        assert not (tmp_path / "out").exists()
