"""Ranks of a job as forks of one process that has imported torch: 10 ms each, where torchrun needs five seconds of CPU a rank.

Forked ranks get what torchrun gives its workers: the same environment variables, and a store that lives in the process that
starts them. Claims about torchrun itself (restarts, forwarded signals) start a real torchrun: see tests/runs.py.

`python -m tests.ranks SOCKET` is the process that forks. Each xdist worker starts one when it first needs it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import torch.distributed as dist

from tests.command_line import REPO, environment

TRAIN: Final = "import sys; from trainer.train import main; main(sys.argv[1:])"
GIVE_UP_SECONDS: Final = 130.0
"""Only a test that hangs waits so long."""
_PR_SET_PDEATHSIG: Final = 1


@dataclass
class Rank:
    """One process. pid: its id, also its process group's."""

    pid: int
    _pidfd: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        if self.returncode is None and select.select([self._pidfd], [], [], 0)[0]:
            self.returncode = _server().exit_status(self.pid)
            os.close(self._pidfd)
        return self.returncode

    def wait(self) -> int:
        """Wait for the end. Raises: TimeoutError."""
        if self.returncode is None and not select.select([self._pidfd], [], [], GIVE_UP_SECONDS)[0]:
            raise TimeoutError(f"process {self.pid} does not end")
        status = self.poll()
        assert status is not None
        return status

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Job:
    """Ranks that were started together, and what they print, standard error included."""

    def __init__(self, program: str, arguments: Sequence[str], *, ranks: int = 1) -> None:
        """Start the ranks.

        Args:
            program: Python text; finds `arguments` in sys.argv[1:].
            ranks: how many. A single one gets no rendezvous: it trains as one process.
        """
        reading, writing = os.pipe()
        self._output = os.fdopen(reading, "r", errors="replace")
        self._lines: list[str] = []
        self._store: Any = None  # as torchrun's, it lives as long as the job
        each: list[dict[str, str]] = [{}]
        if ranks > 1:
            self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            shared = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(self._store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "WORLD_SIZE": str(ranks),
            }
            each = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        variables = {**environment(), "OMP_NUM_THREADS": "1"}
        self.ranks = [_server().fork(program, arguments, {**variables, **mine}, writing) for mine in each]
        os.close(writing)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output:
            self._lines.append(line)

    @property
    def pid(self) -> int:
        """Process id of rank 0."""
        return self.ranks[0].pid

    @property
    def said(self) -> str:
        """Text that the ranks have printed so far."""
        return "".join(self._lines)

    def poll(self) -> int | None:
        """Return the first exit status that is not 0, once all have ended; None while a rank runs."""
        found = [rank.poll() for rank in self.ranks]
        return None if None in found else next((status for status in found if status), 0)

    def wait(self) -> int:
        """Wait for all ranks; their first exit status that is not 0."""
        for rank in self.ranks:
            rank.wait()
        self._reader.join(timeout=GIVE_UP_SECONDS)
        status = self.poll()
        assert status is not None
        return status

    def kill(self) -> None:
        """Send SIGKILL to every rank and wait until none is left."""
        for rank in self.ranks:
            rank.send(signal.SIGKILL)
        self.wait()

    def finish(self) -> str:
        """Wait for all ranks, which have to end with 0; what they printed."""
        try:
            assert self.wait() == 0, self.said
        finally:
            self.kill()
        return self.said

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class _Server:
    """The process that forks, as its client sees it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket, self._lock = ours, threading.Lock()
        command = [sys.executable, "-m", "tests.ranks", str(theirs.fileno())]
        path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH", "")]))
        env = {**environment(), "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        self._process = subprocess.Popen(command, cwd=REPO, env=env, pass_fds=[theirs.fileno()])
        theirs.close()

    def _ask(self, question: dict[str, Any], descriptors: list[int]) -> int:
        with self._lock:
            text = json.dumps(question).encode()
            socket.send_fds(self._socket, [len(text).to_bytes(4)], descriptors)
            self._socket.sendall(text)
            return int.from_bytes(_receive(self._socket, 4), signed=True)

    def fork(self, program: str, arguments: Sequence[str], env: Mapping[str, str], output: int) -> Rank:
        pid = self._ask({"program": program, "arguments": list(arguments), "env": dict(env)}, [output])
        return Rank(pid, os.pidfd_open(pid))

    def exit_status(self, pid: int) -> int:
        """Return the exit status of a process that has ended."""
        return self._ask({"wait": pid}, [])


_starting = threading.Lock()


def _server() -> _Server:
    """Return this process's one server; several threads may ask for it at the same time."""
    with _starting:
        return _only_server()


@functools.cache
def _only_server() -> _Server:
    return _Server()


def _receive(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


def _questions(connection: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    while True:
        head, descriptors, _, _ = socket.recv_fds(connection, 4, 1)
        if not head:
            return
        head += _receive(connection, 4 - len(head)) if len(head) < 4 else b""
        yield json.loads(_receive(connection, int.from_bytes(head))), descriptors


def _serve(connection: socket.socket) -> None:
    """Fork a child for each program that is asked for, until the client is gone."""
    for question, descriptors in _questions(connection):
        if "wait" in question:
            answer = os.waitstatus_to_exitcode(os.waitpid(question["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                connection.close()
                _run(question, descriptors[0])
            for descriptor in descriptors:
                os.close(descriptor)
        connection.sendall(answer.to_bytes(4, signed=True))


def _run(question: dict[str, Any], output: int) -> NoReturn:
    """Run a program in this child, as the interpreter would run `python -c PROGRAM`."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # end with the process that forked us
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.clear()
        os.environ.update(question["env"])
        for stream in (sys.stdout, sys.stderr):  # as torchrun starts its ranks: unbuffered
            stream.reconfigure(write_through=True)  # type: ignore[union-attr] (real files)
        sys.argv = ["-c", *question["arguments"]]
        exec(compile(question["program"], "<program>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # shown as the interpreter would show it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C of a test run ends this process with its client
    import trainer.model.layer_torch
    import trainer.train  # noqa: F401 (these imports are the point of this process)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    _serve(socket.socket(fileno=int(sys.argv[1])))
