"""Move refused files to rejected/, each with a text file that holds the reason."""

from __future__ import annotations

import time
from dataclasses import asdict

from pipeline.service.errors import RetryError
from pipeline.service.event_log import log
from pipeline.service.inbox.inbox import CHECKSUMS, REJECTED, Candidate, Inbox
from pipeline.service.journal.journal import Journal
from pipeline.service.journal.ledger import Ledger, Rejection
from schemas.text.redact import without_credentials


class Rejecting:
    """Refuses files. The journal has a line for each, which is written before the file is moved."""

    def __init__(self, inbox: Inbox, journal: Journal, ledger: Ledger) -> None:
        self._inbox, self._journal, self._ledger = inbox, journal, ledger
        # if the service was killed, only its last refused file may still be in its old place
        self._unmoved = {(last.name, last.version): last for last in list(ledger.rejections)[-1:]}

    def reject(self, name: str, size: int, version: str, reason: str) -> None:
        """Refuse a file.

        Raises:
            RetryError: the journal cannot be written now.
        """
        rejection = Rejection(
            time=time.time(),
            name=name,
            bytes=size,
            version=version,
            reason=without_credentials(reason),
        )
        self._journal.write(self._ledger, [{"event": "rejected", "rejection": asdict(rejection)}])
        log("rejected", file=name, reason=reason)
        self._unmoved[name, version] = rejection
        self._move(rejection)

    def without_rejected(self, found: dict[str, Candidate]) -> dict[str, Candidate]:
        """Return the files of a scan, except refused files that could not be moved yet. Also try
        again to move those files."""
        for name, version in list(self._unmoved):
            if name in found and found[name].version == version:
                self._move(self._unmoved[name, version])
                found = {other: each for other, each in found.items() if other != name}
            else:
                del self._unmoved[name, version]
        return found

    def _move(self, rejection: Rejection) -> None:
        """Move a file and its checksum files, and write the reason beside it."""
        name = rejection.name
        try:
            self._inbox.move(name, rejection.version, REJECTED, rejection.reason)
            for suffix in CHECKSUMS:
                version = self._inbox.version(name + suffix)
                if version is not None:
                    self._inbox.move(name + suffix, version, REJECTED)
        except RetryError as error:
            log("not moved", file=name, reason=str(error))
            return
        self._unmoved.pop((name, rejection.version), None)
