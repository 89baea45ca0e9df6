"""Processes forked from a server process that has already imported their modules.

A fork takes 10 ms, but the imports take one to five seconds of CPU. Each xdist worker starts at
most one `Server` for ranks (ranks.py), and one for each set of modules that commands import before
they start (started.py). To test the start of an interpreter, use `run_process` of command_line.py
instead. `in_a_fork` runs a function in a fork of the test's process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

GIVE_UP_SECONDS: Final = 500.0
"""Time limit in seconds that only a hanging test reaches."""
_REPO: Final = Path(__file__).parents[3]
_PR_SET_PDEATHSIG: Final = 1


@dataclass
class Fork:
    """A forked process.

    pid: id of the process and of its process group.
    returncode: exit status, negative for a signal; None until `poll` or `wait` has seen the end.
    """

    pid: int
    _pidfd: int
    _server: Server
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        if self.returncode is None and select.select([self._pidfd], [], [], 0)[0]:
            self.returncode = self._server.exit_status(self.pid)
            os.close(self._pidfd)
        return self.returncode

    def wait(self, timeout: float = GIVE_UP_SECONDS) -> int:
        """Wait for the end of the process, and return the exit status.

        Raises:
            TimeoutError: the process does not end in time.
        """
        if self.returncode is None and not select.select([self._pidfd], [], [], timeout)[0]:
            raise TimeoutError(f"process {self.pid} does not end")
        status = self.poll()
        assert status is not None
        return status

    def stops(self) -> bool:
        """Wait until the process stops itself (SIGSTOP). Return False if it ends instead."""
        return self._server.stops(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Printed:
    """Standard output and standard error of processes. A thread reads both from a pipe."""

    def __init__(self) -> None:
        reading, self.descriptor = os.pipe()
        self._output = os.fdopen(reading, "r", errors="replace")
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)

    def begin(self) -> None:
        """Begin to read. Call this after the processes have inherited the descriptor."""
        os.close(self.descriptor)
        self._reader.start()

    def _read(self) -> None:
        with self._output:
            for line in self._output:
                self._lines.append(line)

    @property
    def text(self) -> str:
        """Text printed so far."""
        return "".join(self._lines)

    def all(self, timeout: float = GIVE_UP_SECONDS) -> str:
        """Wait until every process that can write has ended, and return the text.

        Raises:
            TimeoutError: a process does not end in time.
        """
        self._reader.join(timeout)
        if self._reader.is_alive():
            raise TimeoutError(f"a process still has the pipe open. Output so far: {self.text}")
        return self.text


class Server:
    """Server process that forks on request. This object is the client's side."""

    def __init__(self, *modules: str) -> None:
        """Start the server process.

        Args:
            modules: modules that the server imports before it forks.
        """
        ours, theirs = socket.socketpair()
        self._socket, self._lock = ours, threading.Lock()
        # `-c` instead of `-m`: a fork may start workers, which would import the main module again
        command = [
            sys.executable,
            "-c",
            "import tests.helpers.processes.forks; tests.helpers.processes.forks.serve()",
            str(theirs.fileno()),
            *modules,
        ]
        path = os.pathsep.join(filter(None, [str(_REPO), os.environ.get("PYTHONPATH", "")]))
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        self._process = subprocess.Popen(command, cwd=_REPO, env=env, pass_fds=[theirs.fileno()])
        theirs.close()

    def _ask(self, question: dict[str, Any], descriptors: list[int]) -> int:
        with self._lock:
            text = json.dumps(question).encode()
            socket.send_fds(self._socket, [len(text).to_bytes(4)], descriptors)
            self._socket.sendall(text)
            return int.from_bytes(_receive(self._socket, 4), signed=True)

    def fork(
        self, program: str, arguments: Sequence[str], env: Mapping[str, str], output: int
    ) -> Fork:
        """Run Python source code in a fork.

        Args:
            program: source code.
            arguments: values of sys.argv[1:].
            env: environment variables.
            output: file descriptor for standard output and standard error.
        """
        pid = self._ask(
            {"program": program, "arguments": list(arguments), "env": dict(env)}, [output]
        )
        return Fork(pid, os.pidfd_open(pid), self)

    def exit_status(self, pid: int) -> int:
        """Return the exit status of a process that has ended."""
        return self._ask({"wait": pid}, [])

    def stops(self, pid: int) -> bool:
        """Wait until a process stops itself (return True) or ends (return False). Other requests to
        the server wait meanwhile.
        """
        return self._ask({"stopped": pid}, []) == os.CLD_STOPPED


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
    """Answer requests of the client, until the client has ended. A request asks to fork a child, to
    return an exit status, or to wait until a child stops.
    """
    for question, descriptors in _questions(connection):
        if "wait" in question:
            answer = os.waitstatus_to_exitcode(os.waitpid(question["wait"], 0)[1])
        elif "stopped" in question:
            found = os.waitid(os.P_PID, question["stopped"], os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert found is not None
            answer = found.si_code
        else:
            answer = os.fork()
            if answer == 0:
                connection.close()
                _run(question, descriptors[0])
            for descriptor in descriptors:
                os.close(descriptor)
        connection.sendall(answer.to_bytes(4, signed=True))


def _run(question: dict[str, Any], output: int) -> NoReturn:
    """Run a program in this child as `python -c PROGRAM` does, then end the process."""
    code = 1
    try:
        os.setsid()
        # let the kernel kill this process when its parent ends
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.clear()
        os.environ.update(question["env"])
        for stream in (sys.stdout, sys.stderr):  # unbuffered, like ranks of torchrun
            stream.reconfigure(write_through=True)  # type: ignore[union-attr] (real files)
        sys.argv = ["-c", *question["arguments"]]
        exec(compile(question["program"], "<program>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # print the traceback, as an interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Run the server process.

    sys.argv[1] is the descriptor of its socket, and sys.argv[2:] are the modules to import.
    """
    # Ignore Ctrl-C during the imports. This process ends when its client ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()  # a collection in a fork would otherwise visit, and so copy, all these objects
    gc.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _serve(socket.socket(fileno=int(sys.argv[1])))


def in_a_fork(work: Callable[[], object]) -> str:
    """Run `work` in a fork. Return its exception as `Type: message`; "" if there is none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            work()
        except BaseException as error:  # sent to the parent process
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        said = answers.read()
    os.waitpid(child, 0)
    return said
