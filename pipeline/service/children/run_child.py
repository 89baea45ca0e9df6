"""Run a child process, and pass its output on line by line."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from pipeline.service.errors import StopRequestedError
from pipeline.service.stop_signal import StopSignal

FINISH_SECONDS: Final = 5.0
"""Time in seconds that a child has to finish after the service was asked to stop."""
_INTERRUPT_SECONDS: Final = 2.0
"""Time in seconds that a child has to end after SIGTERM, before it is killed."""
_TICK: Final = 0.1


def run_child(
    command: Sequence[str] | str,
    *,
    stop: StopSignal,
    on_line: Callable[[str], None],
    on_error_line: Callable[[str], None],
    request: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    most_seconds: float | None = None,
) -> int:
    """Run a command (a list of words, or a line for the shell), and return its exit code.

    Args:
        on_line: called with each line of standard output.
        on_error_line: called with each line of standard error.
        request: bytes for standard input, which then stays open. If it is closed, the service has
            been killed, and the child must end itself. With None, standard input is empty.
        most_seconds: time limit, after which the child is killed.
    Raises:
        StopRequestedError: the service must stop, and the child did not finish soon enough. The
            child was ended.
        OSError: the command cannot be started.
    """
    child = subprocess.Popen(
        command,
        shell=isinstance(command, str),
        stdin=subprocess.DEVNULL if request is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches only the service
    )
    try:
        if request is not None:
            assert child.stdin is not None
            with suppress(BrokenPipeError):
                child.stdin.write(request)
                child.stdin.flush()
        return _followed(child, stop, on_line, on_error_line, most_seconds)
    finally:
        if child.poll() is None:
            _kill(child)
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def _followed(
    child: subprocess.Popen[bytes],
    stop: StopSignal,
    on_line: Callable[[str], None],
    on_error_line: Callable[[str], None],
    most_seconds: float | None,
) -> int:
    started = time.monotonic()
    interrupted = False
    assert child.stdout is not None
    assert child.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, _Lines(on_line))
        selector.register(child.stderr, selectors.EVENT_READ, _Lines(on_error_line))
        # a child can close its output, and still run
        while selector.get_map() or child.poll() is None:
            ready = selector.select(_TICK)
            for key, _ in ready:
                block = os.read(key.fd, 1 << 16)
                key.data.add(block)
                if not block:
                    selector.unregister(key.fileobj)
            if not ready and child.poll() is not None:
                break  # processes that the child started may still hold the pipes open
            now = time.monotonic()
            if most_seconds is not None and now - started > most_seconds:
                on_error_line(f"ended after {most_seconds:g} s")
                _kill(child)
                break
            if stop.since is not None and now - stop.since > FINISH_SECONDS:
                if not interrupted:
                    child.send_signal(signal.SIGTERM)
                    interrupted = True
                elif now - stop.since > FINISH_SECONDS + _INTERRUPT_SECONDS:
                    _kill(child)
                    break
    code = child.wait()
    if interrupted:
        raise StopRequestedError()
    return code


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a child and all processes of its group."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


class _Lines:
    """Divides blocks of bytes into lines."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = bytearray()

    def add(self, block: bytes) -> None:
        """Add a block; an empty block is the end."""
        self._rest += block
        if block and b"\n" not in block:
            return
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            self._on_line(line.decode(errors="backslashreplace"))
        if not block and self._rest:
            self._on_line(self._rest.decode(errors="backslashreplace"))
