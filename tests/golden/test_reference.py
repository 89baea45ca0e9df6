"""Reference data: ESM-2 token ids, edge cases from the tests of six parsers, and real proteomes."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.inputs.residues import encode, letter_classes, residues_of
from schemas.errors import InputError
from schemas.manifest import Manifest
from schemas.vocabulary import ESM2
from tests.conftest import SHARED, Run
from tests.helpers.data.corpus import read_records
from tests.helpers.data.real_corpora import corpus_text
from tests.helpers.oracles.oracle import beyond_biopython, biopython
from tests.unit.inputs.test_fasta import parse, records


def ids(text: str) -> list[int]:
    return [
        ESM2.cls,
        *encode(residues_of(text, comments=False), letter_classes(ESM2), ESM2.unk)[0].tolist(),
        ESM2.eos,
    ]


def test_the_vocabulary_matches_the_published_checkpoints(shared: Path) -> None:
    assert (
        list(ESM2.tokens)
        == (shared / "tokens" / "esm2_tokenizer" / "vocab.txt").read_text().split()
    )


def test_token_ids_match_fair_esm_where_all_reference_tokenizers_agree(shared: Path) -> None:
    cases = json.loads((shared / "tokens" / "esm2_tokenizer_cases.json").read_text())
    agreed = [
        case for case in cases if case["agree"] and "<" not in case["seq"]
    ]  # FASTA cannot express special tokens
    assert len(agreed) >= 8
    for case in agreed:
        assert ids(case["seq"]) == case["fair_esm"], case["seq"]


@pytest.mark.parametrize("name", ["esm_few_proteins", "esm_some_proteins"])
def test_token_ids_of_whole_proteins_match_the_reference(shared: Path, name: str) -> None:
    for protein in json.loads((shared / "tokens" / f"{name}.tokens.json").read_text()):
        assert ids(protein["seq"]) == protein["input_ids"]


def test_token_ids_of_a_whole_file_match_the_reference(shared: Path) -> None:
    expected = json.loads((shared / "tokens" / "file_token_digests.json").read_text())[
        "bionemo_esm2_train_uniref90_10000.fasta"
    ]
    data = gzip.decompress((shared / "uniref90_10000.fasta.gz").read_bytes())
    read = records(parse(data, chunk=1 << 20, block=1 << 24))
    tokens = [bytes([ESM2.cls, *found, ESM2.eos]) for _, found in read]
    flat = np.frombuffer(b"".join(tokens), dtype=np.uint8).astype("<i4")
    assert (len(tokens), flat.size) == (expected["records"], expected["tokens_with_cls_eos"])
    assert hashlib.sha256(flat.tobytes()).hexdigest() == expected["sha256_int32le_concat"]


NASTY = (
    sorted(
        path
        for path in (SHARED / "nasty").rglob("*")
        if path.is_file() and path.name != "EXPECTED.json"
    )
    if SHARED.is_dir()
    else []
)


@pytest.mark.parametrize("path", NASTY, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_edge_cases_are_read_as_biopython_reads_them_or_refused_with_file_and_line(
    build_here: Callable[..., Manifest], tmp_path: Path, path: Path
) -> None:
    from pipeline.inputs.decompress import decompressed, detect

    with path.open("rb") as file:
        head = file.read(8)
        file.seek(0)
        data = decompressed(file, detect(head)).read()
    expected = biopython(data)
    try:
        build_here(
            path, tmp_path / "out", dedup="none", allow_nucleotides=True, allow_alignment=True
        )
    except InputError as error:
        assert f"{path}:" in str(error)
        no_residue = expected is not None and not any(tokens for _, tokens in expected)
        assert no_residue or expected is None or beyond_biopython(data), str(error)
        return
    rows = read_records(tmp_path / "out")
    assert rows
    if not beyond_biopython(data):
        assert expected is not None
        assert [(row["id"], row["residues"]) for row in rows] == [
            (name, len(tokens)) for name, tokens in expected
        ]
    assert records(parse(data)) == expected or beyond_biopython(data)


@pytest.mark.parametrize("name", ["yeast_proteome", "uniref90_10000", "one_line_20000"])
def test_real_corpora_are_read_as_biopython_reads_them(shared: Path, name: str) -> None:
    data = corpus_text(shared / f"{name}.fasta.gz")
    cuts = (len(data) // 3, len(data) // 2)
    assert records(parse(data, chunk=30_011, block=1 << 18, cuts=cuts)) == biopython(data)


def test_ten_thousand_records_fill_the_fewest_buckets_and_no_bucket_costs_much_more_than_the_mean(
    run: Run, shared: Path, tmp_path: Path
) -> None:
    from tests.helpers.data.corpus import read_buckets, read_manifest

    assert (
        run("preprocess", shared / "uniref90_10000.fasta.gz", "--out", tmp_path / "out").returncode
        == 0
    )
    manifest, buckets = read_manifest(tmp_path / "out"), read_buckets(tmp_path / "out")
    for name, split in manifest.splits.items():
        tokens = [b["num_tokens"] for b in buckets if b["split"] == name]
        assert len(tokens) == -(-sum(tokens) // manifest.capacity)
        assert split.cost_max <= 1.02 * split.cost_sum / max(split.buckets, 1)
    assert manifest.slots == 64


def test_the_sample_dataset_matches_the_golden_file(run: Run, sample: Path, tmp_path: Path) -> None:
    """If a hash changes, users' datasets change, and CHANGELOG.md must say why."""
    import pyarrow as pa

    from tests.helpers.data.corpus import digest

    assert run("preprocess", sample, "--out", tmp_path / "out").returncode == 0
    found = digest(tmp_path / "out")
    noted = json.loads((Path(__file__).parent / "sample.json").read_text())
    shards = {name: value for name, value in found.items() if name.endswith(".arrow")}
    if pa.__version__ == noted["pyarrow"]:  # another version of pyarrow may write other bytes
        assert shards == noted["shards"]
    else:
        assert sorted(shards) == sorted(noted["shards"])
