"""Describe a dataset in Croissant 1.0: JSON-LD that search engines and libraries read.

Specification: https://docs.mlcommons.org/croissant/docs/croissant-spec.html

All shards are one FileSet. The files of records/ are a second FileSet, and those
of retired/ a third. The
paths in all FileSets are relative to the folder of croissant.json. A FileSet needs no hashes,
because manifest.json has the hash of every file. manifest.json is a FileObject with a sha256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from pipeline.build.destination.card_files import blank_signature
from pipeline.report.card.columns import RECORD_COLUMNS, SHARD_COLUMNS, croissant_type
from pipeline.report.card.file_patterns import file_patterns
from pipeline.report.card.stated import Stated
from pipeline.report.card.title import summary, title
from schemas.licenses import spdx_identifier
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.records import retired_schema
from schemas.shard import shard_schema

_RECORDS: Final = "records-files"
_RETIRED: Final = "retired-files"
_SHARDS: Final = "shards"
_SPLIT_TYPES: Final = {
    "train": "cr:TrainingSplit",
    "valid": "cr:ValidationSplit",
    "test": "cr:TestSplit",
}
_CROISSANT_KEYS: Final = (
    "citeAs column equivalentProperty extract field fileProperty fileObject fileSet format "
    "includes isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated "
    "replace samplingRate separator source subField transform"
)
_CONTEXT: Final = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{key: f"cr:{key}" for key in _CROISSANT_KEYS.split()},
}
"""Meaning of each key, as the specification defines it."""


def croissant(manifest: Manifest, stated: Stated) -> str:
    """Return the text of croissant.json.

    The signature in the text has zeros instead of a hash. `card_files.signed` inserts the hash.
    """
    spdx = spdx_identifier(stated.license) if stated.license else None
    licensed = f"https://spdx.org/licenses/{spdx}.html" if spdx else stated.license
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": title(manifest, stated),
        "description": summary(manifest, stated),
        "identifier": blank_signature(manifest.digest),
        "version": f"{manifest.generation}.0.0",
        "keywords": ["proteins", "amino acid sequences", "masked language modelling"],
        **({"license": licensed} if licensed else {}),
        "distribution": [_manifest(manifest), *_file_sets(manifest)],
        "recordSet": [
            _splits(manifest),
            _buckets(manifest),
            _records(manifest),
            *([_retired()] if manifest.retired else []),
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def _manifest(manifest: Manifest) -> dict[str, Any]:
    content = manifest.to_json().encode()
    return {
        "@type": "cr:FileObject",
        "@id": MANIFEST_NAME,
        "name": MANIFEST_NAME,
        "description": "Name, size and xxh3_128 of every file; options; inputs; counts.",
        "contentUrl": MANIFEST_NAME,
        "contentSize": f"{len(content)} B",
        "encodingFormat": "application/json",
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _file_sets(manifest: Manifest) -> Iterable[dict[str, Any]]:
    shards = (entry.name for _, _, entry in manifest.all_shards())
    for key, description, encoding, names in (
        (
            _SHARDS,
            "Packed sequences of all splits, in the Arrow IPC file format. One row is one bucket.",
            "application/vnd.apache.arrow.file",
            shards,
        ),
        (
            _RECORDS,
            "One row for every input record, kept or not.",
            "application/x-parquet",
            (entry.name for entry in manifest.records),
        ),
        (
            _RETIRED,
            "One row for every record that a later release removed or superseded.",
            "application/x-parquet",
            (entry.name for entry in manifest.retired),
        ),
    ):
        patterns = file_patterns(names)
        if not patterns:  # most datasets have no retired records
            continue
        yield {
            "@type": "cr:FileSet",
            "@id": key,
            "name": key,
            "description": description,
            "encodingFormat": encoding,
            "includes": patterns,
        }


def _splits(manifest: Manifest) -> dict[str, Any]:
    """Return the enumeration of the splits that have buckets."""
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "description": "Names of the splits.",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [
            {"@type": "cr:Field", "@id": f"splits/{name}", "name": name, "dataType": kind}
            for name, kind in (("name", "sc:Text"), ("url", "sc:URL"))
        ],
        "data": [
            {"splits/name": split, "splits/url": _SPLIT_TYPES[split]}
            for split, shards in manifest.shards.items()
            if shards
        ],
    }


def _buckets(manifest: Manifest) -> dict[str, Any]:
    splits = "|".join(split for split, shards in manifest.shards.items() if shards)
    split = {
        "@type": "cr:Field",
        "@id": "buckets/split",
        "name": "split",
        "description": "Split of the bucket: the name of the folder that holds its shard.",
        "dataType": "sc:Text",
        "source": {
            "fileSet": {"@id": _SHARDS},
            "extract": {"fileProperty": "fullpath"},
            "transform": {"regex": f"^({splits})/"},
        },
        "references": {"field": {"@id": "splits/name"}},
    }
    schema = shard_schema(manifest.capacity)
    return {
        "@type": "cr:RecordSet",
        "@id": "buckets",
        "name": "buckets",
        "description": (
            f"One bucket: exactly {manifest.capacity:,} tokens, which hold whole sequences."
        ),
        "field": [split, *_fields("buckets", _SHARDS, schema, SHARD_COLUMNS)],
    }


def _records(manifest: Manifest) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": "records",
        "name": "records",
        "description": "Every input record, with its status and the values that its header states.",
        "key": {"@id": "records/ordinal"},
        "field": list(_fields("records", _RECORDS, manifest.records_schema, RECORD_COLUMNS)),
    }


def _retired() -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": "retired",
        "name": "retired",
        "description": "Retired records. Their sequences are still in the buckets.",
        "key": {"@id": "retired/ordinal"},
        "field": list(_fields("retired", _RETIRED, retired_schema(), RECORD_COLUMNS)),
    }


def _fields(
    record_set: str, files: str, schema: pa.Schema, descriptions: Mapping[str, str]
) -> Iterable[dict[str, Any]]:
    """Yield a field for each column whose type Croissant can describe."""
    for column in schema:
        kind = croissant_type(column.type)
        if kind is None:
            continue
        yield {
            "@type": "cr:Field",
            "@id": f"{record_set}/{quote(column.name, safe='')}",
            "name": column.name,
            "description": descriptions.get(column.name, "Column of the table of --metadata."),
            "dataType": kind[0],
            **({"repeated": True} if kind[1] else {}),
            "source": {"fileSet": {"@id": files}, "extract": {"column": column.name}},
        }
