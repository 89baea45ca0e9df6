"""`thdpack stats` and `thdpack card` can write their files to a store. `stats` refuses URLs that
cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.data.corpus import digest
from tests.helpers.processes.command_line import Run, preprocess
from tests.helpers.stores.object_store import KEY, SECRET, ObjectStore, client, objects, put

OPTIONS = ("--capacity", "1024", "--max-seq-len", "512")


def test_stats_uploads_its_output_files_to_a_store(
    run: Run, store: ObjectStore, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jinja2")
    urls = ("--html", "s3://bucket/r.html", "--json", "s3://bucket/r.json")
    done = run("stats", corpus, *OPTIONS, *urls, "--csv", "s3://bucket/tables/")
    assert done.returncode == 0, done.stderr
    local = run("stats", corpus, *OPTIONS, "--html", tmp_path / "r.html", "--csv", tmp_path / "csv")
    assert local.returncode == 0, local.stderr
    found = objects("s3://bucket")
    assert found["r.html"] == (tmp_path / "r.html").read_bytes()
    assert json.loads(found["r.json"])["records"] == 700
    tables = {name.removeprefix("tables/") for name in found if name.startswith("tables/")}
    assert tables == {path.name for path in (tmp_path / "csv").iterdir()}
    for name, kind in (
        ("r.html", "text/html"),
        ("r.json", "application/json"),
        ("tables/summary.csv", "text/csv"),
    ):
        assert client().info(f"bucket/{name}")["ContentType"] == kind


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--json", "s3://missing/r.json"), "there is no S3 bucket 'missing'"),
        (("--json", "s3://bucket"), "--json s3://bucket: names an S3 bucket"),
        (("--csv", "https://localhost/x"), "cannot be written to; use a path, s3:// or gs://"),
        (("--csv", "s3:/bucket/x"), "write s3://bucket/x"),
    ],
)
def test_a_url_that_cannot_be_written_is_refused_before_any_work(
    run: Run, store: ObjectStore, corpus: Path, words: tuple[str, ...], said: str
) -> None:
    done = run("stats", corpus, *words)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert said in line
    assert not objects("s3://bucket")


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
