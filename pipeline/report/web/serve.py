"""`thdpack stats DATASET --serve`: show the report in a browser, and keep it up to date.

| path | answer |
|---|---|
| `/` | the page: state of the build, and the report in a frame |
| `/report.html` | the report |
| `/state.json` | state of the build, and digest of the report, which the page's script reads |
| `/live.js` | the script |

The server listens on loopback only, reads no path from the request, and answers only requests whose
header Host names loopback. Otherwise a web page from elsewhere could read the report through a host
name that it points at 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import sys
import time
import webbrowser
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, Final

import msgspec
from jinja2 import Environment

from pipeline.report.web.build_state import build_state
from pipeline.report.web.http_server import HTML, TEXT, PageHandler, listening
from pipeline.report.web.live_report import LiveReport
from pipeline.report.web.page_templates import page_templates, plain
from schemas import __version__

HOST: Final = "127.0.0.1"
_POLL_SECONDS: Final = 0.5
_FOLDER: Final = Path(__file__).with_name("templates")
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)


def serve_report(dataset: str, *, port: int = 0, open_browser: bool = False) -> None:
    """Serve the report of a dataset until the process is interrupted.

    Args:
        dataset: path or URL of a dataset, or of a folder with an unfinished build.
        port: 0 to choose a free port.
    Raises:
        OptionError: the port is busy.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    live = LiveReport(dataset)
    handler = type("Handler", (_Handler,), {"live": live})
    remedy = "choose another --port, or leave out --port to use a free one"
    with listening(handler, HOST, port, remedy=remedy) as url:
        print(f"serving the report at {url} (Ctrl-C ends it)", flush=True)
        if open_browser:
            webbrowser.open(url)
        while True:
            if live.refresh():
                print(f"shows generation {live.get().generation}", file=sys.stderr, flush=True)
            time.sleep(_POLL_SECONDS)


class _Handler(PageHandler):
    live: ClassVar[LiveReport]
    headers_of_all: ClassVar[dict[str, str]] = {
        "Content-Security-Policy": _POLICY,
        "Referrer-Policy": "no-referrer",
    }

    def page(self, path: str) -> None:
        """Answer the request for a path."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        shown = self.live.get()
        if host not in (HOST, "localhost"):
            message = f"open http://{HOST}:{self.connection.getsockname()[1]}/\n"
            self.answer(HTTPStatus.MISDIRECTED_REQUEST, TEXT, message.encode())
        elif path == "/":
            self.answer(HTTPStatus.OK, HTML, self._first_page().encode())
        elif path == "/state.json":
            self.answer(HTTPStatus.OK, "application/json", self._state())
        elif path == "/live.js":
            script = (_FOLDER / "live.js").read_bytes()
            self.answer(HTTPStatus.OK, "text/javascript; charset=utf-8", script)
        elif path == "/report.html" and shown.html:
            self.answer(HTTPStatus.OK, HTML, shown.html.encode())
        else:
            self.answer(HTTPStatus.NOT_FOUND, TEXT, b"not found\n")

    def _first_page(self) -> str:
        template = _environment().get_template("live.html.jinja")
        return template.render(dataset=self.live.dataset, version=__version__)

    def _state(self) -> bytes:
        shown = self.live.get()
        state = {
            "build": build_state(self.live.dataset),
            "report": shown.digest,
            "generation": shown.generation,
            "trouble": plain(shown.trouble),
        }
        return msgspec.json.encode(state)


@cache
def _environment() -> Environment:
    return page_templates(_FOLDER)
