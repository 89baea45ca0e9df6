"""Datasets on an object store: built there, from inputs there, read from there, and the same bytes as on a local disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import fsspec
import pytest

import pipeline.storage.retries
from pipeline.reader import ShardReader
from pipeline.storage.conditional_put import put_if
from pipeline.storage.object_folder import UPLOAD_PART, LostRaceError, ObjectFolder, part_bytes
from pipeline.storage.urls import file_system
from schemas.errors import BuildError
from schemas.manifest import Manifest
from tests.e2e.build.test_kill import kill_all
from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes import started
from tests.helpers.processes.command_line import PIECE_BYTES, Run, preprocess
from tests.helpers.processes.started import Started
from tests.helpers.stores.faulty_proxy import KINDS, Faults, faulty_proxy
from tests.helpers.stores.object_store import (
    KEY,
    MIN_PART,
    SECRET,
    ObjectStore,
    digests,
    object_store,
    objects,
    point_s3_at,
    put,
)
from tests.helpers.stores.stores import http_store

SIZES = {"task_bytes": 150_000, "partition_bytes": 100_000}
OPTIONS = ("--capacity", "1024", "--max-seq-len", "512")
OUT = "s3://bucket/sets/made"
LONG_KILLS = range(8, 80, 3)
"""After how many requests a build is killed, where time does not matter."""


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The server, empty, and this process's environment such that s3:// means it."""
    server.reset()
    point_s3_at(server.endpoint, monkeypatch)
    return server


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(made_records(700)))
    return path


