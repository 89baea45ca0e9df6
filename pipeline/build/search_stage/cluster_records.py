"""Cluster the kept records with MMseqs2 (`--clusters mmseqs:0.5`).

1. Write each distinct sequence of the kept records once, as FASTA. A sequence's name is the lower
   half of its hash, in decimal digits.
2. Run `mmseqs easy-linclust`, which writes a table of representatives and members.
3. Convert this table into a work file, like a table that the user names. Link tasks look up records
   by the names of their sequences, so that equal sequences are in the same cluster.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.build.mmseqs.binary import find_mmseqs, mmseqs_version
from pipeline.build.mmseqs.linclust import SETTINGS, linclust_identity
from pipeline.build.mmseqs.run import run_mmseqs, scratch_folder
from pipeline.build.named_files.clusters.cluster_table import write_cluster_table
from pipeline.build.named_files.clusters.read_clusters import prepare_clusters
from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.search_stage.kept_records import write_kept_records
from pipeline.build.search_stage.search_tasks import ClusterTask
from pipeline.build.task_results import PreparedFile
from pipeline.build.tasks import OnBytes
from schemas.errors import BuildError


def cluster_records(task: ClusterTask, on_bytes: OnBytes) -> PreparedFile:
    """Run MMseqs2, and write the clusters as a work file. The result names this file.

    Raises:
        BuildError: MMseqs2 failed, or this machine has another version than the build's plan.
        DamagedSpillError: a work file is damaged.
    """
    mmseqs = find_mmseqs(task.file.option)
    if mmseqs_version(mmseqs) != task.file.mmseqs_version:
        raise BuildError(
            f"{mmseqs} is version {mmseqs_version(mmseqs)}, but the build was planned with "
            f"{task.file.mmseqs_version}: install the same version on all machines"
        )
    prepared = task.job.prepared[task.index]
    with scratch_folder(task.work, task.name) as scratch:
        records, found = scratch / "records", scratch / "found"
        count = write_kept_records(
            task.job, task.partitions, records, on_bytes, name=lambda rows: rows.hash["low"]
        )
        if not count:
            empty = np.empty(0, dtype=np.uint64)
            file = write_cluster_table([(empty, empty)], [], task.output, task.work)
            return replace(prepared, file=file)
        own = ("--min-seq-id", linclust_identity(task.file.name), "--threads", str(task.threads))
        files = (records, found, scratch / "tmp")
        run_mmseqs(mmseqs, ["easy-linclust", *files, *SETTINGS, *own], scratch)
        table = scratch / "found_cluster.tsv"
        clusters = NamedFile(
            option="clusters",
            url=str(table),
            name=table.name,
            bytes=table.stat().st_size,
            fingerprint="",
        )
        converted = prepare_clusters(clusters, task.output, task.work)
    return replace(prepared, file=converted.file, rows=converted.rows)
