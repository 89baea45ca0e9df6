"""Inputs by URL: detection of changed files, names of inputs, and error messages."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fsspec
import pytest

from pipeline.build.array_jobs.task_list import plan_tasks
from pipeline.build.options import DatasetOptions, PreprocessOptions
from pipeline.build.progress.reporter import reporter
from pipeline.build.tasks import MapTask
from pipeline.inputs.find import find_sources, unchanged
from pipeline.inputs.named.expand import _urls
from pipeline.inputs.source import Source
from pipeline.storage.file_hash import hash_file
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.urls import version_tag_of
from schemas.errors import BuildError, InputError, SettingError, ThdpackError
from tests.helpers.stores.stores import http_store


class DatedFiles(http.server.SimpleHTTPRequestHandler):
    """Python's own server, which sends Last-Modified but no ETag."""

    def log_message(self, *_: object) -> None:
        pass


class Silent(DatedFiles):
    """Server that sends sizes, but no times or ETags."""

    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Last-Modified":
            super().send_header(keyword, value)


class Expiring(DatedFiles):
    """Server that answers three requests, and refuses all later ones with status 403."""

    asked = 0

    def send_head(self) -> Any:
        Expiring.asked += 1
        if Expiring.asked > 3:
            self.send_error(403)
            return None
        return super().send_head()


