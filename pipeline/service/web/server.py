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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import ClassVar, Final

from pipeline.report.web.http_server import HTML, TEXT, PageHandler, listening
from pipeline.service.event_log import log
from pipeline.service.options import WatchOptions
from pipeline.service.reports import report_name
from pipeline.service.status import Board
from pipeline.service.web.metrics import CONTENT_TYPE, metrics_text
from pipeline.service.web.status_page import status_page
from pipeline.storage.open_folder import folder_of
from schemas.errors import ThdpackError

_REPORT: Final = re.compile(r"/reports/([1-9]\d{0,8})\.html")


@contextmanager
def serving(options: WatchOptions, board: Board) -> Iterator[None]:
    """Serve the status while the context lasts.

    Raises:
        OptionError: the address cannot be used.
    """
    handler = type("Handler", (_Handler,), {"board": board, "dataset": options.dataset})
    remedy = "choose another --host or --port, or give --no-http"
    with listening(handler, options.host, options.port, remedy=remedy) as url:
        log("listening", url=url)
        yield


class _Handler(PageHandler):
    board: ClassVar[Board]
    dataset: ClassVar[str]

    def page(self, path: str) -> None:
        """Answer the request for a path."""
        status = self.board.get()
        if path == "/":
            self.answer(HTTPStatus.OK, HTML, status_page(status).encode())
        elif path == "/metrics":
            self.answer(HTTPStatus.OK, CONTENT_TYPE, metrics_text(status))
        elif path == "/healthz":
            self.answer(HTTPStatus.OK, TEXT, b"ok\n")
        elif path == "/readyz" and status.ready:
            self.answer(HTTPStatus.OK, TEXT, b"ready\n")
        elif path == "/readyz":
            reason = f"{status.trouble or status.state}\n".encode(errors="backslashreplace")
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, reason)
        elif found := _REPORT.fullmatch(path):
            self._report(int(found[1]))
        else:
            self.answer(HTTPStatus.NOT_FOUND, TEXT, b"not found\n")

    def _report(self, generation: int) -> None:
        content = None
        with suppress(ThdpackError, OSError, ValueError):
            content = folder_of(self.dataset).content(report_name(generation))
        if content is None:
            self.answer(HTTPStatus.NOT_FOUND, TEXT, b"this generation has no report\n")
        else:
            self.answer(HTTPStatus.OK, HTML, content)
