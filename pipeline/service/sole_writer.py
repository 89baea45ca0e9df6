"""Let only one service work on a dataset, and name that service to the others.

On a local disk, the services of a dataset share a lock file. A store has no locks: there, the
conditional write of manifest.json decides, and the service that loses repeats its batch.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.build.destination.lock_holder import holder_of, write_holder
from pipeline.service.errors import RetryError, StopRequestedError
from pipeline.service.stop_signal import StopSignal

_PAUSE = 1.0


@contextmanager
def sole_writer(
    folder: Path | None, stop: StopSignal, on_waiting: Callable[[str], None]
) -> Iterator[None]:
    """Wait until no other service has the dataset. Other services then wait until the context ends.

    Args:
        folder: the service's folder in a local dataset; None in a store.
        on_waiting: called with a description of the process that has the dataset, at first and
            whenever another process takes over.
    Raises:
        StopRequestedError: the service must stop.
        RetryError: the lock file cannot be written.
    """
    if folder is None:
        yield
        return
    path = folder / "lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RetryError(f"cannot write {path}: {error.strerror}") from error
    try:
        said = None
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = holder_of(path) or "held by another process"
                if holder != said:
                    on_waiting(holder)
                    said = holder
            if stop.wait(_PAUSE):
                raise StopRequestedError()
        write_holder(descriptor)
        yield
    finally:
        os.close(descriptor)
