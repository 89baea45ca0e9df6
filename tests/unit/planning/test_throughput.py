"""The table of measured throughput."""

from __future__ import annotations

import re

from pipeline.planning.throughput import THROUGHPUT
from schemas.models import PUBLISHED_RUNS
from tests.helpers.processes.command_line import REPO


def test_the_throughput_table_agrees_with_docs_and_presets() -> None:
    from trainer.config import PRESETS

    text = (REPO / "docs" / "benchmarks.md").read_text()
    measured = re.findall(
        r"^\| (\w+) \| (bf16|fp8-delayed) \| 16,384 \| [\d.]+ \| ([\d,]+) \|",
        text,
        flags=re.MULTILINE,
    )
    rows = {
        (f"esm2-{name.lower()}", precision): int(rate.replace(",", ""))
        for name, precision, rate in measured
    }
    of_15b = text.partition("15B on 4 GPUs")[2]
    largest = re.search(r"^\| (fp8-delayed) \| \d+ \| [\d,]+ \| [\d-]+ \| ([\d,]+) ", of_15b, re.M)
    assert largest is not None
    rows["esm2-15b", largest[1]] = int(largest[2].replace(",", ""))
    assert rows == {(row.preset, row.precision): row.tokens_per_second for row in THROUGHPUT}
    for name, run in PUBLISHED_RUNS.items():
        options = PRESETS[name][1]
        assert (run.steps, run.tokens_per_step) == (
            options.optimizer.steps,
            options.data.tokens_per_step,
        )
    assert {row.preset for row in THROUGHPUT} == set(PUBLISHED_RUNS) == set(PRESETS) - {"esm2-tiny"}
