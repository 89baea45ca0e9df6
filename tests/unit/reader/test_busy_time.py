"""The time in which at least one fetch runs."""

from __future__ import annotations

import threading
import time

from pipeline.reader.cache.busy_time import BusyTime


def test_overlapping_fetches_count_once_and_idle_time_does_not_count() -> None:
    busy = BusyTime()
    both = threading.Barrier(3)

    def fetch() -> None:
        with busy.busy():
            both.wait()
            both.wait()

    threads = [threading.Thread(target=fetch) for _ in range(2)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    both.wait()
    inside = time.perf_counter()
    time.sleep(0.05)
    least = time.perf_counter() - inside
    assert busy.seconds >= least  # running fetches count
    both.wait()
    for thread in threads:
        thread.join()
    most = time.perf_counter() - begin
    total = busy.seconds
    assert least <= total <= most  # the sum of both fetches would be at least 2 × least
    time.sleep(0.05)
    assert busy.seconds == total
