"""Slow, simple functions that find clusters and splits without code of pipeline/.

Clusters and records are joined in a graph. The nodes of the graph are the clusters and members of
the table, and the first pieces of records. A first piece is the first max_seq_len - 2 residues of a
record.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

import xxhash

from schemas.vocabulary import ESM2
from tests.helpers.data.corpus import as_read
from tests.helpers.oracles.slow_headers import stated

_MASK = (1 << 64) - 1

Row = tuple[str, str]
"""Representative and member."""


class SlowClusters:
    """Joined clusters of records.

    The key of a joined cluster is the smallest xxh3_64 of the names of its representatives.
    """

    def __init__(self, table: Sequence[Row], kept: Sequence[tuple[str, str]], piece: int) -> None:
        """Join clusters that share a member or contain kept records with the same first piece.

        Args:
            kept: headers and residues of all records that are kept or duplicates.
            piece: maximum number of residues of a first piece.
        """
        self._members = {member for _, member in table}
        self._piece = piece
        self._above: dict[Hashable, Hashable] = {}
        for representative, member in table:
            self._join(("cluster", representative), ("member", member))
        for header, residues in kept:
            node = ("piece", as_read(residues)[:piece])
            self._join(node, node)
            if (name := self.name_of(header)) is not None:
                self._join(("member", name), node)
        self._keys: dict[Hashable, int] = {}
        for representative, _ in table:
            root = self._root(("cluster", representative))
            key = xxhash.xxh3_64_intdigest(representative.encode())
            self._keys[root] = min(key, self._keys.get(root, _MASK))

    def name_of(self, header: str) -> str | None:
        """Return the name by which the table lists a record; None if the table does not list it."""
        identifier, _, description = header.partition(" ")
        accession = stated(identifier.encode(), description.encode()).accession
        names = [identifier] if accession is None else [identifier, accession.decode()]
        return next((name for name in names if name in self._members), None)

    def key_of(self, header: str, residues: str, *, kept: bool) -> int | None:
        """Return the key of a record's joined cluster; None if the record is in no cluster.

        Args:
            kept: True if the record is kept or is a duplicate, else False.
        """
        name = self.name_of(header)
        if name is None and not kept:
            return None
        node = ("piece", as_read(residues)[: self._piece]) if name is None else ("member", name)
        return self._keys.get(self._root(node))

    def _root(self, node: Hashable) -> Hashable:
        while (above := self._above.get(node, node)) != node:
            node = above
        return node

    def _join(self, one: Hashable, other: Hashable) -> None:
        self._above[self._root(one)] = self._root(other)


def slow_split(key: int | None, residues: str, piece: int, *, valid: float, test: float) -> str:
    """Return the split of a record.

    Args:
        key: key of the record's joined cluster; None if it is in no cluster.
        piece: maximum number of residues of a first piece.
    """
    if key is None:
        unknown = ESM2.unk
        first = as_read(residues)[:piece]
        tokens = bytes(ESM2.letters.get(letter, unknown) for letter in first)
        value = xxhash.xxh3_128_intdigest(tokens) & _MASK
    else:
        value = (key + 0x9E3779B97F4A7C15) & _MASK  # SplitMix64
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    share = value / 2**64
    return "valid" if share < valid else "test" if share < valid + test else "train"


def made_table(headers: Sequence[str], seed: int) -> list[Row]:
    """Return a table of clusters with about two thirds of the records.

    Some members are in several clusters, and some are names that no record has.
    """
    rng = random.Random(seed)
    names = []
    for header in headers:
        identifier, _, description = header.partition(" ")
        accession = stated(identifier.encode(), description.encode()).accession
        names.append(identifier if accession is None or rng.random() < 0.3 else accession.decode())
    names += [f"other{i}" for i in range(len(names) // 5)]
    rng.shuffle(names)
    rows: list[Row] = []
    while len(names) > len(headers) // 3:
        members = [names.pop() for _ in range(min(len(names), rng.randint(1, 6)))]
        rows += [(members[0], member) for member in members]
        if rng.random() < 0.1:
            rows.append((members[0], rng.choice(rows)[1]))  # this member joins two clusters
    return rows
