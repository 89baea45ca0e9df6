"""A report drawn in the terminal. Says what the HTML page says, in text; names from outside are made printable first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from pipeline.report.model import Comparison, Distribution, Lengths, RecordNote, Report, SplitReport
from pipeline.report.render import numerals
from pipeline.report.render.numerals import about, percent
from pipeline.report.render.printable import printable
from schemas.records import Status

_HEIGHT: Final = 8
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_PARTS: Final = " ▏▎▍▌▋▊▉█"
_BAR: Final = 24
_NAME: Final = 48
_INPUTS_SHOWN: Final = 20


def show(report: Report | Comparison, console: Console) -> None:
    """Draw a report, or two side by side."""
    for part in (
        _comparison(report) if isinstance(report, Comparison) else _report(report, console.width)
    ):
        console.print(part, highlight=False, soft_wrap=isinstance(part, Text))


Part = Rule | Table | Text


def _report(report: Report, width: int) -> Iterable[Part]:
    yield _title(f"{report.name}")
    yield from _overview(report)
    yield _title("records")
    yield _inputs(report)
    if len(report.inputs) > 1 and report.duplicates:
        yield _duplicates(report)
    yield _title(f"length in residues, {numerals.plural(report.records, 'record')} before cropping")
    yield from _lengths(report.lengths, width)
    yield _title(
        f"composition of {'the buckets' if report.composition.over == 'buckets' else 'the input'}, and of Swiss-Prot"
    )
    yield from _composition(report)
    yield _title("splits" if report.kind == "dataset" else "splits, as a build would make them")
    yield _splits(report)
    yield _title("padding, were these sequences batched otherwise")
    yield _waste(report)
    yield _title(
        f"training on {about(report.budget.tokens)} tokens of train, hours of one {report.budget.gpu}"
    )
    yield _budget(report)
    yield from _sources(report)
    yield _title("the longest records")
    yield _notes(report.longest)
    if report.repeated:
        yield _title("the most repeated records")
        yield _notes(report.repeated)


def _title(text: str) -> Rule:
    return Rule(Text(_name(text, 120), style="bold"), align="left", style="dim")


def _table(*headers: str, left: Sequence[str] = ()) -> Table:
    """Numbers to the right, what is named in `left` to the left; that gives way where the terminal is narrow."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for header in headers:
        table.add_column(
            header,
            justify="left" if header in left else "right",
            no_wrap=header not in left,
            overflow="ellipsis",
        )
    return table


def _name(text: str, most: int = _NAME) -> str:
    """A name from outside, on one line, its end left out if it is long."""
    clean = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


def _overview(report: Report) -> Iterable[Text]:
    settings = report.settings
    generation = f"generation {report.generation}, " if report.generation is not None else ""
    sizes = f"{settings.capacity:,} tokens a bucket, sequences up to {settings.max_seq_len:,} tokens, --long {settings.long}"
    yield Text(f"{generation}{settings.vocabulary}, {sizes}")
    left_out = [
        f"{report.by_status[s]:,} {s.replace('_', ' ')}"
        for s in Status
        if s not in (Status.KEPT, Status.DUPLICATE) and report.by_status[s]
    ]
    kept, duplicates = report.by_status[Status.KEPT], report.by_status[Status.DUPLICATE]
    yield Text(
        f"{report.records:,} records in, {kept:,} kept, {duplicates:,} duplicates, left out: {', '.join(left_out) or 'none'}"
    )
    if report.cropped_copies:
        what = "kept, but once truncated the same as an earlier record"
        yield Text(f"{what}: {report.cropped_copies:,} (--dedup cropped leaves them out)")
    yield Text(
        f"{report.residues_in:,} residues in, {report.residues_kept:,} in buckets; {report.tokens:,} tokens"
    )
    if report.prediction is not None and not report.by_status[Status.KEPT]:
        yield Text("a build would keep nothing, and refuse", style="bold")
    elif report.prediction is not None:
        found = report.prediction
        yield Text(
            f"a build would make {numerals.plural(found.buckets, 'bucket')} in {numerals.plural(found.shards, 'shard')}, "
            f"fill {percent(found.fill)}, {found.slots} slots, about {numerals.size(found.bytes)} on disk",
            style="bold",
        )


