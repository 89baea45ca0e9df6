"""`thdpack inspect --record`: print what records/ says about the records with a given name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipeline.build.retire.retired_files import read_ordinals, retired_files
from pipeline.reader.mapped_shard import DamagedShardError, checked_content
from pipeline.report.render.printable import printable
from pipeline.storage.folder import Folder
from pipeline.storage.open_folder import folder_of
from pipeline.storage.open_input import similar_names
from pipeline.storage.urls import file_system, local_path
from schemas.errors import DatasetError, OptionError
from schemas.manifest import Manifest
from schemas.manifest_entries import RecordsEntry, ShardEntry
from schemas.records import HEADER
from schemas.text.phrases import REBUILD, plural

_SURE_LETTERS: Final = 3
_LOOKED_AT: Final = 10_000
"""Maximum number of names to compare with a name that no record has."""


def show_record(manifest: Manifest, dataset: str | Path, name: str) -> None:
    """Print the status of each record with the given name and, if it was kept, its shard and row.

    Args:
        name: id, accession or entry name; if no record has it, ordinal.
    Raises:
        OptionError: no record has this name.
        DatasetError: the dataset is damaged.
    """
    with opened_records(dataset, manifest) as records:
        _show_records(records, dataset, manifest, name)


def _show_records(records: ds.Dataset, dataset: str | Path, manifest: Manifest, name: str) -> None:
    found = (
        records.to_table(
            filter=(ds.field("id") == name)
            | (ds.field("accession") == name)
            | (ds.field("name") == name)
        )
        .sort_by("ordinal")
        .to_pylist()
    )
    if not found and re.fullmatch("[0-9]{1,18}", name):
        found = records.to_table(filter=ds.field("ordinal") == int(name)).to_pylist()
    if not found:
        if not records.head(1, filter=ds.field("id") != "").num_rows:
            raise OptionError(
                f"{dataset}: its records have no ids; for tables, --id-column of "
                "`thdpack preprocess` names the column of ids"
            )
        close = _similar_name(records, name)
        raise OptionError(
            f"{dataset}: no record has the id, accession, entry name or ordinal {name!r}; "
            + (f"did you mean {close}?" if close else "an id is the header up to its first blank")
        )
    originals = record_ids(
        records, [row["duplicate_of"] for row in found if row["duplicate_of"] is not None]
    )
    folder = folder_of(dataset)
    retired = _retired(folder, manifest, [row["ordinal"] for row in found])
    for row in found:
        where = f"record {row['ordinal']}, at offset {row['offset']:,} of {row['source']}"
        print(
            f"{row['id']}: {where}, {plural(row['residues'], 'residue')}, {row['unknown']} unknown"
        )
        for line in (_stated(row), *_added(row, manifest)):
            if line:
                print(f"    {printable(line)}")
        print(f"    hash {row['hash'].hex()}")
        print(f"    {_fate(row, folder, manifest, originals)}")
        if row["ordinal"] in retired:
            print(f"    retired in generation {retired[row['ordinal']]}")


def _similar_name(records: ds.Dataset, name: str) -> str:
    """Return an id, accession or entry name that the user may have meant; "" if there is none.

    The first half of the name, in upper or lower case, must be right.
    """
    asked = name.lower()
    start = asked[: max(_SURE_LETTERS, len(asked) // 2)]
    for column in ("accession", "name", "id"):
        lower = pc.utf8_lower(ds.field(column))
        near = records.head(_LOOKED_AT, columns=[column], filter=pc.starts_with(lower, start))
        found = {each.lower(): each for each in near.column(column).to_pylist()}
        close = similar_names(asked, list(found))
        if close:  # in ids of equal length, one wrong letter is likelier than letters out of place
            return printable(found[max(close, key=lambda each: sum(map(str.__eq__, asked, each)))])
    return ""


def _retired(folder: Folder, manifest: Manifest, ordinals: list[int]) -> dict[int, int]:
    """Return the generation that retired each of some records, by ordinal.

    Raises:
        DatasetError: a file of retired/ is missing or damaged.
    """
    found: dict[int, int] = {}
    for file in retired_files(manifest):
        listed = read_ordinals(folder, file)
        found |= dict.fromkeys(np.intersect1d(listed, ordinals).tolist(), file.generation)
    return found


def _stated(row: dict[str, Any]) -> str:
    """Return the values in a record's header: database, organism, gene and more."""
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


