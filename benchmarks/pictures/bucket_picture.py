"""Draw a padded batch and, below it, a THD bucket of the same sequences, for the README.

    thdpack preprocess data/sample.fasta --capacity 4096 --out data/sample-4096
    python -m benchmarks.pictures.bucket_picture data/sample-4096 docs/images/bucket.svg
    python -m benchmarks.pictures.bucket_picture data/sample-4096 docs/images/bucket-dark.svg \\
        --scheme dark
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import tyro

from pipeline.reader import ShardReader

WIDTH: Final = 880
LEFT: Final = 12
TOKEN: Final = (WIDTH - 2 * LEFT) / 4096
"""Pixels per token. Both halves of the picture have the same scale, so areas can be compared."""
ROW: Final = 15
ROWS_TOP: Final = 44
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#8c6bb1")
"""Colours of sequences, used in turn. Blue, vermilion and green are from Okabe and Ito's palette,
as in the report."""


@dataclass(frozen=True, kw_only=True)
class Options:
    dataset: Annotated[str, tyro.conf.Positional]
    """Dataset with buckets of 4,096 tokens."""
    picture: Annotated[Path, tyro.conf.Positional]
    """SVG file to write."""
    bucket: int = 91
    """Index of the bucket to draw, in stored order."""
    scheme: Literal["light", "dark"] = "light"
    """Colour scheme of text and padding."""


@dataclass(frozen=True, slots=True)
class Ink:
    """Colours of one colour scheme."""

    text: str
    soft: str
    padding: str


INKS: Final = {
    "light": Ink("#1f2328", "#59636e", "#e3e6ea"),
    "dark": Ink("#f0f6fc", "#9198a1", "#2b323b"),
}


def text(x: float, y: float, words: str, colour: str, *, size: int = 13, extra: str = "") -> str:
    """Return the SVG of one line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}"{extra}>{words}</text>'


def box(x: float, y: float, tokens: float, height: float, colour: str) -> str:
    """Return the SVG of a box for `tokens` tokens.

    The box is half a pixel narrower than the tokens, to leave a gap between neighbouring boxes.
    """
    width = max(1.0, tokens * TOKEN - 0.5)
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def padded_batch(lengths: list[int], longest: int, ink: Ink) -> list[str]:
    """Draw one row of `longest` tokens for each sequence; write the attention cost beside them."""
    computed, real = len(lengths) * longest, sum(lengths)
    parts = [text(LEFT, 24, f"Padded batch: {len(lengths)} rows × {longest:,}", ink.text, size=15)]
    for number, length in enumerate(lengths):
        y = ROWS_TOP + number * ROW
        parts += [
            box(LEFT, y, longest, ROW - 3, ink.padding),
            box(LEFT, y, length, ROW - 3, COLOURS[number % len(COLOURS)]),
        ]
    x = LEFT + longest * TOKEN + 24
    notes = (
        (f"{computed:,} tokens are computed, {real:,} are real", ink.text),
        (f"padding: {100 * (1 - real / computed):.1f} % of the tokens (grey)", ink.soft),
        (f"attention costs {len(lengths)} × {longest:,}² = {computed * longest:,}", ink.soft),
    )
    for line, (words, colour) in enumerate(notes):
        parts.append(text(x, ROWS_TOP + 14 + 22 * line, words, colour))
    return parts


def thd_bucket(lengths: list[int], capacity: int, top: float, ink: Ink) -> list[str]:
    """Draw one row of the same sequences, with `cu_seqlens` and the attention cost below."""
    title = f"THD bucket: the same sequences in one row of {capacity:,} tokens"
    parts = [
        text(LEFT, top, title, ink.text, size=15),
        box(LEFT, top + 14, capacity, 34, ink.padding),
    ]
    edges = np.cumsum([0, *lengths]).tolist()
    for number, length in enumerate(lengths):
        x = LEFT + edges[number] * TOKEN
        middle = ' text-anchor="middle" font-weight="600"'
        parts += [
            box(x, top + 14, length, 34, COLOURS[number % len(COLOURS)]),
            text(x + length * TOKEN / 2, top + 36, f"{length}", "#ffffff", size=12, extra=middle),
        ]
    for edge in edges:
        anchor = "start" if edge == 0 else "end" if edge == edges[-1] else "middle"
        x = LEFT + edge * TOKEN
        tick = f'x1="{x:.1f}" x2="{x:.1f}" y1="{top + 50}" y2="{top + 56}" stroke="{ink.soft}"'
        place = f' text-anchor="{anchor}"'
        parts += [
            f"<line {tick}/>",
            text(x, top + 70, f"{edge:,}", ink.soft, size=12, extra=place),
        ]
    real = edges[-1]
    tail = f"; the last {capacity - real} tokens are padding" if real < capacity else ""
    notes = (
        (f"cu_seqlens: the offsets at which sequences begin and end{tail}", ink.text),
        (
            f"fill: {real:,} of {capacity:,} tokens are real, {100 * real / capacity:.1f} %",
            ink.soft,
        ),
        (f"attention costs Σ length² = {sum(length**2 for length in lengths):,}", ink.soft),
    )
    for line, (words, colour) in enumerate(notes):
        parts.append(text(LEFT, top + 98 + 22 * line, words, colour))
    return parts


def main(options: Options) -> None:
    with ShardReader(options.dataset, prefetch=0) as reader:
        bucket = reader[options.bucket]
        longest, capacity = bucket.max_seqlen, len(bucket.input_ids)
        lengths = np.diff(bucket.cu_seqlens[: bucket.num_seqs + 1]).tolist()
    ink = INKS[options.scheme]
    top = ROWS_TOP + len(lengths) * ROW + 36
    parts = [*padded_batch(lengths, longest, ink), *thd_bucket(lengths, capacity, top, ink)]
    height = top + 154
    options.picture.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
        "<title>A padded batch above a THD bucket of the same sequences</title>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    main(tyro.cli(Options))
