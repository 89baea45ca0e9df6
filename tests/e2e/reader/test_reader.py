"""ShardReader on a small dataset: states, splits, arrays and threads."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest

from pipeline.reader import Mixture, ShardReader
from schemas.errors import DatasetError, StateError
from tests.conftest import OurThreads
from tests.helpers.data.corpus import fasta, made_records, read_buckets
from tests.helpers.data.delivered import Seen, seen
from tests.helpers.data.many_shards import OPTIONS, PARTITION_BYTES
from tests.helpers.processes.command_line import REPO, Run
from tests.helpers.stores.stores import open_in


def test_by_default_a_step_is_one_bucket_for_each_rank(many_shards: Path) -> None:
    with ShardReader(many_shards, rank=2, world_size=3) as reader:
        assert [next(reader).position for _ in range(3)] == [2, 5, 8]
        assert reader.state_dict() == {
            "version": 1,
            "manifest": reader.manifest.digest,
            "split": "train",
            "seed": 0,
            "position": 9,
        }


def test_an_invalid_state_or_a_state_of_another_reader_is_refused_with_the_reason(
    many_shards: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "other.fasta").write_bytes(fasta(made_records(30, seed=1, longest=200)))
    assert run("preprocess", tmp_path / "other.fasta", "--out", tmp_path / "other").returncode == 0
    with ShardReader(many_shards) as reader, ShardReader(tmp_path / "other") as other:
        next(reader)
        state = reader.state_dict()
        for wrong, reason in [
            (
                other.state_dict(),
                "of a mixture: its manifest digest .* the dataset is rebuilt",
            ),
            (
                {**state, "seed": 1},
                "another seed: it is 1, this reader has 0; .* open .*/many_shards.* with seed=1$",
            ),
            ({**state, "split": "valid"}, "another split: .* with split='valid'$"),
            ({**state, "version": 2}, "version 2, this thdpack reads version 1"),
            ({"version": 1, "position": 3}, "no manifest, seed, split in it"),
            ({**state, "position": -1}, "position -1"),
            ({**state, "position": 1.5}, "position 1.5"),
            ({**state, "position": True}, "position True"),
            ({**state, "position": 1 << 62}, "to 2.62 - 1"),
        ]:
            with pytest.raises(StateError, match=reason):
                reader.load_state_dict(wrong)
            assert reader.state_dict() == state
        for position in (-1, 1 << 62):
            with pytest.raises(ValueError, match="position"):
                reader.seek(position)


def test_bucket_numbers_follow_the_stored_order(many_shards: Path) -> None:
    stored = [
        bytes(row["input_ids"]) for row in read_buckets(many_shards) if row["split"] == "train"
    ]
    with ShardReader(many_shards) as reader:
        assert [reader[number].input_ids.tobytes() for number in range(len(reader))] == stored
        next(reader)
        number = random.Random(0).randrange(len(reader))
        assert reader[number].position == -1
        for outside in (-1, len(reader)):
            with pytest.raises(IndexError):
                reader[outside]
        with pytest.raises(ValueError, match="position is -1"):
            reader.number_at(-1)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_reader_and_a_mixture_read_every_bucket_of_a_split(many_shards: Path, split: str) -> None:
    rows = (row for row in read_buckets(many_shards) if row["split"] == split)
    expected = sorted(bytes(row["input_ids"]) for row in rows)
    assert len(expected) > 1
    for reader in (ShardReader(many_shards, split), Mixture([(many_shards, 1)], split)):
        with reader:
            found = [bucket.input_ids.tobytes() for bucket in islice(reader, len(expected))]
        assert sorted(found) == expected


def test_compressed_shards_give_the_same_buckets(
    many_shards: Path, uninterrupted: list[Seen], run: Run, tmp_path: Path
) -> None:
    options = (*OPTIONS, "--compression", "zstd")
    assert (
        run(
            "preprocess",
            many_shards.parent / "made.fasta",
            "--out",
            tmp_path / "zstd",
            *options,
            partition_bytes=PARTITION_BYTES,
        ).returncode
        == 0
    )
    with ShardReader(tmp_path / "zstd") as reader:
        kept = list(islice(reader, len(uninterrupted)))
    assert [seen(bucket) for bucket in kept] == uninterrupted
    for array in (kept[0].input_ids, kept[0].cu_seqlens):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_buckets_are_read_only_and_outlive_the_reader(
    many_shards: Path, uninterrupted: list[Seen]
) -> None:
    with ShardReader(many_shards) as reader:
        kept = list(islice(reader, len(uninterrupted)))
    assert [seen(bucket) for bucket in kept] == uninterrupted
    for array in (kept[0].input_ids, kept[0].cu_seqlens):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_closed_or_deleted_reader_leaves_no_thread(
    many_shards: Path, our_threads: OurThreads
) -> None:
    with ShardReader(many_shards) as reader:
        next(reader)
        assert our_threads()
    assert not our_threads()
    with pytest.raises(ValueError, match="closed"):
        next(reader)
    with pytest.raises(ValueError, match="closed"):
        next(iter(reader))
    with pytest.raises(ValueError, match="closed"):
        reader.seek(3)
    with pytest.raises(ValueError, match="closed"):
        reader[0]
    reader.close()
    reader = ShardReader(many_shards)
    next(reader)
    assert our_threads()
    del reader
    assert not our_threads()
    with pytest.raises(DatasetError):
        ShardReader(many_shards / "nowhere")
    assert not our_threads()


def test_an_unclosed_reader_does_not_keep_the_interpreter_alive(many_shards: Path) -> None:
    program = f"""
from pipeline.reader import ShardReader
reader = ShardReader({str(many_shards)!r}, prefetch=9)
next(reader)
print("done")
"""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_reader_may_be_closed_from_another_thread_at_any_moment(
    many_shards: Path, tmp_path: Path, our_threads: OurThreads
) -> None:
    cache = tmp_path / "cache"
    for attempt in range(60):
        reader = ShardReader(many_shards, cache_dir=cache, prefetch=attempt % 3)
        closing = threading.Timer(random.Random(attempt).uniform(0, 0.01), reader.close)
        closing.start()
        with pytest.raises(ValueError, match="closed"):
            for _ in reader:
                pass
        closing.join()
    assert not our_threads()
    assert not open_in(cache)


def test_the_reader_imports_no_heavy_packages_and_no_kernels() -> None:
    program = """
import sys
import pipeline.reader, pipeline.reader.mixture
import pipeline.reader.adapters, pipeline.reader.benchmark
print(*sys.modules)
"""
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert not loaded & {
        "torch",
        "numba",
        "polars",
        "datasets",
        "pandas",
        "Bio",
        "isal",
        "tyro",
        "rich",
    }
    assert not {name for name in loaded if name.endswith("_kernel")}
