"""`thdpack inspect`: show a dataset, a bucket or a record in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.cli.arguments import UsageError
from pipeline.cli.inspect_record import opened_records, read_bucket, record_ids, show_record
from pipeline.cli.options.subcommand_options import InspectOptions
from pipeline.cli.summary import known_fates, summary_lines
from pipeline.reader.order.split_shards import SplitShards, variant_of
from pipeline.report.render.used_options import used_options
from pipeline.storage.hub.revision import pinned
from pipeline.storage.open_folder import folder_of
from pipeline.storage.read_manifest import read_manifest
from schemas.errors import OptionError
from schemas.manifest import Manifest
from schemas.manifest_entries import ShardEntry
from schemas.text.byte_size import megabytes
from schemas.text.option_checks import flag
from schemas.text.phrases import percent_of_tokens, plural, plural_of

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_RESIDUES_SHOWN = 48
_UNWRAPPED = 100_000
"""Width in columns of output that is not wrapped."""


def run_inspect(options: InspectOptions) -> int:
    """Show a summary, a bucket or a record, and return an exit code.

    Raises:
        ThdpackError: the dataset cannot be read, or has no such split, bucket or record.
        UsageError: --split is given without --bucket.
    """
    options = replace(options, dataset=pinned(options.dataset))
    manifest = read_manifest(options.dataset, options.generation)
    if options.bucket is not None:
        show_bucket(manifest, options.dataset, options.split or "train", options.bucket)
    elif options.record is not None:
        _refuse_split(options, manifest)
        show_record(manifest, options.dataset, options.record)
    else:
        _refuse_split(options, manifest)
        show_summary(manifest, options.dataset)
    return 0


def _refuse_split(options: InspectOptions, manifest: Manifest) -> None:
    """Refuse --split without --bucket, because the split only says where to find the bucket.

    Raises:
        OptionError: the dataset has no such split.
        UsageError: the dataset has the split, but --bucket is missing.
    """
    if options.split is not None:
        _shards_of(manifest, options.split)
        raise UsageError(f"--split {options.split} needs --bucket N: a bucket of that split")


def show_summary(manifest: Manifest, dataset: str | Path) -> None:
    """Print the summary, shards, inputs, named files and options that the manifest holds."""
    for name, value in summary_lines(manifest, known_fates(manifest, str(dataset))):
        print(f"{name:>16}  {value}")
    for split in manifest.shards:
        sizes = [entry.bytes for _, name, entry in manifest.all_shards() if name == split]
        if sizes:
            every = f" in {manifest.variants:,} variants" if manifest.variants > 1 else ""
            print(f"{split + ' shards':>16}  {len(sizes)}{every}, {megabytes(sum(sizes))}")
    inputs = ", ".join(entry.name for entry in manifest.inputs[:5])
    print(f"{'inputs':>16}  {inputs}{', …' if len(manifest.inputs) > 5 else ''}")
    for file in manifest.named_files:
        count = plural_of("entry", "entries", file.rows)
        print(f"{'--' + file.option:>16}  {file.name} ({count})")
    print(f"{'options':>16}  {' '.join(_option_words(manifest))}")
    print(f"{'digest':>16}  {manifest.digest}")
    print(f"{'generation':>16}  {manifest.generation}")


def _option_words(manifest: Manifest) -> Iterator[str]:
    """Yield the options of a build as words of a shell command.

    Options without a value or an effect, and flags that are off, are left out.
    """
    for name, value in used_options(manifest).items():
        if value is None or value is False:
            continue
        yield flag(name)
        if value is not True:
            yield shlex.quote(str(value))
    if manifest.variants > 1:
        yield from ("--variants", str(manifest.variants))


def show_bucket(manifest: Manifest, dataset: str | Path, split: str, number: int) -> None:
    """Print one bucket: its fill, a drawing, and each sequence with its record.

    Raises:
        OptionError: there is no such split or bucket.
        DatasetError: the dataset is damaged.
    """
    entry, row, variant = _locate(manifest, split, number)
    bucket = read_bucket(folder_of(dataset), entry, row)
    with opened_records(dataset, manifest) as records:
        ids = record_ids(records, bucket["record"])
    edges = bucket["cu_seqlens"]
    console = Console()
    width = console.width
    if not console.is_terminal:
        console.width = _UNWRAPPED  # another program reads the lines
    place = f"bucket {number} of {split}: row {row} of {entry.name}"
    if manifest.variants > 1:
        place += f", variant {variant}"
    console.print(place, highlight=False, markup=False)
    fill = f"fill {percent_of_tokens(bucket['num_tokens'] / manifest.capacity)} %"
    tokens_of = f"{bucket['num_tokens']:,} of {manifest.capacity:,} tokens ({fill})"
    cost = f"Σ length² {sum((b - a) ** 2 for a, b in _spans(bucket)):,}"
    console.print(
        f"{plural(bucket['num_seqs'], 'sequence')}, {tokens_of}, "
        f"longest {bucket['max_seqlen']:,}, {cost}",
        highlight=False,
    )
    console.print(_drawing(bucket, manifest.capacity, max(20, width - 2)))
    console.print(_sequences(bucket, manifest, ids))
    if len(edges) - 1 > bucket["num_seqs"]:
        padding = plural(manifest.capacity - edges[bucket["num_seqs"]], "token")
        pieces = plural(len(edges) - 1 - bucket["num_seqs"], "piece")
        console.print(f"padding: {padding} of <pad> in {pieces}", highlight=False)


def _sequences(bucket: dict[str, Any], manifest: Manifest, ids: dict[int, str]) -> Table:
    """Return a table of a bucket's sequences. `ids` maps ordinals of records to ids."""
    table = Table(
        "#", "tokens", "record", "id", "from residue", "sequence", box=None, pad_edge=False
    )
    tokens = manifest.vocabulary_object.tokens
    for i, (begin, end) in enumerate(_spans(bucket)):
        shown = bucket["input_ids"][begin : min(end, begin + _RESIDUES_SHOWN)]
        letters = "".join(tokens[token] for token in shown)
        name = Text(ids.get(bucket["record"][i], ""), style=_COLOURS[i % len(_COLOURS)])
        table.add_row(
            str(i),
            f"{end - begin:,}",
            str(bucket["record"][i]),
            name,
            str(bucket["start"][i]),
            Text(letters + ("…" if end - begin > _RESIDUES_SHOWN else "")),
        )
    return table


