"""The figures about packed sequences: padding, attention cost, fill, slots, and training time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipeline.report.distributions import Distribution, added, bins
from pipeline.report.html.figure import Figure, area, labelled
from pipeline.report.html.plots import Bar, Bars, Dot, Dots, Histogram, Mark, Ridges
from pipeline.report.html.svg import Axis, round_steps
from pipeline.report.model import Report, Waste
from pipeline.report.model_estimates import BudgetRow
from pipeline.report.render.numerals import about, duration, percent
from pipeline.report.render.sentences import pooled_splits, small_data, train_spread
from schemas.models import FEW_EPOCHS
from schemas.text.phrases import plural

_COLOURS: Final = {"bshd": "c2", "sorted": "c5", "next-fit": "c3", "packed": "c1"}
_BATCHES: Final = {
    "bshd": ("row", "s"),
    "sorted": ("batch", "es"),
    "next-fit": ("bucket", "s"),
    "packed": ("bucket", "s"),
}
"""Noun for a batch in each way of batching, and the ending of the noun's plural."""
_COST_BINS: Final = 160
"""Approximate number of bins in the plot of attention costs."""
_DURATIONS: Final = {
    1 / 3600: "1 s",
    1 / 60: "1 min",
    1.0: "1 h",
    24.0: "1 day",
    730.5: "1 month",
    8766.0: "1 year",
    87_660.0: "10 years",
    876_600.0: "100 years",
}


def waste(report: Report) -> Figure | None:
    """Show the padding of each way of batching. Return None if no record was kept."""
    if not report.waste:
        return None
    share = {way.name: percent(way.waste) for way in report.waste}
    bars = [
        waste_bar(
            way.title, way, _COLOURS[way.name], f", {plural(way.batches, *_BATCHES[way.name])}"
        )
        for way in report.waste
    ]
    return Figure(
        key="waste",
        title=f"With rows padded to {report.settings.max_seq_len:,}, {share['bshd']} of the "
        f"computed tokens are padding; in this packing, {share['packed']}",
        words=f"The same {about(report.tokens)} tokens, batched in {len(bars)} ways. Each bar "
        "stands for all tokens that a GPU computes (100 %). Its coloured part is the share of real "
        "tokens. "
        f"{pooled_splits(report)}".rstrip(),
        plot=waste_bars(bars),
        legend=(("rest", "", "padding"),),
    )


def waste_bar(name: str, way: Waste, colour: str, batches: str = "") -> Bar:
    """Return a bar whose coloured part is the share of real tokens."""
    return Bar(
        name=name,
        words=f"{percent(way.waste)} wasted",
        share=1 - way.waste,
        colour=colour,
        below=f"{way.places:,} token places{batches}",
    )


def waste_bars(bars: Sequence[Bar]) -> Bars:
    """Return the plot of bars from `waste_bar`."""
    label = labelled("Padding waste", (f"{bar.name}: {bar.words}" for bar in bars))
    return Bars(bars=bars, label=label)


def cost(report: Report) -> Figure | None:
    """Show the attention cost Σ length² over batches. Return None if no record was kept."""
    if not report.waste:
        return None
    spreads = {way.name: percent(way.spread) for way in report.waste}
    drawn = [(way.title, way, _COLOURS[way.name]) for way in report.waste]
    return Figure(
        key="cost",
        title=f"Attention costs of buckets vary by {spreads['packed']}, and would vary by "
        f"{spreads['next-fit']} with next-fit",
        words="The attention cost of a bucket is Σ length² over its sequences. Every training step "
        "waits for the GPU with the most expensive bucket, so equal costs make training fast. "
        f"{train_spread(report)}".rstrip(),
        plot=cost_ridges(drawn),
    )


def cost_ridges(ways: Sequence[tuple[str, Waste, str]]) -> Ridges:
    """Return the plot of Σ length² over batches.

    ways: name to show, figures and colour of each way of batching; a way without a histogram is
      left out
    """
    drawn = [
        (name, way, colour, way.cost_counts)
        for name, way, colour in ways
        if way.cost_counts is not None and way.cost_counts.counts
    ]
    used = [(a, b) for *_, values in drawn for a, b, n in bins(values) if n]
    low, high = min(a for a, _ in used), max(b for _, b in used)
    room = (high - low) / 40
    axis = Axis(low=max(0.0, low - room), high=high + room)
    width = (axis.high - axis.low) / _COST_BINS
    series = [
        (
            area(_coarser(values, width), colour, name, ("", "bucket"), whole=False),
            f"spread {way.spread:.3g}, max / mean {way.peak:.3f}",
        )
        for name, way, colour, values in drawn
    ]
    label = labelled("Attention cost over buckets", (f"{s.name}: {words}" for s, words in series))
    return Ridges(series=series, axis=axis, label=label)


def _coarser(values: Distribution, width: float) -> Distribution:
    """Join neighbouring bins into bins of about `width`."""
    step = max(1, round(width / (values.edges[1] - values.edges[0])))
    counts = (sum(values.counts[i : i + step]) for i in range(0, len(values.counts), step))
    return Distribution(edges=(*values.edges[:-1:step], values.edges[-1]), counts=tuple(counts))


