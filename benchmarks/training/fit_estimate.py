"""Compare the estimates of `thdpack plan` with the measured steps in
benchmarks/training/measured.json, or fit the estimate's coefficients to some of these steps.

    # print the errors of the coefficients in pipeline/planning/estimate.py
    python -m benchmarks.training.fit_estimate
    # print the coefficients that fit best; copy them to pipeline/planning/estimate.py
    python -m benchmarks.training.fit_estimate --fit

The fit uses the rows of measured.json with "fit": true. The other rows test the fitted
coefficients. The fit minimizes the squared relative error of the step time, with positive
coefficients. The constants of the memory formula are not fitted. They were derived by hand from
differences between rows. --fit needs scipy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.planning import estimate
from pipeline.planning.estimate import COEFFICIENTS, Setting
from schemas.models import ESM2_MODELS

MEASURED = Path(__file__).with_name("measured.json")
REAL, SQUARES = 0.9985, 502.4
"""Share of real tokens, and Σ length² per token, in the measured Swiss-Prot buckets."""


def setting_of(row: Mapping[str, Any]) -> Setting:
    capacity, buckets, ranks = (
        row.get("capacity", 16384),
        row.get("buckets", 1),
        row.get("ranks", 1),
    )
    return Setting(
        model=ESM2_MODELS[row["preset"]],
        tokens=capacity * buckets,
        real_tokens=REAL * capacity * buckets,
        squares=row.get("squares", SQUARES * capacity) * buckets,
        max_seqlen=row.get("max_seqlen", 1024),
        fp8=row["precision"] != "bf16",
        micro_batches=row.get("micro_batches", 1),
        recompute=row.get("recompute", "none"),
        ranks=ranks,
        shard=row.get("shard", "full"),
        shards=ranks,
        reshard=row.get("reshard", "step"),
        captured=row.get("cuda_graph", ranks == 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fit", action="store_true", help="print the coefficients that fit best")
    rows = json.loads(MEASURED.read_text())
    if parser.parse_args().fit:
        fit([row for row in rows if row["fit"]])
    print(
        "preset      precision    capacity buckets micro ranks division  recompute "
        "     ms  error    GiB  error  fitted"
    )
    for row in rows:
        setting = setting_of(row)
        ms, gib = 1e3 * estimate.seconds(setting), sum(estimate.memory(setting).values()) / 2**30
        shape = (
            f"{row['preset']:11} {row['precision']:12} {row.get('capacity', 16384):8} "
            f"{row.get('buckets', 1):7} {setting.micro_batches:5}"
        )
        division = setting.reshard if setting.shard == "full" else setting.shard
        ranks = f"{setting.ranks:5} {division if setting.ranks > 1 else '':9} {setting.recompute:9}"
        errors = f"{ms:7.1f} {ms / row['ms'] - 1:+6.1%} {gib:6.1f} {gib / row['gib'] - 1:+6.1%}"
        print(shape, ranks, errors, "yes" if row["fit"] else "no")


def fit(rows: list[dict[str, Any]]) -> None:
    """Fit COEFFICIENTS to the rows, and print the fitted coefficients."""
    import numpy as np
    from scipy.optimize import least_squares

    names = list(COEFFICIENTS)
    settings = [setting_of(row) for row in rows]
    start = np.array([COEFFICIENTS[name] for name in names])

    def errors(logs: Any) -> Any:
        COEFFICIENTS.update(zip(names, np.exp(logs).tolist(), strict=True))
        found = [
            1e3 * estimate.seconds(setting) / row["ms"] - 1
            for setting, row in zip(settings, rows, strict=True)
        ]
        return np.array(
            [*found, *(0.02 * (logs - np.log(start)))]
        )  # the last terms keep a coefficient near its start value if the rows do not determine it

    best = least_squares(errors, np.log(start))
    errors(best.x)
    print({name: float(f"{value:.3g}") for name, value in COEFFICIENTS.items()})


if __name__ == "__main__":
    main()
