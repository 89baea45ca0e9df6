"""Datasets of a mixture, their weights, and the changes of these weights during a run."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pipeline.planning.mixture import datasets_of
from schemas.text.redact import without_credentials
from trainer.config import DataOptions


def changes_of(reweight: Sequence[str]) -> list[tuple[int, list[Fraction]]]:
    """Return each change that --reweight makes: its step, and the new weights.

    Raises:
        ValueError: a text does not have the form STEP=WEIGHT,WEIGHT,…
    """
    found = []
    for text in reweight:
        step, _, weights = text.partition("=")
        try:
            change = int(step), [Fraction(each) for each in weights.split(",")]
        except (ValueError, ZeroDivisionError):
            raise ValueError(
                f"--reweight is {text!r}, expected a step and the weight of each dataset, such as "
                "50000=0.5,0.5"
            ) from None
        found.append(change)
    return found


def dataset_names(urls: Sequence[str]) -> list[str]:
    """Return a name of each dataset for metrics: the last part of its URL if the names then differ,
    or else the whole URL, without credentials.
    """
    whole = [without_credentials(url) for url in urls]
    last = [url.rstrip("/").rpartition("/")[2] for url in whole]
    return last if len({*last}) == len(last) and all(last) else whole


def announcements(data: DataOptions) -> dict[int, str]:
    """Return sentences about the shares of a mixture. Each key is the number of steps after which
    its sentence applies; the first key is 0. Without a mixture, the dict is empty.

    The options must be valid.
    """
    urls = list(datasets_of(data.data))
    if len(urls) < 2:
        return {}
    return {step: _announcement(step, urls, shares) for step, shares in _shares_by_step(data)}


def latest_announcement(data: DataOptions, step: int) -> str:
    """Return the sentence that applies after `step` steps; "" for one dataset."""
    return next(
        (text for begin, text in reversed(announcements(data).items()) if begin <= step), ""
    )


def changed_weights(now: DataOptions, then: DataOptions) -> str:
    """Return how `then`, another mixture of the same datasets, differs from `now`, such as "other
    weights". Return "" if the datasets differ, or nothing differs.

    The URLs must be without credentials.
    """
    if list(datasets_of(now.data)) != list(datasets_of(then.data)):
        return ""
    (ours, *our_changes), (theirs, *their_changes) = _shares_by_step(now), _shares_by_step(then)
    names = (
        ("other weights", ours != theirs),
        ("another --reweight", our_changes != their_changes),
    )
    return " and ".join(name for name, differs in names if differs)


def _shares_by_step(data: DataOptions) -> list[tuple[int, list[Fraction]]]:
    """Return the shares of the datasets, with the step after which the shares apply. The shares sum
    to 1."""
    weights = [(0, list(datasets_of(data.data).values())), *changes_of(data.reweight)]
    return [(step, [each / sum(found) for each in found]) for step, found in weights]


def _announcement(step: int, urls: Sequence[str], shares: Sequence[Fraction]) -> str:
    parts = [
        f"{float(100 * share):.4g} % from {without_credentials(url)}"
        for url, share in zip(urls, shares, strict=True)
    ]
    begin = f"--reweight: from step {step + 1:,} on, " if step else ""
    return f"{begin}the run mixes buckets of {len(urls)} datasets: {', '.join(parts)}"
