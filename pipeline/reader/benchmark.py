"""Measure how fast a dataset can be read from its storage, for `thdpack bench-reader`."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass

import numpy as np

from pipeline.reader.shard_reader import ShardReader

_PERCENTILES = (50.0, 99.0, 99.9, 100.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReaderSpeed:
    """Result of one measurement.

    first_bucket: seconds from opening the dataset to the first bucket
    seconds: duration of the measurement after the first bucket
    buckets, tokens: number of buckets read, and number of their tokens without padding
    latency: percentiles 50, 99, 99.9 and 100 of the latency of a bucket, in seconds. The latency is
        the time from the request for a bucket until the bucket's tokens are copied into a buffer
    bytes_verified: number of bytes of the shards that were mapped and verified
    bytes_fetched: number of bytes fetched from the store, including those for the first bucket
    fetch_seconds: seconds in which at least one fetch ran, from the opening of the dataset on
    """

    first_bucket: float
    seconds: float
    buckets: int
    tokens: int
    latency: tuple[float, ...]
    bytes_verified: int
    bytes_fetched: int
    fetch_seconds: float

    def lines(self) -> list[tuple[str, str]]:
        """Return the name and printed value of each figure."""
        latency = ", ".join(
            f"{'max' if p == 100 else f'p{p:g}'} {value * 1e6:,.1f}"
            for p, value in zip(_PERCENTILES, self.latency, strict=True)
        )
        return [
            ("first bucket", f"{self.first_bucket:.3f} s, including the opening of the dataset"),
            (
                "speed",
                f"{self.tokens / self.seconds / 1e6:,.1f} M tokens/s, "
                f"{self.buckets / self.seconds:,.0f} buckets/s, measured for {self.seconds:.1f} s",
            ),
            ("latency", f"{latency} µs per bucket, including a copy of its tokens"),
            ("verified", f"{self.bytes_verified / 1e6:,.1f} MB of shards, mapped and hashed"),
            ("fetched", self._fetched()),
        ]

    def _fetched(self) -> str:
        text = f"{self.bytes_fetched / 1e6:,.1f} MB from the store"
        if not self.fetch_seconds:
            return text
        rate = self.bytes_fetched / self.fetch_seconds / 1e6
        return f"{text} ({rate:,.1f} MB/s in the {self.fetch_seconds:.1f} s in which fetches ran)"


def bench_reader(reader: ShardReader, seconds: float, started: float) -> ReaderSpeed:
    """Read buckets for a number of seconds, and return the measured speed.

    `started` is the value of time.perf_counter() before the dataset was opened.
    """
    bucket = next(reader)
    first = time.perf_counter() - started
    buffer = np.empty_like(bucket.input_ids)
    tokens = 0
    took = array("q")
    clock = time.perf_counter_ns
    begin = before = clock()
    end = begin + int(seconds * 1e9)
    for bucket in reader:
        buffer[:] = bucket.input_ids
        tokens += bucket.num_tokens
        now = clock()
        took.append(now - before)
        before = now
        if now >= end:
            break
    return ReaderSpeed(
        first_bucket=first,
        seconds=(before - begin) / 1e9,
        buckets=len(took),
        tokens=tokens,
        latency=tuple(
            (np.percentile(np.frombuffer(took, dtype=np.int64), _PERCENTILES) / 1e9).tolist()
        ),
        bytes_verified=reader.bytes_verified,
        bytes_fetched=reader.bytes_fetched,
        fetch_seconds=reader.fetch_seconds,
    )
