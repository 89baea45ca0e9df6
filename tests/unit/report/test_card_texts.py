"""Parts of a dataset's card: the signature that reveals edits, file patterns, and columns."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from pipeline.build.destination.card_files import blank_signature, signature_of, signed
from pipeline.report.card.columns import RECORD_COLUMNS, SHARD_COLUMNS, croissant_type
from pipeline.report.card.file_patterns import file_patterns
from schemas.records import records_schema
from schemas.shard import shard_schema


def test_an_edited_card_file_is_recognised() -> None:
    digest = "0123456789abcdef" * 2
    text = signed(f"# Title\n\nSome text.\n<!-- {blank_signature(digest)} -->\n", digest)
    signature = signature_of(text)
    assert signature is not None
    assert (signature.manifest, signature.edited) == (digest, False)
    for i in range(len(text)):
        changed = signature_of(text[:i] + bytes([text[i] ^ 1]) + text[i + 1 :])
        assert changed is None or changed.edited
    assert signature_of(b"# Another file") is None
    # an intact signature that was copied into another file does not match that file
    copied = re.search(rb"thdpack-card:\w+:\w+", text)
    assert copied is not None
    other = signature_of(b"mine\n" + copied[0])
    assert other is not None
    assert other.edited


def test_files_of_one_build_share_a_pattern() -> None:
    names = [
        "train/46b08cb0a962d36f-00000-0.arrow",
        "train/46b08cb0a962d36f-rest-1.arrow",
        "train/0123456789abcdef-00001-0.arrow",
        "train/other.arrow",
    ]
    assert file_patterns(names) == [
        "train/0123456789abcdef-*.arrow",
        "train/46b08cb0a962d36f-*.arrow",
        "train/other.arrow",
    ]


def test_every_column_has_a_description() -> None:
    assert set(shard_schema(8).names) == set(SHARD_COLUMNS)
    assert set(records_schema(keep_header=True).names) <= set(RECORD_COLUMNS)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int8(), ("sc:Integer", False)),
        (pa.uint64(), ("sc:Integer", False)),
        (pa.float32(), ("sc:Float", False)),
        (pa.bool_(), ("sc:Boolean", False)),
        (pa.large_string(), ("sc:Text", False)),
        (pa.binary(16), ("sc:Text", False)),
        (pa.dictionary(pa.int32(), pa.string()), ("sc:Text", False)),
        (pa.date32(), ("sc:Date", False)),
        (pa.list_(pa.int32()), ("sc:Integer", True)),
        (pa.list_(pa.uint8(), 8), ("sc:Integer", True)),
        (pa.list_(pa.list_(pa.int8())), None),
        (pa.struct([("x", pa.int8())]), None),
    ],
)
def test_arrow_types_become_croissant_types(
    kind: pa.DataType, expected: tuple[str, bool] | None
) -> None:
    assert croissant_type(kind) == expected
