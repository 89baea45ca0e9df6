"""A tiny model that predicts masked residues. The examples share it: use your own model instead."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class TinyModel(nn.Module):
    """One transformer layer over padded rows, such as those of `bshd`."""

    def __init__(self, vocabulary: int = 33, width: int = 32) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss over the masked tokens, float32[].

        Args:
            input_ids: int64[sequences, tokens]
            attention_mask: int64[sequences, tokens], 1 at real tokens
            labels: int64[sequences, tokens], -100 where nothing is predicted
        """
        hidden = self.layer(self.embedding(input_ids), src_key_padding_mask=attention_mask == 0)
        masked = labels != -100
        return cross_entropy(self.head(hidden[masked]), labels[masked])
