"""Names of files that collide in rejected/ and taken/, lead out of them, or are too long."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.helpers.data.inboxes import check_dataset, content_of, names_in
from tests.helpers.processes.command_line import Run
from tests.helpers.processes.services import Service, drop

QUICK = ("--settle", 0, "--batch-age", 0, "--workers", 1, "--no-report")
ONCE = (*QUICK, "--once", "--no-http")
BAD = b"no header\n"


def test_a_reason_is_never_written_through_a_link(
    run_process: Run, inbox: Path, dataset: Path
) -> None:
    """A user who may write to the inbox must not be able to overwrite the service's files."""
    manifest = dataset / "manifest.json"
    before = manifest.read_bytes()
    (inbox / "a.fasta.error.txt").symlink_to(manifest)
    assert run_process("watch", inbox, "--dataset", dataset, *ONCE).returncode == 1
    drop(inbox, "a.fasta", BAD)
    assert run_process("watch", inbox, "--dataset", dataset, *ONCE).returncode == 1
    assert manifest.read_bytes() == before
    assert "not FASTA" in _reason_of(inbox, BAD)


def test_a_rejected_file_never_replaces_another_or_its_reason(
    run_process: Run, inbox: Path, dataset: Path
) -> None:
    own = b"a delivered file whose name is that of a reason\n"
    for name, content in (("a.fasta.error.txt", own), ("a.fasta", BAD), ("a.fasta", b"")):
        drop(inbox, name, content)
        assert run_process("watch", inbox, "--dataset", dataset, *ONCE).returncode == 1
    for content, reason in ((own, "not FASTA"), (BAD, "not FASTA"), (b"", "is empty")):
        assert reason in _reason_of(inbox, content)


def test_a_name_of_255_bytes_can_be_rejected(run_process: Run, inbox: Path, dataset: Path) -> None:
    for letter in ("x", "ü"):
        name = letter * ((255 - 6) // len(letter.encode())) + ".fasta"
        drop(inbox, name, BAD)
        assert run_process("watch", inbox, "--dataset", dataset, *ONCE).returncode == 1
        assert (inbox / "rejected" / name).read_bytes() == BAD
        drop(inbox, name, b"")
        assert run_process("watch", inbox, "--dataset", dataset, *ONCE).returncode == 1
    assert names_in(inbox) == names_in(inbox / "rejected")
    reasons = [path.read_text() for path in (inbox / "rejected").glob("*.error.txt")]
    assert sorted("not FASTA" in reason for reason in reasons) == [False, False, True, True]


def test_a_folder_and_a_file_can_have_the_same_name(inbox: Path, dataset: Path) -> None:
    """A name in taken/ or rejected/ is a file when the next file needs a folder of that name, or
    the reverse."""
    with Service(inbox, dataset, *QUICK) as service:
        drop(inbox, "a", content_of(1))
        drop(inbox, "b/b.fasta", content_of(2))
        drop(inbox, "c", BAD)
        service.wait_until(lambda: not _left(inbox))
        for path in (inbox / "a", inbox / "b", inbox / "c"):
            if path.exists():
                path.rmdir()
        drop(inbox, "a/a.fasta", content_of(1))
        drop(inbox, "b", content_of(2))
        drop(inbox, "c/c.fasta", BAD)
        service.wait_until(lambda: not _left(inbox) or service.named("error"))
        assert not service.named("error")
    assert names_in(inbox / "taken").count("a.fasta") == 1
    assert len(names_in(inbox / "taken")) == 4
    assert len([name for name in names_in(inbox / "rejected") if "error" not in name]) == 2


def test_folders_that_are_nested_too_deep_do_not_stop_the_service(
    inbox: Path, dataset: Path
) -> None:
    try:
        here = os.open(inbox, os.O_RDONLY)
        for _ in range(2_500):  # deeper than Python's stack and than the longest path
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        drop(inbox, "a.fasta", content_of(1))
        with Service(inbox, dataset, *QUICK) as service:
            service.wait_until(lambda: service.named("finished") or service.named("error"))
            assert not service.named("error")
        check_dataset(dataset)
    finally:  # pytest cannot remove such folders
        subprocess.run(["rm", "-rf", str(inbox / "d")], check=True)


def _left(inbox: Path) -> list[Path]:
    """Return the files that were neither taken nor rejected."""
    own = ("taken", "rejected")
    return [
        path
        for path in inbox.rglob("*")
        if not path.is_dir() and path.relative_to(inbox).parts[0] not in own
    ]


def _reason_of(inbox: Path, content: bytes) -> str:
    """Return the reason beside the rejected file that has this content."""
    [path] = [
        path
        for path in (inbox / "rejected").iterdir()
        if not path.is_symlink() and path.read_bytes() == content
    ]
    return path.with_name(f"{path.name}.error.txt").read_text()
