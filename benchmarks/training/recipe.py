"""Compare training recipes: the tokens that each needs to reach the validation loss of the first.

    python -m benchmarks.training.recipe DATASET --preset esm2-35m --seeds 0 1 2 \\
        --recipe "adamw: --learning-rate 2e-3" \\
        --recipe "muon@0.7: --optimizer muon --learning-rate 4e-3" \\
        --plot docs/images/recipe.svg

A recipe is NAME or NAME@SHARE, a colon, and flags of `thdpack train`. A run of the recipe trains on
SHARE times --tokens tokens, with a whole schedule of the learning rate. With several shares of the
same flags, the smallest share whose final loss is at most that of the first recipe is the figure.

Each run is one `thdpack train` on one GPU. Runs wait until a GPU of this machine is free (without a
GPU, they run one at a time on the CPU). The masks of validations have a fixed seed, so that runs of
all seeds predict the same tokens. The benchmark can be stopped: the same command then resumes.

The output has a line for each run: final validation loss, tokens, tokens/s. A second table gives
the mean over seeds, and for each recipe the difference to the first recipe in each seed.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.pictures.curves import draw


@dataclass(frozen=True)
class Recipe:
    """Flags of a run, and the share of --tokens that it trains on."""

    name: str
    share: float
    flags: tuple[str, ...]

    @staticmethod
    def parsed(word: str) -> Recipe:
        name, colon, flags = word.partition(":")
        if not colon:
            raise argparse.ArgumentTypeError(f"{word!r} lacks a colon: write NAME: FLAGS")
        _, _, share = name.partition("@")
        return Recipe(name, float(share or 1), tuple(shlex.split(flags)))


@dataclass(frozen=True)
class Result:
    """Losses of one run. `curve` has pairs of tokens and validation loss."""

    recipe: str
    seed: int
    share: float
    loss: float
    tokens: int
    tokens_per_second: float
    curve: list[tuple[int, float]]


def run(
    recipe: Recipe, seed: int, arguments: argparse.Namespace, devices: queue.Queue[str]
) -> Result:
    """Train, or resume, on a free device, and return the losses."""
    steps = round(arguments.tokens * recipe.share / arguments.tokens_per_step)
    out = Path(arguments.out) / arguments.preset / recipe.name / str(seed)
    words = [sys.executable, "-m", "thdpack", "train", arguments.preset]
    words += ["--data", arguments.dataset, "--out", str(out), "--seed", str(seed)]
    words += ["--steps", str(steps), "--tokens-per-step", str(arguments.tokens_per_step)]
    words += ["--validate-every", str(max(1, steps // arguments.validations))]
    words += ["--checkpoint-every", "0", "--keep-last", "1", "--log-every", "20", *recipe.flags]
    device = devices.get()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with open(out.with_suffix(".txt"), "a") as output:
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device}
            subprocess.run(words, stdout=output, stderr=output, env=environment, check=True)
    except subprocess.CalledProcessError as error:
        print(f"{recipe.name}, seed {seed}: failed, see {out}.txt", file=sys.stderr)
        raise SystemExit(1) from error
    finally:
        devices.put(device)
    result = result_of(recipe, seed, out)
    print(json.dumps({**asdict(result), "curve": None}), flush=True)
    return result


def result_of(recipe: Recipe, seed: int, out: Path) -> Result:
    """Read the metrics of a finished run."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    tokens = {line["step"]: line["tokens"] for line in lines if line["kind"] == "train"}
    speeds = [line["tokens_per_second"] for line in lines if line["kind"] == "train"]
    curve = [(tokens[line["step"]], line["loss"]) for line in lines if line["kind"] == "valid"]
    return Result(
        recipe.name,
        seed,
        recipe.share,
        curve[-1][1],
        curve[-1][0],
        statistics.median(speeds),
        curve,
    )


def summary(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return a row for each recipe: its mean final loss, and its differences to the first recipe of
    the same seed.
    """
    recipes = list(dict.fromkeys(result.recipe for result in results))
    of = {(result.recipe, result.seed): result for result in results}
    rows = []
    for recipe in recipes:
        own = [result for result in results if result.recipe == recipe]
        differences = [
            round(result.loss - of[recipes[0], result.seed].loss, 4)
            for result in own
            if (recipes[0], result.seed) in of
        ]
        rows.append(
            {
                "recipe": recipe,
                "share of tokens": own[0].share,
                "mean loss": round(statistics.mean(result.loss for result in own), 4),
                "differences": differences,
                "reached": bool(differences) and max(differences) <= 0,
            }
        )
    return rows


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--preset", default="esm2-35m")
    parser.add_argument("--recipe", dest="recipes", action="append", type=Recipe.parsed, default=[])
    parser.add_argument("--tokens", type=int, default=300_000_000, help="tokens of a whole run")
    parser.add_argument("--tokens-per-step", type=int, default=131_072)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--validations", type=int, default=10, help="validations in a run")
    parser.add_argument("--out", default="runs/recipe", help="folder of the runs")
    parser.add_argument("--json", default="", help="file for the results")
    parser.add_argument("--from-json", default="", help="print and plot the results of this file")
    parser.add_argument("--plot", default="", help="SVG file for the validation losses")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    if arguments.from_json:
        results = [Result(**row) for row in json.loads(Path(arguments.from_json).read_text())]
    else:
        devices = [str(number) for number in range(torch.cuda.device_count())] or [""]
        free: queue.Queue[str] = queue.Queue()
        for device in devices:
            free.put(device)
        jobs = list(product(arguments.seeds, arguments.recipes))
        with ThreadPoolExecutor(len(devices)) as pool:
            results = list(pool.map(lambda job: run(job[1], job[0], arguments, free), jobs))
        if arguments.json:
            text = json.dumps([asdict(result) for result in results], indent=1)
            Path(arguments.json).write_text(text + "\n")
    for row in summary(results):
        print(json.dumps(row))
    if arguments.plot:
        curves = [(result.recipe, result.curve) for result in results]
        draw(curves, Path(arguments.plot), title=arguments.preset)


if __name__ == "__main__":
    main()