def _spans(bucket: dict[str, Any]) -> list[tuple[int, int]]:
    edges = bucket["cu_seqlens"][: bucket["num_seqs"] + 1]
    return list(zip(edges[:-1], edges[1:], strict=True))


def _drawing(bucket: dict[str, Any], capacity: int, width: int) -> Text:
    """Return a drawing of the bucket in one line: a colour for each sequence, dots for padding."""
    line = Text()
    spans = _spans(bucket)
    at = 0
    for cell in range(width):
        position = cell * capacity // width
        while at < len(spans) and spans[at][1] <= position:
            at += 1
        line.append(
            "█" if at < len(spans) else "·",
            style=_COLOURS[at % len(_COLOURS)] if at < len(spans) else "dim",
        )
    return line


def _shards_of(manifest: Manifest, split: str) -> tuple[ShardEntry, ...]:
    entries = manifest.shards.get(split)
    if entries is None:
        raise OptionError(f"no split {split!r}; there are {', '.join(manifest.shards)}")
    return entries


def _locate(manifest: Manifest, split: str, number: int) -> tuple[ShardEntry, int, int]:
    """Return shard, row and variant of a bucket by its number in stored order.

    Raises:
        OptionError: there is no such split or bucket.
    """
    if not _shards_of(manifest, split):
        raise OptionError(f"no bucket {number} in {split}: this split is empty")
    shards = SplitShards(manifest, split)
    buckets = sum(shards.buckets)
    if not 0 <= number < buckets:
        raise OptionError(
            f"no bucket {number} in {split}; it has {_bucket_counts(shards)}, counted from 0"
        )
    shard, row = shards.find(number)
    return shards.entry(shard), row, variant_of(shard)


def _bucket_counts(shards: SplitShards) -> str:
    """Return the number of buckets of a split and, with several variants, of each variant."""
    total, fewest, most = sum(shards.buckets), min(shards.buckets), max(shards.buckets)
    if len(shards.buckets) == 1:
        return f"{total:,}"
    each = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return f"{total:,} ({each} in each of {len(shards.buckets)} variants)"