def _inputs(report: Report) -> Table:
    reasons = [
        status
        for status in Status
        if status is Status.KEPT or status is Status.DUPLICATE or report.by_status[status]
    ]
    table = _table(
        "input",
        "stored",
        "records",
        "residues",
        *(status.replace("_", " ") for status in reasons),
        left=("input",),
    )
    for flow in report.inputs[:_INPUTS_SHOWN]:
        table.add_row(
            _text(flow.name),
            numerals.size(flow.bytes),
            f"{flow.records:,}",
            f"{flow.residues:,}",
            *(f"{flow.by_status[status]:,}" for status in reasons),
        )
    if len(report.inputs) > _INPUTS_SHOWN:
        table.add_row(f"… and {len(report.inputs) - _INPUTS_SHOWN:,} more")
    return table


def _text(name: str) -> Text:
    """A name from outside for a cell; as Text, so that `[red]` in it is no markup."""
    return Text(_name(name), no_wrap=True, overflow="ellipsis")


def _duplicates(report: Report) -> Table:
    table = _table(
        "duplicates in", "first seen in", "records", left=("duplicates in", "first seen in")
    )
    for flow in sorted(report.duplicates, key=lambda flow: -flow.records)[:_INPUTS_SHOWN]:
        table.add_row(_text(flow.source), _text(flow.original), f"{flow.records:,}")
    return table


def _lengths(lengths: Lengths, width: int) -> Iterable[Part]:
    table = _table("shortest", *(f"{p} %" for p in lengths.percentiles), "longest", "mean")
    table.add_row(
        f"{lengths.shortest:,}",
        *(f"{value:,}" for value in lengths.percentiles.values()),
        f"{lengths.longest:,}",
        f"{lengths.mean:,.1f}",
    )
    yield table
    if lengths.histogram.counts:
        yield from _histogram(lengths.histogram, lengths.crop, width)
    cropped = f"{numerals.plural(lengths.cropped, 'kept record')} longer than {lengths.crop:,} residues, the most that fits"
    yield Text(f"{cropped}; {lengths.residues_cropped:,} residues are cropped")


