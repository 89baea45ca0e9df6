"""Many inputs in one build: from stores and disks, as lists and globs, in mixed formats."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from pipeline.build.build_plan import plan
from pipeline.build.options import PreprocessOptions
from pipeline.inputs.find import unchanged
from pipeline.storage.object_folder import ObjectFolder
from schemas.errors import InputError
from tests.helpers.data.corpus import digest, fasta, made_records, read_manifest, read_records
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.faulty_proxy import faulty_proxy
from tests.helpers.stores.object_store import (
    MIN_PART,
    ObjectStore,
    client,
    objects,
    point_s3_at,
    put,
)

RECORDS = made_records(120)
OPTIONS = ("--capacity", "1024", "--max-seq-len", "512")


pytestmark = pytest.mark.usefixtures("store")


def parquet(records: list[tuple[str, str]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.table(
            {
                "id": [name.split()[0] for name, _ in records],
                "sequence": [residues for _, residues in records],
            }
        ),
        sink,
    )
    return sink.getvalue()


FILES = {
    "a/1.fasta": fasta(RECORDS[:40]),
    "a/2.fa.gz": gzip.compress(fasta(RECORDS[40:80]), mtime=0),
    "b/3.parquet": parquet(RECORDS[80:]),
}


def test_a_list_that_names_a_glob_and_a_folder_on_s3_gives_the_dataset_of_local_files(
    run: Run, tmp_path: Path
) -> None:
    for name, content in FILES.items():
        put(f"s3://bucket/in/{name}", content)
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    put("s3://bucket/in/a/notes.txt", b"not sequences")
    (tmp_path / "files.txt").write_text("# inputs\n\ns3://bucket/in/a/*.fa*\ns3://bucket/in/b\n")
    far = run("preprocess", f"@{tmp_path / 'files.txt'}", "--out", tmp_path / "far", *OPTIONS)
    assert far.returncode == 0, far.stderr
    near = run(
        "preprocess",
        tmp_path / "in" / "a",
        tmp_path / "in" / "b",
        "--out",
        tmp_path / "near",
        *OPTIONS,
    )
    assert near.returncode == 0, near.stderr
    assert digest(tmp_path / "far") == digest(tmp_path / "near")
    named = {entry.name: entry.xxh3_128 for entry in read_manifest(tmp_path / "far").inputs}
    assert named == {name: xxhash.xxh3_128_hexdigest(content) for name, content in FILES.items()}
    assert len(read_records(tmp_path / "far")) == len(RECORDS)


def test_an_unreadable_or_empty_list_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n")
    for text, code, message in (
        ("empty.txt", 1, "names no input"),
        ("gone.txt", 2, "no such file"),
    ):
        done = run("preprocess", f"@{tmp_path / text}", "--out", tmp_path / "out")
        assert done.returncode == code
        assert message in done.stderr


def test_if_an_input_object_was_replaced_a_build_needs_overwrite(run: Run) -> None:
    for name, content in FILES.items():
        put(f"s3://bucket/in/{name}", content)
    arguments = (
        "preprocess",
        "s3://bucket/in/**",
        "--out",
        "s3://bucket/out",
        *OPTIONS,
        "--log-json",
    )
    assert run(*arguments).returncode == 0
    assert '"fresh": false' in run(*arguments).stdout
    # new content of the same size
    put("s3://bucket/in/a/1.fasta", FILES["a/1.fasta"].replace(b"made0", b"make0"))
    done = run(*arguments)
    assert done.returncode == 1
    assert "the inputs changed" in done.stderr
    assert run(*arguments, "--overwrite").returncode == 0
    records = [name for name in objects("s3://bucket/out") if name.startswith("records/")]
    assert len(records) == 1, "files of the first build must be gone"


def test_many_inputs_are_found_in_few_requests(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 5000 if os.environ.get("THDPACK_LONG") else 150
    content = {f"in/{i:05d}.fasta": f">r{i}\nMKV\n".encode() for i in range(count)}
    client().pipe({f"bucket/{name}": data for name, data in content.items()})
    with faulty_proxy(store.endpoint) as (address, faults):
        point_s3_at(address, monkeypatch)
        planned = plan(PreprocessOptions(inputs=("s3://bucket/in/*.fasta",), out="x"))
        assert [source.name for source in planned.sources] == [
            name.removeprefix("in/") for name in sorted(content)
        ]
        assert len(faults.requests) <= 1.1 * count, (
            "expected one request per object, and few for the listing"
        )


def test_a_single_object_is_found_without_a_listing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/a/1.fasta", FILES["a/1.fasta"])
    with faulty_proxy(store.endpoint) as (address, faults):
        point_s3_at(address, monkeypatch)
        faults.refuse = ("GET list-type", "GET prefix=", "GET delimiter=")
        planned = plan(PreprocessOptions(inputs=("s3://bucket/in/a/1.fasta",), out="x"))
        assert [(source.url, source.bytes) for source in planned.sources] == [
            ("s3://bucket/in/a/1.fasta", len(FILES["a/1.fasta"]))
        ]
        assert unchanged(planned.sources[0])
        assert not faults.happened


def test_an_object_written_again_with_the_same_content_counts_as_unchanged() -> None:
    url = "s3://bucket/in/a/1.fasta"
    put(url, b">a\nMKV\n")
    listed, asked = (
        plan(PreprocessOptions(inputs=(text,), out="x")).sources[0]
        for text in ("s3://bucket/in/a/*", url)
    )
    assert listed == asked
    # two builds that read the same standard input may both upload it
    put(url, b">a\nMKV\n")
    assert unchanged(listed)
    put(url, b">a\nMKL\n")
    assert not unchanged(listed), "the object has changed, although its size has not"
    client().rm_file(url)
    with pytest.raises(InputError, match="no such file"):
        unchanged(listed)


def test_large_objects_are_uploaded_in_parts_and_failed_uploads_leave_nothing(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.storage.object_folder.UPLOAD_PART", MIN_PART)
    monkeypatch.setattr("pipeline.storage.retries.FIRST_PAUSE", 0.01)
    content = bytes(range(256)) * 200
    with faulty_proxy(store.endpoint) as (address, faults):
        point_s3_at(address, monkeypatch)
        faults.rate, faults.kinds = 0.3, ("error", "cut", "lost")
        # With this seed, faults hit parts of the upload, but not the request that starts it. After
        # a fault in the starting request, AWS's library would wait a long time.
        faults.rng.seed(2)
        folder = ObjectFolder("s3://bucket/set")
        with folder.written("train/x.arrow") as file:
            file.write(content)
        faults.rate = 0.0
        assert sum("partNumber" in request for request in faults.requests) >= 3
        assert sum(faults.happened.values()) >= 1
        assert objects("s3://bucket/set") == {"train/x.arrow": content}
        with pytest.raises(ZeroDivisionError), folder.written("train/y.arrow") as file:
            file.write(bytes(1 // (len(content) - len(content))))
        assert set(objects("s3://bucket/set")) == {"train/x.arrow"}


def test_a_build_from_standard_input_leaves_only_the_dataset_on_a_store(
    run: Run, tmp_path: Path
) -> None:
    content = fasta(RECORDS)
    for out in ("s3://bucket/out", tmp_path / "out"):
        done = run("preprocess", "-", "--out", out, *OPTIONS, stdin=content)
        assert done.returncode == 0, done.stderr
    near = {name: (tmp_path / "out" / name).read_bytes() for name in digest(tmp_path / "out")}
    assert objects("s3://bucket/out") == near
