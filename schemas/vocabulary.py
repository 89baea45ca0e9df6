"""Vocabularies: the token id of each residue letter, and the special ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

import xxhash


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Token ids of one alphabet.

    name: name of the vocabulary in options and manifests
    tokens: tokens in the order of their ids; tokens of one character are residues
    """

    name: str
    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.tokens)) != len(self.tokens) or len(self.tokens) > 64:
            raise ValueError(f"vocabulary {self.name} must have at most 64 tokens, all different")
        if len(self.in_sequence) != len(self.letters) + 1:
            raise ValueError(
                f"vocabulary {self.name}: ids of <unk> and of residues must be consecutive, "
                "because checks of buckets rely on that"
            )

    def __getstate__(self) -> dict[str, object]:
        """Leave out cached properties: pickle refuses the read-only mapping of `letters`."""
        return {"name": self.name, "tokens": self.tokens}

    def __len__(self) -> int:
        return len(self.tokens)

    def id(self, token: str) -> int:
        """Return the id of a token.

        Raises:
            ValueError: the vocabulary has no such token.
        """
        return self.tokens.index(token)

    @cached_property
    def cls(self) -> int:
        return self.id("<cls>")

    @cached_property
    def pad(self) -> int:
        return self.id("<pad>")

    @cached_property
    def eos(self) -> int:
        return self.id("<eos>")

    @cached_property
    def unk(self) -> int:
        return self.id("<unk>")

    @cached_property
    def digest(self) -> str:
        """xxh3_128 of the tokens in id order, hexadecimal."""
        return xxhash.xxh3_128_hexdigest("\n".join(self.tokens).encode())

    @cached_property
    def letters(self) -> Mapping[str, int]:
        """Id of each residue letter. Letters are in upper case."""
        return MappingProxyType(
            {token: i for i, token in enumerate(self.tokens) if len(token) == 1}
        )

    @cached_property
    def in_sequence(self) -> range:
        """Ids that are allowed between <cls> and <eos>: those of <unk> and the residues."""
        ids = sorted((self.unk, *self.letters.values()))
        return range(ids[0], ids[-1] + 1)


ESM2: Final = Vocabulary(
    name="esm2",
    tokens=(
        "<cls>",
        "<pad>",
        "<eos>",
        "<unk>",
        *"LAGVSERTIDPKQNFYMHWCXBUZO.-",
        "<null_1>",
        "<mask>",
    ),
)
"""The 33 tokens of ESM-2 (Lin et al., Science 2023), in the order of its published checkpoints."""

GAPS: Final = "-."
"""Gap characters of alignments. ESM-2's vocabulary has a token for each of them."""
VOCABULARIES: Final[Mapping[str, Vocabulary]] = MappingProxyType({ESM2.name: ESM2})
