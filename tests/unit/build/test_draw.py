"""Drawing of cluster members: intervals, exact integer arithmetic, and weights in a table."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.build.arrays.sequence_hashes import variant_seed
from pipeline.build.clusters.draw import MOST_WEIGHT, below, intervals_of
from pipeline.build.named_files.clusters.cluster_table import open_cluster_table
from pipeline.build.named_files.clusters.read_clusters import prepare_clusters
from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.task_results import PreparedFile
from pipeline.storage.local_folder import LocalFolder
from schemas.errors import InputError
from tests.helpers.oracles.slow_draw import fixed_point, slow_draw
from tests.unit.build.test_cluster_table import key

UINT64 = st.integers(0, 2**64 - 1)
MEMBERS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from([1, 3, 2**30, 10**6 << 30])), max_size=40
)


@given(st.lists(st.tuples(UINT64, UINT64), min_size=1))
def test_draw_below_returns_the_upper_half_of_the_product(
    pairs: list[tuple[int, int]],
) -> None:
    keys, limits = np.array(pairs, dtype=np.uint64).T
    assert below(keys, limits).tolist() == [a * b >> 64 for a, b in pairs]


@given(MEMBERS, st.integers(0, 2**63 - 1), st.integers(0, 9))
def test_a_variant_draws_the_members_that_python_integers_choose(
    found: list[tuple[int, int]], seed: int, variant: int
) -> None:
    """A member's ordinal is its place in the list."""
    members = sorted((cluster, ordinal, weight) for ordinal, (cluster, weight) in enumerate(found))
    columns = np.array(members, dtype=np.uint64).reshape(-1, 3).T
    intervals, largest = intervals_of(columns[0], columns[2])
    drawn = intervals.drawn(variant_seed(seed, variant))
    assert set(columns[1][drawn].tolist()) == slow_draw(members, seed=seed, variant=variant)
    totals = [sum(w for c, _, w in members if c == cluster) for cluster, _, _ in members]
    assert largest == max(totals, default=0) <= MOST_WEIGHT
    assert intervals.total.tolist() == totals


def prepared(folder: Path, text: str) -> PreparedFile:
    path = folder / "clusters.tsv"
    path.write_text(text)
    file = NamedFile(
        option="sample-clusters", url=str(path), name=path.name, bytes=len(text), fingerprint=""
    )
    return prepare_clusters(file, "prepared-000000.arrow", LocalFolder(folder, folder))


def test_weights_are_read_exactly_and_the_largest_weight_of_a_member_counts(tmp_path: Path) -> None:
    weights = ["1", "0.5", "1e-06", "1000000", "2.5E-3", "0.1", "3", "1e6", "0.000001"]
    rows = [f"a\tm{i}\t{weight}" for i, weight in enumerate(weights)]
    rows += ["b\tm0\t0.25", "b\tm5\t7", ""]
    one = prepared(tmp_path, "\n".join(rows))
    other = prepared(tmp_path, "\r\n".join(rows[::-1]))
    assert (one.rows, one.xxh3_128) == (other.rows, other.xxh3_128)
    table = open_cluster_table(other.file, LocalFolder(tmp_path, tmp_path))
    keys = np.array([key(f"m{i}") for i in range(len(weights) + 1)], dtype=np.uint64)
    expected = [*map(fixed_point, [*weights[:5], "7", *weights[6:]]), 0]
    assert table.weights(keys, table.find(keys)).tolist() == expected
    assert expected[1] == Fraction(1, 2) * 2**30
    lighter = prepared(tmp_path, "\n".join(rows).replace("0.5", "0.25"))
    assert lighter.xxh3_128 != one.xxh3_128


def test_without_weights_each_member_has_the_weight_1(tmp_path: Path) -> None:
    table = open_cluster_table(
        prepared(tmp_path, "a\ta\nb\tb\n").file, LocalFolder(tmp_path, tmp_path)
    )
    keys = np.array([key("a"), key("c"), key("b")], dtype=np.uint64)
    assert table.weights(keys, table.find(keys)).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\tb\t0\n", "clusters.tsv:1: expected a weight in the third column"),
        ("a\tb\t1\na\tc\t-1", "clusters.tsv:2: expected a weight in the third column"),
        ("a\tb\tnan\n", "expected a weight in the third column"),
        ("a\tb\tinf\n", "expected a weight in the third column"),
        ("a\tb\t\n", "expected a weight in the third column"),
        ("a\tb\t1_0\n", "expected a weight in the third column"),
        ("a\tb\t1000001\n", "a number from 0.000001 to 1000000"),
        ("a\tb\t" + "1" * 100 + "\n", "expected a weight in the third column"),
        ("a\tb\t1\tc\n", "expected a weight in the third column"),
        ("\na\tb\t1\na\tc\n", "clusters.tsv:3: expected a third column, the member's weight"),
        ("a\tb\na\tc\t1\n", "clusters.tsv:2: this line has more than two columns, but the first"),
        ("a\t\t1\n", "clusters.tsv:1: an id is empty"),
    ],
)
def test_the_error_for_an_invalid_weight_names_the_line(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(InputError, match=r".") as caught:
        prepared(tmp_path, text)
    assert said in str(caught.value)
