"""The journal survives torn lines, and its snapshot is the state of all its lines."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pipeline.service.journal.journal
from pipeline.service.journal.journal import NAME, LocalJournal, ObjectJournal
from pipeline.service.journal.ledger import Ledger
from pipeline.storage.object_folder import ObjectFolder
from schemas.errors import ThdpackError

COMMIT = {
    "time": 1.0,
    "generation": 2,
    "digest": "d",
    "files": 1,
    "bytes": 5,
    "records": 3,
    "kept": 3,
    "duplicates": {"b": "a"},
    "seconds": {"verify": 0.5},
}
LINES: list[dict[str, Any]] = [
    {"event": "batch", "number": 1, "parent": 1, "files": [["a", 5, "v"], ["b\udcff\n", 5, "w"]]},
    {"event": "released", "name": "b\udcff\n"},
    {"event": "committed", "commit": COMMIT},
    {"event": "finished", "number": 1, "report_failed": False, "hook_failed": True},
    {
        "event": "rejected",
        "rejection": {"time": 2.0, "name": "x", "bytes": 1, "version": "v", "reason": "r"},
    },
    {"event": "batch", "number": 2, "parent": 2, "files": [["c", 7, "v"]]},
]


def write_all(folder: Path) -> Ledger:
    journal = LocalJournal(folder)
    ledger = journal.replay()
    for line in LINES:
        journal.write(ledger, [line])
    return ledger


def test_a_replayed_journal_gives_the_state_that_its_writer_had(tmp_path: Path) -> None:
    ledger = write_all(tmp_path)
    assert LocalJournal(tmp_path).replay() == ledger
    assert ledger.totals.taken == 1
    assert ledger.totals.hook_failures == 1
    assert ledger.batch is not None
    assert ledger.batch.files == {"c": (7, "v")}


def test_the_snapshot_is_the_state_after_any_number_of_lines() -> None:
    for count in range(len(LINES) + 1):
        ledger, restored = Ledger(), Ledger()
        for line in LINES[:count]:
            ledger.apply(line)
        restored.apply(ledger.snapshot())
        assert restored == ledger


def test_at_every_cut_the_whole_lines_are_kept(tmp_path: Path) -> None:
    write_all(tmp_path)
    path = tmp_path / NAME
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        journal = LocalJournal(tmp_path)
        ledger = journal.replay()
        whole = content[:cut].count(b"\n")
        expected = Ledger()
        for line in LINES[:whole]:
            expected.apply(line)
        assert ledger == expected
        assert path.read_bytes().count(b"\n") == whole
    journal.write(ledger, LINES[len(LINES) - 1 :])
    assert path.read_bytes() == content


def test_a_long_journal_is_replaced_by_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.service.journal.journal, "_MOST_BYTES", 500)
    ledger = write_all(tmp_path)
    content = (tmp_path / NAME).read_bytes()
    assert content.startswith(b'{"event": "snapshot"')
    assert LocalJournal(tmp_path).replay() == ledger


def test_a_damaged_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_all(tmp_path)
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b'"released"', b'"released', 1))
    with pytest.raises(ThdpackError, match=r"journal\.jsonl:2: this line"):
        LocalJournal(tmp_path).replay()


def test_a_commit_of_another_service_does_not_count_for_the_open_batch() -> None:
    """On a store, two services can write to one journal. The files of a batch with a commit are
    moved to taken/ without being read again."""
    ledger = Ledger()
    for writer, name in (("one", "a"), ("two", "b")):
        files = [[name, 5, "v"]]
        ledger.apply({"event": "batch", "number": 1, "parent": 1, "writer": writer, "files": files})
    ledger.apply({"event": "committed", "number": 1, "writer": "one", "commit": COMMIT})
    assert ledger.batch is not None
    assert (ledger.batch.files, ledger.batch.commit) == ({"b": (5, "v")}, None)
    ledger.apply({"event": "finished", "number": 1, "report_failed": 0, "hook_failed": 0})
    ledger.apply({"event": "committed", "number": 1, "writer": "two", "commit": COMMIT})
    assert ledger.batch is None


def test_a_journal_that_is_removed_while_the_service_runs_is_written_again(tmp_path: Path) -> None:
    journal = LocalJournal(tmp_path)
    ledger = journal.replay()
    for number, line in enumerate(LINES):
        if number == 3:
            (tmp_path / NAME).unlink()
        journal.write(ledger, [line])
    assert LocalJournal(tmp_path).replay() == ledger


def test_a_journal_in_a_store_keeps_its_order_when_the_clock_is_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "memory://journal-of-a-clock-that-was-set-back"
    moments = iter(range(len(LINES), 0, -1))
    monkeypatch.setattr(
        "pipeline.service.journal.journal.time", SimpleNamespace(time_ns=lambda: next(moments))
    )
    journal = ObjectJournal(ObjectFolder(url))
    ledger = journal.replay()
    for line in LINES:
        journal.write(ledger, [line])
    assert ObjectJournal(ObjectFolder(url)).replay() == ledger


def test_a_failed_sync_after_a_snapshot_does_not_damage_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    module = pipeline.service.journal.journal
    journal = LocalJournal(tmp_path)
    ledger = journal.replay()
    journal.write(ledger, LINES[:1])
    with monkeypatch.context() as patch:
        patch.setattr(module, "_MOST_BYTES", 100)
        patch.setattr(module, "sync_folder", fail)
        journal.write(ledger, LINES[1:2])
    for line in LINES[2:]:
        journal.write(ledger, [line])
    assert LocalJournal(tmp_path).replay() == ledger
