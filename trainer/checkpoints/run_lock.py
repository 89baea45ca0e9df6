"""The lock file OUT/lock, which prevents two runs from training into the same folder.

The file names its holder: the process of rank 0. The holder's heartbeat sets the file's
modification time every 10 seconds. A new run that finds a lock checks whether the holder is alive:

| holder | the holder is alive if |
|---|---|
| on this machine | its process is alive |
| on another machine, or the folder is a copy | its heartbeat continues |

In the second case, a heartbeat older than STALE_SECONDS (by the storage's own clock) means that the
holder is dead. If the last heartbeat is younger, the new run waits up to STALE_SECONDS for the next
heartbeat. A requeued job does not wait if the dead process was on the same machine.

The lock needs a file system that can create files exclusively (O_EXCL). The lock also uses
flock, if the file system has it.
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
from trainer.checkpoints.new_folder import with_folder_errors
from trainer.distributed.agreement import run_on_main
from trainer.distributed.rank_message import say
from trainer.distributed.topology import Topology

LOCK: Final = "lock"
EVERY_SECONDS = 10.0
"""Time between heartbeats."""
STALE_SECONDS = 120.0
"""Age of the last heartbeat above which a holder counts as dead. The limit is long, because an NFS
client may see a new modification time a minute late."""
_LOOK_SECONDS: Final = 0.5
_LONGEST: Final = 8192
"""Maximum number of bytes to read from a lock file."""
_NO_FLOCK: Final = (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)


class LockError(ThdpackError):
    """The lock belongs to another run, or was removed."""


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holder of a folder's lock: the process of rank 0.

    host: host name of the machine.
    pid: process id.
    since: time when the process took the lock, ISO 8601 in UTC.
    machine: identifier of the booted system and of the PID namespace; "" if unknown.
    started: start time of the process, in clock ticks since the machine booted.
    folder: path of the locked folder. A copy of the folder contains the lock file too, but has
        another path. Therefore the copy counts as locked only if its heartbeat continues.
    token: random string that makes each lock unique.
    """

    host: str
    pid: int
    since: str
    machine: str
    started: str
    folder: str
    token: str

    def lives(self, folder: Path) -> bool | None:
        """Return True if the process is alive and holds this folder, False if it is dead, and None
        if this machine cannot tell.
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
    """Lock of a folder, held by the process of rank 0. On other ranks, the object does nothing."""

    def __init__(self, path: Path, content: bytes = b"") -> None:
        """Args:
        content: content of the lock file; empty on ranks other than 0.
        """
        self._path, self._content = path, content
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="thdpack-lock", daemon=True)
        if content:
            self._thread.start()

    def check(self) -> None:
        """Check that this run still holds the lock. Call this before publishing a file.

        Raises:
            LockError: another run has taken over the folder, or the lock was removed.
        """
        if self._content and not self._is_ours():
            raise LockError(self._lost())

    def release(self) -> None:
        if self._content:
            self._ended.set()
            self._thread.join(timeout=EVERY_SECONDS)
            # If the storage has failed, the lock file stays, and is stale after STALE_SECONDS.
            with suppress(OSError):
                if _read(self._path)[0] == self._content:
                    self._path.unlink()

    def _beat(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            try:
                if not self._is_ours():
                    say(0, self._lost())
                    os._exit(1)  # without clean-up, because another run may already write here
                os.utime(self._path)
            # The storage may recover. If another run has taken over by then, a later heartbeat
            # notices that and ends this run.
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
                f"({_named(_read(self._path)[0])}), which saw no heartbeat of this run: this run "
                "ends"
            )
        return f"{self._path} was removed: this run ends, because another run may start here"


@contextmanager
def run_lock(out: Path, topology: Topology) -> Iterator[RunLock]:
    """Hold the lock of a run's folder, and create the folder if it does not exist. All ranks must
    call this.

    Raises:
        ThdpackError: another run holds the lock, or the folder cannot be written. All ranks raise
            this.
    """
    content: bytes = run_on_main(topology, lambda: with_folder_errors(take, out))
    lock = RunLock(out / LOCK, content if topology.is_main else b"")
    try:
        yield lock
    finally:
        lock.release()


def take(out: Path) -> bytes:
    """Take the lock of a folder for this process. Return the content of the lock file.

    Raises:
        LockError: another run holds the lock.
        OSError: the lock file cannot be written.
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
                    f"{out}: another run writes here ({_named(found)}): wait until it ends, or "
                    "choose another --out"
                )
            _remove(path, found)


def _lives(path: Path, content: bytes) -> bool:
    """Return whether the holder that a lock file names is alive. If only the heartbeat can show
    this, the call may take STALE_SECONDS.
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
    """Remove the lock file of a dead holder, unless another run has replaced the file meanwhile.

    Several new runs may call this at the same time. With flock, only one run at a time compares and
    removes the file. On storage without flock, two runs that start within a few milliseconds may
    both continue. At its next heartbeat, the run that has lost the lock ends.
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
    """Return the file's content and modification time. Each call opens the file again, because an
    NFS client asks the server only when a file is opened.
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
        # The file is incomplete, or another version of thdpack wrote it. Only its heartbeat then
        # shows whether the holder is alive.
        return None


def _named(content: bytes) -> str:
    return str(_parsed(content) or "an unknown process")


def _machine() -> str:
    """Return an identifier of the booted system and this process's PID namespace. Each container
    has its own PID namespace.
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