@pytest.fixture(scope="module")
def near(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the corpus on a local disk."""
    return preprocess(corpus, tmp_path_factory.mktemp("near") / "out", *OPTIONS, **SIZES)


def test_a_dataset_built_on_a_store_is_the_one_built_on_a_disk_and_is_read_back(
    run: Run,
    run_process: Run,
    store: ObjectStore,
    corpus: Path,
    near: Path,
    tmp_path: Path,
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    words = ("preprocess", "s3://bucket/in/made.fasta", "--out", OUT, *OPTIONS)
    done = run_process(*words, "--workers", "2", **SIZES)
    assert done.returncode == 0, done.stderr
    assert digests(OUT) == digest(near)
    assert set(objects("s3://bucket")) == {f"sets/made/{name}" for name in digest(near)} | {
        "in/made.fasta"
    }, "something was left behind"
    again = run(*words, **SIZES)
    assert "already built" in again.stdout, again.stderr
    with ShardReader(OUT, cache_dir=tmp_path / "cache") as far, ShardReader(near) as local:
        pairs = list(islice(zip(far, local, strict=False), 2 * len(local)))
    assert len(pairs) == 2 * len(local)
    assert all(there.input_ids.tobytes() == here.input_ids.tobytes() for there, here in pairs)


@pytest.fixture
def proxied(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """From here on s3:// goes through a proxy, which does as the faults say. A request that gives nothing for a second is given up."""
    with faulty_proxy(store.endpoint) as (address, faults):
        point_s3_at(address, monkeypatch)
        monkeypatch.setenv(
            "FSSPEC_S3", json.dumps({"config_kwargs": {"read_timeout": 1, "connect_timeout": 1}})
        )
        yield faults


def quick_s3(patch: pytest.MonkeyPatch) -> None:
    """In this process, too, a request that gives nothing for half a second is given up; what failed is tried again soon, and by us, not by AWS's library."""
    config = {"read_timeout": 0.5, "connect_timeout": 0.5, "retries": {"max_attempts": 0}}
    patch.setitem(fsspec.config.conf, "s3", {"config_kwargs": config})
    patch.setattr(pipeline.storage.retries, "FIRST_PAUSE", 0.01)


def test_a_store_that_fails_stalls_and_cuts_gives_the_same_bytes_of_objects_in_ranges_and_in_parts(
    proxied: Faults,
    corpus: Path,
    near: Path,
    build_here: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    quick_s3(monkeypatch)
    sizes = {
        "pipeline.inputs.find.TASK_BYTES": SIZES["task_bytes"],
        "pipeline.inputs.find.PIECE_BYTES": PIECE_BYTES,
        "pipeline.inputs.find.FEWEST_TASKS": 1,
        "pipeline.build.build_plan.PARTITION_BYTES": SIZES["partition_bytes"],
        "pipeline.build.stages.RESTS_TOGETHER": 4,
    }
    for name, value in {
        **sizes,
        "pipeline.storage.ranged_file.RANGE": 20_000,
        "pipeline.storage.object_folder.RANGE": 20_000,
        "pipeline.storage.object_folder.UPLOAD_PART": MIN_PART,
    }.items():
        monkeypatch.setattr(name, value)
    proxied.rate, proxied.stall_seconds = 0.08, 1.0
    build_here("s3://bucket/in/made.fasta", OUT, capacity=1024, max_seq_len=512)
    proxied.rate = 0.0
    assert {kind for kind in KINDS if proxied.happened[kind]} == set(KINDS)
    assert asked(proxied, "PUT partNumber=2") >= 2
    assert digests(OUT) == digest(near)


STOP = (
    "import tests.helpers.processes.stopped; tests.helpers.processes.stopped.stop_after_outcomes(1)"
)
ONE_PROCESS = "import tests.helpers.processes.command_line; tests.helpers.processes.command_line.without_workers()"
"""For claims about what two builds do to each other, where workers would only take time."""


def start(out: str, *more: str, workers: int = 1, setup: str = "") -> Started:
    """Start a build.

    setup: a Python statement to run first.
    """
    source = "s3://bucket/in/made.fasta"
    return started.start(
        "preprocess",
        source,
        "--out",
        out,
        *OPTIONS,
        "--workers",
        workers,
        *more,
        setup=setup,
        **SIZES,
    )


def until(condition: Callable[[], object], *processes: Started) -> None:
    """Wait for a condition; a process that ends before is an error."""
    deadline = time.monotonic() + 100
    while not condition():
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def asked(faults: Faults, rule: str) -> int:
    """How many requests there were of a method for a path."""
    method, part = rule.split(" ")
    return sum(request.startswith(method) and part in request for request in list(faults.requests))


def test_work_in_progress_on_this_machine_changes_no_byte_and_is_gone_on_from(
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


def test_a_build_killed_again_and_again_gives_the_same_bytes_and_no_manifest_before_its_time(
    proxied: Faults, corpus: Path, near: Path
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    release = threading.Event()
    proxied.hold["PUT manifest.json"] = release
    for after in LONG_KILLS if os.environ.get("THDPACK_LONG") else (20, 60):
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
    printed = process.communicate(timeout=60)
    assert process.returncode == 0, printed
    assert "which an earlier run finished" in printed
    assert digests(OUT) == digest(near)
    assert not [name for name in objects(OUT) if name.startswith(".build/")]


def test_ctrl_c_ends_a_build_whose_store_stalls(
    proxied: Faults, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    monkeypatch.delenv("FSSPEC_S3")
    proxied.hold["GET in/made.fasta"] = release = threading.Event()
    process = start(OUT)
    until(lambda: proxied.waiting, process)
    process.send_signal(signal.SIGINT)
    try:
        printed = process.communicate(timeout=40)  # the store would stall for 60
    finally:
        release.set()
        process.kill()
    assert process.returncode == 130, printed
    assert printed.splitlines()[-1].startswith("thdpack: interrupted")
    assert "Traceback" not in printed


CONDITIONS = {
    "409 ConditionalRequestConflict": None,
    "400 InvalidRequest": None,
    "403 AccessDenied": None,
    "412 PreconditionFailed": False,
    "404 NoSuchKey": False,
    "501 NotImplemented": True,
    "400 InvalidArgument Header If-None-Match is not supported": True,
}
"""Whether an object is written after a store's answer; None: it is an error."""


def test_a_condition_is_given_up_only_for_a_store_that_does_not_know_it(proxied: Faults) -> None:
    for number, (answer, written) in enumerate(CONDITIONS.items()):
        out = f"{OUT}/{number}"
        fs, path = file_system(f"{out}/manifest.json")
        proxied.once = [("PUT manifest.json", answer)]
        if written is None:
            with pytest.raises(OSError, match="made"):
                put_if(fs, path, b"ours", None)
        else:
            assert put_if(fs, path, b"ours", None) is written, answer
        assert bool(objects(out)) is bool(written), answer
        assert not proxied.once, answer


def test_a_conditional_write_that_met_another_is_tried_again_and_loses_to_what_is_there(
    proxied: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_s3(monkeypatch)
    folder = ObjectFolder(OUT)
    proxied.once = [("PUT manifest.json", "409 ConditionalRequestConflict")]
    folder.replace("manifest.json", b"first", None)
    proxied.once = [("PUT manifest.json", "lost")]
    tag = folder.version_tag("manifest.json")
    folder.replace("manifest.json", b"second", tag)
    assert objects(OUT) == {"manifest.json": b"second"}
    for stale in (None, tag):
        with pytest.raises(LostRaceError, match="another build"):
            folder.replace("manifest.json", b"third", stale)
    assert objects(OUT) == {"manifest.json": b"second"}


def test_an_upload_in_parts_whose_last_answer_was_lost_is_whole(
    proxied: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_s3(monkeypatch)
    monkeypatch.setattr("pipeline.storage.object_folder.UPLOAD_PART", MIN_PART)
    content = bytes(range(200)) * 300
    (tmp_path / "x").write_bytes(content)
    proxied.once = [("POST uploadId=", "lost"), ("POST uploadId=", "404 NoSuchUpload")]
    ObjectFolder(OUT).upload("x", tmp_path / "x", len(content))
    assert objects(OUT) == {"x": content}
    assert not proxied.once
    proxied.once = [("POST uploads", "404 NoSuchBucket")]
    with pytest.raises(BuildError, match="cannot be written to"):
        ObjectFolder(OUT).upload("x", tmp_path / "x", len(content))


def test_an_object_is_uploaded_in_no_more_parts_than_stores_take() -> None:
    assert part_bytes(1 << 20) == part_bytes(100 << 30) == UPLOAD_PART
    assert -(-(5 << 40) // part_bytes(5 << 40)) <= 10_000


def test_of_two_writers_one_wins_the_other_says_so_and_nothing_is_mixed(
    run: Run, proxied: Faults, corpus: Path, near: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    monkeypatch.delenv("FSSPEC_S3")  # each waits for its answer: two requests are two writers
    release = threading.Event()
    proxied.hold["PUT manifest.json"] = release
    writers = [start(OUT, setup=ONE_PROCESS), start(OUT, "--seed", "1", setup=ONE_PROCESS)]
    until(lambda: len(proxied.waiting) >= 2, *writers)
    release.set()
    said = [writer.communicate(timeout=60) for writer in writers]
    assert sorted(writer.returncode for writer in writers) == [0, 1], said
    loser = 0 if writers[0].returncode else 1
    assert "another build committed a dataset here while this one ran" in said[loser]
    assert "Traceback" not in said[loser]
    manifest = Manifest.from_json(objects(OUT)["manifest.json"], where=OUT)
    assert manifest.seed == 1 - loser
    if loser == 1:
        assert {
            name: content for name, content in digests(OUT).items() if name in digest(near)
        } == digest(near)
    assert run("verify", OUT).returncode == 0


def test_the_same_build_twice_at_once_ends_in_one_dataset(
    proxied: Faults, corpus: Path, near: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    monkeypatch.delenv("FSSPEC_S3")  # each waits for its answer: two requests are two writers
    release = threading.Event()
    proxied.hold["PUT manifest.json"] = release
    writers = [start(OUT, setup=ONE_PROCESS) for _ in range(2)]
    until(lambda: len(proxied.waiting) >= 2, *writers)
    release.set()
    said = [writer.communicate(timeout=60) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    assert digests(OUT) == digest(near)


def test_a_dataset_that_was_replaced_meanwhile_is_not_replaced_again(
    run: Run, proxied: Faults, corpus: Path, near: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    for name in digest(near):
        put(f"{OUT}/{name}", (near / name).read_bytes())
    monkeypatch.delenv("FSSPEC_S3")  # it has to wait for an answer
    release = threading.Event()
    proxied.hold["PUT manifest.json"] = release
    slow = start(OUT, "--seed", "1", "--overwrite", setup=ONE_PROCESS)
    until(lambda: proxied.waiting, slow)
    del proxied.hold["PUT manifest.json"]
    quick = run(
        "preprocess",
        "s3://bucket/in/made.fasta",
        "--out",
        OUT,
        *OPTIONS,
        "--seed",
        "2",
        "--overwrite",
        **SIZES,
    )
    assert quick.returncode == 0, quick.stderr
    release.set()
    said = slow.communicate(timeout=60)
    assert slow.returncode == 1
    assert "another build committed" in said
    assert Manifest.from_json(objects(OUT)["manifest.json"], where=OUT).seed == 2
    assert run("verify", OUT).returncode == 0


def test_the_reader_serves_every_bucket_once_in_order_under_faults_without_listing_and_within_its_cache(
    proxied: Faults, many_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in digest(many_shards):
        put(f"{OUT}/{name}", (many_shards / name).read_bytes())
    with ShardReader(many_shards) as local:
        expected = [bucket.input_ids.tobytes() for bucket in islice(local, 2 * len(local))]
        shards = local.manifest.shards["train"]
    limit = sum(sorted(entry.bytes for entry in shards)[-6:])
    assert limit < sum(entry.bytes for entry in shards)
    quick_s3(monkeypatch)
    proxied.refuse = ("GET list-type", "GET prefix=", "GET delimiter=")
    proxied.rate, proxied.stall_seconds = 0.2, 2.0
    cache = tmp_path / "cache"
    largest, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            with contextlib.suppress(FileNotFoundError):  # a file that went while we looked
                largest[0] = max(largest[0], sum(path.stat().st_size for path in cache.glob("*.*")))

    watching = threading.Thread(target=watch)
    watching.start()
    with ShardReader(OUT, cache_dir=cache, cache_bytes=limit, prefetch=1) as reader:
        assert [bucket.input_ids.tobytes() for bucket in islice(reader, len(expected))] == expected
    stop.set()
    watching.join()
    assert sum(proxied.happened[kind] for kind in KINDS) >= 3, proxied.happened
    assert not proxied.happened["refused"], "a listing was asked for"
    assert 0 < largest[0] <= limit


def test_credentials_are_nowhere_to_be_seen(
    run: Run, proxied: Faults, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    hidden = ("hunter2", "5ba5e5167a7e", KEY, SECRET)
    said = ""
    with http_store(corpus.parent) as address:
        web = (
            address.replace("http://", "http://somebody:hunter2@")
            + "/made.fasta?X-Amz-Signature=5ba5e5167a7e"
        )
        for arguments in (
            (
                "preprocess",
                web,
                "s3://bucket/in/made.fasta",
                "--dedup",
                "none",
                "--out",
                OUT,
                "--log-json",
                *OPTIONS,
            ),
            ("preprocess", web.replace("made", "gone"), "--out", f"{OUT}2", *OPTIONS),
            ("preprocess", web, "--out", f"{OUT}3", "--on-invalid", "error", *OPTIONS),
            ("preprocess", web, "--out", tmp_path / "dry", "--dry-run"),
            ("stats", OUT, "--json"),
            ("plan-tasks", "s3://bucket/in/made.fasta", "--out", f"{OUT}4", *OPTIONS),
            ("run-task", f"{OUT}4", "--index", "0"),
        ):
            done = run(*arguments)
            said += done.stdout + done.stderr
    done = run(
        "preprocess",
        "s3://somebody:hunter2@bucket/in/made.fasta",
        "--out",
        f"s3://{KEY}:{SECRET}@bucket/x",
        *OPTIONS,
    )
    said += done.stdout + done.stderr
    proxied.refuse = ("GET bucket", "HEAD bucket", "PUT bucket")
    for arguments in (
        ("preprocess", "s3://bucket/in/made.fasta", "--out", OUT),
        ("run-task", f"{OUT}4", "--index", "0"),
        ("verify", OUT),
    ):
        done = run(*arguments)
        assert done.returncode == 1
        said += done.stdout + done.stderr
    proxied.refuse = ()
    assert "made.fasta" in said
    assert "permission" in said.lower()
    everything = {"output": said.encode()} | {
        name: name.encode() + content for name, content in objects("s3://bucket").items()
    }
    found = [
        (name, content[max(0, at - 200) : at + 50])
        for name, content in everything.items()
        for text in hidden
        if (at := content.find(text.encode())) >= 0
    ]
    assert not found
