"""One line of text about the build that runs in a dataset's folder."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pipeline.build.destination.lock_holder import Holder, read_holder
from pipeline.build.progress.progress_file import BuildProgress, read_progress
from pipeline.build.progress.reporter import progress_text
from pipeline.report.web.page_templates import plain, size
from pipeline.storage.urls import local_path
from schemas.manifest import WORK
from schemas.text.phrases import plural


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildState:
    """State of an unfinished build.

    running: False if its process has ended on this machine
    text: the command, the stage, bytes and records so far
    share: share of the stage's bytes that were read, from 0 to 1; None if it is not known
    """

    running: bool
    text: str
    share: float | None


def build_state(dataset: str) -> BuildState | None:
    """Return the state of the unfinished build in a dataset's folder.

    Return None if the folder has none, or if it is not on a local disk: builds in object stores
    leave no progress.
    """
    folder = local_path(dataset)
    if folder is None or not (folder / WORK).is_dir():
        return None
    holder, progress = read_holder(folder / WORK / "lock"), read_progress(folder)
    if holder is None:
        text = "This folder holds an unfinished build. Run its command again to resume it."
        return BuildState(running=False, text=text, share=None)
    if progress is not None and progress.pid != holder.pid:
        progress = None  # an earlier process wrote it
    if holder.has_ended:
        return BuildState(running=False, text=_stopped(holder, progress), share=None)
    said = f"{plain(holder.command)} (pid {holder.pid} on {plain(holder.host)})"
    if progress is None:
        return BuildState(running=True, text=f"{said} has started", share=None)
    total = progress.total_bytes
    share = min(1.0, progress.done_bytes / total) if total else None
    return BuildState(running=True, text=f"{said}: {_progress(progress)}", share=share)


def _progress(progress: BuildProgress) -> str:
    done, total = progress.done_bytes, progress.total_bytes
    seconds = max(1e-3, time.time() - progress.began)
    read = f"{size(min(done, total))} of {size(total)}, " if total else ""
    return (
        f"{plain(progress.phase)}: {read}{progress_text(done, total, seconds)}{_records(progress)}"
    )


def _records(progress: BuildProgress) -> str:
    return f"; {plural(progress.records, 'record')} read so far" if progress.records else ""


def _stopped(holder: Holder, progress: BuildProgress | None) -> str:
    where = f" in the stage “{plain(progress.phase)}”" if progress is not None else ""
    return f"{plain(holder.command)} stopped{where}. Run the same command to resume it."
