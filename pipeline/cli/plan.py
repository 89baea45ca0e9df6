"""`thdpack plan`: print the plan of a training run."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console

from pipeline.cli.arguments import UsageError
from pipeline.cli.options.subcommand_options import PlanOptions
from pipeline.planning.cluster import GPU_GIB, MEASURED, PEAK_TB_S, Cluster
from pipeline.planning.estimate import memory, seconds
from pipeline.planning.search_settings import WORTH_NO_FLAGS
from pipeline.planning.training_plan import (
    CACHE,
    FIRST_NODE,
    TORCHRUN_SECONDS,
    WRITE_BYTES_PER_SECOND,
    TrainingPlan,
    plan_training,
)
from schemas.models import FEW_EPOCHS, MOST_EPOCHS, PUBLISHED_RUNS
from schemas.text.phrases import duration, plural

_SMALLEST_PART = 0.05 * 2**30
"""Smallest part of the memory that is printed, in bytes. A smaller part would appear as 0.0 GiB."""
_ASSUMED = "8xH200"
"""GPUs of a plan without --gpus."""
_DEFAULT = " (the trainer's default)"


def run_plan(options: PlanOptions) -> int:
    """Plan a training run, print the plan, and return an exit code.

    Raises:
        ThdpackError: the dataset cannot be read.
        UsageError: no setting fits, or an option is wrong.
    """
    if not options.data:
        raise UsageError("--data is missing: name a dataset, as in --data data/uniref50")
    try:
        plan = plan_training(
            options.data,
            options.model,
            _ASSUMED if options.gpus is None else options.gpus,
            precision=options.precision,
            tokens=options.tokens,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    if options.json:
        print(json.dumps(plan.to_json()))
    else:
        _show(plan, Console(), assumed="" if options.gpus else " (assumed, as --gpus is missing)")
    return 0


def _show(plan: TrainingPlan, console: Console, *, assumed: str) -> None:
    """Print a plan.

    Args:
        assumed: words after the GPUs.
    """
    gpus = f"{_gpus(plan.cluster)}{assumed}"
    console.print(
        f"{plan.model} on {gpus}, {plan.precision}, {' + '.join(plan.data)}",
        highlight=False,
        markup=False,
    )
    if plan.cluster.gpu != MEASURED:
        console.print(_unmeasured(plan.cluster.gpu), highlight=False, soft_wrap=True)
    for line in _table(list(_facts(plan)), console.width):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(plan.command, highlight=False, markup=False, soft_wrap=True)
    for line in (*_placeholders(plan), *_shutdown(plan), *_alternatives(plan)):
        console.print(line, style="dim", highlight=False, markup=False, soft_wrap=True)
    if plan.why_steps:
        why = f"{plan.why_steps}, for a run from random weights (--init-from: at most {FEW_EPOCHS})"
        console.print(why, highlight=False, markup=False, soft_wrap=True)
    for line in _warnings(plan):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(_caveat(plan), style="dim", highlight=False, markup=False, soft_wrap=True)


def _gpus(cluster: Cluster) -> str:
    """Return the number and kind of GPUs, and their division among nodes."""
    gpus = f"{cluster.number} {cluster.gpu}"
    if cluster.nodes == 1:
        return gpus
    return f"{gpus} ({cluster.nodes} nodes of {plural(cluster.gpus_per_node, 'GPU')})"


def _unmeasured(gpu: str) -> str:
    """Return a note for GPUs on which no time was measured."""
    longest = PEAK_TB_S[MEASURED] / PEAK_TB_S[gpu]
    return (
        f"tokens/s and times below are those of {MEASURED}s, because no {gpu} was measured. As a "
        f"rough guide, a step on an {gpu} SXM takes 1 to {longest:.2f} times as long: its peak "
        f"compute is that of an {MEASURED}, but its peak memory bandwidth is {PEAK_TB_S[gpu]} "
        f"instead of {PEAK_TB_S[MEASURED]} TB/s"
    )


def _facts(plan: TrainingPlan) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table: a label and a value. A row without a label continues the row
    above."""
    best, number = plan.best, plan.cluster.number
    rate = best.tokens_per_second
    step = (
        f"a step of {best.setting.step_tokens:,.0f} tokens takes {_seconds(seconds(best.setting))}"
    )
    measured = "" if plan.cluster.gpu == MEASURED else f" of {MEASURED}"
    yield f"tokens/s{measured}", f"{rate:,.0f} ({rate / number:,.0f} per GPU); {step}"
    yield "settings", f"{best.words}{_DEFAULT if best.is_default else ''}"
    for name, tokens, steps in (
        ("an epoch", plan.epoch_tokens, plan.epoch_tokens / best.setting.step_tokens),
        ("the run", plan.tokens, plan.steps),
    ):
        hours = plan.hours(tokens)
        time = f"{duration(3600 * hours)}, {_hours(hours * number)} GPU-hours"
        yield name, f"{tokens:,} tokens, {_steps(steps)}: {time}"
    yield from _parts(plan)
    label = "memory of a GPU"
    for part, size in memory(best.setting).items():
        if size >= _SMALLEST_PART:
            yield label, f"{size / 2**30:6.1f} GiB  {part}"
            label = ""
    yield "", f"{best.gib:6.1f} GiB  in total, of {GPU_GIB[plan.cluster.gpu]} GiB"


