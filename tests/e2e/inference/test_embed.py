"""`thdpack embed`, compared with plain transformers on one sequence at a time."""

from __future__ import annotations

import hashlib
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tests.helpers.data.corpus import as_read, fasta, made_records
from tests.helpers.processes.command_line import preprocess
from tests.helpers.processes.inference import (
    close,
    embed,
    hidden_states,
    rows,
    saved_model,
    started,
    windowed,
)

if TYPE_CHECKING:
    from transformers import EsmForMaskedLM

RECORDS = made_records(120, longest=150)
LAYERS = 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EsmForMaskedLM]:
    folder = tmp_path_factory.mktemp("model")
    return folder, saved_model(folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(RECORDS))
    return path


@pytest.fixture(scope="module")
def dataset(corpus: Path) -> Path:
    """Build a dataset of several partitions, shards and splits."""
    options = "--capacity 512 --max-seq-len 160 --split train=0.6,valid=0.3,test=0.1"
    return preprocess(
        corpus, corpus.parent / "dataset", *options.split(), partition_bytes=4_000, task_bytes=4_000
    )


def digests(out: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())
    }


def check(found: list[dict[str, Any]], model: EsmForMaskedLM) -> None:
    """Compare rows with pooling mean, cls and residues of layers 1 and 2."""
    assert [row["id"] for row in found] == [header.split()[0] for header, _ in RECORDS]
    assert [row["ordinal"] for row in found] == list(range(len(RECORDS)))
    for row, (_, residues) in zip(found, RECORDS, strict=True):
        text = as_read(residues)
        assert row["residues"] == row["used_residues"] == len(text)
        if not text:
            assert row["status"] == "too_short"
            assert row["mean_1"] is row["residues_2"] is None
            continue
        assert row["status"] in ("kept", "duplicate")
        states = hidden_states(model, residues)
        for layer in (1, 2):
            close(row[f"mean_{layer}"], states[layer][1:-1].mean(0))
            close(row[f"cls_{layer}"], states[layer][0])
            close(row[f"residues_{layer}"], states[layer][1:-1])
    assert any(row["status"] == "duplicate" for row in found)


