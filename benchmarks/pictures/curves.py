"""Plot of validation losses over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def draw(
    curves: Sequence[tuple[str, Sequence[tuple[int, float]]]], path: Path, *, title: str
) -> None:
    """Draw curves. Curves of the same name have the same colour, and one entry in the legend.

    Args:
        curves: name, and pairs of tokens and loss, of each run.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "thdpack"})
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained", facecolor="white")
    names = list(dict.fromkeys(name for name, _ in curves))
    for name, curve in curves:
        tokens, losses = zip(*curve, strict=True)
        number = names.index(name)
        first = name not in axes.get_legend_handles_labels()[1]
        axes.plot(
            [count / 1e6 for count in tokens],
            losses,
            color=f"C{number}",
            linewidth=1,
            label=name if first else None,
        )
    axes.set(xlabel="tokens, millions", ylabel="validation loss", title=title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