def _parts(plan: TrainingPlan) -> Iterator[tuple[str, str]]:
    """Yield a row for each dataset of a mixture: its share, tokens and epochs of the run."""
    label = "of the run"
    for part in plan.parts if len(plan.parts) > 1 else ():
        epochs = f"{part.epochs_in(plan.buckets):,.2f} epochs of it"
        tokens = f"{part.tokens_in(plan.buckets):,.0f} tokens"
        yield label, f"{float(100 * part.share):.4g} % from {part.url}: {tokens}, {epochs}"
        label = ""


def _table(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Yield the lines of a table whose values wrap, but never between a number and its unit."""
    indent = max(len(label) for label, _ in rows) + 2
    for label, value in rows:
        # textwrap, unlike rich, does not break lines at a non-breaking space
        kept = re.sub(r"(?<=\d) (?=[^\W\d])", "\N{NO-BREAK SPACE}", value)
        for line in textwrap.wrap(kept, max(width - indent, 20), break_on_hyphens=False):
            yield f"{label:<{indent}}{line}".replace("\N{NO-BREAK SPACE}", " ")
            label = ""


def _placeholders(plan: TrainingPlan) -> Iterator[str]:
    """Yield a line for each placeholder in the command."""
    if plan.cluster.nodes > 1:
        yield (
            f"run this command on each of the {plan.cluster.nodes} nodes; in all of them, replace "
            f"{FIRST_NODE} by the name or address of the first node. --out must be a folder that "
            "all nodes share"
        )
    if plan.is_remote:
        yield f"replace {CACHE} by a folder on a local disk, which all processes of a node share"


def _shutdown(plan: TrainingPlan) -> Iterator[str]:
    """Yield a line that explains --shutdown-timeout, if the command has this option."""
    if plan.shutdown_timeout:
        yield (
            f"--shutdown-timeout: after a signal, two steps and a checkpoint take about "
            f"{plan.stop_seconds:,.0f} s if all ranks together write "
            f"{WRITE_BYTES_PER_SECOND / 1e9:g} GB/s. Without the option, torchrun kills the run "
            f"after {TORCHRUN_SECONDS} s. If your disk is slower, give a larger number. torch 2.11 "
            "lacks the option: omit it there. A stopped run then resumes from an older checkpoint"
        )


def _alternatives(plan: TrainingPlan) -> Iterator[str]:
    """Yield a line for each alternative to the best setting.

    If an alternative is faster, yield the reasons first why the best setting is preferred.
    """
    rate = plan.best.tokens_per_second
    fastest = max(each.tokens_per_second for each in plan.candidates)
    if plan.best.is_default and fastest > rate:
        yield (
            "the trainer chooses the settings above by itself; this plan prefers another setting "
            f"only if it is more than {100 * (WORTH_NO_FLAGS - 1):.0f} % faster:"
        )
    if fastest > rate * (WORTH_NO_FLAGS if plan.best.is_default else 1):
        yield (
            "a faster setting below divides the model among all nodes. Its speed depends on the "
            "network between them, which was not measured, so the settings above are preferred:"
        )
    for each in plan.candidates[1:]:
        gib = f"{each.gib:.0f}" if each.gib >= 9.5 else f"{each.gib:.1f}"
        rates = f"{each.tokens_per_second:,.0f} tokens/s in {gib} GiB"
        yield f"or {rates}: {' '.join(each.flags())}{_DEFAULT if each.is_default else ''}"


def _warnings(plan: TrainingPlan) -> Iterator[str]:
    """Yield a note if the dataset is too small for the published batch, and a warning if the run
    repeats the data too often."""
    name = "the dataset" if len(plan.parts) == 1 else "the mixture"
    if plan.has_smaller_batch:
        published = PUBLISHED_RUNS[plan.model].tokens_per_step
        yield (
            f"a step of the published batch ({published:,} tokens) would be "
            f"{published / plan.epoch_tokens:,.2f} epochs of {name}: the plan has a smaller "
            "batch, the one that the trainer chooses without --buckets-per-step"
        )
    epochs = plan.tokens / plan.epoch_tokens
    if epochs > MOST_EPOCHS:
        yield (
            f"warning: this run is {epochs:,.0f} epochs of {name}, which the model will "
            f"memorize. --tokens {FEW_EPOCHS * plan.epoch_tokens} plans {FEW_EPOCHS} epochs; "
            "`thdpack train --init-from FOLDER` starts from published weights and needs fewer "
            "epochs"
        )


def _caveat(plan: TrainingPlan) -> str:
    note = f"Estimates, within 9 % of measurements on up to 4 {MEASURED} of one host"
    note += " (docs/benchmarks.md)"
    if plan.cluster.gpu != MEASURED:
        note += f"; this accuracy does not apply to {plan.cluster.gpu}, which was not measured"
    if plan.best.setting.context_parallel > 1:
        note += (
            "; with --context-parallel, only memory was measured, and the estimated time "
            "leaves out communication between ranks that share a bucket"
        )
    if plan.cluster.nodes > 1:
        note += "; traffic between hosts was not measured"
    return note + "."


def _steps(steps: float) -> str:
    number = f"{steps:,.0f}" if steps >= 10 else f"{steps:.1f}".removesuffix(".0")
    return f"{number} step{'' if number == '1' else 's'}"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2f}" if hours >= 0.01 else "under 0.01"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:,.1f} ms"
