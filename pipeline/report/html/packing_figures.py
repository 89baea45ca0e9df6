"""The figures of what training reads: padding, attention cost, fill, slots, and the time of an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pipeline.report.html import plots
from pipeline.report.html.cards import bins, capitalised, card, counted, legend
from pipeline.report.html.markup import Markup, tag
from pipeline.report.html.svg import Axis, round_steps
from pipeline.report.model import Distribution, Report, Waste
from pipeline.report.render.numerals import about, duration, percent, plural

_WASTES: Final = {"bshd": "c2", "sorted": "c5", "next-fit": "c3", "packed": "c1"}
_COST_BINS: Final = 160
"""Bins in which attention costs are drawn."""
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


def waste(report: Report) -> Markup | None:
    """What each way of batching pads; None where nothing was kept."""
    if not report.waste:
        return None
    by_name = {way.name: way for way in report.waste}
    padded, packed = by_name["bshd"], by_name["packed"]
    title = f"Padding to {report.settings.max_seq_len:,} would waste {percent(padded.waste)} of all tokens; this packing wastes {percent(packed.waste)}"
    rows = [
        plots.Bar(
            name=capitalised(way.label),
            words=f"{percent(way.waste)} wasted",
            share=1 - way.waste,
            colour=_WASTES[way.name],
            below=f"{way.places:,} token places, {_batches(way)}",
        )
        for way in report.waste
    ]
    label = f"Padding waste. {'; '.join(f'{row.name}: {row.words}' for row in rows)}"
    words = f"The same {about(report.tokens)} tokens, batched in {len(rows)} ways. A whole row is all that a GPU computes on; its coloured part is real."
    return card(
        "plot-waste",
        title,
        words,
        plots.bars(rows, label=label),
        legend((("rest", "padding"),)),
    )


def _batches(way: Waste) -> str:
    return f"{way.batches:,} {'rows' if way.name == 'bshd' else 'batches' if way.name == 'sorted' else 'buckets'}"


def fill(report: Report) -> Markup | None:
    """How full buckets are; None where none were made yet."""
    values = _added(split.fill_counts for split in report.splits)
    if values is None:
        return None
    buckets = sum(values.counts)
    full = sum(n for low, _, n in bins(values) if low >= 99)
    title = f"{full:,} of {plural(buckets, 'bucket')} are at least 99 % full"
    words = "Buckets by the share of their tokens that are real; columns grow with the logarithm of the count, so that a single bucket shows."
    low = max(0.0, min(values.edges[0] - 4, 90.0))
    series = counted(values, "c1", "buckets", (" % full", "bucket"))
    axis = Axis(low=low, high=101)
    names = {x + 0.5: f"{x:.0f} %" for x in round_steps(low, 100, 5)}
    plot = plots.histogram(
        [series],
        axis=axis,
        names=names,
        label=f"Buckets by fill. {title}. {'; '.join(series.says[-3:])}",
        height=150,
        log_heights=True,
    )
    return card("plot-fill", title, words, tag("p", "buckets", class_="axis"), plot)


def _added(parts: Iterable[Distribution]) -> Distribution | None:
    """Distributions with bins of one width added up; None if all are empty."""
    counts: dict[float, int] = {}
    width = 1.0
    for part in parts:
        for low, high, n in bins(part):
            counts[low] = counts.get(low, 0) + n
            width = high - low
    if not counts:
        return None
    first, last = min(counts), max(counts)
    edges = [first + i * width for i in range(round((last - first) / width) + 2)]
    return Distribution(
        edges=tuple(edges), counts=tuple(counts.get(edge, 0) for edge in edges[:-1])
    )


def cost(report: Report) -> Markup | None:
    """Σ length² over buckets, before balancing and after; None where nothing was kept."""
    if not report.waste:
        return None
    drawn = [
        (way, way.cost_counts)
        for way in report.waste
        if way.cost_counts is not None and way.cost_counts.counts
    ]
    spreads = {way.name: way.spread for way in report.waste}
    title = f"Attention costs vary by {percent(spreads['packed'])} from bucket to bucket, with next-fit by {percent(spreads['next-fit'])}"
    words = "Σ length² of each bucket: what its attention costs. Every training step waits for the GPU whose bucket costs most, so narrow is fast."
    if not drawn:
        return card("plot-cost", title, words, tag("p", "No bucket is made yet."))
    plot = cost_ridges(
        [(capitalised(way.label), spread(way), _WASTES[way.name], values) for way, values in drawn]
    )
    return card("plot-cost", title, words, plot)


def cost_ridges(rows: Sequence[tuple[str, str, str, Distribution]]) -> Markup:
    """Σ length² over batches: name, words, colour and distribution of each row."""
    low, high = _range([values for *_, values in rows])
    width = (high - low) / _COST_BINS
    series = [
        (counted(_coarser(values, width), colour, name, ("", "bucket"), whole=False), words)
        for name, words, colour, values in rows
    ]
    return plots.ridges(
        series,
        axis=Axis(low=low, high=high),
        label=f"Attention cost over buckets. {'; '.join(f'{s.name}: {w}' for s, w in series)}",
    )


def _coarser(values: Distribution, width: float) -> Distribution:
    """As many neighbouring bins in one as make about `width`."""
    step = max(1, round(width / (values.edges[1] - values.edges[0])))
    edges = (*values.edges[:-1:step], values.edges[-1])
    return Distribution(
        edges=edges,
        counts=tuple(sum(values.counts[i : i + step]) for i in range(0, len(values.counts), step)),
    )


def spread(way: Waste) -> str:
    """How unequal batches are."""
    return f"spread {way.spread:.3g}, max / mean {way.peak:.3f}"


def _range(parts: Sequence[Distribution]) -> tuple[float, float]:
    """What holds all values, with some room."""
    used = [(a, b) for part in parts for a, b, n in bins(part) if n]
    low, high = min(a for a, _ in used), max(b for _, b in used)
    room = (high - low) / 40
    return max(0.0, low - room), high + room


def sequences(report: Report) -> Markup | None:
    """Sequences a bucket; None where no bucket was made yet."""
    values = _added(split.sequences_counts for split in report.splits)
    slots = report.slots if report.prediction is None else report.prediction.slots
    if values is None or slots is None:
        return None
    most = max(split.seqs_max for split in report.splits)
    title = f"At most {most:,} sequences in a bucket, {slots:,} slots"
    words = "Sequences in each bucket. Their offsets take one array of fixed size, so that a step fits a CUDA graph; kernels pay for its slots."
    axis = Axis(low=max(0.0, values.edges[0] - 2), high=max(values.edges[-1], slots) + 2)
    marks = (plots.Mark(x=slots, text=f"{slots:,} slots", strong=True),)
    plot = plots.histogram(
        [counted(values, "c1", "buckets", (" sequences", "bucket"))],
        axis=axis,
        marks=marks,
        label=f"Sequences a bucket. {title}",
        height=150,
    )
    return card("plot-sequences", title, words, tag("p", "buckets", class_="axis"), plot)


def budget(report: Report) -> Markup | None:
    """Time of an epoch and of a whole run; None without train tokens."""
    rows = report.budget.rows
    if not rows or not report.budget.tokens:
        return None
    presets = list(dict.fromkeys(row.preset for row in rows))
    told = next((row for row in rows if row.preset == "esm2-650m"), rows[-1])
    title = f"An epoch of {_preset(told.preset)} takes {duration(told.epoch_gpu_hours)} on one {report.budget.gpu} in {told.precision}"
    words = f"GPU time of one epoch ({about(report.budget.tokens)} train tokens) and of the whole published run of each ESM-2 preset, on a logarithmic axis."
    drawn = [
        (
            _preset(preset),
            [
                dot
                for row in rows
                if row.preset == preset
                for dot in _dots(row.precision, row.epoch_gpu_hours, row.run_gpu_hours)
            ],
        )
        for preset in presets
    ]
    hours = [dot.value for _, dots in drawn for dot in dots]
    low, high = min(hours), max(hours)
    axis = Axis(low=low * (low / high) ** 0.18, high=high * (high / low) ** 0.06, log=True)
    names = _apart(
        {value: text for value, text in _DURATIONS.items() if axis.low < value < axis.high}, axis
    )
    plot = plots.dots(
        drawn, axis=axis, names=names, label=f"GPU time of an epoch and of a run. {title}"
    )
    entries = (
        ("round c1", "bf16, one epoch"),
        ("round c2", "FP8, one epoch"),
        ("square c1", "bf16, whole run"),
        ("square c2", "FP8, whole run"),
    )
    return card("plot-budget", title, words, plot, legend(entries))


def _apart(names: dict[float, str], axis: Axis) -> dict[float, str]:
    """Those ticks that leave room for one another on a narrow screen: 320 pixels, 7 a letter."""
    chosen: dict[float, str] = {}
    for value, text in names.items():
        last = max(chosen, default=0.0)
        if (
            not chosen
            or 3.2 * (axis.at(value) - axis.at(last)) > 7 * (len(text) + len(chosen[last])) / 2 + 8
        ):
            chosen[value] = text
    return chosen


def _preset(name: str) -> str:
    return name.removeprefix("esm2-").upper()


def _dots(precision: str, epoch: float, run: float) -> list[plots.Dot]:
    colour = "c1" if precision == "bf16" else "c2"
    return [
        plots.Dot(
            value=epoch,
            colour=colour,
            shape="round",
            says=f"{precision}: {duration(epoch)} an epoch",
        ),
        plots.Dot(
            value=run, colour=colour, shape="square", says=f"{precision}: {duration(run)} a run"
        ),
    ]
