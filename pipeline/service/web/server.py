"""The HTTP server of the service, in a thread.

| path | answer |
|---|---|
| `/` | the status page |
| `/metrics` | metrics for Prometheus |
| `/healthz` | 200 while the process runs |
| `/readyz` | 200 if the service can take files, else 503 and the reason |
| `/reports/N.html` | the report of generation N |
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Final

from pipeline.service.event_log import log
from pipeline.service.options import WatchOptions
from pipeline.service.reports import report_name
from pipeline.service.status import Board
from pipeline.service.web.metrics import CONTENT_TYPE, metrics_text
from pipeline.service.web.status_page import status_page
from pipeline.storage.open_folder import folder_of
from schemas.errors import OptionError, ThdpackError

_REPORT: Final = re.compile(r"/reports/([1-9]\d{0,8})\.html")
_HTML: Final = "text/html; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"


@contextmanager
def serving(options: WatchOptions, board: Board) -> Iterator[None]:
    """Serve the status while the context lasts.

    Raises:
        OptionError: the address cannot be used.
    """
    handler = type("Handler", (_Handler,), {"board": board, "dataset": options.dataset})
    try:
        server = _Server((options.host, options.port), handler)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"cannot listen at {options.host}:{options.port}: {error}; choose another --host or "
            "--port, or give --no-http"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="thdpack-http", daemon=True)
    thread.start()
    log("listening", url=f"http://{options.host}:{server.server_port}/")
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    board: ClassVar[Board]
    dataset: ClassVar[str]
    timeout = 30
    server_version = "thdpack"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request."""
        path = self.path.partition("?")[0]
        status = self.board.get()
        if path == "/":
            self._answer(HTTPStatus.OK, _HTML, status_page(status).encode())
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, CONTENT_TYPE, metrics_text(status))
        elif path == "/healthz":
            self._answer(HTTPStatus.OK, _TEXT, b"ok\n")
        elif path == "/readyz" and status.ready:
            self._answer(HTTPStatus.OK, _TEXT, b"ready\n")
        elif path == "/readyz":
            reason = f"{status.trouble or status.state}\n".encode(errors="backslashreplace")
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, reason)
        elif found := _REPORT.fullmatch(path):
            self._report(int(found[1]))
        else:
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, b"not found\n")

    do_HEAD = do_GET  # noqa: N815 (http.server looks for this name)

    def log_message(self, *_: object) -> None:
        """Log no requests, because probes and Prometheus send many."""

    def _report(self, generation: int) -> None:
        content = None
        with suppress(ThdpackError, OSError, ValueError):
            content = folder_of(self.dataset).content(report_name(generation))
        if content is None:
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, b"this generation has no report\n")
        else:
            self._answer(HTTPStatus.OK, _HTML, content)

    def _answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
