"""HTTP server in a thread, for pages that only show something. It answers GET and HEAD."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final

from schemas.errors import OptionError

HTML: Final = "text/html; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"


@contextmanager
def listening(handler: type[PageHandler], host: str, port: int, *, remedy: str) -> Iterator[str]:
    """Serve pages while the context lasts, and yield the URL of the first page.

    Args:
        port: 0 to choose a free port.
        remedy: advice for the error message.
    Raises:
        OptionError: the address cannot be used, for example because the port is busy.
    """
    try:
        server = _Server((host, port), handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"cannot listen at {host}:{port}: {reason}; {remedy}") from error
    thread = threading.Thread(target=server.serve_forever, name="thdpack-http", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, except those of clients that hang up."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class PageHandler(BaseHTTPRequestHandler):
    """Answers requests. A subclass defines `page`.

    headers_of_all: headers of all answers
    """

    headers_of_all: ClassVar[dict[str, str]] = {}
    timeout = 30
    server_version = "thdpack"
    sys_version = ""

    def page(self, path: str) -> None:
        """Answer the request for a path, by one call of `answer`."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer a request."""
        self.page(self.path.partition("?")[0])

    do_HEAD = do_GET  # noqa: N815 (http.server looks for this name)

    def log_message(self, *_: object) -> None:
        """Log no requests, because pages, probes and Prometheus send many."""

    def answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        """Send an answer.

        kind: the content type
        """
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in self.headers_of_all.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
