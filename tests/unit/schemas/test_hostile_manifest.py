"""A manifest is untrusted. It is either read in full, or refused with one of our own errors."""

from __future__ import annotations

import json
import os
import random
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import xxhash

from pipeline.reader import ShardReader
from pipeline.reader.cache.cache_folder import CacheFolder
from pipeline.storage.read_manifest import read_manifest as read_manifest_of
from schemas.errors import DatasetError, ManifestError
from schemas.manifest import Manifest
from schemas.untrusted_json import MOST_BYTES
from tests.helpers.data.corpus import read_manifest
from tests.helpers.data.hostile import SEED, damaged, mutated

MUTATIONS = 100_000 if os.environ.get("THDPACK_LONG") else 1_000


@pytest.fixture(scope="module")
def honest(many_shards: Path) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((many_shards / "manifest.json").read_text())
    return raw


def signed(raw: dict[str, Any]) -> bytes:
    """Return JSON with a matching digest. An attacker can compute the digest as well."""
    rest = {name: value for name, value in raw.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return json.dumps({**rest, "digest": xxhash.xxh3_128_hexdigest(text.encode())}).encode()


def copy(raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(raw))
    return found


def refused(text: bytes) -> str:
    with pytest.raises(ManifestError) as error:
        Manifest.from_json(text, where="here")
    return str(error.value)


def test_a_valid_manifest_is_read(honest: dict[str, Any], many_shards: Path) -> None:
    assert Manifest.from_json(signed(honest), where="here") == read_manifest(many_shards)


@pytest.mark.parametrize(
    "name", ["../../elsewhere/victim", "/tmp/victim", "f" * 31, "F" * 32, "f" * 32 + "\n"]
)
def test_a_hash_that_is_a_path_is_refused_before_the_cache_sees_it(
    honest: dict[str, Any], many_shards: Path, tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim.part"
    victim.write_bytes(b"precious")
    raw = copy(honest)
    raw["shards"]["train"][0]["xxh3_128"] = (
        str(victim.with_suffix("")) if name.startswith("/") else name
    )
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    (dataset / "manifest.json").write_bytes(signed(raw))
    (dataset / "train").symlink_to(many_shards / "train")
    with pytest.raises(ManifestError, match="xxh3_128"):
        next(ShardReader(dataset, cache_dir=tmp_path / "cache"))
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("capacity", 1 << 40, "capacity"),
        ("capacity", 2, "capacity"),
        ("max_seq_len", 100_000, "max_seq_len"),
        ("slots", 1 << 30, "slots"),
        ("slots", 33, "slots"),
        ("seed", -1, "seed"),
        ("generation", 0, "generation"),
        ("parent", "x", "parent"),
        ("build", "../x", "build"),
        ("shards.train.0.buckets", 1 << 40, "buckets"),
        ("shards.train.0.bytes", -1, "bytes"),
        ("shards.train.0.name", "train/../../x.arrow", "name"),
        ("shards.train.0.name", "records/x.parquet", "train"),
        ("records.0.name", "train/x.arrow", "records"),
        ("records.0.rows", -1, "rows"),
        ("splits.train.pieces_max", 1 << 20, "pieces_max"),
        ("histograms.train.cost.width", 0, "width"),
        ("options.length_multiple", "2", "length_multiple"),
        ("options.length_multiple", 0, "length_multiple"),
        ("options.keep_header", "yes", "keep_header"),
        ("metadata_columns", {"score": "list"}, "metadata_columns"),
        ("metadata_columns", {"a\nb": "int"}, "metadata_columns"),
        ("metadata_columns", {"": "int"}, "metadata_columns"),
        ("metadata_columns", {str(i): "int" for i in range(1001)}, "metadata_columns"),
        ("metadata_columns", {"score": "int"}, "no file of --metadata"),
        ("metadata_records", -1, "metadata_records"),
        ("metadata_records", 1 << 40, "metadata_records"),
        ("options.split", 7, "split"),
        ("options.split", "train=2", "from 0 to 1"),
        ("options.split", "valid=0.01,train=0.99", "spelling: 'train=0.99,valid=0.01'"),
    ],
)
def test_the_error_for_an_invalid_value_gives_the_field_or_the_reason(
    honest: dict[str, Any], path: str, value: object, said: str
) -> None:
    raw = copy(honest)
    *way, last = path.split(".")
    place: Any = raw
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    assert said in refused(signed(raw))


