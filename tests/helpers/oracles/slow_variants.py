"""The records of each variant with `--sample-clusters`, computed by a plain program."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.helpers.data.corpus import (
    as_read,
    read_buckets,
    read_manifest,
    read_records,
    sequences_in,
)
from tests.helpers.oracles.slow_clusters import SlowClusters
from tests.helpers.oracles.slow_draw import fixed_point, slow_draw

Table = list[tuple[str, str, str]]
"""Representative, member and weight; the weight is empty in a table without weights."""
PIECE = 62
"""Number of residues in the first piece of a record."""
SEED = 5


def members_of(
    rows: list[dict[str, Any]], records: list[tuple[str, str]], table: Table
) -> list[tuple[int, int, int]]:
    """Return cluster, ordinal and weight of each kept record that is in a cluster.

    A record that is not in the table has the largest weight of the listed records with the same
    first piece. Listed records that were left out before deduplication are ignored.
    """
    weights = {member: fixed_point(weight) if weight else 1 for _, member, weight in table}
    slow = SlowClusters([row[:2] for row in table], [], PIECE)
    names = [slow.name_of(header) for header, _ in records]
    first = [as_read(residues)[:PIECE] for _, residues in records]
    heaviest: dict[str, int] = {}
    for row, name, piece in zip(rows, names, first, strict=True):
        if name is not None and row["status"] in ("kept", "duplicate", "excluded"):
            heaviest[piece] = max(weights[name], heaviest.get(piece, 0))
    return [
        (row["cluster"], row["ordinal"], heaviest[piece] if name is None else weights[name])
        for row, name, piece in zip(rows, names, first, strict=True)
        if row["status"] == "kept" and row["cluster"] is not None
    ]


def held(out: Path, variant: int) -> Counter[int]:
    """Return how often a variant holds the first sequence of each record. With --long crop, each
    record has only one sequence."""
    crop = read_manifest(out).options["long"] == "crop"
    return Counter(
        ordinal
        for bucket in read_buckets(out, variant)
        for ordinal, start in zip(bucket["record"], bucket["start"], strict=True)
        if start == 0 or crop
    )


def check_variants(out: Path, records: list[tuple[str, str]], table: Table) -> None:
    """Compare the records of each variant, and the totals in the manifest, with a plain program."""
    manifest, rows = read_manifest(out), read_records(out)
    members = members_of(rows, records, table)
    in_clusters = {ordinal for _, ordinal, _ in members}
    assert len(in_clusters) > 30
    always = {row["ordinal"] for row in rows if row["status"] == "kept"} - in_clusters
    assert always
    shown: set[int] = set()
    residues: set[tuple[int, int]] = set()
    members_shown, residues_shown = [], []
    for variant in range(manifest.variants):
        drawn = slow_draw(members, seed=SEED, variant=variant)
        assert held(out, variant) == Counter({*always, *drawn})
        for bucket in read_buckets(out, variant):
            for ordinal, first, text in sequences_in(bucket):
                assert rows[ordinal]["split"] == bucket["split"]
                residues |= {(ordinal, first + i) for i in range(len(text))}
        shown |= drawn
        members_shown.append(len(shown))
        residues_shown.append(len(residues))
    found = manifest.sampled_clusters
    assert found is not None
    assert found.clusters == len({key for key, _, _ in members}) < found.members == len(members)
    assert list(found.members_shown) == members_shown
    assert list(found.residues_shown) == residues_shown
    first = slow_draw(members, seed=SEED, variant=0)
    for row in rows:
        kept = row["status"] == "kept"
        assert (row["split"] is not None) == kept
        in_bucket = kept and row["ordinal"] in {*always, *first}
        assert (row["shard"] is not None) == (row["bucket"] is not None) == in_bucket