@contextmanager
def serving(handler: type[http.server.SimpleHTTPRequestHandler], folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(handler, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def found(*inputs: str) -> list[Source]:
    return find_sources(inputs, "auto", spool=None)[0]


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    """Write two files of the same size but different modification times."""
    for place, time in (("a", 1_000_000_000), ("b", 1_100_000_000)):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.fasta").write_text(f">{place}\nMKV\n")
        os.utime(tmp_path / place / "x.fasta", (time, time))
    return tmp_path


def test_web_inputs_without_an_etag_are_told_apart_by_modification_time(twins: Path) -> None:
    with serving(DatedFiles, twins) as address:
        a, b = found(f"{address}/a/x.fasta"), found(f"{address}/b/x.fasta")
        assert a[0].fingerprint != b[0].fingerprint
        assert a == found(f"{address}/a/x.fasta")
        assert unchanged(a[0])
        os.utime(twins / "a" / "x.fasta", (0, 0))
        assert not unchanged(a[0])


def test_web_inputs_without_etag_or_modification_time_get_a_new_fingerprint_in_each_build(
    twins: Path,
) -> None:
    with serving(Silent, twins) as address:
        first, second = found(f"{address}/a/x.fasta")[0], found(f"{address}/a/x.fasta")[0]
        assert first.fingerprint != second.fingerprint
        assert unchanged(first), "the size is the same, and this server sends nothing else"
        (twins / "a" / "x.fasta").write_text(">a\nM\n")
        assert not unchanged(first)


def test_results_of_one_url_are_not_reused_for_another(tmp_path: Path) -> None:
    def identity(url: str) -> dict[str, Any]:
        source = Source(
            url=url,
            name="x.fa",
            bytes=1,
            fingerprint="1",
            format="fasta",
            compression="none",
            piece=1,
        )
        work = LocalFolder(tmp_path, tmp_path)
        return MapTask(
            index=0,
            source=source,
            begin=0,
            end=1,
            partitions=1,
            options=DatasetOptions(),
            work=work,
        ).identity()

    assert identity("http://host/a/x.fa") != identity("http://host/b/x.fa")
    assert identity("a/x.fa") == identity("/here/a/x.fa"), "a local file is identified by its inode"


def test_an_etag_identifies_an_object_even_if_listing_and_request_give_different_times() -> None:
    assert version_tag_of(
        {"size": 3, "ETag": '"e"', "LastModified": "12:00:00.123"}
    ) == version_tag_of({"size": 3, "ETag": '"e"', "LastModified": "12:00:00"})
    assert version_tag_of({"size": 3, "ETag": "", "LastModified": "12:00:00"}) == "3-12:00:00"


@pytest.mark.parametrize(
    ("text", "path", "name", "url"),
    [
        ("s3://bucket/in/*.fa", "bucket/in/*.fa", "bucket/in/1.fa", "s3://bucket/in/1.fa"),
        ("s3://bucket", "bucket", "bucket/1.fa", "s3://bucket/1.fa"),
        ("s3://buck*/1.fa", "buck*/1.fa", "bucket/1.fa", "s3://bucket/1.fa"),
        ("sftp://me@host/in/", "/in", "/in/1.fa", "sftp://me@host/in/1.fa"),
        (
            "abfs://box@account.net/in/*",
            "box/in/*",
            "box/in/1.fa",
            "abfs://box@account.net/in/1.fa",
        ),
        ("file:///in/*.fa", "/in/*.fa", "/in/1.fa", "file:///in/1.fa"),
        ("memory://in/*.fa", "/in/*.fa", "/in/1.fa", "memory://in/1.fa"),
    ],
)
def test_urls_found_on_a_store_keep_their_host(text: str, path: str, name: str, url: str) -> None:
    assert list(_urls(text, path, {name: {"type": "file"}})) == [url]


def test_in_a_folder_on_a_store_hidden_objects_are_skipped_and_names_may_look_like_globs() -> None:
    fs = fsspec.filesystem("memory")
    for name in ("/box/y[1].fasta", "/box/y1.fasta", "/box/.hidden.fasta", "/box/.trash/z.fasta"):
        fs.pipe_file(name, b">a\nMKV\n")
    assert [source.name for source in found("memory://box")] == ["y1.fasta", "y[1].fasta"]
    assert [source.url for source in found("memory://box/y[1].fasta")] == [
        "memory://box/y[1].fasta"
    ]
    assert [source.url for source in found("memory://box/y[0-9].fasta")] == [
        "memory://box/y1.fasta"
    ]
    fs.rm("/box", recursive=True)


@pytest.mark.parametrize(
    ("environment", "kind", "message"),
    [
        (
            {"AWS_ENDPOINT_URL": ""},
            SettingError,
            "no credentials for the store .*: set AWS_ACCESS_KEY_ID",
        ),
        (
            {"AWS_ENDPOINT_URL": "", "AWS_PROFILE": "nope"},
            SettingError,
            r"^AWS_PROFILE: .*\(nope\).*: correct or unset this variable",
        ),
        (
            {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"},
            InputError,
            "nothing answers at",
        ),
        (
            # with a proxy, only the proxy knows whether the store answers
            {
                "AWS_ACCESS_KEY_ID": "k",
                "AWS_SECRET_ACCESS_KEY": "s",
                "HTTP_PROXY": "http://127.0.0.1:1",
            },
            InputError,
            "2 attempts",
        ),
    ],
)
@pytest.mark.parametrize("url", ["s3://bucket/x.fa", "s3://bucket/*.fa"])
def test_missing_credentials_are_a_wrong_setting_and_an_unreachable_store_is_an_input_error(
    url: str,
    environment: dict[str, str],
    kind: type[ThdpackError],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    nowhere = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }
    files = {"AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_CONFIG_FILE": os.devnull}
    for name, value in {**nowhere, **files, **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pipeline.storage.retries.ATTEMPTS", 2)
    monkeypatch.setattr("pipeline.storage.retries.FIRST_PAUSE", 0.01)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(kind, match=message):
        found(url)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_the_error_for_a_url_that_expires_while_it_is_read_hides_the_signature(
    tmp_path: Path,
) -> None:
    (tmp_path / "x.fasta").write_bytes(b">a\nMKV\n")
    with serving(Expiring, tmp_path) as address:
        url = f"{address}/x.fasta?X-Amz-Signature=5ba5e5167a7e"
        hash_file(url)
        with pytest.raises(InputError) as error:
            hash_file(url)
    assert str(error.value).startswith(
        f"{address}/x.fasta: cannot be read: ClientResponseError: 403"
    )
    assert "5ba5e5" not in str(error.value)


def test_credentials_in_a_list_of_inputs_are_refused_before_a_task_list_is_written(
    twins: Path,
) -> None:
    with http_store(twins) as address:
        web = address.replace("http://", "http://somebody:hunter2@")
        (twins / "list").write_text(
            f"{web}/a/x.fasta\n{address}/b/x.fasta?X-Amz-Signature=5ba5e5167a7e\n"
        )
        with (
            reporter(as_json=False) as report,
            pytest.raises(
                BuildError,
                match=r"//127.0.0.1:\d+/a/x.fasta: the task list would hold the credentials",
            ),
        ):
            plan_tasks(
                PreprocessOptions(inputs=(f"@{twins / 'list'}",), out=str(twins / "out")), report
            )
    assert not [
        path for path in (twins / "out").rglob("*") if path.is_file() and path.stat().st_size
    ]


def test_the_error_for_a_missing_object_names_an_object_of_a_similar_name() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/typo/uniref50.fasta.gz", b"")
    for wrong in ("uniref50.fasta", "uniref5.fasta.gz"):
        with pytest.raises(InputError, match=r"did you mean memory://typo/uniref50\.fasta\.gz\?"):
            found(f"memory://typo/{wrong}")
    with pytest.raises(InputError, match=r"no such file$"):
        found("memory://typo/other.fasta")


@pytest.mark.parametrize(
    ("raised", "expected"), [(PermissionError(13, "denied"), InputError), (KeyError("x"), KeyError)]
)
def test_a_folder_that_cannot_be_listed_gives_no_hint_and_hides_no_other_error(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: type[Exception]
) -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/closed/uniref50.fasta.gz", b"")
    monkeypatch.setattr(fs, "ls", Mock(side_effect=raised))
    with pytest.raises(expected, match=r"no such file$|x"):
        found("memory://closed/uniref50.fasta")
