"""Answer an HTTP request for a range of bytes."""

from __future__ import annotations

import http.server


def send_range(
    handler: http.server.BaseHTTPRequestHandler, content: bytes, header: str, value: str
) -> None:
    """Send the bytes that the request asks for, or all of them, with one more header. Answer HEAD
    without bytes.
    """
    wanted = handler.headers.get("Range")
    first, last = 0, len(content) - 1
    if wanted:
        begin, _, end = wanted.removeprefix("bytes=").partition("-")
        first, last = int(begin), min(int(end or last), last)
    handler.send_response(206 if wanted else 200)
    if wanted:
        handler.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
    handler.send_header(header, value)
    handler.send_header("Content-Length", str(last - first + 1))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content[first : last + 1])
