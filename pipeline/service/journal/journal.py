"""Write the journal, and replay it.

On a disk, the journal is a file. In a store, each write is a separate object. A long journal is
replaced by a snapshot: one line with the whole state.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from pipeline.service.errors import RetryError
from pipeline.service.inbox.store_listing import list_objects
from pipeline.service.journal.ledger import Ledger, Line
from pipeline.storage.atomic_write import sync_folder, written_atomically
from pipeline.storage.object_folder import ObjectFolder
from pipeline.storage.retries import ClosedError
from schemas.errors import ThdpackError

NAME: Final = "journal.jsonl"
_MOST_BYTES: Final = 4 << 20
"""Size above which a local journal is replaced by a snapshot."""
_MOST_OBJECTS: Final = 200
"""Number of objects above which a journal in a store is replaced by a snapshot."""


class Journal(Protocol):
    """A durable list of lines."""

    def replay(self) -> Ledger:
        """Return the state after all lines.

        Raises:
            RetryError: the journal cannot be read now.
        """
        ...

    def write(self, ledger: Ledger, lines: Sequence[Line]) -> None:
        """Make lines durable, then apply them to the state.

        Raises:
            RetryError: the lines cannot be written now. The state is unchanged.
        """
        ...


@dataclass(slots=True)
class LocalJournal:
    """A file of JSON lines in a folder. See `Journal`."""

    folder: Path
    _size: int = 0

    @property
    def _path(self) -> Path:
        return self.folder / NAME

    def replay(self) -> Ledger:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = self._path.read_bytes() if self._path.exists() else b""
            whole = content.rfind(b"\n") + 1
            if whole < len(content):  # a killed service or a full disk left half a line
                os.truncate(self._path, whole)
        except OSError as error:
            raise RetryError(f"cannot read {self._path}: {error.strerror}") from error
        self._size = whole
        return _replayed(content[:whole].splitlines(), str(self._path))

    def write(self, ledger: Ledger, lines: Sequence[Line]) -> None:
        content = _text(lines)
        try:
            new = not self._path.exists()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                if os.fstat(descriptor).st_size < self._size:  # somebody removed the journal
                    content = _text([ledger.snapshot()]) + content
                    self._size = 0
                os.ftruncate(descriptor, self._size)  # remove what a failed write left
                done = 0
                while done < len(content):
                    done += os.pwrite(descriptor, content[done:], self._size + done)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if new:
                sync_folder(self.folder)
        except OSError as error:
            raise RetryError(f"cannot write {self._path}: {error.strerror}") from error
        self._size += len(content)
        for line in lines:
            ledger.apply(line)
        if self._size > _MOST_BYTES:
            self._compact(ledger)

    def _compact(self, ledger: Ledger) -> None:
        content = _text([ledger.snapshot()])
        try:
            with written_atomically(self._path, scratch=self.folder) as file:
                file.write(content)
            self._size = len(content)
            sync_folder(self.folder)
        except (OSError, ThdpackError):
            return  # the long journal, or the new one, is valid


@dataclass(slots=True)
class ObjectJournal:
    """Objects of JSON lines under a prefix, in the order of their names. See `Journal`."""

    folder: ObjectFolder
    _names: list[str] = field(default_factory=list)

    def replay(self) -> Ledger:
        try:
            self._names = sorted(
                name for name in list_objects(self.folder.url) if name.endswith(".jsonl")
            )
            lines = [
                line
                for name in self._names
                for line in (self.folder.content(name) or b"").split(b"\n")
            ]
        except (ThdpackError, ClosedError) as error:
            raise RetryError(f"cannot read the journal: {error}") from error
        return _replayed(lines, self.folder.url)

    def write(self, ledger: Ledger, lines: Sequence[Line]) -> None:
        self._put(_text(lines))
        for line in lines:
            ledger.apply(line)
        if len(self._names) > _MOST_OBJECTS:
            old = list(self._names)
            self._put(_text([ledger.snapshot()]))
            try:
                for name in old:
                    self.folder.remove(name)
            except (ThdpackError, ClosedError):
                return  # the old objects come before the snapshot, so that they do no harm
            self._names = [name for name in self._names if name not in old]

    def _put(self, content: bytes) -> None:
        number = time.time_ns()
        if self._names:  # the clock may have been set back
            number = max(number, int(self._names[-1].partition("-")[0]) + 1)
        name = f"{number:020}-{os.getpid()}.jsonl"
        try:
            with self.folder.written(name) as file:
                file.write(content)
        except (ThdpackError, ClosedError) as error:
            raise RetryError(f"cannot write the journal: {error}") from error
        self._names.append(name)


def _text(lines: Iterable[Line]) -> bytes:
    # ASCII with escapes, because a name may hold bytes that are not UTF-8
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def _replayed(lines: Iterable[bytes], where: str) -> Ledger:
    ledger = Ledger()
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            ledger.apply(json.loads(line))
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise ThdpackError(
                f"{where}:{number}: this line of the journal is damaged: remove the journal. The "
                "service then forgets its counts, but no file: it takes what is in the inbox"
            ) from error
    return ledger
