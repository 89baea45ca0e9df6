"""`thdpack watch` in a separate process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.helpers.processes.command_line import REPO, command, environment
from tests.helpers.processes.forks import GIVE_UP_SECONDS

Event = dict[str, Any]


class Service:
    """A running service. At the end of the context, it is killed.

    events: the lines of its log so far
    """

    def __init__(
        self, inbox: object, dataset: object, *options: object, user: int | None = None
    ) -> None:
        words = ["watch", inbox, "--dataset", dataset, "--port", 0, *options]
        self._process = subprocess.Popen(
            command(*map(str, words)),
            cwd=REPO,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            user=user,
        )
        self.pid = self._process.pid
        self.events: list[Event] = []
        self.errors = ""
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=target) for target in (self._read, self._warn)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def named(self, event: str) -> list[Event]:
        """Return the events of this name so far."""
        return [found for found in self.events if found["event"] == event]

    def wait_for(self, event: str, *, count: int = 1) -> Event:
        """Wait until the log has `count` events of this name; return the last one."""
        return self.wait_until(lambda: len(self.named(event)) >= count and self.named(event)[-1])

    def wait_until(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition holds, which is checked after each event; return its value.

        Raises:
            AssertionError: the service ends, or the condition does not hold in time.
        """
        with self._changed:
            deadline = time.monotonic() + GIVE_UP_SECONDS
            while not (value := condition()):
                ended = self._process.poll() is not None and not self._threads[0].is_alive()
                assert not ended, (self._process.returncode, self.errors, self.events[-20:])
                assert time.monotonic() < deadline, self.events[-20:]
                self._changed.wait(0.1)
            return value

    def end(self, number: signal.Signals | None = None) -> int:
        """Send a signal, wait for the end of the service, and return its exit code."""
        if number is not None:
            self._process.send_signal(number)
        code = self._process.wait(GIVE_UP_SECONDS)
        for thread in self._threads:
            thread.join()
        return code

    def kill(self) -> None:
        """Kill the service, and wait until its children have ended."""
        if self._process.poll() is None:
            children = children_of(self.pid)
            self._process.kill()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGCONT)  # a stopped child would never end
        self.end()

    def get(self, path: str) -> tuple[int, str]:
        """Return the status code and the text of a page."""
        url = self.wait_for("listening")["url"]
        try:
            with urllib.request.urlopen(f"{url}{path.lstrip('/')}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> dict[str, float]:
        """Return all samples of /metrics, such as `thdpack_dataset_records{status="kept"}`."""
        code, text = self.get("/metrics")
        assert code == 200
        return {
            sample.name
            + "".join(f'{{{name}="{value}"}}' for name, value in sample.labels.items()): float(
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()

    def _warn(self) -> None:
        assert self._process.stderr is not None
        self.errors = self._process.stderr.read().decode()


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()]


def append_of(pid: int) -> int | None:
    """Return a service's append process; None if none runs.

    A child that has not called exec() yet is not returned. The service waits for this call (vfork),
    so stopping such a child would stop the service as well.
    """
    for child in children_of(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if b"append_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    return None


def drop(inbox: Path, name: str, content: bytes) -> Path:
    """Write a file beside an inbox, and rename it into the inbox."""
    outside = inbox.with_name(f"{inbox.name}-arriving")
    outside.mkdir(exist_ok=True)
    path = outside / name.replace("/", "-")
    path.write_bytes(content)
    target = inbox / name
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
    return target
