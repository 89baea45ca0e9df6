"""A prefix of an object store as the inbox. To move an object, copy it within the store, and remove
the original."""

from __future__ import annotations

import calendar
import datetime
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.service.errors import RetryError
from pipeline.service.inbox.inbox import (
    ERROR_SUFFIX,
    Candidate,
    free_name,
    is_own,
    is_temporary,
    with_suffix,
)
from pipeline.service.inbox.store_listing import list_objects
from pipeline.storage.interrupt import INTERRUPTED
from pipeline.storage.object_folder import ObjectFolder
from pipeline.storage.retries import ClosedError, RemoteStore, call_with_deadline
from pipeline.storage.s3.answers import reason_of
from pipeline.storage.urls import file_system, is_missing, version_tag_of
from schemas.errors import ThdpackError


@dataclass(frozen=True, slots=True)
class StoreInbox:
    """A prefix of a store. See `Inbox` for its methods."""

    url: str

    def where(self, name: str = "") -> str:
        return f"{self.url}/{name}" if name else self.url

    def scan(self) -> dict[str, Candidate]:
        return {
            name: Candidate(
                name=name,
                bytes=int(info.get("size") or 0),
                version=version_tag_of(info),
                changed=_changed(info),
                refusal="" if info.get("size") else "the file is empty",
            )
            for name, info in list_objects(self.url).items()
            if not is_own(name) and not is_temporary(name)
        }

    def version(self, name: str) -> str | None:
        with _retried(f"cannot reach {self.where(name)}"):
            return ObjectFolder(self.url).version_tag(name)

    def read(self, name: str, on_block: Callable[[bytes], object]) -> None:
        try:
            for block in RemoteStore(self.url, INTERRUPTED).pieces(name):
                on_block(block)
        except FileNotFoundError as error:
            if is_missing(error):
                raise
            raise RetryError(self._unread(name, error)) from error
        except PermissionError:
            raise
        except Exception as error:  # each store has its own types of errors
            raise RetryError(self._unread(name, error)) from error

    def _unread(self, name: str, error: Exception) -> str:
        return f"cannot read {self.where(name)}: {reason_of(error, self.url)}"

    def move(self, name: str, version: str, folder: str, reason: str = "") -> str | None:
        with _retried(f"cannot move {self.where(name)} to {folder}/"):
            here = ObjectFolder(self.url)
            if here.version_tag(name) != version:
                return None
            content = f"{reason}\n".encode(errors="backslashreplace")
            free = free_name(
                f"{folder}/{name}",
                lambda other: (
                    # a copy with the same tag is left by a move that was interrupted
                    here.version_tag(other) not in (None, version)
                    or (bool(reason) and _differs(here, with_suffix(other, ERROR_SUFFIX), content))
                ),
            )
            if reason:
                with here.written(with_suffix(free, ERROR_SUFFIX)) as file:
                    file.write(content)
            fs, source = file_system(self.where(name))
            target = file_system(self.where(free))[1]
            size = int(version.partition("-")[0])
            RemoteStore(self.url, INTERRUPTED).with_retries(
                name, lambda: call_with_deadline(lambda: fs.copy(source, target), size)
            )
            if here.version_tag(name) != version:
                return None  # replaced during the copy: the new object stays
            here.remove(name)
        return free

    def sync(self, names: Iterable[str]) -> None:
        """Do nothing: a copied object is durable."""


def _differs(folder: ObjectFolder, name: str, content: bytes) -> bool:
    """Return whether an object exists and has other content."""
    size = folder.size(name)
    return size is not None and (size != len(content) or folder.content(name) != content)


def _changed(info: dict[str, Any]) -> float:
    """Return the Unix time of an object's last change; the current time if the store gives none."""
    for key in ("LastModified", "last_modified", "mtime", "created", "updated"):
        found = info.get(key)
        if isinstance(found, datetime.datetime):
            return calendar.timegm(found.utctimetuple())
        if isinstance(found, int | float):
            return float(found)
    return time.time()


@contextmanager
def _retried(what: str) -> Iterator[None]:
    try:
        yield
    except RetryError:
        raise
    except (ThdpackError, ClosedError, OSError) as error:
        raise RetryError(f"{what}: {error}") from error
