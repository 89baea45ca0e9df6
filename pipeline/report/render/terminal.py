"""Print a report in the terminal: the numbers of the HTML page as text.

Names from files are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.text import Text

from pipeline.report.comparison import Comparison
from pipeline.report.distributions import Distribution
from pipeline.report.model import Lengths, RecordNote, Report
from pipeline.report.model_headers import HeaderCounts
from pipeline.report.render import header_tables, leak_tables, sentences, tables
from pipeline.report.render.numerals import about, percent, size
from pipeline.report.render.table import Name, Table
from pipeline.report.render.terminal_parts import Part, drawn, one_line, title
from schemas.records import Status
from schemas.text.phrases import plural

_HEIGHT: Final = 8
"""Height of a histogram in lines."""
_UPWARD: Final = " ▁▂▃▄▅▆▇█"
_SHOWN: Final = 20
"""Largest number of rows in a table of inputs or of duplicates."""


def show(report: Report | Comparison, console: Console, *, whole: bool = True) -> None:
    """Print a report or a comparison.

    whole: False to print only the first lines
    """
    if isinstance(report, Comparison):
        parts = [*_common(report), *(_differences(report) if whole else ())]
    else:
        parts = [title(report.name), *_overview(report)]
        parts += _sections(report, console.width) if whole else ()
        parts += _verdicts(report)
    for part in parts:
        console.print(part, highlight=False, soft_wrap=isinstance(part, Text))


def _sections(report: Report, width: int) -> Iterable[Part]:
    """Draw everything after the first lines."""
    yield title("records")
    yield from drawn(tables.inputs(report, _SHOWN))
    if len(report.inputs) > 1 and report.duplicates:
        yield from drawn(tables.duplicates(report, _SHOWN))
    if report.exclusions:
        yield title("records left out by --exclude")
        yield from drawn(leak_tables.exclusions(report))
    if report.headers is not None:
        yield from _headers(report.headers)
    yield title(f"length in residues, {plural(report.records, 'record')} before cropping")
    yield from _lengths(report.lengths, width)
    yield Text(sentences.longer_records(report))
    if sampled := sentences.sampled_clusters(report):
        yield Text(sampled)
    over = "the buckets" if report.composition.over == "buckets" else "the input"
    yield title(f"composition of {over}, compared with Swiss-Prot")
    yield from _composition(report)
    yield title("splits" if report.kind == "dataset" else "splits (forecast of a build)")
    yield from _splits(report)
    if report.leaks:
        yield title("sequences that splits share")
        yield from drawn(leak_tables.leaks(report))
    if report.against:
        yield title("entries of other files that equal a record of the dataset")
        yield from drawn(leak_tables.against(report), whole_names=True)
    if (similar := leak_tables.similar(report)).rows:
        yield title(sentences.similar_to(report))
        yield from drawn(similar, whole_names=True)
    yield title("padding of these sequences, for each way of batching")
    yield from drawn(tables.batching(report), bars=[way.waste for way in report.waste])
    if pooled := sentences.pooled_splits(report):
        yield Text(f"{pooled} {sentences.train_spread(report)}".rstrip(), style="dim")
    train = about(report.budget.tokens)
    yield title(
        f"training time on one {report.budget.gpu} (an epoch of the train split: {train} tokens)"
    )
    yield from _budget(report)
    yield title("the longest records")
    yield from drawn(_notes(report.longest))
    if report.repeated:
        yield title("the most repeated records")
        yield from drawn(_notes(report.repeated))


def _overview(report: Report) -> Iterable[Text]:
    settings, by_status = report.settings, report.by_status
    generation = f"generation {report.generation}, " if report.generation is not None else ""
    yield Text(
        f"{generation}vocabulary {settings.vocabulary}, {settings.capacity:,} tokens per bucket, "
        f"at most {settings.max_seq_len:,} tokens per sequence, --long {settings.long}"
    )
    if report.source_release or report.license:
        release, licence = report.source_release or "not stated", report.license or "not stated"
        yield Text(f"release of the inputs: {release}, licence: {licence}")
    if settings.where is not None:
        yield Text(one_line(f"--where {settings.where}", 160))
    kept, duplicates = by_status[Status.KEPT], by_status[Status.DUPLICATE]
    left_out = ", ".join(
        f"{by_status[status]:,} {status.replace('_', ' ')}"
        for status in Status
        if status not in (Status.KEPT, Status.DUPLICATE) and by_status[status]
    )
    yield Text(
        f"{plural(report.records, 'input record')}: {kept:,} kept, "
        f"{plural(duplicates, 'duplicate')}, others left out: {left_out or 'none'}"
    )
    if report.retired:
        yield Text(
            f"retired records: {report.retired:,}, listed in retired/; readers do not skip them"
        )
    if report.cropped_copies:
        yield Text(
            "kept records that equal an earlier record after truncation: "
            f"{report.cropped_copies:,} (--dedup cropped leaves them out)"
        )
    yield Text(
        f"{plural(report.residues_in, 'input residue')}, {report.residues_kept:,} residues in "
        f"buckets, {report.tokens:,} tokens in buckets"
    )
    if variants := sentences.variants(report):
        yield Text(variants)
    found = report.prediction
    if found is not None and not kept:
        yield Text("a build would keep no record and would end with an error", style="bold")
    elif found is not None:
        yield Text(
            f"a build would make {plural(found.buckets, 'bucket')} in "
            f"{plural(found.shards, 'shard')}: fill {percent(found.fill)}, {found.slots} slots per "
            f"bucket, about {size(found.bytes)} on disk",
            style="bold",
        )


def _verdicts(report: Report) -> Iterable[Part]:
    """Say at the end, where a user looks first, whether the files of --against are in train."""
    if report.against:
        yield title("leaks: other files and the train split")
        yield from (Text(sentences.verdict(file)) for file in report.against)


def _headers(found: HeaderCounts) -> Iterable[Part]:
    """Draw the counts of values that headers state. Draw nothing if there are no such values."""
    stated = header_tables.headers(found)
    if stated.rows:
        yield title("records by database, protein existence and fragment, from their headers")
        yield from drawn(stated)
    if found.taxa:
        yield title("organisms with the most kept records")
        yield from drawn(header_tables.taxa(found))
        if rest := header_tables.other_taxa(found):
            yield Text(f"… and {rest}", style="dim")


def _lengths(lengths: Lengths, width: int) -> Iterable[Part]:
    facts = {
        "shortest": f"{lengths.shortest:,}",
        **{f"{p} %": f"{length:,}" for p, length in lengths.percentiles.items()},
        "longest": f"{lengths.longest:,}",
        "mean": f"{lengths.mean:,.1f}",
    }
    yield from drawn(Table(tuple(facts), [tuple(facts.values())], words=0))
    if lengths.histogram.counts:
        yield from _histogram(lengths.histogram, lengths.crop, width)


def _histogram(counts: Distribution, crop: int, width: int) -> Iterable[Text]:
    """Draw a histogram of lengths. Bins above `crop` residues are yellow."""
    each = 2 if 2 * len(counts.counts) + 10 <= width else 1
    most = max(counts.counts)
    for row in range(_HEIGHT, 0, -1):
        line = Text(f"{about(most) if row == _HEIGHT else '':>9} ", style="dim")
        for edge, count in zip(counts.edges, counts.counts, strict=False):
            filled = max(0, min(8, -(-8 * _HEIGHT * count // most) - 8 * (row - 1)))
            line.append(_UPWARD[filled] * each, style="yellow" if edge > crop else "cyan")
        yield line
    last = f"{counts.edges[-2]:,.0f} +"
    yield Text(f"{'0':>11}{last:>{each * len(counts.counts) - 1}}", style="dim")


def _composition(report: Report) -> Iterable[Part]:
    found = report.composition
    standard = [letter for letter in found.letters if letter.kind == "standard"]
    most = max((max(x.share, x.background or 0) for x in found.letters), default=1) or 1
    rows = [
        (x.letter, percent(x.share), percent(x.background or 0), f"{x.count:,}") for x in standard
    ]
    yield from drawn(
        Table(("", "share", "Swiss-Prot", "count"), rows), bars=[x.share / most for x in standard]
    )
    rare = ", ".join(
        f"{x.letter} {x.count:,}" for x in found.letters if x.kind == "rare" and x.count
    )
    yield Text(f"rare letters: {rare or 'none'}")
    many = f"{found.unknown_residues:,} in {plural(found.unknown_records, 'record')}"
    yield Text(f"letters outside the vocabulary: {many}")


def _splits(report: Report) -> Iterable[Part]:
    """Draw a table with a column for each split. A row for each split would be too wide."""
    table = tables.splits(report)
    mean = (
        f"{split.sequences / max(split.buckets, 1):.1f}" for split in tables.shown_splits(report)
    )
    columns = zip(table.head, *table.rows, strict=True)
    head, *rows = [*columns, ("sequences in a bucket", *mean)]
    yield from drawn(Table(("", *head[1:]), rows))


def _budget(report: Report) -> Iterable[Part]:
    """Draw a table of training times. Print the sources of the tokens/s below the table, because
    a column for them would be too wide."""
    *head, _ = tables.budget(report).head
    yield from drawn(Table(tuple(head), [row[:-1] for row in tables.budget(report).rows], words=2))
    presets: dict[str, dict[str, None]] = {}
    for row in report.budget.rows:
        presets.setdefault(row.source, {})[row.preset.removeprefix("esm2-")] = None
    if small := sentences.small_data(report):
        yield Text(small)
    for source, names in presets.items():
        yield Text(f"source of tokens/s for {', '.join(names)}: {source}", style="dim")


def _notes(notes: Iterable[RecordNote]) -> Table:
    rows = [
        (
            Name(note.id),
            Name(note.source),
            note.status.replace("_", " "),
            f"{note.ordinal:,}",
            f"{note.residues:,}",
            f"{note.times:,}",
        )
        for note in notes
    ]
    return Table(("id", "input", "status", "record", "residues", "times"), rows, words=3)


def _common(both: Comparison) -> Iterable[Part]:
    yield title(f"A: {both.a.name}  B: {both.b.name}")
    yield Text(tables.RELATED[both.related])
    overlap = both.overlap
    share = percent(overlap.both / (overlap.only_a + overlap.only_b + overlap.both or 1))
    yield Text(
        f"{plural(overlap.both, 'distinct sequence')} in both A and B ({share} of all sequences, "
        f"{overlap.residues_both:,} residues), {overlap.only_a:,} only in A, "
        f"{overlap.only_b:,} only in B"
    )


def _differences(both: Comparison) -> Iterable[Part]:
    if both.settings:
        yield title("options that differ")
        yield from drawn(tables.option_changes(both))
    yield title("numbers")
    yield from drawn(tables.changes(both))
