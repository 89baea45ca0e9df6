"""The outcome of the link stage: a file in the work folder that lists the clusters that were
joined.

The first piece of a record is its first max_seq_len - 2 residues. Records with the same first piece
must be in the same split, so clusters that contain such records are joined. Every process that runs
reduce tasks reads the file once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.build.arrays.arrow_arrays import number_array, one_chunk
from pipeline.build.arrays.sequence_hashes import split_of_keys
from pipeline.build.clusters.earlier_task import EarlierClusters
from pipeline.build.clusters.link_files import read_pairs
from pipeline.build.named_files.clusters.cluster_table import open_cluster_table
from pipeline.build.named_files.clusters.joined_keys import JoinedKeys, join_keys
from pipeline.build.spill.rest_files import read_rests, write_rest
from pipeline.build.task_results import LinkResult
from pipeline.build.tasks import Job
from pipeline.reader.arrow_columns import numbers
from schemas.errors import DatasetError
from schemas.split_fractions import SplitFractions
from schemas.splitmix import mix
from schemas.text.phrases import plural

NO_EARLIER: Final = EarlierClusters(np.empty((0, 2), dtype=np.uint64))
_SHOWN: Final = 5
"""Maximum number of ids in the message about records that are not in the table."""
_SCHEMA = pa.schema([("cluster", pa.uint64()), ("joined", pa.uint64())])


def join_linked(
    job: Job,
    results: Sequence[LinkResult],
    earlier: EarlierClusters = NO_EARLIER,
    *,
    durable: bool = False,
) -> str:
    """Join clusters that have equal sequences, and save the result for the job's reduce tasks. Link
    tasks have found the pairs of such clusters.

    Args:
        results: results of all link tasks, in the order of partitions.
        earlier: clusters of earlier generations that have new records (only in an append). A joined
            cluster that includes an earlier cluster takes the key of that cluster. The new records
            are then in the same split as the earlier records.
        durable: True to sync the file, so that it survives a power cut. This is needed if other
            machines run tasks later.
    Returns:
        A line that says how many records are in the table of clusters.
    Raises:
        DatasetError: no record is in the table.
        DamagedSpillError: a link file is damaged.
        BuildError: the file cannot be written.
    """
    records, found = sum(r.records for r in results), sum(r.found for r in results)
    missing = [example for result in results for example in result.examples]
    if not found and job.clusters.bytes:
        _refuse_other_ids(job, missing)
    pairs = np.concatenate((read_pairs(job.work, results), earlier.pairs))
    joined = join_keys(pairs).rooted_at(earlier.pairs[:, 0])
    table = pa.table([number_array(joined.keys), number_array(joined.roots)], schema=_SCHEMA)
    write_rest(job.work, job.joined, table)
    if durable:
        job.work.sync([job.joined])
    option = f"--{job.clusters.option}"
    line = f"{option}: found {found:,} of {plural(records, 'record')} in {job.clusters.name}"
    if missing:
        more = ", …" if records - found > _SHOWN else ""
        line += f", but not {', '.join(missing[:_SHOWN])}{more}"
    if not job.clusters.bytes:  # MMseqs2 clustered all records that the map stage kept
        line = f"{option} {job.clusters.name}: clustered {plural(found, 'record')}"
        if found < records:
            line += f"; the other {records - found:,} were left out earlier, for example by --where"
    count = joined.keys.size - np.unique(joined.roots).size
    if count:
        line += f"; {plural(count, 'cluster')} joined with others that have equal sequences"
    moved = _divided(joined, earlier, job.options.fractions)
    if moved:
        line += (
            f"; {plural(moved, 'cluster')} of this table joined earlier clusters of different "
            "splits, so such a cluster is in more than one split now. To avoid this, build a new "
            "dataset from all inputs"
        )
    return line


def _divided(joined: JoinedKeys, earlier: EarlierClusters, fractions: SplitFractions) -> int:
    """Return the number of joined clusters whose earlier parts are in different splits."""
    keys = np.unique(earlier.pairs[:, 0])
    pairs = np.stack((joined.of(keys), split_of_keys(mix(keys), fractions).astype(np.uint64)), 1)
    roots = np.unique(pairs, axis=0)[:, 0]
    return int(np.count_nonzero(np.unique(roots, return_counts=True)[1] > 1))


def _refuse_other_ids(job: Job, examples: Sequence[str]) -> None:
    """Raise the error for a table that lists no record of the inputs.

    Raises:
        DatasetError: always.
    """
    table = open_cluster_table(job.clusters.file, job.work)
    raise DatasetError(
        f"--{job.clusters.option} {job.clusters.name}: no record of the inputs is in this table; "
        f"its second column has ids such as {', '.join(table.examples)}, but the records have ids "
        f"such as {', '.join(examples[:3])}; use ids or accessions of the records"
    )


_last_loaded: tuple[str, JoinedKeys] | None = None
"""Path and content of the last file read. A process works on one build at a time."""


def load_joined(job: Job) -> JoinedKeys:
    """Return the clusters that `join_linked` saved; read the file once per process.

    Raises:
        DamagedSpillError: the file is damaged.
        FileNotFoundError, ThdpackError: the file is missing or cannot be read.
    """
    global _last_loaded
    place = job.work.where(job.joined)
    if _last_loaded is None or _last_loaded[0] != place:
        table = read_rests(job.work, [job.joined], _SCHEMA)
        columns = [numbers(one_chunk(column), np.uint64) for column in table.columns]
        _last_loaded = place, JoinedKeys(columns[0], columns[1])
    return _last_loaded[1]
