"""Plot of an ablation's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.training.ablation.variants import VARIANTS, Result


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw tokens/s as bars, with a panel for each preset."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "thdpack"})
    rows = [Result(**row) for row in found["results"]]
    presets, variants = (
        list(dict.fromkeys(row.preset for row in rows)),
        list(dict.fromkeys(row.variant for row in rows)),
    )
    size = (2 + 4 * len(presets), 0.8 + 0.36 * len(variants))
    figure, panels = plt.subplots(
        1,
        len(presets),
        figsize=size,
        sharey=True,
        squeeze=False,
        layout="constrained",
        facecolor="white",
    )
    for panel, preset in zip(panels[0], presets, strict=True):
        of_preset = {row.variant: row for row in rows if row.preset == preset}
        longest = max(row.tokens_per_second for row in of_preset.values()) or 1.0
        for place, name in enumerate(variants):
            row = of_preset.get(name, Result(preset=preset, variant=name, note="not measured"))
            panel.barh(
                place,
                row.tokens_per_second,
                height=0.66,
                color="#2f6f9f" if VARIANTS[name].rows == "shards" else "#b4bcc4",
            )
            label = (
                row.note.partition(":")[0] or f"{row.tokens_per_second:,.0f} · {row.gib:.1f} GiB"
            )
            panel.text(
                row.tokens_per_second + 0.02 * longest, place, label, va="center", color="#222222"
            )
        panel.set(
            title=preset,
            xlim=(0, 1.55 * longest),
            xticks=[],
            yticks=range(len(variants)),
            yticklabels=[VARIANTS[name].label for name in variants],
        )
        panel.tick_params(length=0)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    panels[0][0].invert_yaxis()
    figure.supxlabel(
        "unpadded tokens/s · peak memory; "
        f"{found['device']}, {found['batch_tokens']:,} tokens a step, padding included",
        fontsize=9,
        color="#555555",
    )
    figure.savefig(path, metadata={"Date": None})
