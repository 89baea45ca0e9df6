"""`--metadata` adds a table's columns to records/, like a join; `--keep-header` adds headers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from schemas.manifest import Manifest
from tests.conftest import Run
from tests.helpers.data.corpus import digest, fasta, read_manifest, read_records
from tests.helpers.data.metadata_tables import (
    SCHEMA,
    TYPES,
    Row,
    headed_records,
    joined,
    made_table,
    write_table,
)
from tests.helpers.processes import started
from tests.helpers.processes.command_line import PIECE_BYTES, preprocess

SIZES = {"task_bytes": 20_000, "partition_bytes": 20_000}
SHAPE = ("--capacity", "512", "--max-seq-len", "128")


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    return headed_records(400)


@pytest.fixture(scope="module")
def corpus(records: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "records.fasta"
    path.write_bytes(fasta(records))
    return path


@pytest.fixture(scope="module")
def table(records: list[tuple[str, str]]) -> list[Row]:
    return made_table(records)


def test_records_have_the_values_of_a_plain_join(
    run: Run, records: list[tuple[str, str]], corpus: Path, table: list[Row], tmp_path: Path
) -> None:
    """The build has many partitions, and each leaves sequences that do not fill a bucket."""
    out = tmp_path / "out"
    path = write_table(tmp_path / "table.parquet", table)
    words = ("preprocess", corpus, "--out", out, "--metadata", path, "--keep-header")
    done = run(*words, *SHAPE, "--long", "split", **SIZES)
    assert done.returncode == 0, done.stderr
    matched = 0
    for (header, _), row in zip(records, read_records(out), strict=True):
        own = joined(header, table)
        matched += own is not None
        expected = {name: None if own is None else own[name] for name in TYPES}
        assert {name: row[name] for name in TYPES} == expected, header
        assert row["header"] == header.replace("   ", " ")
    assert 100 < matched < len(records)
    manifest = read_manifest(out)
    assert manifest.metadata_columns == TYPES
    assert manifest.metadata_records == matched
    said = f"{matched} of {len(records)} records found in table.parquet ({len(table)} rows)"
    assert said in done.stdout
    assert run("verify", out, "--deep").returncode == 0
    assert run("stats", out).returncode == 0
    assert said in run(*words, *SHAPE, "--long", "split", **SIZES).stdout


def test_the_order_of_rows_and_columns_and_the_format_do_not_change_the_bytes(
    run: Run, corpus: Path, table: list[Row], tmp_path: Path
) -> None:
    shuffled = random.Random(2).sample(table, len(table))
    columns = [{name: row[name] for name in SCHEMA.names} for row in shuffled]
    paths = [write_table(tmp_path / "0" / "table", table)]
    for i, kind in enumerate((".parquet", ".arrow", ".tsv", ".csv", ".tsv.gz"), 1):
        written = write_table(tmp_path / str(i) / f"table{kind}", columns)
        paths.append(written.rename(written.parent / "table"))
    found = []
    for i, path in enumerate(paths):
        words = ("--metadata", str(path), "--where", "score > 0 or score is null")
        out = preprocess(corpus, tmp_path / f"out{i}", *SHAPE, *words, **SIZES)
        files = digest(out)
        del files["manifest.json"]  # contains the size of the table
        found.append(files)
    assert all(files == found[0] for files in found)


FILTERS: dict[str, Callable[[Row], bool]] = {
    "score > 0.4": lambda row: row["score"] is not None and row["score"] > 0.4,
    '"Organism (ID)" = 9606 and not reviewed': lambda row: (
        row["Organism (ID)"] == 9606 and row["reviewed"] is False
    ),
    '"Protein names" is null or "Protein names" like \'%"%\'': lambda row: (
        row["Protein names"] is None or '"' in row["Protein names"]
    ),
    "\"length of motif\" >= 200000000000000001 and version = '2b'": lambda row: (
        (row["length of motif"] or 0) > 2 * 10**17 and row["version"] == "2b"
    ),
}


@pytest.mark.parametrize("expression", FILTERS)
def test_where_over_columns_of_metadata_keeps_what_a_plain_filter_keeps(
    run: Run,
    records: list[tuple[str, str]],
    corpus: Path,
    table: list[Row],
    tmp_path: Path,
    expression: str,
) -> None:
    out = tmp_path / "out"
    path = write_table(tmp_path / "table.tsv", table)
    words = ("--metadata", path, "--where", expression, "--dedup", "none", "--min-residues", 1)
    done = run("preprocess", corpus, "--out", out, *words)
    assert done.returncode == 0, done.stderr
    nothing = dict.fromkeys(TYPES)
    expected = [
        "too_short"
        if not residues
        else "kept"
        if FILTERS[expression](joined(header, table) or nothing)
        else "filtered"
        for header, residues in records
    ]
    assert [row["status"] for row in read_records(out)] == expected


@pytest.mark.parametrize("dedup", ["exact", "none"])
def test_a_partition_too_large_for_memory_gives_the_same_bytes(
    build_here: Callable[..., Manifest],
    corpus: Path,
    table: list[Row],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dedup: str,
) -> None:
    path = write_table(tmp_path / "table.tsv", table)
    monkeypatch.setattr("pipeline.inputs.find.TASK_BYTES", 20_000)
    monkeypatch.setattr("pipeline.inputs.find.PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr("pipeline.inputs.find.FEWEST_TASKS", 1)
    monkeypatch.setattr("pipeline.build.build_plan.PARTITION_BYTES", 40_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.write_records._ROW_GROUP", 32)
    shape = {"capacity": 1024, "max_seq_len": 512, "metadata": str(path), "dedup": dedup}
    build_here(corpus, tmp_path / "whole", keep_header=True, **shape)
    monkeypatch.setattr("pipeline.build.spill.spilled_partition.WINDOW_BYTES", 3_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 4_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 3_000)
    monkeypatch.setattr("pipeline.build.named_files.metadata.prepare_table.RUN_BYTES", 3_000)
    build_here(corpus, tmp_path / "runs", keep_header=True, **shape)
    assert digest(tmp_path / "whole") == digest(tmp_path / "runs")


def test_row_groups_hold_a_bounded_number_of_bytes_of_metadata(
    build_here: Callable[..., Manifest],
    records: list[tuple[str, str]],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = random.Random(4)
    notes = {header.partition(" ")[0]: "é" * draw.randint(0, 900) for header, _ in records}
    path = tmp_path / "notes.csv"
    path.write_text("".join(["id,note\n", *(f"{key},{note}\n" for key, note in notes.items())]))
    monkeypatch.setattr("pipeline.build.reduce_stage.write_records._GROUP_ID_BYTES", 50_000)
    manifest = build_here(corpus, tmp_path / "out", metadata=str(path))
    (entry,) = manifest.records
    file = pq.ParquetFile(tmp_path / "out" / entry.name)
    rows = []
    for i in range(file.num_row_groups):
        group = file.read_row_group(i, columns=["id", "note"]).to_pylist()
        rows += group
        # the row that reaches the limit is the group's last row
        assert sum(len((row["note"] or "").encode()) for row in group[:-1]) < 50_000
    assert file.num_row_groups > 5
    assert [(row["id"], row["note"] or "") for row in rows] == list(notes.items())


def test_a_resumed_build_and_a_build_from_a_task_list_write_the_same_bytes(
    run: Run, corpus: Path, table: list[Row], tmp_path: Path
) -> None:
    path = write_table(tmp_path / "table.tsv", table)
    options = (*SHAPE, "--metadata", str(path), "--keep-header", "--where", "reviewed")
    whole = digest(preprocess(corpus, tmp_path / "whole", *options, **SIZES))
    killed = tmp_path / "killed"
    setup = started.stopping_after_outcomes(3)
    process = started.start("preprocess", corpus, "--out", killed, *options, setup=setup, **SIZES)
    process.wait_until_stopped()
    process.kill()
    process.communicate(timeout=100)
    work = next((killed / ".build").glob("prepared-*.arrow"))
    work.write_bytes(work.read_bytes()[:-9])  # a power cut may truncate the file
    assert digest(preprocess(corpus, killed, *options, **SIZES)) == whole
    listed = tmp_path / "listed"
    assert run("plan-tasks", corpus, "--out", listed, *options, **SIZES).returncode == 0
    path.unlink()  # the tasks do not read the table again
    for stage in ("map", "reduce"):
        words = ("--stage", stage, "--index", 0, "--array-size", 1)
        done = run("run-task", listed, *words, **SIZES)
        assert done.returncode == 0, done.stderr
    assert run("commit", listed, **SIZES).returncode == 0
    assert digest(listed) == whole


def test_a_damaged_copy_of_the_table_in_the_work_folder_is_written_again(
    run: Run, corpus: Path, table: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prepare task writes this file. The test damages it before a map task reads it."""
    path = write_table(tmp_path / "table.tsv", table)
    whole = digest(preprocess(corpus, tmp_path / "whole", "--metadata", str(path)))
    damaged = iter([True])

    def damage(*_: object, **__: object) -> Iterator[object]:
        if next(damaged, False):
            work = next((tmp_path / "out/.build").glob("prepared-*.arrow"))
            work.write_bytes(work.read_bytes()[:-1] + b"?")
        return map_tasks(*_, **__)

    from pipeline.build.stages import map_tasks

    monkeypatch.setattr("pipeline.build.unpack_stage.map_inputs.map_tasks", damage)
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--metadata", path)
    assert done.returncode == 0, done.stderr
    assert "prepared-000000 runs again" in done.stderr
    assert digest(tmp_path / "out") == whole
