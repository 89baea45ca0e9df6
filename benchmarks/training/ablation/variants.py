"""Variants of the ablation, and the result of a variant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, kw_only=True)
class Variant:
    label: str
    rows: Literal["padded", "packed", "shards"]
    backend: Literal["hugging face", "torch", "te"]
    precision: str = "auto"
    cuda_graph: bool = False


VARIANTS: Final = {
    "hf-padded": Variant(label="Hugging Face, padded", rows="padded", backend="hugging face"),
    "torch-bshd": Variant(label="torch layers, padded", rows="padded", backend="torch"),
    "te-bshd": Variant(label="TE layers, padded", rows="padded", backend="te"),
    "te-thd-online": Variant(label="TE, packed in workers", rows="packed", backend="te"),
    "te-thd-shards": Variant(label="TE, packed shards", rows="shards", backend="te"),
    "te-thd-graph": Variant(
        label="… in a CUDA graph", rows="shards", backend="te", cuda_graph=True
    ),
    "te-thd-graph-fp8": Variant(
        label="… in FP8", rows="shards", backend="te", cuda_graph=True, precision="fp8-delayed"
    ),
}


@dataclass(kw_only=True)
class Result:
    """Result of a variant.

    tokens_per_second: real tokens/s
    ms: mean time of a step, in ms
    fill: share of computed tokens that are real
    gib: peak of allocated device memory, in GiB
    speedup: tokens/s divided by the tokens/s of the preset's first variant
    note: reason why the variant has no figures; empty if it has figures
    """

    preset: str
    variant: str
    tokens_per_second: float = 0.0
    ms: float = 0.0
    fill: float = 0.0
    gib: float = 0.0
    speedup: float = 0.0
    note: str = ""

    @property
    def failed(self) -> bool:
        return self.note.startswith("failed")

    def __str__(self) -> str:
        if self.note:
            note = self.note.partition("\n")[0][:200]
            return f"| {self.preset} | {self.variant} | {note} | | | | |"
        times = f"{self.speedup:.1f}×" if self.speedup else ""
        return (
            f"| {self.preset} | {self.variant} | {self.tokens_per_second:,.0f} | {times} "
            f"| {self.ms:,.1f} | {self.fill:.1%} | {self.gib:.1f} |"
        )
