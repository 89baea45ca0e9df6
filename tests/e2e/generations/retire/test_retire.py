"""`thdpack append --retire`: records are listed, and no earlier file changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.reader import ShardReader
from tests.helpers.data.corpus import digest, read_manifest, read_records
from tests.helpers.data.damaged_datasets import deep, shallow
from tests.helpers.data.growth import OPTIONS, SIZES, grow
from tests.helpers.data.retired import LIST, read_retired, slow_matches, write_named_inputs
from tests.helpers.processes.command_line import Run


def read_epoch(dataset: Path) -> list[bytes]:
    """Return the tokens of all buckets of train, in the order of the first epoch."""
    with ShardReader(dataset) as reader:
        return [next(reader).input_ids.tobytes() for _ in range(len(reader))]


def test_each_append_retires_the_matching_records_of_earlier_generations(
    run: Run, inputs: list[Path], tmp_path: Path, ids: Path
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    for path in inputs[1:]:
        assert run("append", out, path, "--retire", ids, **SIZES).returncode == 0
    assert run("append", out, "--retire", ids, **SIZES).returncode == 0
    found = read_retired(out)
    earlier: list[dict[str, Any]] = []
    for generation in (2, 3, 4):
        expected = slow_matches(out, generation - 1, LIST)
        assert found[generation] == expected[len(earlier) :]
        assert found[generation]
        earlier = expected
    assert shallow(out) == deep(out) == []
    assert "verified" in run("verify", "--deep", out).stdout


def test_the_ids_match_the_records_that_exclude_leaves_out(
    run: Run, tmp_path: Path, ids: Path
) -> None:
    """Each sequence occurs once, because --exclude also leaves out duplicates of listed records."""
    (path,) = write_named_inputs(tmp_path, 1)
    unique = tmp_path / "unique.fasta"
    headers = [line for line in path.read_text().splitlines() if line.startswith(">")]
    letters = "ACDEFGHIKLMNPQRSTVWY"
    unique.write_text(
        "".join(
            f"{header}\nMKV{letters[i % 20]}{letters[i // 20]}\n"
            for i, header in enumerate(headers)
        )
    )
    out = grow(run, [unique], tmp_path / "out", [1], *OPTIONS)
    plain = tmp_path / "ids.txt"  # --exclude allows only one word on a line
    plain.write_text("".join(f"{line.split()[0]}\n" for line in LIST.splitlines() if line))
    excluding = tmp_path / "excluding"
    done = run("preprocess", unique, "--out", excluding, *OPTIONS, "--exclude", plain, **SIZES)
    assert done.returncode == 0, done.stderr
    run("append", out, "--retire", ids, **SIZES)
    left_out = [row["ordinal"] for row in read_records(excluding) if row["status"] == "excluded"]
    assert [row["ordinal"] for row in read_retired(out)[2]] == left_out
    assert len(left_out) > 5


def test_no_earlier_file_changes_and_a_reader_returns_the_same_buckets(
    run: Run, inputs: list[Path], tmp_path: Path, ids: Path
) -> None:
    out = grow(run, inputs[:2], tmp_path / "out", [1, 1], *OPTIONS)
    before = digest(out)
    buckets = read_epoch(out)
    dry = run("append", out, "--retire", ids, "--dry-run").stdout.splitlines()
    assert digest(out) == before
    done = run("append", out, "--retire", ids, **SIZES)
    lines = dict(line.strip().split("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    assert dry == [
        f"would add generation 3 to {out}",
        f"would retire {lines['retired']}",
        f"warning: {lines['warning']}",
    ]
    after = digest(out)
    assert {name for name in before if before[name] != after.get(name)} == {"manifest.json"}
    assert after["generations/2.json"] == before["manifest.json"]
    added = {name.partition("/")[0] for name in after.keys() - before.keys()}
    assert added == {"generations", "retired"}
    assert read_epoch(out) == buckets


def test_a_list_that_is_already_retired_changes_nothing(
    run: Run, inputs: list[Path], tmp_path: Path, ids: Path
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    run("append", out, inputs[1], "--retire", ids, **SIZES)
    before = digest(out)
    # repeat the first command: it must not retire records of its own input
    done = run("append", out, inputs[1], "--retire", ids, **SIZES)
    assert "nothing to do" in done.stdout
    assert "to retire later records, give no inputs" in done.stdout + done.stderr
    assert digest(out) == before
    run("append", out, "--retire", ids, **SIZES)
    assert read_manifest(out).generation == 3
    before = digest(out)
    done = run("append", out, "--retire", ids, **SIZES)
    assert "generation 3 has no new input or record to retire; nothing to do" in done.stdout
    assert digest(out) == before


def test_an_empty_list_changes_nothing_and_prints_a_note(
    run: Run, inputs: list[Path], tmp_path: Path
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    before = digest(out)
    (path := tmp_path / "ids.txt").write_bytes(b"# removed\n\n")
    done = run("append", out, "--retire", path, **SIZES)
    assert (done.returncode, digest(out)) == (0, before)
    assert f"--retire {path} lists no id\n" in done.stderr


def test_commands_show_retired_records(
    run: Run, inputs: list[Path], tmp_path: Path, ids: Path
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    assert "retired" not in run("generations", out).stdout
    assert "retired" not in run("inspect", out).stdout
    done = run("append", out, inputs[1], "--retire", ids, **SIZES)
    matches = slow_matches(out, 1, LIST)
    rows = {row["ordinal"]: row for row in read_records(out)}
    kept = sum(rows[match["ordinal"]]["status"] == "kept" for match in matches)
    said = f"retired  {len(matches)} records ({kept} of them kept), listed in retired/; readers do"
    assert said in done.stdout
    [warning] = [line for line in done.stdout.splitlines() if line.startswith("         warning")]
    assert " of --retire match no record: " in warning
    assert "no-such-id" in warning
    done = run("append", out, "--retire", ids, "--log-json", **SIZES)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["generation"] == 3
    assert summary["retired"]["earlier"] == len(matches)
    assert "no-such-id" in summary["retired"]["unknown_ids"]
    listed = [json.loads(line) for line in run("generations", out, "--json").stdout.splitlines()]
    later = len(slow_matches(out, 2, LIST)) - len(matches)
    assert [row["retired"] for row in listed] == [0, len(matches), later]
    assert "retired" in run("generations", out).stdout.splitlines()[0]
    total = len(matches) + later
    assert f"retired  {total} records" in run("inspect", out).stdout
    shown = run("inspect", out, "--record", "P00000").stdout
    assert shown.count("retired in generation 2") == shown.count("retired in generation 3") == 1
    assert "retired" not in run("inspect", out, "--record", "P00012").stdout
    assert f"retired records: {total}, listed" in run("stats", out).stdout
    assert json.loads(run("stats", out, "--json").stdout)["retired"] == total
    assert json.loads(run("stats", out, "--json", "--generation", 1).stdout)["retired"] == 0


def test_compact_and_gc_keep_retired_records(
    run: Run, inputs: list[Path], tmp_path: Path, ids: Path
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    run("append", out, "--retire", ids, **SIZES)
    done = run("compact", out, inputs[0], **SIZES)
    assert "nothing to do" in done.stdout  # a generation that only retires has no shards
    run("append", out, inputs[1], "--retire", ids, **SIZES)
    run("append", out, "--retire", ids, **SIZES)
    before, rows = read_retired(out), read_manifest(out).retired
    assert list(before) == [2, 4]
    assert run("compact", out, *inputs[:2], **SIZES).returncode == 0
    assert read_manifest(out).generation == 5
    assert "nothing to do" in run("compact", out, *inputs[:2], **SIZES).stdout
    assert run("gc", out, "--delete", "--grace", 0).returncode == 0
    assert not (out / "generations/2.json").exists()
    assert read_retired(out) == before
    assert read_manifest(out).retired == rows
    names = {row["ordinal"]: row["id"] for row in read_records(out)}
    for listed in before.values():
        assert [names[row["ordinal"]] for row in listed] == [row["id"] for row in listed]
    assert shallow(out) == deep(out) == []
    orphan, other = out / "retired/0123456789abcdef.parquet", out / "retired/notes.parquet"
    orphan.write_bytes(b"left by a killed append")
    other.write_bytes(b"not written by a build")
    run("gc", out, "--delete", "--grace", 0)
    assert (orphan.exists(), other.exists()) == (False, True)
    # a new dataset in the same folder has no retired records
    run("preprocess", inputs[2], "--out", out, "--overwrite", *OPTIONS, **SIZES)
    assert [path.name for path in (out / "retired").iterdir()] == ["notes.parquet"]
    assert shallow(out) == []


def test_records_of_datasets_that_cannot_grow_can_be_retired(
    run: Run, inputs: list[Path], tmp_path: Path, ids: Path
) -> None:
    """An empty list is allowed, because a release may remove nothing."""
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS, "--dedup", "cropped")
    empty = tmp_path / "empty.txt"
    empty.write_text("# nothing removed\n")
    assert "nothing to do" in run("append", out, "--retire", empty, **SIZES).stdout
    assert run("append", out, inputs[1], "--retire", ids, **SIZES).returncode == 1
    done = run("append", out, "--retire", ids, "--source-release", "2026_04", **SIZES)
    assert done.returncode == 0, done.stderr
    assert read_retired(out)[2] == slow_matches(out, 1, LIST)
    assert read_manifest(out).source_release == "2026_04"
    assert shallow(out) == deep(out) == []
