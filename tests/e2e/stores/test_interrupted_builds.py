"""Builds on an object store that are killed, interrupted or resumed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.e2e.build.test_kill import kill_all
from tests.helpers.data.corpus import digest
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.faulty_proxy import Faults
from tests.helpers.stores.object_store import (
    ObjectStore,
    digests,
    objects,
    put,
)
from tests.helpers.stores.store_builds import OPTIONS, OUT, SIZES, STOP, asked, start, until

LONG_KILLS = range(8, 80, 3)
"""If THDPACK_LONG is set, the build is killed once after each of these numbers of requests."""


def test_a_killed_build_with_a_scratch_folder_resumes_and_gives_the_same_bytes(
    run: Run,
    store: ObjectStore,
    corpus: Path,
    near: Path,
    tmp_path: Path,
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    process = start(OUT, "--scratch", str(tmp_path), setup=STOP)
    process.wait_until_stopped()
    assert list(tmp_path.glob("*/map-*.json"))
    kill_all(process)
    assert not objects("s3://bucket/sets")
    words = ("--out", OUT, *OPTIONS, "--scratch", tmp_path)
    done = run("preprocess", "s3://bucket/in/made.fasta", *words, **SIZES)
    assert done.returncode == 0, done.stderr
    assert "which an earlier run finished" in done.stderr
    assert digests(OUT) == digest(near)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scratch", [False, True])
def test_a_build_on_a_store_that_cannot_succeed_leaves_nothing(
    run: Run, store: ObjectStore, corpus: Path, tmp_path: Path, scratch: bool
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    put("s3://bucket/in/headers.fasta", b">a\n>b\n")
    put(f"{OUT}/records/0123456789abcdef-00000.parquet", b"of an earlier build")
    before = set(objects("s3://bucket"))
    (place := tmp_path / "scratch").mkdir()
    for name, words, said in (
        ("made", ("--min-residues", "9999999"), "no record was kept"),
        ("headers", (), "no residue in this file"),
    ):
        if scratch:
            words = (*words, "--scratch", str(place))
        done = run("preprocess", f"s3://bucket/in/{name}.fasta", "--out", OUT, *words, **SIZES)
        assert done.returncode == 1
        assert said in done.stderr.splitlines()[-1]
        assert set(objects("s3://bucket")) == before
        assert not list(place.iterdir())


def test_a_killed_and_resumed_build_gives_the_same_bytes_and_writes_the_manifest_last(
    proxied: Faults, corpus: Path, near: Path
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    release = threading.Event()
    proxied.hold["PUT manifest.json"] = release
    for after in LONG_KILLS if os.environ.get("THDPACK_LONG") else (40,):
        proxied.requests.clear()
        process = start(OUT, workers=2)
        until(
            lambda limit=after: (
                len(proxied.requests) >= limit or asked(proxied, "PUT manifest.json")
            ),
            process,
        )
        kill_all(process)
        assert "manifest.json" not in digests(OUT)
        proxied.requests.clear()
    process = start(OUT, workers=2)
    until(lambda: asked(proxied, "PUT manifest.json"), process)
    held = digests(OUT)
    assert held == {
        name: content for name, content in digest(near).items() if name != "manifest.json"
    }
    release.set()
    printed = process.communicate(timeout=500)
    assert process.returncode == 0, printed
    assert "which an earlier run finished" in printed
    assert digests(OUT) == digest(near)
    assert not [name for name in objects(OUT) if name.startswith(".build/")]


def test_ctrl_c_ends_a_build_on_a_stalled_store(
    proxied: Faults, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    monkeypatch.delenv("FSSPEC_S3")
    proxied.hold["GET in/made.fasta"] = release = threading.Event()
    process = start(OUT)
    until(lambda: proxied.waiting, process)
    process.send_signal(signal.SIGINT)
    try:
        printed = process.communicate(timeout=40)  # less than 60 s, the timeout of a read
    finally:
        release.set()
        process.kill()
    assert process.returncode == 130, printed
    assert printed.splitlines()[-1].startswith("thdpack preprocess: interrupted; run")
    assert "Traceback" not in printed


def test_an_unfinished_build_is_reported_by_readers_and_by_other_builds(
    run: Run, store: ObjectStore, corpus: Path
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    process = start(OUT, setup=STOP)
    process.wait_until_stopped()
    kill_all(process)
    [work] = {name.split("/")[1] for name in objects(OUT)}
    for command in ("verify", "inspect", "stats"):
        refused = run(command, OUT)
        assert refused.returncode == 1
        assert "an unfinished build is here: wait for its end, or run its command" in refused.stderr
    words = ("preprocess", "s3://bucket/in/made.fasta", "--out", OUT, *OPTIONS)
    other = run(*words, "--seed", "9", **SIZES)
    assert other.returncode == 0, other.stderr
    assert f"1 other unfinished build here: {OUT}/.build/{work}/. If nobody" in other.stderr
    assert any(name.startswith(f".build/{work}/") for name in objects(OUT))
