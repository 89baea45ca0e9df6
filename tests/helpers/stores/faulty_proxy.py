"""HTTP proxy that simulates network faults between a client and an object store.

| kind of fault | behaviour |
|---|---|
| error | the proxy answers 500, and does not forward the request |
| lost | the proxy forwards the request, and closes the connection without an answer |
| stall | the connection hangs, then closes without an answer |
| cut | only half of the request's body or of the answer is sent |
"""

from __future__ import annotations

import http.client
import http.server
import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import urlsplit

KINDS = ("error", "lost", "stall", "cut")
LONGEST_WAIT = 1_800
"""Maximum time in seconds that a request of `Faults.hold` waits. After that, it is dropped. Only a
hanging test takes so long."""


@dataclass
class Faults:
    """Faults of a proxy. Tests may change these settings and read the counts while the proxy runs.

    rate: share of requests with a random fault.
    kinds: kinds of random faults.
    stall_seconds: time in seconds until a stalled connection closes.
    refuse: requests to answer with 403, each as "METHOD part-of-path".
    happened: number of faults so far, by kind.
    requests: all requests so far, as "METHOD path".
    """

    rate: float = 0.0
    kinds: tuple[str, ...] = KINDS
    stall_seconds: float = 3.0
    refuse: tuple[str, ...] = ()
    once: list[tuple[str, str]] = field(default_factory=list)
    """Faults that happen once. Each is a request ("METHOD part-of-path"), and a kind of fault or an
    HTTP error, such as "409 Conflict"."""
    happened: Counter[str] = field(default_factory=Counter)
    requests: list[str] = field(default_factory=list)
    hold: dict[str, threading.Event] = field(default_factory=dict)
    """Requests ("METHOD part-of-path") that wait until the test sets their event. A request is then
    dropped if its client has been killed, so that it cannot reach the store later."""
    waiting: list[str] = field(default_factory=list)
    """Requests that have waited or still wait for such an event."""
    rng: random.Random = field(default_factory=lambda: random.Random(8))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, request: str) -> str | None:
        with self.lock:
            self.requests.append(request)
            if any(
                request.startswith(rule.split(" ")[0]) and rule.split(" ")[1] in request
                for rule in self.refuse
            ):
                self.happened["refused"] += 1
                return "refused"
            for rule, kind in self.once:
                if request.startswith(rule.split(" ")[0]) and rule.split(" ")[1] in request:
                    self.once.remove((rule, kind))
                    self.happened[kind] += 1
                    return kind
            if self.rng.random() >= self.rate:
                return None
            kind = self.rng.choice(self.kinds)
            self.happened[kind] += 1
            return kind


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise a body waits 40 ms for the header's TCP ACK
    faults: ClassVar[Faults]
    target: ClassVar[tuple[str, int]]

    def log_message(self, *_: object) -> None:
        pass

    def _client_left(self) -> bool:
        """Return whether the client has closed the connection."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def _serve(self) -> None:
        body = self._body()
        request = f"{self.command} {self.path}"
        kind = self.faults.next(request)
        for rule, event in list(self.faults.hold.items()):
            if request.startswith(rule.split(" ")[0]) and rule.split(" ")[1] in request:
                self.faults.waiting.append(request)
                event.wait(LONGEST_WAIT)
                if not event.is_set() or self._client_left():
                    self.close_connection = True
                    return
        if kind in ("error", "refused") or (kind is not None and kind[0].isdigit()):
            answers = {"error": "500 InternalError", "refused": "403 AccessDenied"}
            status, code, message = f"{answers.get(kind, kind)} made".split(" ", 2)
            self._answer(
                int(status),
                {"Content-Type": "application/xml"},
                f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode(),
            )
            return
        if kind == "stall":
            time.sleep(self.faults.stall_seconds)
            self._hang_up()
            return
        if kind == "cut" and self.command in ("PUT", "POST"):
            self._forward(body[: len(body) // 2], cut=True)
            self._hang_up()
            return
        status, headers, answer = self._forward(body)
        if kind == "lost":
            self._hang_up()
        else:
            self._answer(status, headers, answer, cut=kind == "cut")

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 (http.server looks for these names)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _forward(self, body: bytes, *, cut: bool = False) -> tuple[int, dict[str, str], bytes]:
        """Forward a request to the store, and return the store's answer. With `cut`, the body is
        incomplete: send it and disconnect.
        """
        connection = http.client.HTTPConnection(*self.target, timeout=60)
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("transfer-encoding", "connection", "expect")
        }
        if cut:
            with suppress(OSError, http.client.HTTPException):
                connection.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
            connection.close()
            return 0, {}, b""
        headers["Content-Length"] = str(len(body))
        connection.request(self.command, self.path, body=body, headers=headers)
        response = connection.getresponse()
        answer = response.read()
        found = {
            name: value
            for name, value in response.getheaders()
            if name.lower() not in ("transfer-encoding", "connection")
        }
        connection.close()
        return response.status, found, answer

    def _answer(
        self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False
    ) -> None:
        with suppress(OSError):
            self.send_response_only(status)
            head = self.command == "HEAD"
            for name, value in headers.items():
                if name.lower() != "content-length" or head:
                    self.send_header(name, value)
            if not head:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not head:
                self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(2)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of the connection, because tests kill clients."""


@contextmanager
def faulty_proxy(endpoint: str) -> Iterator[tuple[str, Faults]]:
    """Start a proxy of the store at `endpoint`. Yield the proxy's http:// address and faults."""
    place = urlsplit(endpoint)
    faults = Faults()
    handler = type(
        "Handler", (_Handler,), {"faults": faults, "target": (place.hostname, place.port)}
    )
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", faults
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
