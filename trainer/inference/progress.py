"""Show the progress of an inference run: as a bar on a terminal, else as lines."""

from __future__ import annotations

import time
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

_PLAIN_SECONDS: Final = 10.0


class InferenceProgress:
    """Progress in tokens. Only rank 0 shows it; it assumes that the other ranks are as fast."""

    def __init__(self, *, name: str, total: int, ranks: int, shown: bool) -> None:
        """Args:
        name: what is done, such as "embedding".
        total: number of tokens of all ranks.
        ranks: number of ranks.
        shown: True on rank 0.
        """
        self._console = Console(stderr=True, quiet=not shown)
        self._name, self._total, self._ranks = name, total, ranks
        self.done = 0
        self._first: tuple[float, int] | None = None
        self._began = self._said = time.monotonic()
        self._bar: Progress | None = None
        if shown and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._task = self._bar.add_task(name, total=total, rate="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def received(self) -> None:
        """Count a result of this rank. The speed is measured from the first result on, because the
        first row also compiles kernels."""
        if self._first is None:
            self._first = time.monotonic(), self.done

    def summary(self) -> str:
        """Return the number of tokens and the speed until now, for the last line of a run."""
        if self._first is None:
            return ""
        since, before = self._first
        tokens = self.done - before
        if not tokens:  # a single row
            since, tokens = self._began, self.done
        rate = tokens / max(time.monotonic() - since, 1e-9)
        return f" ({self.done:,} tokens, {rate:,.0f} tokens/s from the first result on)"

    def advance(self, tokens: int) -> None:
        """Count tokens that this rank has computed."""
        self.done += tokens * self._ranks
        now = time.monotonic()
        rate = self.done / max(now - self._began, 1e-9)
        if self._bar:
            self._bar.update(
                self._task, completed=min(self.done, self._total), rate=f"{rate:,.0f} tokens/s"
            )
        elif now - self._said >= _PLAIN_SECONDS:
            self._said = now
            left = max(self._total - self.done, 0) / max(rate, 1e-9)
            share = min(self.done / max(self._total, 1), 1)
            self.say(f"{self._name}: {share:.1%} · {rate:,.0f} tokens/s · about {left:,.0f} s left")
