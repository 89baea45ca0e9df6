"""A hook that closes its output and then hangs does not keep the service from ending."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.helpers.data.inboxes import content_of
from tests.helpers.processes.services import Service, children_of, drop

QUICK = ("--settle", 0, "--batch-age", 0, "--workers", 1, "--no-report", "--no-http")


def test_sigterm_ends_a_service_whose_hook_hangs_without_output_within_10_seconds(
    inbox: Path, dataset: Path
) -> None:
    drop(inbox, "a.fasta", content_of(1))
    hook = "exec sleep 1000 >/dev/null 2>&1"  # both pipes of the hook are closed
    with Service(inbox, dataset, *QUICK, "--on-generation", hook) as service:
        service.wait_until(
            lambda: any(each.get("stage") == "run the hook" for each in service.events)
        )
        [child] = service.wait_until(lambda: children_of(service.pid))
        try:
            started = time.monotonic()
            assert service.end(signal.SIGTERM) == 0
            assert time.monotonic() - started < 10
            assert not Path(f"/proc/{child}").exists()
        finally:
            if Path(f"/proc/{child}").exists():
                os.kill(child, signal.SIGKILL)
