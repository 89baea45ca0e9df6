"""Files on slow web servers are read. A failing server is not reported as a missing file."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import aiohttp.client
import fsspec
import pytest

from pipeline.inputs.find import find_sources
from pipeline.storage.file_hash import hash_file
from schemas.errors import InputError
from tests.helpers.processes.command_line import Run

CONTENT = b">a\nMKTAYI\n" * 40
PATIENCE = aiohttp.ClientTimeout(total=0.3)
"""aiohttp's timeout for a whole request, shortened from 5 minutes."""


class Server(http.server.BaseHTTPRequestHandler):
    """Server that sends a file in 40 pieces, 25 ms apart.

    silent: send only the first piece.
    broken: answer with status 500.
    """

    ended = threading.Event()
    silent = False
    broken = False

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.send_response(500 if self.broken else 200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.send_header("Accept-Ranges", "none")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        if self.broken:
            return
        for i in range(0, len(CONTENT), 10):
            try:
                self.wfile.write(CONTENT[i : i + 10])
            except OSError:
                return  # the client has given up
            if self.ended.wait(60 if self.silent else 0.025):
                return


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(aiohttp.client, "DEFAULT_TIMEOUT", PATIENCE)
    Server.ended.clear()
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=web.serve_forever, args=(0.01,)).start()
    fsspec.get_filesystem_class("http").clear_instance_cache()
    yield f"http://127.0.0.1:{web.server_port}"
    Server.ended.set()
    fsspec.get_filesystem_class("http").clear_instance_cache()
    web.shutdown()
    web.server_close()


def test_a_file_on_a_slow_server_is_read(server: str) -> None:
    assert hash_file(f"{server}/x.fasta")[0] == len(CONTENT)


def test_a_server_that_stops_answering_is_reported(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "silent", True)
    for module in ("urls", "open_input"):
        monkeypatch.setattr(f"pipeline.storage.{module}.SILENCE_SECONDS", 0.2)
    # `.*Timeout` is aiohttp's message, which appears if even the first response is late
    with pytest.raises(
        InputError, match=r"x.fasta: cannot be read: (nothing arrived for 0.2 s|.*Timeout)"
    ):
        hash_file(f"{server}/x.fasta")


def test_a_server_error_is_not_reported_as_a_missing_file(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "broken", True)
    with pytest.raises(InputError, match=r"x.fasta: cannot be read: ClientResponseError: 500"):
        find_sources((f"{server}/x.fasta",), "auto", spool=None)


def test_a_refused_connection_is_not_reported_as_a_missing_file(run: Run, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nothing listens on the port
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        url = f"{address}/x.fasta"
        done = run("preprocess", url, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert f"{url}: nothing answers at {address} (Connection refused)" in done.stderr
    assert "no such file" not in done.stderr
