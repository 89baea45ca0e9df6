"""`thdpack card` describes datasets on an object store, and writes its files there."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.data.corpus import digest
from tests.helpers.processes.command_line import Run, preprocess
from tests.helpers.stores.object_store import KEY, SECRET, ObjectStore, client, objects, put


def test_a_card_has_the_same_bytes_on_a_store_as_on_a_disk(
    run: Run, store: ObjectStore, corpus: Path, tmp_path: Path
) -> None:
    local = preprocess(corpus, tmp_path / "out", "--capacity", "1024", "--max-seq-len", "512")
    for name in digest(local):
        put(f"s3://bucket/out/{name}", (local / name).read_bytes())
    assert run("card", local).returncode == 0
    ours = {name: (local / name).read_bytes() for name in ("croissant.json", "README.md")}
    done = run("card", "s3://bucket/out/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"wrote s3://bucket/out/{name}" for name in ours]
    found = objects("s3://bucket/out")
    assert {name: found[name] for name in ours} == ours
    assert client().info("bucket/out/croissant.json")["ContentType"] == "application/json"
    put("s3://bucket/out/README.md", b"mine")
    refused = run("card", "s3://bucket/out")
    assert refused.returncode == 1
    assert "s3://bucket/out/README.md: was not written by thdpack" in refused.stderr
    assert run("card", "s3://bucket/out", "--out", "s3://bucket/card").returncode == 0
    assert objects("s3://bucket/card") == ours
    for text in (done.stdout, done.stderr, refused.stderr, *map(bytes.decode, ours.values())):
        assert KEY not in text
        assert SECRET not in text
