"""A store that accepts connections but sends no byte is reported after one time limit."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

import pipeline.storage.retries
from pipeline.inputs.find import find_sources
from pipeline.storage.probe.first_contact import refuse_unreachable
from pipeline.storage.read_manifest import read_manifest
from schemas.errors import DatasetError, InputError
from tests.helpers.stores.object_store import point_s3_at

LIMIT = 0.3
"""Time limit in seconds of a request, shortened from a minute."""


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Listen at an address. The operating system accepts connections, and nothing is sent."""
    monkeypatch.setattr(pipeline.storage.retries, "STALL_SECONDS", LIMIT)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def refusal(command: Callable[[], object]) -> str:
    """Return the error of a request to the silent store, which must fail before a retry."""
    began = time.monotonic()
    with pytest.raises((DatasetError, InputError)) as raised:
        command()
    # eight attempts would pause for 32 s or more
    assert time.monotonic() - began < 20, "the request was retried"
    return str(raised.value)


@pytest.mark.parametrize("kind", ["s3", "web"])
def test_a_store_that_sends_no_byte_fails_after_one_time_limit(
    silent: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_s3_at(silent, monkeypatch)
    url, remedy = {"s3": ("s3://bucket/x", "AWS_ENDPOINT_URL"), "web": (silent, "the address")}[
        kind
    ]
    commands = {
        url: lambda: read_manifest(url),
        f"{url}/in.fasta": lambda: find_sources((f"{url}/in.fasta",), "auto", spool=None),
    }
    if kind == "s3":
        commands[f"{url}/out"] = lambda: refuse_unreachable(f"{url}/out")
    for place, command in commands.items():
        assert refusal(command) == (
            f"{place}: no byte arrived in 0.3 s: check the network connection and {remedy}, and "
            "run the same command again"
        )
