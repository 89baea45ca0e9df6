"""Damaged or hostile files of retired records, and files that are not lists of ids, are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from schemas.errors import ManifestError
from schemas.manifest import Manifest
from schemas.records import retired_schema
from tests.helpers.data.corpus import digest, read_manifest
from tests.helpers.data.damaged_datasets import save_manifest
from tests.helpers.data.growth import OPTIONS, SIZES, grow
from tests.helpers.data.retired import read_retired
from tests.helpers.processes.command_line import Run


def rewrite(dataset: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> None:
    """Replace the last file of retired/, with its true size and hash in the manifest."""
    manifest = read_manifest(dataset)
    path = dataset / manifest.retired[-1].name
    schema = pq.read_schema(path) if schema is None else schema
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    content = path.read_bytes()
    entry = replace(
        manifest.retired[-1],
        bytes=len(content),
        rows=len(rows),
        xxh3_128=xxhash.xxh3_128_hexdigest(content),
    )
    save_manifest(dataset, replace(manifest, retired=(*manifest.retired[:-1], entry)))


def test_verify_finds_damaged_files_of_retired_records(
    run: Run, inputs: list[Path], tmp_path: Path, ids: Path
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    run("append", out, inputs[1], "--retire", ids, **SIZES)
    run("append", out, "--retire", ids, **SIZES)
    first, last = read_retired(out)[2], read_retired(out)[3]
    path = out / read_manifest(out).retired[-1].name
    content = path.read_bytes()
    damages: list[tuple[list[dict[str, Any]], str]] = [
        (last[::-1], "its ordinals are not ascending"),
        ([*last, {"ordinal": 120, "id": "x"}], "an ordinal is outside 0..119"),
        ([{"ordinal": -1, "id": "x"}, *last], "an ordinal is outside 0..119"),
        ([*first, *last], f"record {first[0]['ordinal']} is retired by two generations"),
    ]
    for rows, said in damages:
        rewrite(out, rows)
        done = run("verify", out)
        assert done.returncode == 1
        assert said in done.stdout
        assert said in run("verify", "--deep", out).stdout
    rewrite(out, [*last[:-1], {**last[-1], "id": "another"}])
    assert "verified" in run("verify", out).stdout
    done = run("verify", "--deep", out)
    assert done.returncode == 1
    said = f"retired under another id: 1 records (ordinal {last[-1]['ordinal']})"
    assert said in done.stdout
    floats = pa.schema([("ordinal", pa.float64()), ("id", pa.string())])
    rewrite(out, last, floats)
    assert "its columns are not those of retired/" in run("verify", out).stdout
    rewrite(out, last, retired_schema())  # other bytes, because the writer's settings differ
    assert "verified" in run("verify", out).stdout
    path.write_bytes(content)
    assert path.name in run("verify", out).stdout  # another size or hash than in the manifest
    path.unlink()
    assert path.name in run("verify", out).stdout
    assert run("append", out, inputs[2], **SIZES).returncode == 1


def test_hostile_entries_of_retired_files_are_refused(
    run: Run, inputs: list[Path], tmp_path: Path, ids: Path
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    run("append", out, inputs[1], "--retire", ids, **SIZES)
    run("append", out, "--retire", ids, **SIZES)
    manifest = read_manifest(out)
    first, last = manifest.retired
    hostile = [
        (replace(first, name="records/" + first.name.partition("/")[2]), last),
        (replace(first, name="retired/../../x.parquet"), last),
        (replace(first, name="retired/0123456789abcdef.parquet"), last),
        (replace(first, name=f"retired/{manifest.history[0].build}.parquet"), last),
        (last, first),
        (first, first),
        (first, replace(last, rows=0)),
        (first, replace(last, rows=121 - first.rows)),
        (replace(first, rows=61), last),
        (replace(first, rows=-1), last),
    ]
    for entries in hostile:
        text = replace(manifest, retired=entries).to_json()
        with pytest.raises(ManifestError):
            Manifest.from_json(text, where="manifest.json")
    same = Manifest.from_json(manifest.to_json(), where="manifest.json")
    assert same.retired == (first, last)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b">sp|P00000|N0_HUMAN\nMKV\n", "a header of FASTA"),
        (b"P00000\n" + 50 * b"M" + b"\n", "looks like residues"),
        (b"P00000\n\0\1\2\n", "binary data"),
        (None, "No such file"),
    ],
)
def test_files_that_are_not_lists_of_ids_are_refused(
    run: Run, inputs: list[Path], tmp_path: Path, content: bytes | None, said: str
) -> None:
    out = grow(run, inputs[:1], tmp_path / "out", [1], *OPTIONS)
    before = digest(out)
    path = tmp_path / "ids.txt"
    if content is not None:
        path.write_bytes(content)
    done = run("append", out, inputs[1], "--retire", path, **SIZES)
    assert done.returncode == (2 if content is None else 1)
    assert said.lower() in done.stderr.lower()
    assert digest(out) == before
    done = run("append", out)
    assert done.returncode == 2
    assert "or give --retire FILE" in done.stderr