@pytest.mark.parametrize("name", ["organism", "header", "ordinal"])
def test_a_column_of_metadata_cannot_replace_another_column(
    honest: dict[str, Any], name: str
) -> None:
    raw = copy(honest)
    table = {"option": "metadata", "name": "t.tsv", "bytes": 1, "rows": 1, "xxh3_128": "0" * 32}
    raw["named_files"] = [table]
    raw["metadata_columns"] = {"score": "int"}
    Manifest.from_json(signed(raw), where="here")
    raw["metadata_columns"] = {name: "string"}
    assert f"records/ has a column {name!r}" in refused(signed(raw))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"clusters": 6}, "6 clusters, 5 members"),
        ({"members": 1 << 40}, f"{1 << 40} members"),
        ({"members_shown": []}, "its lists do not have 1 number"),
        ({"residues_shown": [1, 2]}, "its lists do not have 1 number"),
        ({"members_shown": [4]}, "members_shown disagrees with clusters or members"),
        ({"members_shown": [-1]}, "members_shown"),
        (None, "it must have both sampled_clusters and a file of --sample-clusters, or neither"),
    ],
)
def test_totals_of_sampled_clusters_must_agree(
    honest: dict[str, Any], changes: dict[str, Any] | None, said: str | None
) -> None:
    raw = copy(honest)
    table = {"option": "sample-clusters", "name": "t", "bytes": 1, "rows": 1, "xxh3_128": "0" * 32}
    raw["named_files"] = [table]
    if changes is not None:
        totals = {"clusters": 3, "members": 5, "members_shown": [3], "residues_shown": [9]}
        raw["sampled_clusters"] = {**totals, **changes}
    if said is None:
        Manifest.from_json(signed(raw), where="here")
    else:
        assert said in refused(signed(raw))


@pytest.mark.parametrize("key", ["shards", "options", "splits", "digest", "capacity"])
def test_a_manifest_without_a_required_key_is_refused(honest: dict[str, Any], key: str) -> None:
    raw = copy(honest)
    del raw[key]
    text = json.dumps(raw).encode() if key == "digest" else signed(raw)
    assert key in refused(text)


def test_too_deep_too_large_or_undecodable_json_is_refused() -> None:
    for text in (
        b"[" * 1_000_000,
        b'{"format":2,"a":' + b"[" * 1_000_000,
        b'{"a":' * 500_000,
        b"\xff\xfe",
        b"",
        b"[]",
        b'"x"',
        b"9" * 100_000,
    ):
        refused(text)
    assert "larger than" in refused(b" " * (MOST_BYTES + 1))


def test_a_changed_manifest_is_read_or_raises_a_dataset_error(
    honest: dict[str, Any], many_shards: Path, tmp_path: Path
) -> None:
    """Make random changes of types, ranges, keys and bytes."""
    (tmp_path / "train").symlink_to(many_shards / "train")
    rng = random.Random(SEED)
    whole = signed(honest)
    seen = 0
    for number in range(MUTATIONS):
        text = signed(mutated(honest, rng)) if number % 3 else damaged(whole, rng)
        (tmp_path / "manifest.json").write_bytes(text)
        try:
            with ShardReader(tmp_path, prefetch=0) as reader:
                assert next(reader).num_seqs > 0
        except DatasetError:
            seen += 1
    assert seen > MUTATIONS // 2


def test_the_cache_removes_only_files_that_it_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    theirs = {
        name: folder / name
        for name in ("movie.mkv.part", "table.arrow", "f" * 31 + ".part", "note.txt")
    }
    for path in theirs.values():
        path.write_bytes(b"x" * 1000)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"x")
    (folder / f"{'e' * 32}.part").symlink_to(elsewhere)
    ours = [folder / f"{'a' * 32}.part", folder / f"{'b' * 32}.arrow"]
    for path in ours:
        path.write_bytes(b"x" * 10)
    CacheFolder(folder, 1, list, threading.Event())
    assert [path for path in theirs.values() if not path.exists()] == []
    assert elsewhere.exists()
    assert [path for path in ours if path.exists()] == []


class Endless(BaseHTTPRequestHandler):
    """Server whose files never end."""

    sent = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(ConnectionError):
            while True:
                Endless.sent += self.wfile.write(b" " * (1 << 16))

    def log_message(self, *_: object) -> None:
        pass


def test_an_endless_manifest_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 8 << 20
    monkeypatch.setattr("pipeline.storage.read_manifest.MOST_BYTES", limit)
    Endless.sent = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ManifestError, match="not JSON"):
            read_manifest_of(f"http://127.0.0.1:{server.server_port}/dataset")
        server.shutdown()
    assert limit < Endless.sent < 20 * limit
