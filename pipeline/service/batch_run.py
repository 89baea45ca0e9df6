"""Finish the open batch (the files of one append): append the files, move them, write the report,
and run the hook (the command of --on-generation).

Each step can be repeated. After a restart, the batch continues with the first step that the journal
does not have.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Final

from pipeline.service.after_commit import AfterCommit
from pipeline.service.children.append_child import AppendChild
from pipeline.service.children.append_request import Appended, AppendRequest, Failed, Refused
from pipeline.service.errors import RetryError, StopRequestedError
from pipeline.service.event_log import log
from pipeline.service.inbox.inbox import CHECKSUMS, TAKEN, Inbox
from pipeline.service.inbox.local_inbox import LocalInbox
from pipeline.service.journal.journal import Journal
from pipeline.service.journal.ledger import Commit, Ledger, OpenBatch
from pipeline.service.options import WatchOptions
from pipeline.service.rejecting import Rejecting
from pipeline.service.status import Board, Working
from pipeline.service.stop_signal import StopSignal
from pipeline.storage.retries import AT_ONCE

_CRASHES: Final = 3
"""If the append process crashes this often, the batch is divided. If the batch has only one file,
this file is refused."""
_VANISHED: Final = "vanished before it was read"
_CHANGED: Final = "changed while it was read"


@dataclass(slots=True)
class BatchRun:
    """Finishes open batches."""

    options: WatchOptions
    board: Board
    stop: StopSignal
    inbox: Inbox
    journal: Journal
    ledger: Ledger
    rejecting: Rejecting
    after_commit: AfterCommit
    _crashes: Counter[int] = field(default_factory=Counter)
    _refused_before: set[tuple[str, str]] = field(default_factory=set)
    """Names and versions of files that an append refused once. For a file in a store, or one that
    could not be read, only the second refusal counts: the first may have another cause, such as a
    store that fails for a while."""

    def run(self, batch: OpenBatch) -> None:
        """Finish a batch.

        Raises:
            RetryError: a step failed, perhaps only temporarily.
            StopRequestedError: the service must stop.
        """
        self._show(batch, "append")
        if batch.commit is None:
            self._append(batch)
        commit = batch.commit
        if self.ledger.batch is None:  # all files were rejected, or have vanished
            self._show_end()
            log("empty", batch=batch.number)
            return
        if commit is None:
            return  # files were refused: the next round appends the others
        self._show(batch, "move files")
        self._move(batch, commit)
        self._refuse_stopping()
        failed = {"report_failed": 0, "hook_failed": 0}
        if commit.files and not self.options.no_report:
            self._show(batch, "write the report")
            failed["report_failed"] = self.after_commit.report(commit)
        if commit.files and self.options.on_generation is not None:
            self._show(batch, "run the hook")
            failed["hook_failed"] = self.after_commit.hook(commit)
        self.journal.write(self.ledger, [{"event": "finished", "number": batch.number, **failed}])
        self._show_end()
        log("finished", batch=batch.number)

    def _show_end(self) -> None:
        """Show the end of a batch. Called before it is logged: who reads of it finds it counted."""
        self.board.show_ledger(self.ledger, working=None)

    def _append(self, batch: OpenBatch) -> None:
        """Append the files of a batch, and write the result to the journal."""
        names = {self.inbox.where(name): name for name in batch.files}
        child = AppendChild(lambda stage: self._show(batch, stage))
        outcome = child.run(self._request(batch), self.stop)
        match outcome:
            case Appended():
                self._committed(batch, outcome, names, child.seconds)
            case Refused():
                self._refused(batch, outcome, names)
            case Failed():
                raise RetryError(outcome.message, busy=outcome.busy)
            case _:
                self._crashed(batch, child.ending)

    def _request(self, batch: OpenBatch) -> AppendRequest:
        options = self.options
        return AppendRequest(
            command=["thdpack", "watch", options.inbox, "--dataset", options.dataset],
            dataset=options.dataset,
            files={self.inbox.where(name): size for name, (size, _) in batch.files.items()},
            parent=batch.parent,
            exclude=options.exclude,
            clusters=options.clusters,
            metadata=options.metadata,
            source_release=options.source_release,
            executor=options.executor,
            ray_address=options.ray_address,
            workers=options.workers,
            memory=options.memory,
            allow_nucleotides=options.allow_nucleotides,
            allow_alignment=options.allow_alignment,
        )

    def _committed(
        self,
        batch: OpenBatch,
        outcome: Appended,
        names: dict[str, str],
        seconds: dict[str, float],
    ) -> None:
        duplicates = {names[url]: earlier for url, earlier in outcome.duplicates.items()}
        commit = Commit(
            time=time.time(),
            generation=outcome.generation,
            digest=outcome.digest,
            files=outcome.added,
            bytes=sum(size for name, (size, _) in batch.files.items() if name not in duplicates),
            records=outcome.records,
            kept=outcome.kept,
            duplicates=duplicates,
            seconds=seconds,
        )
        of = {"number": batch.number, "writer": batch.writer}
        self.journal.write(self.ledger, [{"event": "committed", **of, "commit": asdict(commit)}])
        self._crashes.clear()
        self._refused_before.clear()
        self.board.show_ledger(self.ledger, totals_of_dataset=outcome.dataset, trouble="")
        for name, earlier in duplicates.items():
            log("duplicate", file=name, duplicate_of=earlier)
        log(
            "committed" if commit.files else "unchanged",
            batch=batch.number,
            generation=commit.generation,
            digest=commit.digest,
            files=commit.files,
            duplicates=len(duplicates),
            records=commit.records,
            kept=commit.kept,
            seconds=round(sum(seconds.values()), 3),
        )

    def _refused(self, batch: OpenBatch, outcome: Refused, names: dict[str, str]) -> None:
        """Refuse the files that an append refused. The others stay in the batch.

        A file is not refused if it has changed or vanished, or if it cannot be reached now.
        """
        messages = {
            names[url]: message for url, message in outcome.messages.items() if url in names
        }
        if not messages:
            self._divide(batch, "; ".join(outcome.messages.values()))
        for name, message in messages.items():
            size, version = batch.files[name]
            now = self.inbox.version(name)
            if now != version:
                self._release(name, _VANISHED if now is None else _CHANGED)
                continue
            if not isinstance(self.inbox, LocalInbox) or message.startswith("cannot be read"):
                self._check_readable(name)
                if (name, version) not in self._refused_before:
                    self._refused_before.add((name, version))
                    continue
            self.rejecting.reject(name, size, version, message)

    def _check_readable(self, name: str) -> None:
        """Read a file that an append could not read.

        Raises:
            RetryError: the store or the disk fails now, so the file itself may be intact.
        """
        try:
            self.inbox.read(name, lambda block: None)
        except (FileNotFoundError, PermissionError):
            return

    def _crashed(self, batch: OpenBatch, ending: str) -> None:
        """Divide a batch that makes the append process crash. If it has only one file, refuse it.

        Raises:
            RetryError: the process has crashed less than _CRASHES times.
        """
        self._crashes[batch.number] += 1
        if self._crashes[batch.number] < _CRASHES:
            raise RetryError(f"the append process ended unexpectedly: {ending}")
        self._divide(batch, f"the append process ended unexpectedly: {ending}")

    def _divide(self, batch: OpenBatch, reason: str) -> None:
        """Leave the second half of a batch to a later batch. If the batch has only one file, refuse
        this file."""
        files = list(batch.files.items())
        if len(files) == 1:
            [(name, (size, version))] = files
            self.rejecting.reject(name, size, version, reason)
            return
        for name, _ in files[len(files) // 2 :]:
            self._release(name, "left to a later batch, because this one fails")

    def _release(self, name: str, reason: str) -> None:
        self.journal.write(self.ledger, [{"event": "released", "name": name}])
        log("released", file=name, reason=reason)

    def _move(self, batch: OpenBatch, commit: Commit) -> None:
        """Move the files of a batch to taken/, except those that have changed since the append read
        them."""
        folder = f"{TAKEN}/{commit.generation}"

        def move(name: str, version: str) -> list[str]:
            moved = [self.inbox.move(name, version, folder)]
            for suffix in CHECKSUMS:
                beside = self.inbox.version(name + suffix)
                if beside is not None and moved != [None]:
                    moved.append(self.inbox.move(name + suffix, beside, folder))
            return [name for name in moved if name is not None]

        with ThreadPoolExecutor(1 if isinstance(self.inbox, LocalInbox) else AT_ONCE) as threads:
            every = list(threads.map(lambda item: move(item[0], item[1][1]), batch.files.items()))
        self.inbox.sync(name for names in every for name in names)

    def _show(self, batch: OpenBatch, stage: str) -> None:
        before = self.board.get().working
        same = before is not None and before.number == batch.number
        log("stage", batch=batch.number, stage=stage)
        self.board.change(
            state=f"batch {batch.number}: {stage}",
            working=Working(
                number=batch.number,
                files=len(batch.files),
                bytes=sum(size for size, _ in batch.files.values()),
                since=before.since if same and before is not None else time.time(),
                stage=stage,
            ),
        )

    def _refuse_stopping(self) -> None:
        if self.stop.requested.is_set():
            raise StopRequestedError()
