"""S3-compatible server (moto) on the loopback interface, in its own process."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import s3fs

BUCKET = "bucket"
KEY, SECRET = "AKIAQUITEREALLOOKING", "s3cr3t/wJalrXUtnFEMIK7MDENG+bPx"
"""Credentials of the tests: thdpack must never print or write them."""

MIN_PART = 20_000
"""Minimum size in bytes of each part of an upload, except the last. AWS requires 5 MiB. The tests
use less because their corpora are small."""


def s3_environment(endpoint: str) -> dict[str, str]:
    """Return AWS's standard environment variables for the endpoint and the credentials."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@dataclass(frozen=True)
class ObjectStore:
    """A running S3 server.

    endpoint: http:// address of the server.
    process: process id of the server.
    """

    endpoint: str
    process: int

    def reset(self) -> None:
        """Delete all objects."""
        urllib.request.urlopen(
            urllib.request.Request(f"{self.endpoint}/moto-api/reset", method="POST")
        ).close()
        self.make_bucket()

    def make_bucket(self) -> None:
        urllib.request.urlopen(
            urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        ).close()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Start a server with one empty bucket. Stop it at the end of the context."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    small = {
        "S3_UPLOAD_PART_MIN_SIZE": str(MIN_PART),
        "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(5 << 20),
    }
    environment = {**os.environ, **s3_environment(""), "AWS_ENDPOINT_URL": "", **small}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    store = ObjectStore(f"http://127.0.0.1:{port}", process.pid)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                store.make_bucket()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        yield store
    finally:
        process.kill()
        process.wait()


def point_s3_at(endpoint: str, patch: pytest.MonkeyPatch) -> None:
    """Point s3:// at this server, in this process and its children."""
    for name, value in s3_environment(endpoint).items():
        patch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()


@functools.cache
def _client(endpoint: str) -> s3fs.S3FileSystem:
    """Return a client. It is cached, because its creation takes a third of a second."""
    return s3fs.S3FileSystem(
        endpoint_url=endpoint, skip_instance_cache=True, use_listings_cache=False
    )


def client() -> s3fs.S3FileSystem:
    """Return a client of the server in AWS_ENDPOINT_URL. The client uses no code of thdpack."""
    return _client(os.environ["AWS_ENDPOINT_URL"])


def objects(prefix: str) -> dict[str, bytes]:
    """Return the content of each object under an s3:// prefix, by its relative name."""
    root = prefix.removeprefix("s3://").rstrip("/")
    return {name.removeprefix(f"{root}/"): client().cat_file(name) for name in client().find(root)}


def digests(prefix: str) -> dict[str, str]:
    """Return the sha256 of every object of a dataset, by name. `digest` of corpus.py does the same
    for folders.
    """
    return {
        name: hashlib.sha256(content).hexdigest()
        for name, content in objects(prefix).items()
        if not name.startswith(".build/")
    }


def put(url: str, content: bytes) -> None:
    client().pipe_file(url, content)
