"""OUT/lock: one run at a time trains into a folder. The file names its holder, and its modification
time is the holder's heartbeat.

A holder on this machine is alive if its process is. A holder on another machine is alive if its
heartbeat continues. If the last heartbeat is old by the storage's own clock, the holder is dead;
otherwise this process waits for the next heartbeat. So a requeued job never waits for a process of
the same machine, and at most STALE_SECONDS for one of another.

The file system has to create files exclusively. flock is used where it works, but the lock does not
depend on it, because many shared mounts lack it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from schemas.errors import ThdpackError
from schemas.untrusted_json import decoded
from trainer.distributed.agreement import run_on_main
from trainer.distributed.rank_message import say
from trainer.distributed.topology import Topology

LOCK: Final = "lock"
EVERY_SECONDS = 10.0
"""Time between heartbeats."""
STALE_SECONDS = 120.0
"""Age of the last heartbeat at which a holder counts as dead. NFS clients may see a file's time a
minute late."""
_LOOK_SECONDS: Final = 0.5
_LONGEST: Final = 8192
"""Bytes of a lock file to read."""
_NO_FLOCK: Final = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)


class LockError(ThdpackError):
    """Another run trains into the folder."""


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Process of rank 0 that holds a folder.

    machine: identifies the running system and its process ids; "" if that is unknown.
    started: start time of the process, in ticks of that machine.
    folder: the folder that it holds. A copied folder contains a copy of the lock.
    """

    host: str
    pid: int
    since: str
    machine: str
    started: str
    folder: str
    token: str

    def lives(self, folder: Path) -> bool | None:
        """Return whether the process is alive and holds this folder; None if this machine cannot
        tell.
        """
        if not self.machine or self.machine != _machine():
            return None
        if _started(self.pid) != self.started:
            return False
        with suppress(OSError):
            return os.path.samefile(folder, self.folder) or None
        return None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class RunLock:
    """A folder that is held by this process or, on other ranks, by rank 0's."""

    def __init__(self, path: Path, content: bytes = b"") -> None:
        """content: content of the lock file; empty on ranks other than 0, which hold nothing
        themselves."""
        self._path, self._content = path, content
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="thdpack-lock", daemon=True)
        if content:
            self._thread.start()

    def check(self) -> None:
        """Check that the lock is still ours. To be called before something is published.

        Raises:
            LockError: another run has taken the folder over.
        """
        if self._content and not self._is_ours():
            raise LockError(self._lost())

    def release(self) -> None:
        if self._content:
            self._ended.set()
            self._thread.join(timeout=EVERY_SECONDS)
            # the storage is gone. The heartbeat ends too, which frees the folder in the same way.
            with suppress(OSError):
                if _read(self._path)[0] == self._content:
                    self._path.unlink()

    def _beat(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            try:
                if not self._is_ours():
                    say(0, self._lost())
                    os._exit(1)  # at once: two runs must not write into one folder
                os.utime(self._path)
            # The storage may come back. If it does not, another run takes over, which
            # a later heartbeat notices.
            except OSError:
                continue

    def _is_ours(self) -> bool:
        with suppress(FileNotFoundError):
            return _read(self._path)[0] == self._content
        return False

    def _lost(self) -> str:
        with suppress(OSError):
            return (
                f"{self._path.parent} was taken over by another run "
                f"({_named(_read(self._path)[0])}), which saw no heartbeat of this one: this run "
                "ends"
            )
        return f"{self._path} was removed: this run ends, because another one may start"


@contextmanager
def run_lock(out: Path, topology: Topology) -> Iterator[RunLock]:
    """Hold a run's folder, which is created if it does not exist. To be called by all ranks.

    Raises:
        ValueError: another run holds it, or it cannot be written; raised on all ranks.
    """
    content: bytes = run_on_main(topology, lambda: take(out))
    lock = RunLock(out / LOCK, content if topology.is_main else b"")
    try:
        yield lock
    finally:
        lock.release()


def take(out: Path) -> bytes:
    """Take a folder for this process and return the content of its lock file.

    Raises:
        LockError: another run holds it.
        OSError: it cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / LOCK
    now = datetime.now(UTC).isoformat(" ", "seconds")
    ours = Holder(
        socket.gethostname(),
        os.getpid(),
        now,
        _machine(),
        _started(os.getpid()),
        str(out.resolve()),
        secrets.token_hex(8),
    )
    content = msgspec.json.encode(ours)
    while True:
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with open(descriptor, "wb") as file:
                file.write(content)
            return content
        with suppress(FileNotFoundError):
            found = _read(path)[0]
            if _lives(path, found):
                raise LockError(
                    f"{out}: another run trains here ({_named(found)}): wait until it ends, or "
                    "choose another --out"
                )
            _remove(path, found)


def _lives(path: Path, content: bytes) -> bool:
    """Return whether the holder that a lock file names is alive. Takes up to STALE_SECONDS for a
    holder on another machine.
    """
    holder = _parsed(content)
    seen = holder.lives(path.parent) if holder else None
    if seen is not None:
        return seen
    _, beat = _read(path)
    if _now(path.parent) - beat > STALE_SECONDS:
        return False
    say(
        0,
        f"{path.parent} was held by {_named(content)} a moment ago: waiting up to "
        f"{STALE_SECONDS:.0f} s to see whether it still runs",
    )
    deadline = time.monotonic() + STALE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        if _read(path) != (content, beat):
            return True
    return False


def _remove(path: Path, dead: bytes) -> None:
    """Remove the lock of a dead holder, but not a lock that has replaced it meanwhile.

    Several starts may do this at the same time. flock lets one of them at a time compare and
    remove. On storage without flock, two starts within the same milliseconds may both proceed; then
    the heartbeat of one finds the lock of the other, and ends its run.
    """
    with open(path, "rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_SECONDS / 50)
            return
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)) and file.read(_LONGEST) == dead:
            path.unlink()


def _read(path: Path) -> tuple[bytes, float]:
    """Return content and modification time. The file is opened each time, because only then does
    NFS ask the server.
    """
    with open(path, "rb") as file:
        return file.read(_LONGEST), os.fstat(file.fileno()).st_mtime


def _now(folder: Path) -> float:
    """Return the time of the storage's own clock, in seconds."""
    probe = folder / f"{LOCK}.{secrets.token_hex(8)}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()


def _parsed(content: bytes) -> Holder | None:
    try:
        return decoded(content, Holder)
    except ValueError:
        # it is being written, or another version wrote it; only its heartbeat shows if the holder
        # is alive
        return None


def _named(content: bytes) -> str:
    return str(_parsed(content) or "an unknown process")


def _machine() -> str:
    """Return an identifier of the running system and its space of process ids: containers have
    their own.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino} {socket.gethostname()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return the start time of a process, in clock ticks since boot; "" if no such process is
    alive."""
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else numbers[18]
