"""`thdpack stats` can write its files to a store. It refuses URLs that cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.processes.command_line import Run
from tests.helpers.stores.object_store import ObjectStore, client, objects

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
    # a name that cannot be written is wrong usage; a missing S3 bucket is not
    code = 1 if "missing" in said else 2
    assert (done.returncode, done.stdout) == (code, "")
    [line] = done.stderr.splitlines()
    assert said in line
    assert not objects("s3://bucket")