def fill(report: Report) -> Figure | None:
    """Show a histogram of the fill of buckets. Return None if there are no buckets."""
    values = added(split.fill_counts for split in report.splits)
    if not values.counts:
        return None
    full = sum(n for low, _, n in bins(values) if low >= 99)
    title = f"{full:,} of {plural(sum(values.counts), 'bucket')} are at least 99 % full"
    series = area(values, "c1", "buckets", (" % full", "bucket"))
    low = max(0.0, min(values.edges[0] - 4, 90.0))
    names = {x + 0.5: f"{x:.0f} %" for x in round_steps(low, 100, 5)}
    return Figure(
        key="fill",
        title=title,
        words="Number of buckets by fill (share of real tokens). Heights are logarithmic, which "
        "makes even a single bucket visible.",
        counted="buckets",
        plot=Histogram(
            series=[series],
            axis=Axis(low=low, high=101, names=names),
            label=f"Buckets by fill. {title}. {'; '.join(series.says[-3:])}",
            height=150,
            log_heights=True,
        ),
    )


def sequences(report: Report) -> Figure | None:
    """Show a histogram of the number of sequences in a bucket. Return None without buckets."""
    values = added(split.sequences_counts for split in report.splits)
    slots = report.slots if report.prediction is None else report.prediction.slots
    if not values.counts or slots is None:
        return None
    most = max(split.seqs_max for split in report.splits)
    title = f"At most {plural(most, 'sequence')} in a bucket, {slots:,} slots"
    return Figure(
        key="sequences",
        title=title,
        words="Number of buckets by number of sequences. The offsets of a bucket's sequences are "
        "in an array with a fixed number of slots, because CUDA graphs need fixed shapes. More "
        "slots make kernels slower.",
        counted="buckets",
        plot=Histogram(
            series=[area(values, "c1", "buckets", (" sequences", "bucket"))],
            axis=Axis(low=max(0.0, values.edges[0] - 2), high=max(values.edges[-1], slots) + 2),
            marks=(Mark(x=slots, text=f"{slots:,} slots", strong=True),),
            label=f"Sequences per bucket. {title}",
            height=150,
        ),
    )


def budget(report: Report) -> Figure | None:
    """Show the training time of one epoch, and of a longer run.

    The longer run is a whole published run, or FEW_EPOCHS epochs if the data is small. Return None
    if there are no train tokens.
    """
    rows, small = report.budget.rows, report.budget.is_small
    if not rows:
        return None
    shown = next((row for row in rows if row.preset == "esm2-650m"), rows[-1])
    epoch = duration(shown.epoch_gpu_hours)
    gpu = f"{report.budget.gpu} in {shown.precision}"
    title = f"An epoch of {_preset(shown)} takes {epoch} on one {gpu}"
    longer = f"{FEW_EPOCHS} epochs" if small else "whole run"
    dots: dict[str, list[Dot]] = {}
    for row in rows:
        dots.setdefault(_preset(row), []).extend(_dots(row, longer, small=small))
    hours = [dot.value for of_preset in dots.values() for dot in of_preset]
    low, high = min(hours), max(hours)
    axis = Axis(low=low * (low / high) ** 0.18, high=high * (high / low) ** 0.06, log=True)
    other = f"{longer} of each" if small else "the whole published run of each"
    return Figure(
        key="budget",
        title=title,
        words=f"GPU time of one epoch ({about(report.budget.tokens)} train tokens) and of {other} "
        f"ESM-2 preset, on a logarithmic axis. {small_data(report)}".rstrip(),
        plot=Dots(
            rows=list(dots.items()),
            axis=replace(axis, names=_durations(axis)),
            label=f"GPU time of an epoch and of {'' if small else 'a '}{longer}. {title}",
        ),
        legend=(
            ("round", "c1", "bf16, one epoch"),
            ("round", "c2", "FP8, one epoch"),
            ("square", "c1", f"bf16, {longer}"),
            ("square", "c2", f"FP8, {longer}"),
        ),
    )


def _durations(axis: Axis) -> dict[float, str]:
    """Return the ticks of an axis. Their texts do not touch on a plot 320 pixels wide.

    The width of a letter is assumed to be 7 pixels.
    """
    chosen: dict[float, str] = {}
    for value, text in _DURATIONS.items():
        if not axis.low < value < axis.high:
            continue
        last = max(chosen, default=None)
        if (
            last is None
            or 3.2 * (axis.at(value) - axis.at(last)) > 7 * (len(text) + len(chosen[last])) / 2 + 8
        ):
            chosen[value] = text
    return chosen


def _preset(row: BudgetRow) -> str:
    return row.preset.removeprefix("esm2-").upper()


def _dots(row: BudgetRow, longer: str, *, small: bool) -> tuple[Dot, Dot]:
    """Return a dot for one epoch and a dot for the longer run that `longer` names."""
    colour = "c1" if row.precision == "bf16" else "c2"
    epoch, run = row.epoch_gpu_hours, row.few_epochs_gpu_hours if small else row.run_gpu_hours
    epoch_says = f"{row.precision}: {duration(epoch)} for one epoch"
    run_says = f"{row.precision}: {duration(run)} {'for' if small else 'for a'} {longer}"
    return (
        Dot(value=epoch, colour=colour, shape="round", says=epoch_says),
        Dot(value=run, colour=colour, shape="square", says=run_says),
    )