def _histogram(counts: Distribution, crop: int, width: int) -> Iterable[Text]:
    """Columns from below; what lies beyond the crop line is yellow."""
    each = 2 if 2 * len(counts.counts) + 10 <= width else 1
    most = max(counts.counts)
    for row in range(_HEIGHT, 0, -1):
        line = Text(f"{about(most) if row == _HEIGHT else '':>9} ", style="dim")
        for edge, count in zip(counts.edges, counts.counts, strict=False):
            filled = max(0, min(8, -(-8 * _HEIGHT * count // most) - 8 * (row - 1)))
            line.append(_EIGHTHS[filled] * each, style="yellow" if edge > crop else "cyan")
        yield line
    last = counts.edges[-2]
    yield Text(f"{'0':>11}{f'{last:,.0f} +':>{each * len(counts.counts) - 1}}", style="dim")


def _composition(report: Report) -> Iterable[Part]:
    found = report.composition
    most = (
        max((max(letter.share, letter.background or 0) for letter in found.letters), default=1) or 1
    )
    table = _table("", "share", "Swiss-Prot", "", "count", left=("",))
    for letter in found.letters:
        if letter.kind == "standard":
            table.add_row(
                letter.letter,
                percent(letter.share),
                percent(letter.background or 0),
                _bar(letter.share / most),
                f"{letter.count:,}",
            )
    yield table
    rare = ", ".join(
        f"{letter.letter} {letter.count:,}"
        for letter in found.letters
        if letter.kind == "rare" and letter.count
    )
    yield Text(f"rare letters: {rare or 'none'}")
    yield Text(
        f"letters outside the vocabulary: {found.unknown_residues:,} in {numerals.plural(found.unknown_records, 'record')}"
    )


def _bar(share: float, width: int = _BAR) -> Text:
    eighths = round(8 * width * max(0.0, min(1.0, share)))
    return Text("█" * (eighths // 8) + _PARTS[eighths % 8].strip(), style="cyan")


def _splits(report: Report) -> Table:
    table = _table("", *(split.name for split in report.splits), left=("",))
    facts: dict[str, Callable[[SplitReport], str]] = {
        "shards": lambda split: f"{split.shards:,}",
        "stored": lambda split: numerals.size(split.bytes),
        "buckets": lambda split: f"{split.buckets:,}",
        "sequences": lambda split: f"{split.sequences:,}",
        "tokens": lambda split: f"{split.tokens:,}",
        "fill": lambda split: percent(split.fill),
        "sequences in a bucket": lambda split: f"{split.sequences / max(split.buckets, 1):.1f}",
        "at most": lambda split: f"{split.seqs_max:,}",
        "Σ length² of a bucket, spread": lambda split: f"{split.spread:.4f}",
        "max / mean": lambda split: f"{split.peak:.3f}",
    }
    for name, of in facts.items():
        table.add_row(name, *map(of, report.splits))
    return table


def _waste(report: Report) -> Table:
    table = _table(
        "", "tokens\ncomputed on", "padding", "bar", "Σ length²\nspread", "max /\nmean", left=("",)
    )
    table.columns[3].header, table.columns[3].justify = "", "left"
    for way in report.waste:
        label = f"{way.label}, predicted" if way.predicted else way.label
        table.add_row(
            label,
            f"{way.places:,}",
            percent(way.waste),
            _bar(way.waste),
            f"{way.spread:.4f}",
            f"{way.peak:.3f}",
        )
    return table


def _budget(report: Report) -> Table:
    table = _table(
        "model",
        "precision",
        "tokens/s",
        "GPU-hours\nan epoch",
        "tokens of\nthe run",
        "epochs",
        "GPU-hours",
        left=("model", "precision"),
    )
    for row in report.budget.rows:
        table.add_row(
            row.preset,
            row.precision,
            f"{row.tokens_per_second:,.0f}",
            _hours(row.epoch_gpu_hours),
            about(row.run_tokens),
            f"{row.epochs:,.1f}",
            _hours(row.run_gpu_hours),
        )
    return table


def _sources(report: Report) -> Iterable[Text]:
    """Where each tokens/s comes from."""
    for source in dict.fromkeys(row.source for row in report.budget.rows):
        names = ", ".join(
            dict.fromkeys(
                row.preset.removeprefix("esm2-")
                for row in report.budget.rows
                if row.source == source
            )
        )
        yield Text(f"tokens/s of {names}: {source}", style="dim")


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:,.1f}" if hours >= 1 else f"{hours:.3f}"


def _notes(notes: Sequence[RecordNote]) -> Table:
    table = _table(
        "record", "id", "input", "residues", "status", "times", left=("id", "input", "status")
    )
    for note in notes:
        table.add_row(
            f"{note.ordinal:,}",
            _text(note.id),
            _text(note.source),
            f"{note.residues:,}",
            note.status.replace("_", " "),
            f"{note.times:,}",
        )
    return table


def _comparison(found: Comparison) -> Iterable[Part]:
    yield _title(f"{found.a.name}  and  {found.b.name}")
    related = {
        "same": "the same dataset",
        "child": "the second was made from the first",
        "parent": "the first was made from the second",
        "none": "",
    }
    if related[found.related]:
        yield Text(related[found.related])
    overlap = found.overlap
    total = overlap.only_a + overlap.only_b + overlap.both
    yield Text(
        f"{overlap.both:,} different sequences in both ({percent(overlap.both / total) if total else '0'} of all, {overlap.residues_both:,} residues), "
        f"{overlap.only_a:,} only in the first, {overlap.only_b:,} only in the second"
    )
    if found.settings:
        yield _title("options that differ")
        table = _table("option", "first", "second", left=("option",))
        for setting in found.settings:
            table.add_row(setting.name.replace("_", "-"), setting.a, setting.b)
        yield table
    yield _title("numbers")
    table = _table("", "first", "second", "change", left=("",))
    for change in found.changes:
        table.add_row(
            change.name.replace("_", " "),
            _number(change.a),
            _number(change.b),
            _change(change.a, change.b, change.change),
        )
    yield table


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"


def _change(a: float | None, b: float | None, change: float | None) -> str:
    if change is not None:
        return numerals.change(change)
    return "no change" if a == b else "new" if b else "–"
