"""Options of `thdpack watch`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from pipeline.executors.registry import ExecutorName
from schemas.text.option_checks import check_range


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """Watch a folder or a bucket prefix, and append its new files to a dataset.

    A file is taken when it is complete: it has not changed for the time of --settle, or it has the
    checksum in a file beside it (NAME.sha256 or NAME.md5). Hidden files and *.tmp, *.part and
    *.crdownload are never taken. After the commit, a file is in INBOX/taken/. A file that cannot be
    appended is in INBOX/rejected/, with the reason in NAME.error.txt beside it. So keep other
    files, such as README, out of the inbox. Run the same command after any interruption: no file is
    lost, and none is taken twice. The dataset must exist.

    Example: thdpack watch inbox --dataset data/uniref50
    """

    inbox: str
    dataset: str
    settle: float = field(default=10.0, metadata={"span": True})
    """Time for which a file must be unchanged before it is taken: a number of seconds, or a time
    with a unit, such as 5m."""
    batch_mb: float = 512.0
    """Size of a batch in MB. The complete files are appended when their total size reaches it."""
    batch_age: float = field(default=60.0, metadata={"span": True})
    """Maximum time that a complete file waits for other files of its batch: a number of seconds, or
    a time with a unit, such as 5m."""
    once: bool = False
    """Append the files that are in the inbox now, and end. The exit code is 1 if a file was
    rejected."""
    exclude: tuple[str, ...] = ()
    """The same files, in the same order, that --exclude named when the dataset was built. They are
    needed again, because the new records must be compared with them too."""
    clusters: Optional[str] = None  # noqa: UP045 (see PreprocessOptions)
    """Table with the clusters of the new records, if the dataset was built with --clusters. Each
    batch reads it again. New records that belong to an earlier cluster go to its split. List
    the earlier records too if clusters have changed, such as in a new release."""
    metadata: Optional[str] = None  # noqa: UP045 (see PreprocessOptions)
    """Table with the columns of --metadata for the new records, if the dataset was built with
    --metadata."""
    source_release: Optional[str] = None  # noqa: UP045 (see PreprocessOptions)
    """Release of the new records, such as 2026_04, for the manifest and the dataset card. Default:
    unchanged."""
    executor: ExecutorName = "processes"
    """Place where tasks run: processes of this machine, or a Ray cluster (needs the extra
    `ray`)."""
    ray_address: Optional[str] = None  # noqa: UP045
    """Ray cluster to use: `auto`, or the address of a head node. Default: start a cluster on this
    machine."""
    workers: Optional[int] = None  # noqa: UP045
    """Number of tasks that run at once. Default: one task for each core of this machine, or of the
    cluster with --ray-address."""
    memory: Optional[str] = None  # noqa: UP045
    """Memory limit on this machine, such as 2G. With less memory, fewer tasks run at once."""
    allow_nucleotides: bool = False
    """Read inputs that look like nucleotides, and treat A, C, G and T as residues."""
    allow_alignment: bool = False
    """Read inputs that look like an alignment, and treat gaps as letters."""
    host: str = "127.0.0.1"
    """Address for the status page (/), /metrics, /healthz and /readyz."""
    port: int = 9464
    """Port of the status page. 0 chooses a free port, which the log names."""
    no_http: bool = False
    """Serve no status page and no metrics. --once includes this option."""
    no_report: bool = False
    """Write no report after each generation. Reports are in DATASET/reports/."""
    on_generation: Optional[str] = None  # noqa: UP045
    """Shell command to run after each generation. The environment of the command has
    THDPACK_DATASET, THDPACK_GENERATION and THDPACK_DIGEST. If the command fails, the service
    continues."""
    log_json: bool = False
    """Print the log as JSON on a terminal, too. Without a terminal, the log is always JSON."""

    def __post_init__(self) -> None:
        check_range(self, "settle", "batch_age", least=0)
        check_range(self, "batch_mb", above=0)
        check_range(self, "port", least=0, most=65_535)
        if self.workers is not None:
            check_range(self, "workers", least=1)

    @property
    def serves_http(self) -> bool:
        """True if the service has a status page and metrics."""
        return not (self.no_http or self.once)