def _fate(
    row: dict[str, Any], folder: Folder, manifest: Manifest, originals: dict[int, str]
) -> str:
    """Return one line: a kept record's split, shard and row, or the reason why it was left out."""
    if row["status"] == "kept":
        return _kept(row, folder, manifest)
    options = manifest.options
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


def _kept(row: dict[str, Any], folder: Folder, manifest: Manifest) -> str:
    """Return one line: a kept record's split, shard and row in variant 0."""
    if row["shard"] is None:
        others = "" if manifest.variants == 1 else "; other variants may hold this record"
        drawn = f"variant 0 holds another record of its cluster (--sample-clusters){others}"
        return f"kept, but not drawn: {row['split']}, {drawn}"
    how = ""
    if row["residues"] > manifest.longest_piece:
        most = f"{manifest.longest_piece:,} residues"
        long = str(manifest.options["long"])
        if long == "crop":
            how = f", {most} from residue {_start(row, folder, manifest):,} (counted from 0)"
        else:
            how = {"split": ", cut into pieces", "truncate": f", its first {most}"}.get(long, "")
    where = f"{row['split']}, {row['shard']}, row {row['bucket']}"
    variant = ", variant 0" if manifest.variants > 1 else ""
    return f"kept{how}: {where}{variant}"


def _start(row: dict[str, Any], folder: Folder, manifest: Manifest) -> int:
    """Return the first residue of a cropped record that is in its bucket of variant 0.

    Raises:
        DatasetError: the shard is damaged, or does not hold the record.
    """
    shards = {entry.name: entry for entry in manifest.shards.get(row["split"], ())}
    entry = shards.get(row["shard"])
    if entry is not None:
        bucket = read_bucket(folder, entry, row["bucket"])
        if row["ordinal"] in bucket["record"]:
            start: int = bucket["start"][bucket["record"].index(row["ordinal"])]
            return start
    place = f"row {row['bucket']} of {folder.where(row['shard'])}"
    raise DatasetError(
        f"{place} does not hold record {row['ordinal']}, as records/ says; {REBUILD}"
    )


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


@contextmanager
def opened_records(dataset: str | Path, manifest: Manifest) -> Iterator[ds.Dataset]:
    """Open the files of records/. The hashes of local files are compared with the manifest; only
    the parts of remote files that are needed are read.

    Raises:
        DatasetError: a file is missing, damaged or cannot be read.
    """
    path = local_path(str(dataset))
    if path is not None:
        for entry in manifest.records:
            _verified(folder_of(dataset), entry)
    fs, root = (None, str(path)) if path is not None else file_system(str(dataset))
    names = [f"{root}/{entry.name}" for entry in manifest.records]
    try:
        yield ds.dataset(names, format="parquet", filesystem=fs)
    except (pa.ArrowException, OSError) as error:
        where = folder_of(dataset).where("records")
        cause = str(error).partition("\n")[0]
        raise DatasetError(f"{where}: cannot be read: {cause}; run thdpack verify") from error


def record_ids(records: ds.Dataset, ordinals: list[int]) -> dict[int, str]:
    """Return the ids of records, by ordinal."""
    table = records.to_table(columns=["ordinal", "id"], filter=ds.field("ordinal").isin(ordinals))
    return dict(
        zip(table.column("ordinal").to_pylist(), table.column("id").to_pylist(), strict=True)
    )


def read_bucket(folder: Folder, entry: ShardEntry, row: int) -> dict[str, Any]:
    """Return one row of a shard, after comparing the shard's hash with the manifest.

    Raises:
        DatasetError: the shard is missing or damaged, or has no such row.
    """
    try:
        reader = pa.ipc.open_file(_verified(folder, entry))
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            if row < batch.num_rows:
                batch.validate(full=True)
                found: dict[str, Any] = batch.slice(row, 1).to_pylist()[0]
                return found
            row -= batch.num_rows
    except pa.ArrowException as error:
        where = folder.where(entry.name)
        raise DatasetError(f"{where}: not a readable Arrow file: {error}; {REBUILD}") from error
    where = folder.where(entry.name)
    raise DatasetError(f"{where}: has fewer buckets than the manifest says; {REBUILD}")


def _verified(folder: Folder, entry: ShardEntry | RecordsEntry) -> pa.Buffer:
    """Return a file's content after comparing it with the manifest.

    Raises:
        DatasetError: the file is missing or damaged, with the remedy, or cannot be read.
    """
    try:
        return checked_content(folder, entry)
    except DamagedShardError as error:
        raise DatasetError(f"{error}; {REBUILD}") from error
