"""Cost of training each preset, in epochs and GPU-hours, from measured throughput."""

from __future__ import annotations

from pipeline.planning.throughput import GPU, THROUGHPUT, Throughput
from pipeline.report.model_estimates import Budget, BudgetRow
from schemas.models import PUBLISHED_RUNS


def budget(train_tokens: int) -> Budget:
    """Return the budget of training on `train_tokens` tokens (without padding)."""
    return Budget(
        tokens=train_tokens,
        gpu=GPU,
        rows=tuple(_row(found, train_tokens) for found in THROUGHPUT if train_tokens),
    )


def _row(found: Throughput, train_tokens: int) -> BudgetRow:
    run = PUBLISHED_RUNS[found.preset]
    run_tokens = run.steps * run.tokens_per_step
    an_hour = 3600 * found.tokens_per_second
    return BudgetRow(
        preset=found.preset,
        precision=found.precision,
        tokens_per_second=found.tokens_per_second,
        run_tokens=run_tokens,
        epochs=run_tokens / train_tokens,
        epoch_gpu_hours=train_tokens / an_hour,
        run_gpu_hours=run_tokens / an_hour,
        source=found.source,
    )
