"""The metrics of the service, in the text format of Prometheus.

Each request makes them from the status. Counters come from the journal, so that they survive
restarts. Metrics of the dataset come from its manifest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from pipeline.service.status import Status
from schemas import __version__

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def metrics_text(status: Status) -> bytes:
    """Return the metrics of a status."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status))
    return generate_latest(registry)


class _StatusCollector(Collector):
    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        yield from _of_service(self._status)
        yield from _of_stages(self._status)
        yield from _of_dataset(self._status)


def _of_service(status: Status) -> Iterable[Metric]:
    totals = status.totals
    for name, text, value in (
        ("files_waiting", "Files in the inbox that no batch has yet.", status.waiting_files),
        ("bytes_waiting", "Bytes of the files that no batch has yet.", status.waiting_bytes),
        ("lag_seconds", "Age of the oldest waiting file.", status.lag),
        ("ready", "1 if the service can take files.", int(status.ready)),
        ("last_error_timestamp_seconds", "Time of the last error.", status.last_error_time),
    ):
        yield GaugeMetricFamily(f"thdpack_watch_{name}", text, value=value)
    for name, text, value in (
        ("batches", "Batches that were opened.", totals.batches),
        ("files_taken", "Files that the dataset has now, duplicates included.", totals.taken),
        ("bytes_taken", "Bytes of the files that the dataset has now.", totals.taken_bytes),
        ("files_duplicate", "Files whose content the dataset already had.", totals.duplicates),
        ("files_rejected", "Files that were moved to rejected/.", totals.rejected),
        ("report_failures", "Reports that could not be written.", totals.report_failures),
        ("hook_failures", "Runs of --on-generation that failed.", totals.hook_failures),
        ("errors", "Errors since the service started.", status.errors),
    ):
        yield CounterMetricFamily(f"thdpack_watch_{name}", text, value=value)
    yield InfoMetricFamily("thdpack", "Version of thdpack.", value={"version": __version__})


def _of_stages(status: Status) -> Iterable[Metric]:
    stages = SummaryMetricFamily(
        "thdpack_watch_stage_seconds", "Duration of each stage of a batch.", labels=["stage"]
    )
    for stage, seconds in status.totals.stage_seconds.items():
        stages.add_metric([stage], count_value=status.totals.stage_count[stage], sum_value=seconds)
    yield stages


def _of_dataset(status: Status) -> Iterable[Metric]:
    dataset = status.totals_of_dataset
    if dataset is None:
        return
    for name, text, value in (
        ("generation", "Number of the latest generation.", dataset.generation),
        ("inputs", "Input files of the dataset.", dataset.inputs),
        ("input_bytes", "Bytes of the dataset's input files.", dataset.input_bytes),
        ("residues_kept", "Residues in the dataset's buckets.", dataset.residues_kept),
    ):
        yield GaugeMetricFamily(f"thdpack_dataset_{name}", text, value=value)
    records = GaugeMetricFamily(
        "thdpack_dataset_records", "Records of the dataset, by status.", labels=["status"]
    )
    for kind, count in dataset.records.items():
        records.add_metric([kind], count)
    yield records
    buckets = GaugeMetricFamily(
        "thdpack_dataset_buckets", "Buckets of the dataset, by split.", labels=["split"]
    )
    for split, count in dataset.buckets.items():
        buckets.add_metric([split], count)
    yield buckets
