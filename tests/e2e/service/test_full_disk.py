"""A full disk makes the service wait, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.data.inboxes import check_dataset, check_metrics, content_of, names_in
from tests.helpers.processes.services import Service, drop

QUICK = ("--settle", 0, "--batch-age", 0, "--workers", 1, "--no-report")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 4 MB. Skip the test if this user may not mount."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a file system")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.parametrize("full_at", ["journal", "append"])
def test_a_full_disk_makes_the_service_wait_and_nothing_is_lost(
    inbox: Path, built: Path, small_disk: Path, full_at: str
) -> None:
    """The disk is full when the batch is written to the journal, or during the append."""
    dataset = Path(shutil.copytree(built, small_disk / "dataset"))
    ballast = small_disk / "ballast"
    with Service(inbox, dataset, *QUICK) as service:
        service.wait_for("started")
        room = 0 if full_at == "journal" else 40_000
        with ballast.open("wb", buffering=0) as file:
            block = b"\0" * 4096
            free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            for _ in range((free - room) // len(block)):
                file.write(block)
        for number in range(3):
            drop(inbox, f"{number}.fasta", content_of(number) * 40)
        reason = service.wait_for("error")["reason"]
        assert "No space left on device" in reason
        assert bool(service.named("batch")) == (full_at == "append")
        code, said = service.get("/readyz")
        assert code == 503
        assert "No space left on device" in said
        ballast.unlink()
        names = [f"{number}.fasta" for number in range(3)]
        service.wait_until(lambda: names_in(inbox / "taken") == names)
        service.wait_until(lambda: service.events[-1]["event"] == "finished")
        assert service.get("/readyz")[0] == 200
        assert not service.named("rejected")
        check_metrics(service, check_dataset(dataset))
