"""Tables of --metadata: types of columns, the sorted work file, and the search for rows by key."""

from __future__ import annotations

import datetime
import decimal
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.build.named_files.metadata import lookup, prepare_table
from pipeline.build.named_files.metadata.lookup import MetadataTable
from pipeline.build.named_files.metadata.table_file import table_file
from pipeline.build.named_files.named_file import NamedFile, named_files
from pipeline.build.options import PreprocessOptions
from pipeline.build.task_results import PreparedFile
from pipeline.storage.local_folder import LocalFolder
from schemas.errors import InputError


def named(path: Path) -> NamedFile:
    (file,) = named_files(PreprocessOptions(inputs=(), out="", metadata=str(path)))
    return file


def prepared(path: Path) -> tuple[PreparedFile, MetadataTable]:
    work = LocalFolder(path.parent, path.parent)
    file = prepare_table.prepare_metadata(named(path), "prepared-000000.arrow", work)
    table = lookup.metadata_table([file], work)
    assert table is not None
    return file, table


def values(table: MetadataTable, name: str, keys: list[str]) -> list[Any]:
    rows = table.find(pa.array(keys), pa.nulls(len(keys), pa.string()))
    found: list[Any] = table.take(name, rows).to_pylist()
    return found


@pytest.mark.parametrize("hashes", [1, 3, 1 << 40])
@pytest.mark.parametrize("run_bytes", [500, 5_000, 1 << 25])
def test_keys_are_found_even_if_their_hashes_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashes: int, run_bytes: int
) -> None:
    """If only one or three hashes exist, many rows share a hash. Such rows are in one batch."""
    real = lookup.key_hashes
    monkeypatch.setattr(
        lookup,
        "key_hashes",
        lambda *keys: real(*keys) % np.uint64(hashes) * np.uint64((1 << 64) // hashes - 1),
    )
    monkeypatch.setattr(prepare_table, "RUN_BYTES", run_bytes)
    draw = random.Random(1)
    keys = [f"{'é' * draw.randint(0, 3)}{i}" for i in range(400)]
    rows = {key: (i, f"text {i}" if i % 3 else "", i % 2 == 0) for i, key in enumerate(keys)}
    path = tmp_path / "t.tsv"
    lines = [f"{key}\t{i}\t{text}\t{flag}" for key, (i, text, flag) in rows.items()]
    path.write_text("\n".join(["id\tn\ttext\tflag", *lines]), encoding="utf-8")
    file, table = prepared(path)
    assert file.rows == 400
    asked = [draw.choice([*keys, "", "nobody", "40"]) for _ in range(1000)]
    none = None, None, None
    expected = [rows.get(key, none) for key in asked]
    assert values(table, "n", asked) == [n for n, _, _ in expected]
    assert values(table, "text", asked) == [text or None for _, text, _ in expected]
    assert values(table, "flag", asked) == [flag for _, _, flag in expected]
    found = table.find(pa.array(asked), pa.nulls(len(asked), pa.string()))
    assert table.text_bytes(found).tolist() == [len(text or "") for _, text, _ in expected]


def test_the_hash_of_a_table_does_not_depend_on_the_order_of_rows_or_the_size_of_sorted_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"P{i},{i / 8 if i % 5 else ''},{i}" for i in range(300)]
    digests = set()
    for seed, run_bytes in enumerate((400, 3_000, 1 << 25)):
        monkeypatch.setattr(prepare_table, "RUN_BYTES", run_bytes)
        path = tmp_path / str(seed) / "t.csv"
        path.parent.mkdir()
        random.Random(seed).shuffle(rows)
        path.write_text("\n".join(["id,x,y", *rows]))
        digests.add(prepared(path)[0].xxh3_128)
    path.write_text(path.read_text().replace("P7,", "P7x,"))
    assert len(digests) == 1
    assert prepared(path)[0].xxh3_128 not in digests