def test_embeddings_of_fasta_equal_those_of_transformers(
    model: tuple[Path, EsmForMaskedLM], corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = "--pooling residues,mean,cls --layers 1,last --row-tokens 512 --max-seq-len 200"
    said = embed(model[0], corpus, "--out", out, *words.split())
    assert f"wrote {len(RECORDS)} rows to {out}" in said
    check(rows(out), model[1])
    assert {path.suffix for path in out.iterdir()} == {".parquet", ".json"}
    again = embed(model[0], corpus, "--out", out, *words.split())
    assert "is complete already" in again


@pytest.mark.parametrize("ranks", [1, 2])
def test_embeddings_of_a_dataset_equal_those_of_transformers_on_any_number_of_ranks(
    model: tuple[Path, EsmForMaskedLM], dataset: Path, tmp_path: Path, ranks: int
) -> None:
    out = tmp_path / "out"
    words = "--pooling mean,cls,residues --layers 1,2 --row-tokens 256 --format arrow"
    embed(model[0], dataset, "--out", out, *words.split(), ranks=ranks, unit_tokens=1024)
    assert len(list(out.glob("*.arrow"))) > 1
    check(rows(out), model[1])


def test_killed_runs_continue_to_the_same_bytes_on_any_number_of_ranks(
    model: tuple[Path, EsmForMaskedLM], dataset: Path, tmp_path: Path
) -> None:
    words = [model[0], dataset, "--pooling", "mean,residues", "--row-tokens", 256]
    whole = tmp_path / "whole"
    embed(*words, "--out", whole, unit_tokens=512)
    random_, killed, number = random.Random(0), 0, 0
    while killed < 20:
        out = tmp_path / str(number)
        # right before a random change of the output folder
        change = random_.randint(1, 9)
        before = (
            "import os, signal\n"
            "from tests.helpers.processes.stopped import at_change\n"
            f"at_change({change}, {str(out)!r}, lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
        )
        ranks = random_.choice([1, 1, 1, 2])
        with started(*words, "--out", out, ranks=ranks, unit_tokens=512, before=before) as job:
            while job.poll() is None and not any(rank.poll() for rank in job.ranks):
                time.sleep(0.005)
            job.kill()
            if any(rank.poll() == -signal.SIGKILL for rank in job.ranks):
                killed += 1
                continue
        assert digests(out) == digests(whole)
        number += 1
    embed(*words, "--out", out, unit_tokens=512)
    assert digests(out) == digests(whole)
    assert len(rows(out)) == len(RECORDS)


def test_long_records_are_embedded_in_windows(
    model: tuple[Path, EsmForMaskedLM], tmp_path: Path
) -> None:
    records = [(name, text) for name, text in RECORDS if len(as_read(text)) > 90][:8]
    (tmp_path / "long.fasta").write_bytes(fasta(records))
    out = tmp_path / "out"
    words = "--pooling mean,cls,residues --max-seq-len 66 --overlap 20 --row-tokens 128"
    embed(model[0], tmp_path / "long.fasta", "--out", out, *words.split())
    for row, (_, residues) in zip(rows(out), records, strict=True):
        expected = windowed(model[1], residues, layer=LAYERS, longest=66, overlap=20)
        assert row["used_residues"] == row["residues"] == len(expected)
        close(row["residues_2"], expected)
        close(row["mean_2"], expected.mean(0))


def test_a_dataset_that_crops_gives_a_warning_and_the_number_of_residues_used(
    model: tuple[Path, EsmForMaskedLM], corpus: Path, tmp_path: Path
) -> None:
    cropped = preprocess(corpus, tmp_path / "data", "--max-seq-len", "50", "--capacity", "256")
    out = tmp_path / "out"
    said = embed(model[0], cropped, "--out", out, "--row-tokens", 256)
    found = rows(out)
    partly = [row for row in found if 0 < row["used_residues"] < row["residues"]]
    assert f"warning: {len(partly)} records are longer than the dataset's sequences" in said
    assert {row["used_residues"] for row in partly} == {48}
    for row, (_, residues) in zip(found, RECORDS, strict=True):
        if row["used_residues"]:
            states = hidden_states(model[1], as_read(residues)[:48])
            close(row["mean_2"], states[2][1:-1].mean(0))


def test_pieces_of_a_split_dataset_are_joined(
    model: tuple[Path, EsmForMaskedLM], corpus: Path, tmp_path: Path
) -> None:
    pieces = preprocess(
        corpus,
        tmp_path / "data",
        *["--max-seq-len", "50", "--capacity", "256", "--long", "split", "--length-multiple", "4"],
    )
    out = tmp_path / "out"
    embed(model[0], pieces, "--out", out, "--row-tokens", 256, "--pooling", "mean,residues")
    for row, (_, residues) in zip(rows(out), RECORDS, strict=True):
        text = as_read(residues)
        assert row["used_residues"] == row["residues"] == len(text)
        if text:
            parts = [text[begin : begin + 48] for begin in range(0, len(text), 48)]
            expected = np.concatenate([hidden_states(model[1], part)[2][1:-1] for part in parts])
            close(row["residues_2"], expected)
            close(row["mean_2"], expected.mean(0))


@pytest.mark.parametrize(("dtype", "limit"), [("fp16", 1e-3), ("bf16", 8e-3)])
def test_half_precision_output_is_the_rounded_result(
    model: tuple[Path, EsmForMaskedLM], dataset: Path, tmp_path: Path, dtype: str, limit: float
) -> None:
    out = tmp_path / "out"
    embed(model[0], dataset, "--out", out, "--dtype", dtype, "--row-tokens", 256)
    for row, (_, residues) in zip(rows(out), RECORDS, strict=True):
        if row["used_residues"]:
            found = np.array(row["mean_2"], np.uint16 if dtype == "bf16" else np.float16)
            if dtype == "bf16":
                found = torch.from_numpy(found).view(torch.bfloat16).float().numpy()
            close(found, hidden_states(model[1], residues)[2][1:-1].mean(0), limit)
