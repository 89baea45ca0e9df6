"""Check which records each variant holds. A variant is a pass over the kept records.

Each variant holds each kept record once. With --sample-clusters, a variant holds only one of the
members of each cluster, and each kept record without a cluster once. A member is a kept record in a
cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.build.verify.compare_shard import ShardResult, buckets_of, not_seen
from pipeline.build.verify.deep_job import DeepJob
from pipeline.build.verify.equal_hashes import equal_pairs
from pipeline.build.verify.findings import Findings
from schemas.manifest_entries import SampledClusters
from schemas.text.phrases import plural


def compare_variants(
    job: DeepJob,
    sampled: SampledClusters | None,
    kept: NDArray[np.bool_],
    shards: Sequence[ShardResult],
    findings: Findings,
) -> Iterator[str]:
    """Check that each variant holds the right records, each exactly once.

    Unless --long crop or --sample-clusters is given, each variant must hold the same sequences as
    variant 0.

    Args:
        sampled: totals of --sample-clusters in the manifest.
        kept: bool[records], mask of the kept records.
    """
    firsts, fingerprints = Counter[int](), Counter[int]()
    for shard in shards:
        firsts[shard.variant] += shard.first_sequences
        fingerprints[shard.variant] += shard.fingerprint
    members = None if sampled is None else _Members(job, kept)
    same_sequences = sampled is None and job.long != "crop"
    records = int(np.count_nonzero(kept))
    if members is not None:
        records -= members.ordinal.size - members.clusters
    for variant in range(job.variants):
        seen = _seen(job, variant)
        always = kept & ~seen
        if members is not None:
            always[members.ordinal] = False
            members.check(job, variant, seen, findings)
        findings.add(not_seen(variant), np.flatnonzero(always))
        if firsts[variant] != records and variant:
            yield (
                f"variant {variant} has first sequences of {plural(firsts[variant], 'record')}, "
                f"expected {records}"
                f"{'' if sampled is None else ' (one of each cluster, and all outside clusters)'}"
            )
        elif same_sequences and (fingerprints[variant] - fingerprints[0]) % (1 << 64):
            yield f"variant {variant} does not have the same sequences as variant 0"
    if members is not None and sampled is not None and members.totals != _totals(sampled):
        found, said = (_described(*totals) for totals in (members.totals, _totals(sampled)))
        yield f"{found}, the manifest says {said}"


_Totals = tuple[int, int, tuple[int, ...]]
"""Number of clusters; number of members; for each variant, the number of members that are in this
variant or an earlier one."""


def _totals(sampled: SampledClusters) -> _Totals:
    return sampled.clusters, sampled.members, tuple(sampled.members_shown)


def _described(clusters: int, members: int, shown: tuple[int, ...]) -> str:
    counts = f"{plural(clusters, 'cluster')} with {plural(members, 'member')}"
    return f"{counts} (members drawn so far, for each variant: {', '.join(map(str, shown))})"


def _seen(job: DeepJob, variant: int) -> NDArray[np.bool_]:
    """Return, for each record, whether its first sequence was seen in a variant, bool[records]."""
    seen: NDArray[np.bool_] = (job.seen(variant) if variant else job.rows["seen"]) != 0
    return seen


class _Members:
    """The M members of clusters.

    ordinal: int64[M], number of each member among all input records, sorted by cluster
    clusters: number of clusters
    """

    def __init__(self, job: DeepJob, kept: NDArray[np.bool_]) -> None:
        cluster = job.rows["cluster"]
        member = np.flatnonzero(kept & (cluster != 0))
        keys = cluster[member]
        order = np.argsort(keys, kind="stable")
        self.ordinal = member[order]
        new = np.append(True, keys[order][1:] != keys[order][:-1])[: member.size]
        self._first = np.flatnonzero(new)
        self.clusters = self._first.size
        self._shown = np.zeros(member.size, dtype=np.bool_)
        self._counts: list[int] = []

    def check(
        self, job: DeepJob, variant: int, seen: NDArray[np.bool_], findings: Findings
    ) -> None:
        """Check that a variant has one member of each cluster. Call this for each variant in order.

        Args:
            seen: bool[records], mask of the records in the variant.
        """
        drawn = seen[self.ordinal]
        counts = np.add.reduceat(drawn, self._first, dtype=np.int64) if self.clusters else drawn
        wrong = self.ordinal[self._first[counts != 1]]
        findings.add(
            f"its cluster does not have exactly one record in {buckets_of(variant)}", wrong
        )
        if variant == 0:
            placed = job.rows["shard"][self.ordinal] != 0
            findings.add(not_seen(0), self.ordinal[placed & ~drawn])
            in_bucket = job.rows["bucket"][self.ordinal] != -1
            what = "has a shard without a bucket, or a bucket without a shard"
            findings.add(what, self.ordinal[placed != in_bucket])
        self._shown |= drawn
        self._counts.append(int(np.count_nonzero(self._shown)))

    @property
    def totals(self) -> _Totals:
        """Totals of all variants."""
        return self.clusters, self.ordinal.size, tuple(self._counts)


def check_clusters(job: DeepJob, seen: NDArray[np.bool_], findings: Findings) -> None:
    """Check that records with equal first pieces are in one cluster, and so in one split. Records
    of different generations are not compared, because later tables may have other clusters.

    Args:
        seen: bool[N], mask of the kept records whose whole first piece was found in a bucket.
    """
    one, other = equal_pairs(job.first_pieces, seen)
    cluster = job.rows["cluster"]
    findings.add(
        "in another cluster than a record with the same first piece",
        other[(cluster[one] != cluster[other]) & job.of_one_generation(one, other)],
    )
