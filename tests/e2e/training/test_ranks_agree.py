"""Ranks that differ in dataset, options or packages do not train, and the error names the rank."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

from schemas.manifest import Manifest
from tests.helpers.processes.ranks import Job
from tests.helpers.processes.runs import arguments, losses

TRAIN_AS_RANK = """
import os, sys
from trainer.train import main
rank = int(os.environ["RANK"])
words = [word.split("|") for word in sys.argv[1:]]
main([choices[min(rank, len(choices) - 1)] for choices in words])
"""
"""Program of a rank. An argument `left|right` becomes `left` on rank 0 and `right` on all other
ranks."""
OF_ANOTHER_TORCH = """
import os, sys, torch
if os.environ["RANK"] == "1":
    torch.__version__ = "2.0.1"
from trainer.train import main
main(sys.argv[1:])
"""
WITH_LESS_MEMORY = """
import os, sys, trainer.start.fit
trainer.start.fit.available_memory = lambda device: [float("inf"), 1e3][int(os.environ["RANK"])]
from trainer.train import main
main(sys.argv[1:])
"""


def refused(program: str, words: list[str]) -> str:
    """Run two ranks, which must fail with the same error. Check that only rank 0 prints it. Return
    the output.
    """
    with Job(program, words, ranks=2) as job:
        job.wait()
    assert [rank.returncode for rank in job.ranks] == [2, 2], job.said
    host = socket.gethostname()
    assert job.said.startswith(f"thdpack train: rank 1 on {host} differs from rank 0 on {host}. ")
    assert job.said.count("\n") == 1, job.said
    return job.said


def test_a_rank_with_a_stale_copy_of_the_dataset_is_named(
    build_here: Callable[..., Manifest], sample: Path, tmp_path: Path
) -> None:
    digests = [
        build_here(sample, tmp_path / str(seed), capacity=512, max_seq_len=256, seed=seed).digest
        for seed in (0, 1)
    ]
    said = refused(TRAIN_AS_RANK, arguments(Path(f"{tmp_path}/0|{tmp_path}/1"), tmp_path / "run"))
    assert f"a dataset whose manifest has digest {digests[1]} (rank 0: {digests[0]})" in said
    assert not list(tmp_path.rglob("*.distcp"))


def test_a_rank_with_a_different_option_is_named(many_shards: Path, tmp_path: Path) -> None:
    said = refused(
        TRAIN_AS_RANK,
        arguments(
            many_shards,
            tmp_path / "run",
            "--learning-rate",
            "1e-3|2e-3",
            "--context-parallel",
            "1|2",
        ),
    )
    assert "--learning-rate 0.002 (rank 0: 0.001); --context-parallel 2 (rank 0: 1)" in said


def test_a_rank_with_another_version_of_torch_is_named(many_shards: Path, tmp_path: Path) -> None:
    assert "Rank 1 has torch 2.0.1 (rank 0: " in refused(
        OF_ANOTHER_TORCH, arguments(many_shards, tmp_path / "run")
    )


def test_copies_of_one_dataset_at_different_paths_are_accepted(
    many_shards: Path, tmp_path: Path
) -> None:
    (tmp_path / "copy").symlink_to(many_shards)
    words = arguments(
        Path(f"{many_shards}|{tmp_path / 'copy'}"), tmp_path / "run", "--warmup-steps", "0", steps=2
    )
    Job(TRAIN_AS_RANK, words, ranks=2).finish()
    assert set(losses(tmp_path / "run")) == {1, 2}


def test_the_rank_with_the_least_memory_decides_the_defaults_of_shard_and_reshard(
    many_shards: Path, tmp_path: Path
) -> None:
    Job(
        WITH_LESS_MEMORY,
        arguments(many_shards, tmp_path / "run", steps=2),
        ranks=2,
    ).finish()
    chosen = json.loads((tmp_path / "run" / "options.json").read_text())["compute"]
    assert (chosen["shard"], chosen["reshard"]) == ("full", "layer")
