"""Check the address of a Ray cluster before Ray connects: Ray itself would retry for minutes.

The check takes some milliseconds. If nothing answers, it takes at most CONNECT_SECONDS for each
address of the host.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from pipeline.storage.probe.first_contact import unknown_host
from schemas.errors import BuildError, OptionError

CONNECT_SECONDS: Final = 5.0
_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""First bytes of each HTTP/2 client, with an empty SETTINGS frame. Ray's server speaks gRPC, which
uses HTTP/2."""
_SETTINGS: Final = 4
"""Type of the frame with which each HTTP/2 server begins its answer: the fourth byte."""
_PRINTED: Final = "give the HOST:PORT that `ray start --head` printed"


def refuse_unanswered(option: str) -> None:
    """Refuse the value of --ray-address if no Ray cluster answers there.

    Args:
        option: `HOST:PORT`, or `auto`, which stands for the variable RAY_ADDRESS if it is set. If
            it is not set, Ray itself looks for a cluster on this machine.
    Raises:
        BuildError: nothing listens at the address, or a program other than Ray does.
        OptionError: the address is not HOST:PORT.
    """
    address, named = option, f"--ray-address {option}"
    if option == "auto" and os.environ.get("RAY_ADDRESS"):
        address = os.environ["RAY_ADDRESS"]
        named = f"{named} (RAY_ADDRESS={address})"
    if address in ("auto", "local"):
        return
    scheme, separator, _ = address.partition("://")
    if separator:
        raise OptionError(
            f"{named}: addresses with {scheme}:// are not supported: run the build on a machine of "
            f"the cluster, and {_PRINTED}, without {scheme}://"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        example = host or ("head" if port.isdigit() or not port else port)
        raise OptionError(f"{named}: expected auto or HOST:PORT, such as {example}:6379")
    try:
        is_ray = _speaks_http2(host.strip("[]"), int(port))
    except (socket.gaierror, UnicodeError) as error:
        raise BuildError(f"{named}: {unknown_host(host, error, 'the address')}") from error
    except (OSError, OverflowError) as error:  # the latter: the port is above 65,535
        raise BuildError(
            f"{named}: no cluster answers ({getattr(error, 'strerror', None) or error}): start one "
            f"with `ray start --head`, or {_PRINTED}"
        ) from error
    if not is_ray:
        raise BuildError(
            f"{named}: the program that listens there does not answer as Ray does: {_PRINTED}. If "
            "the cluster uses TLS, set RAY_USE_TLS=1 and Ray's other variables for TLS"
        )


def _speaks_http2(host: str, port: int) -> bool:
    """Connect to a server; return whether it answers a client of HTTP/2.

    With TLS, the server only has to accept the connection.

    Raises:
        OSError: the connection failed.
    """
    with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return True
        try:
            connection.sendall(_GREETING)
            answer = b""
            while len(answer) < 4 and (piece := connection.recv(4 - len(answer))):
                answer += piece
        except OSError:  # it stays silent, or ends the connection
            return False
        return len(answer) == 4 and answer[3] == _SETTINGS
