"""Describe a dataset in README.md, the dataset card of the Hugging Face Hub.

The YAML header tells the Hub and the library `datasets` which files belong to which split. The text
below it is for people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from pipeline.build.destination.card_files import blank_signature
from pipeline.report.card.file_patterns import file_patterns
from pipeline.report.card.markup import code, escaped, table, yaml_text
from pipeline.report.card.stated import Stated
from pipeline.report.card.title import summary, title
from pipeline.report.render.numerals import percent, size
from pipeline.report.render.used_options import used_options
from schemas.licenses import LICENSES, spdx_identifier
from schemas.manifest import Manifest
from schemas.records import Status
from schemas.text.option_checks import flag
from schemas.text.phrases import plural

_MOST_INPUTS: Final = 200
"""Maximum number of inputs in the table. The manifest lists all inputs."""
_HERE: Final = "path/to/this/folder"
_TAGS: Final = ("arrow", "biology", "esm2", "packed-sequences", "protein", "thdpack")
_SIZES: Final = {
    10**3: "n<1K",
    10**4: "1K<n<10K",
    10**5: "10K<n<100K",
    10**6: "100K<n<1M",
    10**7: "1M<n<10M",
    10**8: "10M<n<100M",
    10**9: "100M<n<1B",
    10**10: "1B<n<10B",
    10**11: "10B<n<100B",
    10**12: "100B<n<1T",
}
"""Name of each size category of the Hub. A dataset is in the first category whose key exceeds its
number of rows."""
_MEANING: Final = {
    Status.KEPT: "in the dataset",
    Status.INVALID: "left out because of letters outside the vocabulary (`--on-invalid skip`)",
    Status.TOO_SHORT: "shorter than `--min-residues`",
    Status.TOO_LONG: "longer than `--max-seq-len`",
    Status.FILTERED: "`--where` is not true for the record",
    Status.EXCLUDED: "matches an entry of a file of `--exclude`",
    Status.DUPLICATE: "same sequence as an earlier record",
}


def dataset_card(manifest: Manifest, stated: Stated) -> str:
    """Return the text of README.md.

    The signature in the text has zeros instead of a hash. `card_files.signed` inserts the hash.
    """
    header = "\n".join(_header(manifest, stated))
    sections = "\n\n".join(_sections(manifest, stated))
    return f"---\n{header}\n---\n\n{sections}\n\n<!-- {blank_signature(manifest.digest)} -->\n"


def _header(manifest: Manifest, stated: Stated) -> Iterator[str]:
    """Yield the lines of the YAML header."""
    yield f"pretty_name: {yaml_text(title(manifest, stated))}"
    yield from _license(stated.license)
    yield "task_categories:"
    yield "- fill-mask"
    rows = sum(split.buckets for split in manifest.splits.values())
    yield "size_categories:"
    yield f"- {yaml_text(next((name for most, name in _SIZES.items() if rows < most), 'n>1T'))}"
    yield "tags:"
    yield from (f"- {tag}" for tag in _TAGS)
    yield "configs:"
    for variant in range(manifest.variants):
        yield f"- config_name: {f'variant-{variant}' if variant else 'default'}"
        yield "  data_files:"
        for split, shards in manifest.shards_of(variant).items():
            if not shards:
                continue
            yield f"  - split: {split}"
            yield "    path:"
            names = (entry.name for entry in shards)
            for path in file_patterns(names, variants=manifest.variants):
                yield f"    - {yaml_text(path)}"


def _license(text: str | None) -> Iterator[str]:
    """Yield the lines of the licence. The Hub requires a short name for licences that it does not
    know."""
    if text is None:
        return
    spdx = spdx_identifier(text)
    if spdx is not None:
        yield f"license: {LICENSES[spdx]}"
        return
    yield "license: other"
    short = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "other"
    yield f"license_name: {yaml_text(short)}"
    if text.startswith(("https://", "http://")):
        yield f"license_link: {yaml_text(text)}"


def _sections(manifest: Manifest, stated: Stated) -> Iterator[str]:
    yield f"# {escaped(title(manifest, stated))}"
    yield escaped(summary(manifest, stated))
    yield from _provenance(manifest, stated)
    yield "## Splits"
    yield _splits(manifest)
    multiple = manifest.length_multiple
    padding = "without padding" if multiple == 1 else f"padded to a multiple of {multiple} tokens"
    yield (
        f"A bucket is one row: sequences end to end, each with `<cls>` and `<eos>`, {padding}. "
        "`cu_seqlens` has their offsets. Fill is the share of tokens that are real."
    )
    yield from _reading(manifest)
    yield "## Records"
    yield (
        "The folder `records/` has one row for every input record. The row has the values that the "
        "record's header states, and one of these statuses:"
    )
    yield table(
        ("status", "records", "meaning"),
        (
            (
                status.replace("_", " "),
                f"{manifest.records_by_status.get(status, 0):,}",
                _MEANING[status],
            )
            for status in Status
        ),
    )
    if manifest.retired:
        rows = sum(entry.rows for entry in manifest.retired)
        yield (
            f"The folder `retired/` lists {plural(rows, 'record')} that a later release removed or "
            "superseded. Their sequences are still in the buckets."
        )
    yield from _built(manifest)


def _provenance(manifest: Manifest, stated: Stated) -> Iterator[str]:
    release = stated.source_release
    licensed = stated.license
    rows = [
        ("release of the inputs", code(release) if release else "not stated"),
        ("licence of the inputs", code(licensed) if licensed else "not stated"),
        ("digest of the manifest", code(manifest.digest)),
        ("version of thdpack", code(manifest.version)),
        ("generation", f"{manifest.generation}"),
    ]
    yield table(("provenance", ""), rows)


def _splits(manifest: Manifest) -> str:
    rows = []
    for split, totals in manifest.splits.items():
        shards = manifest.shards[split]
        if shards:
            stored = size(sum(entry.bytes for entry in shards))
            counts = (len(shards), totals.buckets, totals.sequences, totals.tokens)
            cells = (f"{count:,}" for count in counts)
            rows.append((split, *cells, stored, percent(totals.fill(manifest.capacity))))
    splits = table(("split", "shards", "buckets", "sequences", "tokens", "size", "fill"), rows)
    if manifest.sampled_clusters is not None:
        found = manifest.sampled_clusters
        splits = (
            "A variant holds one record of each cluster, drawn at random "
            f"(`--sample-clusters`): {found.clusters:,} of the {found.members:,} kept records in "
            f"clusters.\n\n{splits}"
        )
    if manifest.variants == 1:
        return splits
    return (
        f"The dataset has {manifest.variants} variants: passes over the same records, each "
        "shuffled, cropped and packed anew. The reader takes the next variant in each epoch. The "
        f"table describes variant 0, the default configuration.\n\n{splits}"
    )


def _reading(manifest: Manifest) -> Iterator[str]:
    split = next((name for name, shards in manifest.shards.items() if shards), "train")
    yield "## Read"
    yield "With thdpack, in shuffled order, each shard checked against its hash:"
    yield (
        "```python\n"
        "from pipeline.reader import ShardReader\n\n"
        f'with ShardReader("{_HERE}", split="{split}") as reader:\n'
        "    bucket = next(reader)  # endless: one epoch follows another\n"
        "    bucket.input_ids, bucket.cu_seqlens, bucket.max_seqlen\n"
        "```"
    )
    yield "With the library `datasets`:"
    files = [f"{_HERE}/{pattern}" for pattern in file_patterns(e.name for e in manifest.records)]
    yield (
        "```python\n"
        "from datasets import load_dataset\n\n"
        f'buckets = load_dataset("{_HERE}", split="{split}")\n'
        f'records = load_dataset("parquet", data_files={json.dumps(files)})\n'
        "```"
    )


def _built(manifest: Manifest) -> Iterator[str]:
    yield "## How it was built"
    yield "By `thdpack preprocess`, with these options:"
    yield table(
        ("option", "value"),
        (
            (code(flag(name)), _value(value))
            for name, value in sorted(used_options(manifest).items())
        ),
    )
    yield "### Inputs"
    shown = manifest.inputs[:_MOST_INPUTS]
    yield table(
        ("input", "bytes", "records", "xxh3_128"),
        ((code(e.name), f"{e.bytes:,}", f"{e.records:,}", f"`{e.xxh3_128}`") for e in shown),
    )
    if len(shown) < len(manifest.inputs):
        yield f"`manifest.json` lists all {len(manifest.inputs):,} inputs."
    if manifest.named_files:
        yield "### Files that options name"
        yield table(
            ("option", "file", "bytes", "rows", "xxh3_128 of the sorted content"),
            (
                (f"`--{e.option}`", code(e.name), f"{e.bytes:,}", f"{e.rows:,}", f"`{e.xxh3_128}`")
                for e in manifest.named_files
            ),
        )
    yield (
        "The same inputs and options give the same bytes. "
        f"`thdpack verify {_HERE} --deep` checks every file against the manifest."
    )


def _value(value: bool | int | float | str | None) -> str:
    """Return the value of an option as Markdown."""
    if value is None or value is False:
        return "not given"
    return "given" if value is True else code(str(value))
