"""croissant.json obeys the rules of Croissant 1.0, and lists exactly the dataset's files.

Only the last test needs mlcroissant, the validator of Croissant. `make check-cards` installs it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from schemas.shard import shard_schema
from tests.helpers.data.corpus import read_manifest, read_records
from tests.helpers.processes.command_line import Run


@pytest.fixture
def croissant(run: Run, dataset: Path) -> dict[str, Any]:
    done = run("card", dataset)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"wrote {dataset}/croissant.json\nwrote {dataset}/README.md\n"
    found: dict[str, Any] = json.loads((dataset / "croissant.json").read_bytes())
    return found


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all JSON objects in a document."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from nodes(each)


def test_ids_are_unique_and_every_reference_names_a_node(croissant: dict[str, Any]) -> None:
    typed = [node for node in nodes(croissant) if "@type" in node and "@id" in node]
    ids = [node["@id"] for node in typed if node["@type"].startswith("cr:")]
    assert len(ids) == len(set(ids)) > 30
    references = [node["@id"] for node in nodes(croissant) if set(node) == {"@id"}]
    assert references
    assert set(references) <= set(ids)
    assert all(node["name"] and " " not in node["@id"] for node in typed if node["@id"] in ids)


def test_every_key_is_defined_by_the_context_or_by_schema_org(croissant: dict[str, Any]) -> None:
    schema_org = {"name", "description", "identifier", "version", "keywords", "license"}
    schema_org |= {"distribution", "contentUrl", "contentSize", "encodingFormat", "sha256", "url"}
    used = {
        key
        for part in ("distribution", "recordSet")
        for node in nodes(croissant[part])
        for key in node
        if not key.startswith(("@", "splits/"))
    }
    assert used | set(croissant) - {"@context", "@type"} <= schema_org | set(croissant["@context"])
    assert croissant["@context"]["recordSet"] == "cr:recordSet"
    assert croissant["conformsTo"] == "http://mlcommons.org/croissant/1.0"


def test_the_distribution_is_the_manifest_and_exactly_the_files_that_it_names(
    croissant: dict[str, Any], dataset: Path
) -> None:
    (dataset / "train" / "0123456789abcdef-00000-0.arrow").touch()  # left by another build
    [manifest] = [x for x in croissant["distribution"] if x["@type"] == "cr:FileObject"]
    content = (dataset / manifest["contentUrl"]).read_bytes()
    assert manifest["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest["contentSize"] == f"{len(content)} B"
    found = [
        str(path.relative_to(dataset))
        for path in dataset.rglob("*.*")
        for files in croissant["distribution"]
        for pattern in files.get("includes", ())
        if fnmatch.fnmatchcase(str(path.relative_to(dataset)), pattern)
    ]
    assert sorted(found) == sorted(entry.name for entry in read_manifest(dataset).files())


def test_fields_match_the_columns_and_splits_match_the_manifest(
    croissant: dict[str, Any], dataset: Path
) -> None:
    sets = {node["name"]: node for node in croissant["recordSet"]}
    manifest = read_manifest(dataset)
    columns = {
        "records": pq.read_schema(dataset / manifest.records[0].name).names,
        "buckets": ["split", *shard_schema(manifest.capacity).names],
    }
    for name, expected in columns.items():
        fields = sets[name]["field"]
        assert [field["name"] for field in fields] == expected
        assert all(field["dataType"] and field["description"] for field in fields)
        assert [field["source"]["extract"].get("column", "split") for field in fields] == expected
    assert [row["splits/name"] for row in sets["splits"]["data"]] == ["train", "valid", "test"]
    [split] = [field for field in sets["buckets"]["field"] if field["name"] == "split"]
    for name, shards in manifest.shards.items():
        for entry in shards:
            found = re.match(split["source"]["transform"]["regex"], entry.name)
            assert found is not None
            assert found[1] == name


def test_retired_records_are_listed(run: Run, dataset: Path) -> None:
    ids = dataset.parent / "ids.txt"
    ids.write_text("made3\nmade7\n")
    assert run("append", dataset, "--retire", ids).returncode == 0
    assert run("card", dataset).returncode == 0
    found = json.loads((dataset / "croissant.json").read_bytes())
    [files] = [each for each in found["distribution"] if each["@id"] == "retired-files"]
    entries = read_manifest(dataset).retired
    assert files["includes"] == [entry.name for entry in entries]
    [retired] = [each for each in found["recordSet"] if each["name"] == "retired"]
    assert [field["name"] for field in retired["field"]] == ["ordinal", "id"]
    rows = sum(entry.rows for entry in entries)
    assert f"The folder `retired/` lists {rows} records" in (dataset / "README.md").read_text()


def test_the_release_the_licence_and_the_digest_are_stated(
    croissant: dict[str, Any], dataset: Path
) -> None:
    assert croissant["license"] == "https://spdx.org/licenses/CC-BY-4.0.html"
    assert croissant["name"] == "UniRef50/2026_04, packed"
    assert read_manifest(dataset).digest in croissant["description"]


def test_mlcroissant_accepts_the_file_and_reads_the_rows_of_records(
    croissant: dict[str, Any], dataset: Path
) -> None:
    mlcroissant = pytest.importorskip(
        "mlcroissant", reason="mlcroissant is not installed (make check-cards)"
    )
    (dataset / "records" / "0123456789abcdef-00000.parquet").touch()  # left by another build
    loaded = mlcroissant.Dataset(str(dataset / "croissant.json"))
    assert not loaded.metadata.ctx.issues.errors
    rows = sorted(loaded.records("records"), key=lambda row: row["records/ordinal"])
    expected = [
        {
            f"records/{quote(name, safe='')}": value.encode() if isinstance(value, str) else value
            for name, value in row.items()
        }
        for row in read_records(dataset)
    ]
    assert rows == expected
    assert [row["splits/name"] for row in loaded.records("splits")] == ["train", "valid", "test"]
