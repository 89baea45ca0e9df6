"""Compare the conversion of cluster tables (`--clusters FILE`) with a slow, simple function.

A row of the table is (representative, member). An id's key is its xxh3_64. Clusters that share a
member are joined into one.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.build.named_files.clusters import cluster_table, read_clusters
from pipeline.build.named_files.clusters.cluster_table import open_cluster_table
from pipeline.build.named_files.clusters.joined_keys import join_keys
from pipeline.build.named_files.clusters.read_clusters import prepare_clusters
from pipeline.build.named_files.named_file import NamedFile
from pipeline.build.task_results import PreparedFile
from pipeline.storage.local_folder import LocalFolder
from schemas.errors import DamagedSpillError

Row = tuple[str, str]
NAMES = st.sampled_from(["a", "b", "é", "sp|P1|X", "1", "11", "x" * 300, "c d"])
ROWS = st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=40)


def key(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode())


def slow_table(rows: list[Row]) -> dict[int, int]:
    """Return {key of a member: smallest key of a representative in its joined cluster}."""
    groups: list[tuple[set[str], set[str]]] = []
    for representative, member in rows:
        mine = ({representative}, {member})
        for group in [g for g in groups if representative in g[0] or member in g[1]]:
            groups.remove(group)
            mine = mine[0] | group[0], mine[1] | group[1]
        groups.append(mine)
    return {
        key(member): min(key(representative) for representative in representatives)
        for representatives, members in groups
        for member in members
    }


def prepared(folder: Path, text: bytes) -> PreparedFile:
    path = folder / "clusters.tsv"
    path.write_bytes(text)
    file = NamedFile(
        option="clusters", url=str(path), name=path.name, bytes=len(text), fingerprint=""
    )
    return prepare_clusters(file, "prepared-000000.arrow", LocalFolder(folder, folder))


@given(rows=ROWS, order=st.randoms(use_true_random=False), end=st.sampled_from(["\n", "\r\n"]))
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_table_is_converted_as_a_slow_program_converts_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[Row],
    order: random.Random,
    end: str,
) -> None:
    """Convert the rows twice, in two orders. The second table is read in blocks of 64 bytes, sorted
    in 256 temporary files, and written in batches of 3 rows."""
    text = end.join("\t".join(row) for row in rows).encode()
    whole = prepared(tmp_path, text)
    shuffled = [*rows]
    order.shuffle(shuffled)
    with monkeypatch.context() as patch:
        patch.setattr(read_clusters, "_SMALL_BYTES", 0)
        patch.setattr(read_clusters, "_BLOCK_BYTES", 64)
        patch.setattr(cluster_table, "_BATCH_ROWS", 3)
        found = prepared(tmp_path, "".join("\t".join(row) + end for row in shuffled).encode())
    expected = slow_table(rows)
    assert (found.rows, found.xxh3_128) == (whole.rows, whole.xxh3_128)
    assert found.rows == len(expected)
    table = open_cluster_table(found.file, LocalFolder(tmp_path, tmp_path))
    wanted = [*expected, *(key(f"other{i}") for i in range(5)), 0, 2**64 - 1]
    clusters = table.find(np.array(wanted, dtype=np.uint64)).tolist()
    assert clusters == [expected.get(member, 0) for member in wanted]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=12))
def test_each_key_is_joined_to_the_smallest_key_of_its_connected_component(
    pairs: list[tuple[int, int]],
) -> None:
    components = [{number} for number in range(1, 14)]
    for pair in pairs:
        touched = [c for c in components if c & set(pair)]
        components = [c for c in components if not c & set(pair)] + [set().union(*touched)]
    joined = join_keys(np.array(pairs, dtype=np.uint64).reshape(-1, 2))
    expected = [min(next(c for c in components if n in c)) for n in range(1, 14)]
    assert joined.of(np.arange(1, 14, dtype=np.uint64)).tolist() == expected


def test_a_damaged_work_file_of_the_table_is_an_error(tmp_path: Path) -> None:
    done = prepared(tmp_path, b"a\ta\na\tb\n")
    path = tmp_path / done.file.name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedSpillError):
        open_cluster_table(done.file, LocalFolder(tmp_path, tmp_path))