@pytest.mark.parametrize(
    ("texts", "kind", "expected"),
    [
        (["1", "-20", "0"], "int", [1, -20, 0]),
        (["1", "NA", ""], "int", [1, None, None]),
        (["9223372036854775807", "1"], "int", [2**63 - 1, 1]),
        (["9223372036854775808", "1"], "string", ["9223372036854775808", "1"]),
        (["1", "2.5", "-1e-3", "inf", "nan"], "float", [1.0, 2.5, -1e-3, math.inf, None]),
        (["true", "False", "null"], "bool", [True, False, None]),
        (["true", "1"], "string", ["true", "1"]),
        (["007", "1"], "string", ["007", "1"]),
        (["0x1F", "1"], "string", ["0x1F", "1"]),
        (["+1", "1"], "string", ["+1", "1"]),
        (["1", "NA", "x"], "string", ["1", "NA", "x"]),
        (["NA", "", "NA"], "string", ["NA", None, "NA"]),
        (["2024-01-31", ""], "string", ["2024-01-31", None]),
        (["", ""], "string", [None, None]),
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_text_column_has_the_first_type_that_fits_all_values(
    tmp_path: Path, texts: list[str], kind: str, expected: list[Any], *, backwards: bool
) -> None:
    rows = [f"k{i}\t{text}" for i, text in enumerate(texts)]
    path = tmp_path / "t.tsv"
    path.write_text("\n".join(["id\tx", *(reversed(rows) if backwards else rows)]) + "\n")
    file, table = prepared(path)
    assert file.columns == {"x": kind}
    assert table_file(named(path)).types() == ({"x": kind}, True)
    assert values(table, "x", [f"k{i}" for i in range(len(texts))]) == expected


def test_parquet_columns_become_int_float_or_string(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {
        "id": pa.array([7, 8, 9], pa.int32()),
        "day": pa.array([datetime.date(2024, 1, 31), None, None]),
        "price": pa.array([decimal.Decimal("1.50"), None, None]),
        "small": pa.array([1.5, math.nan, None], pa.float32()),
        "word": pa.array(["a", "", None]).dictionary_encode(),
        "large": pa.array(["b", "c", None], pa.large_string()),
        "nothing": pa.nulls(3),
        "byte": pa.array([255, 0, None], pa.uint8()),
    }
    pq.write_table(pa.table(columns), path)
    file, table = prepared(path)
    assert file.columns == {
        "byte": "int",
        "day": "string",
        "large": "string",
        "nothing": "string",
        "price": "string",
        "small": "float",
        "word": "string",
    }
    keys = ["7", "8", "9"]
    assert values(table, "day", keys) == ["2024-01-31", None, None]
    assert values(table, "price", keys) == ["1.50", None, None]
    assert values(table, "small", keys) == [1.5, None, None]
    assert values(table, "word", keys) == ["a", None, None]
    assert values(table, "large", keys) == ["b", "c", None]
    assert values(table, "nothing", keys) == [None] * 3
    assert values(table, "byte", keys) == [255, 0, None]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([[1]]), "column 'x' holds list<element: int64>: convert it to texts"),
        (pa.array([datetime.datetime(2024, 1, 1)]), "column 'x' holds timestamp[us]: convert it"),
        (pa.array([2**64 - 1], pa.uint64()), "column 'x': Integer value 18446744073709551615"),
    ],
)
def test_the_error_for_an_unsupported_column_names_the_file_and_the_column(
    tmp_path: Path, column: pa.Array, said: str
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": ["a"], "x": column}), path)
    with pytest.raises(InputError) as error:
        prepared(path)
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_later_rows_may_turn_a_column_into_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the build, types come from the first block (here of 1,000 bytes) and are not final."""
    monkeypatch.setattr("pipeline.inputs.formats.csv_records._BLOCK", 1_000)
    monkeypatch.setattr("pipeline.inputs.formats.csv_records._HEADER", 100)
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["id,x", *(f"P{i},{i}" for i in range(900)), "Q,word", ""]))
    assert table_file(named(path)).types() == ({"x": "int"}, False)
    file, table = prepared(path)
    assert file.columns == {"x": "string"}
    assert values(table, "x", ["P7", "Q"]) == ["7", "word"]
