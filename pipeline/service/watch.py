"""`thdpack watch`: the loop of the service.

1. Wait until no other service has the dataset. Replay the journal.
2. If the journal has an open batch, finish it (`batch_run.py`): append its files, move them to
   taken/, write the report, and run the hook.
3. Scan the inbox. Refuse files that can never be taken. If the complete files are large, many or
   old enough, write a new batch to the journal, and continue with step 2.
4. If a step fails, perhaps only temporarily, repeat it after a pause. Pauses grow to a minute.

A file is moved only after a generation has it. An append skips content that the dataset already
has. Therefore no file is lost or taken twice, whenever the service is killed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Final

from pipeline.service.after_commit import AfterCommit
from pipeline.service.batch_run import BatchRun
from pipeline.service.batches import batch_due
from pipeline.service.completeness import Completeness, Seen, Sorted
from pipeline.service.dataset_totals import dataset_totals
from pipeline.service.errors import RetryError, StopRequestedError
from pipeline.service.event_log import choose_format, log, log_text
from pipeline.service.locations import inbox_of, journal_of, refuse_nested, service_folder
from pipeline.service.options import WatchOptions
from pipeline.service.rejecting import Rejecting
from pipeline.service.sole_writer import sole_writer
from pipeline.service.status import Board, Queued, Status
from pipeline.service.stop_signal import StopSignal
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.retries import ClosedError
from schemas.errors import ThdpackError
from schemas.text.phrases import plural

_LOCAL_POLL: Final = 1.0
_STORE_POLL: Final = 10.0
_SCAN_SHARE: Final = 0.05
"""Maximum share of the time in which the service scans the inbox."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_LONGEST_BUSY: Final = 5.0
"""Longest pause in seconds while another process writes the dataset."""
_QUEUE_SHOWN: Final = 100


def watch(options: WatchOptions) -> int:
    """Run the service until it is asked to stop; with --once, until the inbox is empty.

    Returns:
        0; 1 if --once was given, and a file was rejected.
    Raises:
        OptionError: inbox and dataset contain each other, or a package is missing.
        ThdpackError: the dataset does not exist; with --once, also any other error.
    """
    choose_format(as_json=options.log_json)
    refuse_nested(options.inbox, options.dataset)
    read_manifest(options.dataset)  # if the folder is not a dataset, the error explains why
    stop = StopSignal()
    board = Board(Status(inbox=options.inbox, dataset=options.dataset, started=time.time()))
    service = _Watch(options, board, stop)  # refuses a missing inbox before the server listens
    with ExitStack() as stack:
        stack.enter_context(stop.installed())
        if options.serves_http:
            from pipeline.service.web.server import serving  # needs the extra `service`

            stack.enter_context(serving(options, board))
        try:
            return service.run()
        except StopRequestedError:
            return 0
        finally:
            log("stopped")


