"""`thdpack inspect --record`: print what records/ says about the records with a given name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from pipeline.report.render.printable import printable
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.urls import file_system, local_path
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.records import HEADER
from schemas.text.phrases import plural


def show_record(dataset: str | Path, name: str) -> None:
    """Print the status of each record with the given name and, if it was kept, its shard and row.

    Args:
        name: id, accession or entry name.
    Raises:
        DatasetError: no record has this name.
    """
    manifest = read_manifest(dataset)
    found = (
        _records(dataset, manifest)
        .to_table(
            filter=(ds.field("id") == name)
            | (ds.field("accession") == name)
            | (ds.field("name") == name)
        )
        .sort_by("ordinal")
        .to_pylist()
    )
    if not found:
        if not _records(dataset, manifest).head(1, filter=ds.field("id") != "").num_rows:
            raise DatasetError(
                f"{dataset}: its records have no ids; for tables, --id-column of "
                "`thdpack preprocess` names the column of ids"
            )
        raise DatasetError(
            f"{dataset}: no record has the id, accession or entry name {name!r}; "
            "an id is the header up to its first blank"
        )
    originals = record_ids(
        dataset, manifest, [row["duplicate_of"] for row in found if row["duplicate_of"] is not None]
    )
    for row in found:
        where = f"record {row['ordinal']}, at offset {row['offset']:,} of {row['source']}"
        print(
            f"{row['id']}: {where}, {plural(row['residues'], 'residue')}, {row['unknown']} unknown"
        )
        for line in (_stated(row), *_added(row, manifest)):
            if line:
                print(f"    {printable(line)}")
        print(f"    hash {row['hash'].hex()}")
        print(f"    {_fate(row, manifest, originals)}")


def _stated(row: dict[str, Any]) -> str:
    """Return what a record's header states: database, organism, gene and more."""
    parts = {
        "": row["database"],
        "accession ": row["accession"],
        "organism ": row["organism"],
        "taxid ": row["taxid"],
        "gene ": row["gene"],
        "protein existence ": row["pe"],
        "cluster size ": row["cluster_size"],
    }
    stated = [f"{word}{value}" for word, value in parts.items() if value is not None]
    return ", ".join([*stated, *(["fragment"] if row["fragment"] else [])])


def _added(row: dict[str, Any], manifest: Manifest) -> Iterator[str]:
    """Yield the cluster, the full header, and a line for each value that --metadata adds."""
    if row["cluster"] is not None:
        yield f"cluster {row['cluster']:016x}"
    if row.get(HEADER) is not None:
        yield f"header: {row[HEADER]}"
    for name in sorted(manifest.metadata_columns):
        if row[name] is not None:
            yield f"{name}: {row[name]}".replace("\n", "\\n").replace("\r", "\\r")


def _fate(row: dict[str, Any], manifest: Manifest, originals: dict[int, str]) -> str:
    """Return one line: a kept record's split, shard and row, or the reason why it was left out."""
    options = manifest.options
    if row["status"] == "kept":
        most = f"{manifest.longest_piece:,} residues"
        cropped = {
            "split": ", cut into pieces",
            "crop": f", {most} at a random place",
            "truncate": f", its first {most}",
        }
        long = row["residues"] > manifest.longest_piece
        how = cropped.get(str(options["long"]), "") if long else ""
        if row["shard"] is None:
            others = "" if manifest.variants == 1 else "; other variants may hold this record"
            drawn = f"variant 0 holds another record of its cluster (--sample-clusters){others}"
            return f"kept, but not drawn: {row['split']}, {drawn}"
        return f"kept{how}: {row['split']}, {row['shard']}, row {row['bucket']}"
    reasons = {
        "duplicate": f"the same residues as record {row['duplicate_of']} "
        f"({originals.get(row['duplicate_of'], '')}), which is kept",
        "too_short": f"fewer than {options['min_residues']} residues (--min-residues)",
        "too_long": f"more than {manifest.longest_piece:,} residues (--long drop)",
        "excluded": _exclusion(row),
        "filtered": f"--where {options.get('where')} is not true",
        "invalid": "letters outside the vocabulary (--on-invalid skip)",
    }
    return f"left out, {row['status'].replace('_', ' ')}: {reasons[row['status']]}"


def _exclusion(row: dict[str, Any]) -> str:
    """Return a text that names the entry of `--exclude` that an excluded record matches."""
    match, file = printable(row["match"] or "an entry without id"), row["match_file"]
    texts = {
        "equal": f"the same residues as {match} of {file}",
        "listed": f"{match} is listed in {file}",
        "contains": f"contains {match} of {file}",
        "contained": f"contained in {match} of {file}",
        "similar": f"similar to {match} in {file}",
    }
    return f"{texts.get(row['exclusion'], '')} (--exclude)"


def _records(dataset: str | Path, manifest: Manifest) -> ds.Dataset:
    path = local_path(str(dataset))
    fs, root = (None, str(path)) if path is not None else file_system(str(dataset))
    return ds.dataset(
        [f"{root}/{entry.name}" for entry in manifest.records], format="parquet", filesystem=fs
    )


def record_ids(dataset: str | Path, manifest: Manifest, ordinals: list[int]) -> dict[int, str]:
    """Return the ids of records, by ordinal."""
    table = _records(dataset, manifest).to_table(
        columns=["ordinal", "id"], filter=ds.field("ordinal").isin(ordinals)
    )
    return dict(
        zip(table.column("ordinal").to_pylist(), table.column("id").to_pylist(), strict=True)
    )
