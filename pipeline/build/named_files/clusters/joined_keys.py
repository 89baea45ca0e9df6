"""Join pairs of clusters. The key of a joined cluster is the smallest key of its parts.

A member is a record that the table of clusters lists. A key is the xxh3_64 of an id. A cluster's id
is the id of its representative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.build.named_files.clusters.cluster_kernel import join


@dataclass(frozen=True, slots=True)
class JoinedKeys:
    """Clusters that were joined with others.

    keys:  uint64[N], keys of clusters, ascending
    roots: uint64[N], key of the joined cluster, which is the smallest key of its parts
    """

    keys: NDArray[np.uint64]
    roots: NDArray[np.uint64]

    def of(self, clusters: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the keys of the clusters after joining, uint64[M].

        Args:
            clusters: uint64[M], keys of the clusters before joining.
        """
        if self.keys.size == 0:
            return clusters
        at = np.minimum(np.searchsorted(self.keys, clusters), self.keys.size - 1)
        return np.where(self.keys[at] == clusters, self.roots[at], clusters)

    def rooted_at(self, chosen: NDArray[np.uint64]) -> JoinedKeys:
        """Return the same joined clusters with other keys. If some parts of a joined cluster are in
        `chosen`, its key becomes the smallest key of these parts.

        Args:
            chosen: uint64[M], keys of clusters.
        """
        roots, number = np.unique(self.roots, return_inverse=True)
        at = np.flatnonzero(np.isin(self.keys, chosen))
        none = np.iinfo(np.uint64).max
        smallest = np.full(roots.size, none, dtype=np.uint64)
        np.minimum.at(smallest, number[at], self.keys[at])
        return JoinedKeys(self.keys, np.where(smallest == none, roots, smallest)[number])


def smallest_clusters(
    keys: NDArray[np.uint64], clusters: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    """Return each key once, with the smallest key of its clusters.

    Args:
        keys: uint64[N], keys of members, or hashes of the first pieces of records.
        clusters: uint64[N], for each of `keys`, the key of its cluster. A member or a hash may
            occur several times, with different clusters.
    Returns:
        uint64[K], the distinct `keys`, ascending; uint64[K], the smallest cluster of each;
        uint64[M, 2], pairs of clusters that share a key. These pairs connect all clusters of a key.
    """
    order = np.argsort(keys)
    keys, clusters = keys[order], clusters[order]
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    if keys.size == 0 or first.size == keys.size:
        return keys, clusters, np.empty((0, 2), dtype=np.uint64)
    smallest = np.minimum.reduceat(clusters, first)
    repeated = np.repeat(smallest, np.diff(first, append=keys.size))
    different = repeated != clusters
    pairs = np.stack((repeated[different], clusters[different]), axis=1)
    return keys[first], smallest, pairs


def largest_weights(keys: NDArray[np.uint64], weights: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the largest weight of each distinct key, uint64[K], in ascending order of the keys.

    Args:
        keys, weights: uint64[N], keys, which may repeat, and their weights.
    """
    order = np.argsort(keys)
    keys, weights = keys[order], weights[order]
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return np.maximum.reduceat(weights, first) if keys.size else weights


def join_keys(pairs: NDArray[np.uint64]) -> JoinedKeys:
    """Join the clusters of each pair. The result does not depend on the order of the pairs.

    Args:
        pairs: uint64[M, 2], keys of two clusters to join.
    """
    keys, numbers = np.unique(pairs, return_inverse=True)
    numbers = numbers.reshape(pairs.shape)
    root = np.arange(keys.size, dtype=np.int64)
    join(np.ascontiguousarray(numbers[:, 0]), np.ascontiguousarray(numbers[:, 1]), root)
    return JoinedKeys(keys, keys[root])
