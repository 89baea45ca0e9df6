"""Decide when a file in the inbox is complete.

A file is complete if one of these conditions holds:

- It has been unchanged for the settle time.
- A checksum file stands beside it (NAME.sha256 or NAME.md5), and the file has this checksum. If a
  settled file has another checksum, it is refused.

The settle time is measured with this machine's monotonic clock. The measurement begins when the
service first sees this version of the file. If the service has not seen the file before, the age of
the file's time stamp counts, too. An old file is therefore complete immediately. Time stamps in the
future are ignored.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pipeline.service.inbox.inbox import CHECKSUMS, Candidate, Inbox

_MOST_CHECKSUM_BYTES = 64 << 10
_DIGITS = {".sha256": 64, ".md5": 32}


@dataclass(slots=True)
class Seen:
    """What is known about a file.

    first: monotonic time of the file's last change before the service first saw it
    since: monotonic time since which the file is unchanged
    scans: number of scans that found this version
    checksum: version of the checksum file, and whether the content has this checksum
    """

    candidate: Candidate
    first: float
    since: float
    scans: int = 1
    checksum: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sorted:
    """The files of one scan.

    complete: files to take, in order of arrival
    waiting: files that may still change
    refused: files that can never be taken; `Candidate.refusal` has the reason
    """

    complete: tuple[Seen, ...]
    waiting: tuple[Seen, ...]
    refused: tuple[Candidate, ...]


@dataclass(slots=True)
class Completeness:
    """Follows the files of an inbox from scan to scan.

    settle: settle time in seconds
    """

    inbox: Inbox
    settle: float
    clock: Callable[[], float] = time.monotonic
    _seen: dict[str, Seen] = field(default_factory=dict)

    def update(self, found: Mapping[str, Candidate]) -> Sorted:
        """Sort the files of a scan.

        Raises:
            RetryError: a file cannot be read now.
        """
        now, wall = self.clock(), time.time()
        self._seen = {
            name: self._followed(candidate, now, wall)
            for name, candidate in found.items()
            if not _is_checksum(name)
        }
        complete: list[Seen] = []
        waiting: list[Seen] = []
        refused: list[Seen] = []
        for name, seen in self._seen.items():
            settled = now - seen.since >= self.settle
            if seen.candidate.refusal:
                (waiting if not settled else refused).append(seen)
                continue
            beside = next(
                (found[name + suffix] for suffix in CHECKSUMS if name + suffix in found), None
            )
            problem = None if beside is None else self._problem(seen, beside, settled)
            if problem is None:
                (complete if settled else waiting).append(seen)
            elif not problem:
                complete.append(seen)
            elif settled and now - self._since(beside, wall, now) >= self.settle:
                seen.candidate = replace(seen.candidate, refusal=problem)
                refused.append(seen)
            else:
                waiting.append(seen)
        complete.sort(key=lambda seen: (seen.first, seen.candidate.name))
        return Sorted(
            complete=tuple(complete),
            waiting=tuple(waiting),
            refused=tuple(seen.candidate for seen in refused),
        )

    def forget(self, name: str) -> None:
        """Forget a file, so that its settle time starts again."""
        self._seen.pop(name, None)

    def _followed(self, candidate: Candidate, now: float, wall: float) -> Seen:
        before = self._seen.get(candidate.name)
        if before is None:
            since = self._since(candidate, wall, now)
            return Seen(candidate, first=since, since=since)
        if before.candidate.version != candidate.version:
            return Seen(candidate, first=before.first, since=now)
        before.scans += 1
        return before

    @staticmethod
    def _since(candidate: Candidate | None, wall: float, now: float) -> float:
        """Return the monotonic time of a file's last change."""
        age = 0.0 if candidate is None else wall - candidate.changed
        return now - max(age, 0.0)

    def _problem(self, seen: Seen, beside: Candidate, settled: bool) -> str | None:
        """Compare a file with its checksum file.

        Returns:
            "" if they agree, a message if not, None if there is no result yet.
        """
        if seen.scans < 2 and not settled:
            return None  # a growing file would be hashed at every scan
        if seen.checksum is not None and seen.checksum[0] == beside.version:
            return seen.checksum[1]
        problem = self._compare(seen.candidate.name, beside)
        if problem is not None:
            seen.checksum = (beside.version, problem)
        return problem

    def _compare(self, name: str, beside: Candidate) -> str | None:
        suffix = next(suffix for suffix in CHECKSUMS if beside.name.endswith(suffix))
        short = beside.name.rpartition("/")[2]
        if beside.bytes > _MOST_CHECKSUM_BYTES:
            return f"{short} beside it is too large for a checksum file"
        text = bytearray()
        digest = hashlib.new(suffix[1:], usedforsecurity=False)
        try:
            self.inbox.read(beside.name, text.extend)
            wanted = re.search(rb"\b[0-9a-fA-F]{%d}\b" % _DIGITS[suffix], bytes(text))
            if wanted is None:
                return f"{short} beside it holds no {suffix[1:]} checksum"
            self.inbox.read(name, digest.update)
        except FileNotFoundError:
            return None
        except PermissionError:
            return "permission denied"
        expected = wanted[0].decode().lower()
        if digest.hexdigest() == expected:
            return ""
        return (
            f"its {suffix[1:]} is {digest.hexdigest()}, but {short} says {expected}: "
            "the file is incomplete or damaged: copy it again"
        )


def _is_checksum(name: str) -> bool:
    return name.endswith(CHECKSUMS)
