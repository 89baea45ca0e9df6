"""Datasets on an object store have the same bytes as on a local disk, and can be read."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from pipeline.reader import ShardReader
from pipeline.storage.object_folder import UPLOAD_PART, ObjectFolder, part_bytes
from schemas.errors import BuildError
from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest
from tests.helpers.processes.command_line import PIECE_BYTES, Run, preprocess
from tests.helpers.stores.faulty_proxy import KINDS, Faults
from tests.helpers.stores.object_store import (
    KEY,
    MIN_PART,
    SECRET,
    ObjectStore,
    digests,
    objects,
    put,
)
from tests.helpers.stores.store_builds import OPTIONS, OUT, SIZES, asked, quick_s3
from tests.helpers.stores.stores import http_store


def test_a_dataset_on_a_store_has_the_same_bytes_as_on_a_disk_and_can_be_read(
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
    }, "the build left other objects behind"
    again = run(*words, **SIZES)
    assert "already built" in again.stdout, again.stderr
    named_wrongly = run("verify", f"{OUT}/manifest.json")
    assert f"not a dataset, but its manifest: name the dataset, {OUT}" in named_wrongly.stderr
    about_the_data, _, _ = done.stdout.partition("           speed")
    assert about_the_data in again.stdout
    assert "cropped" in done.stdout or "in duplicates" in done.stdout
    with ShardReader(OUT, cache_dir=tmp_path / "cache") as far, ShardReader(near) as local:
        pairs = list(islice(zip(far, local, strict=False), 2 * len(local)))
    assert len(pairs) == 2 * len(local)
    assert all(there.input_ids.tobytes() == here.input_ids.tobytes() for there, here in pairs)


def test_a_metadata_table_on_a_store_gives_the_same_dataset_as_a_local_table(
    run: Run, store: ObjectStore, corpus: Path, tmp_path: Path
) -> None:
    rows = [f"made{i}\t{i / 4}\tprotein {i}" for i in range(0, 700, 3)]
    table = tmp_path / "table.tsv.gz"
    table.write_bytes(gzip.compress("\n".join(["id\tscore\tnote", *rows]).encode()))
    put("s3://bucket/in/table.tsv.gz", table.read_bytes())
    options = (*OPTIONS, "--where", "score > 10 or score is null", "--keep-header", "--metadata")
    done = run("preprocess", corpus, "--out", OUT, *options, "s3://bucket/in/table.tsv.gz", **SIZES)
    assert done.returncode == 0, done.stderr
    local = preprocess(corpus, tmp_path / "out", *options, str(table), **SIZES)
    assert digests(OUT) == digest(local)
    assert not any(".build" in name for name in objects("s3://bucket"))
    assert "note: protein 300" in run("inspect", OUT, "--record", "made300").stdout


def test_an_exclude_file_on_a_store_gives_the_same_dataset_as_a_local_file(
    run: Run, store: ObjectStore, corpus: Path, tmp_path: Path
) -> None:
    entries = corpus.read_bytes().split(b">")[1:6]
    (tmp_path / "test.fasta").write_bytes(b"".join(b">" + entry for entry in entries))
    put("s3://bucket/in/test.fasta", (tmp_path / "test.fasta").read_bytes())
    found = []
    for out, folder in ((OUT, "s3://bucket/in"), (str(tmp_path / "out"), str(tmp_path))):
        words = ("--exclude", f"{folder}/test.fasta")
        done = run("preprocess", corpus, "--out", out, *OPTIONS, *words, **SIZES)
        assert done.returncode == 0, done.stderr
        assert "excluded" in done.stdout
        found.append(digests(out) if out == OUT else digest(Path(out)))
    assert found[0] == found[1]


def test_errors_stalls_and_cut_responses_of_a_store_do_not_change_the_bytes(
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


def test_a_multipart_upload_whose_last_response_is_lost_is_complete(
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


def test_an_upload_has_no_more_parts_than_stores_allow() -> None:
    assert part_bytes(1 << 20) == part_bytes(100 << 30) == UPLOAD_PART
    assert -(-(5 << 40) // part_bytes(5 << 40)) <= 10_000


def test_despite_faults_the_reader_keeps_its_order_and_cache_limit_and_lists_no_objects(
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
            with contextlib.suppress(FileNotFoundError):  # a file was deleted after glob listed it
                largest[0] = max(largest[0], sum(path.stat().st_size for path in cache.glob("*.*")))

    watching = threading.Thread(target=watch)
    watching.start()
    with ShardReader(OUT, cache_dir=cache, cache_bytes=limit, prefetch=1) as reader:
        assert [bucket.input_ids.tobytes() for bucket in islice(reader, len(expected))] == expected
    stop.set()
    watching.join()
    assert sum(proxied.happened[kind] for kind in KINDS) >= 3, proxied.happened
    assert not proxied.happened["refused"], "the reader requested a listing"
    assert 0 < largest[0] <= limit


def test_credentials_appear_in_no_output_and_no_object(
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
    proxied.refuse = ("GET train/", "HEAD train/")
    done = run("verify", OUT)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be read from" in done.stderr
    assert "damaged" not in done.stderr, "nothing is known about a shard that nobody may read"
    said += done.stderr
    proxied.refuse = ()
    assert "made.fasta" in said
    assert "(s3:GetObject) is missing, or the file does not exist" in said
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