class _Watch:
    """One run of the service."""

    def __init__(self, options: WatchOptions, board: Board, stop: StopSignal) -> None:
        self._options, self._board, self._stop = options, board, stop
        self._inbox = inbox_of(options.inbox)
        self._journal = journal_of(options.dataset)
        self._completeness = Completeness(self._inbox, options.settle)
        self._writer = uuid.uuid4().hex
        remote = "://" in options.inbox and not options.once
        self._poll = _STORE_POLL if remote else _LOCAL_POLL
        self._settling = 0
        self._has_scanned = False
        self._once_until = time.monotonic() + options.settle + 2 * self._poll

    def run(self) -> int:
        """Run until the end of the service; return the exit code."""
        folder = service_folder(self._options.dataset)
        with sole_writer(folder, self._stop, self._wait_for_holder):
            self._retried(self._start)
            rejected_before = self._ledger.totals.rejected
            while not self._stop.requested.is_set():
                pause = self._retried(self._round)
                if pause is None:
                    break
                if self._stop.wait(pause):
                    break
        return int(self._options.once and self._ledger.totals.rejected > rejected_before)

    def _wait_for_holder(self, holder: str) -> None:
        self._board.change(state="waiting for another service", trouble=f"waiting: {holder}")
        log("waiting", reason=holder)

    def _start(self) -> float:
        """Read the journal and the manifest."""
        options = self._options
        self._ledger = self._journal.replay()
        self._rejecting = Rejecting(self._inbox, self._journal, self._ledger)
        self._batches = BatchRun(
            options,
            self._board,
            self._stop,
            self._inbox,
            self._journal,
            self._ledger,
            self._rejecting,
            AfterCommit(options, self._board, self._stop, self._ledger),
        )
        # before the service is ready, so that its counters never begin at 0 after a restart
        totals = dataset_totals(read_manifest(options.dataset))
        self._board.show_ledger(self._ledger, totals_of_dataset=totals)
        batch = self._ledger.batch
        log(
            "started",
            inbox=options.inbox,
            dataset=options.dataset,
            open_batch=None if batch is None else batch.number,
        )
        return 0.0

    def _round(self) -> float | None:
        """Work on the open batch, or scan the inbox and open a batch.

        Returns:
            Pause in seconds before the next round; None if the service ends (--once).
        """
        if self._ledger.batch is not None:
            self._batches.run(self._ledger.batch)
            return 0.0
        started = time.monotonic()
        found = self._rejecting.without_rejected(self._inbox.scan())
        files = self._completeness.update(found)
        for refused in files.refused:
            self._rejecting.reject(refused.name, refused.bytes, refused.version, refused.refusal)
        self._show_queue(files)
        if not self._has_scanned and not (files.complete or files.waiting or files.refused):
            log("no files", inbox=self._options.inbox, once=self._options.once)
        self._has_scanned = True
        if len(files.waiting) != self._settling:
            self._settling = len(files.waiting)
            if self._settling:
                log_text(f"waiting for {plural(self._settling, 'file')} to settle")
        now = time.monotonic()
        last_call = self._options.once and (not files.waiting or now > self._once_until)
        batch = batch_due(
            files.complete,
            now=now,
            batch_bytes=self._options.batch_mb * 1e6,
            batch_age=0.0 if last_call else self._options.batch_age,
        )
        if batch:
            self._open(batch)
            self._show_queue(files, {each.candidate.name for each in batch})
            return 0.0
        if last_call:
            return None
        return max(self._poll, (now - started) / _SCAN_SHARE)

    def _open(self, batch: list[Seen]) -> None:
        """Write a batch to the journal."""
        totals = dataset_totals(read_manifest(self._options.dataset))
        number = self._ledger.totals.batches + 1
        files = [
            [each.candidate.name, each.candidate.bytes, each.candidate.version] for each in batch
        ]
        opened = {"number": number, "parent": totals.generation, "writer": self._writer}
        self._journal.write(self._ledger, [{"event": "batch", **opened, "files": files}])
        log(
            "batch",
            number=number,
            files=len(files),
            bytes=sum(each.candidate.bytes for each in batch),
        )

    def _retried(self, step: Callable[[], float | None]) -> float | None:
        """Repeat a step until it succeeds; return its result.

        Raises:
            StopRequestedError: the service must stop.
            ThdpackError: --once was given, and the step failed.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                done = step()
                self._show("")
                return done
            except (ThdpackError, ClosedError, OSError) as error:
                if self._stop.requested.is_set():
                    raise StopRequestedError() from error
                busy = isinstance(error, RetryError) and error.busy
                if self._options.once and not busy:
                    raise
                pause = min(pause, _LONGEST_BUSY) if busy else pause
                self._report_trouble(str(error), pause, busy=busy)
            if self._stop.wait(pause):
                raise StopRequestedError()
            pause = min(_LONGEST_PAUSE, 2 * pause)

    def _report_trouble(self, message: str, pause: float, *, busy: bool) -> None:
        self._show(f"waiting: {message}" if busy else message)
        if not busy:
            errors = self._board.get().errors + 1
            self._board.change(last_error=message, last_error_time=time.time(), errors=errors)
        # last, so that the status page agrees with the log
        log("waiting" if busy else "error", reason=message, again_in_seconds=pause)

    def _show(self, trouble: str) -> None:
        """Update the status: trouble, totals, generations and rejected files."""
        ledger = getattr(self, "_ledger", None)
        if ledger is not None:
            self._board.show_ledger(ledger, trouble=trouble)
        else:
            self._board.change(trouble=trouble)

    def _show_queue(self, files: Sorted, taken: Collection[str] = ()) -> None:
        """Update the status: the files that wait, except those that a batch has taken."""
        complete = [seen for seen in files.complete if seen.candidate.name not in taken]
        every = [*complete, *files.waiting]
        offset = time.time() - time.monotonic()
        # files that a batch has taken count for the lag until they are committed
        oldest = min((seen.first for seen in (*files.complete, *files.waiting)), default=None)
        self._board.change(
            state="watching",
            working=None,
            waiting_files=len(every),
            waiting_bytes=sum(seen.candidate.bytes for seen in every),
            oldest=None if oldest is None else oldest + offset,
            queue=tuple(
                Queued(
                    name=seen.candidate.name,
                    bytes=seen.candidate.bytes,
                    since=seen.first + offset,
                    settled=number < len(complete),
                )
                for number, seen in enumerate(every[:_QUEUE_SHOWN])
            ),
        )
