"""Array functions of `thdpack verify --deep`, compared with plain Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xxhash

from pipeline.build.verify.bucket_sequences import hashes_and_unknown
from pipeline.build.verify.equal_hashes import repeated
from pipeline.build.verify.row_file import HASH_HALVES, reserve
from pipeline.build.verify.sequence_kernel import find_ends
from schemas.errors import BuildError
from schemas.vocabulary import ESM2


def test_ends_hashes_and_unknown_letters_of_sequences_match_plain_python() -> None:
    rng = np.random.default_rng(0)
    spans, residues = [], []
    for size in [1, 2, 3, 16, 17, 240, 241, 1000, *rng.integers(1, 300, 50).tolist()]:
        tokens = rng.choice([ESM2.unk, *range(4, 24)], size).astype(np.uint8).tobytes()
        padding = bytes([ESM2.pad] * int(rng.integers(0, 8)))
        spans.append(bytes([ESM2.cls]) + tokens + bytes([ESM2.eos]) + padding)
        residues.append(tokens)
    ids = np.frombuffer(b"".join(spans), dtype=np.uint8)
    last = np.cumsum([len(span) for span in spans])
    begin = np.append(0, last[:-1]) + 1
    end = np.empty_like(begin)
    find_ends(ids, begin, last, ESM2.eos, end)
    assert (end - begin).tolist() == [len(tokens) for tokens in residues]
    hashes, unknown = hashes_and_unknown(ids, begin, end, ESM2.unk)
    assert unknown.tolist() == [tokens.count(ESM2.unk) for tokens in residues]
    assert [int(h["high"]) << 64 | int(h["low"]) for h in hashes] == [
        xxhash.xxh3_128_intdigest(tokens) for tokens in residues
    ]


@pytest.mark.parametrize("seed", range(5))
def test_repeated_hashes_are_found_as_plain_python_finds_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hashes = np.empty(60, dtype=HASH_HALVES)
    hashes["high"], hashes["low"] = rng.integers(0, 4, 60), rng.integers(0, 8, 60)
    among = rng.random(60) < 0.8
    met: set[tuple[int, int]] = set()
    expected = []
    for i in np.flatnonzero(among).tolist():
        digest = (int(hashes["high"][i]), int(hashes["low"][i]))
        expected += [i] * (digest in met)
        met.add(digest)
    assert repeated(hashes, among).tolist() == expected


def test_a_work_file_too_large_for_the_disk_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        BuildError, match=r"cannot reserve .* set TMPDIR to a folder with more space"
    ):
        reserve(tmp_path / "rows", 1 << 62)
