"""The model of lab 15: a small transformer that reads letters, in forty lines of plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ddpkit.capstone.language import ALPHABET

LETTERS = len(ALPHABET)
CONTEXT, WIDTH, BLOCKS, HEADS = 64, 64, 2, 4
NOTHING = -100  # padding: the model does not guess a letter at this place


class AttentionBlock(nn.Module):
    """Attention to the earlier letters, then a small network for each letter."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        layers = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), *layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return x, (batch, length, width), with the outputs of both layers added."""
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(x)
        return out


class TextModel(nn.Module):
    """A model of the next letter: embeddings of letters and positions, two blocks, and scores."""

    def __init__(self) -> None:
        super().__init__()
        self.letter = nn.Embedding(LETTERS, WIDTH)
        self.place = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(AttentionBlock() for _ in range(BLOCKS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS)

    def forward(self, letters: Tensor, following: Tensor) -> Tensor:
        """Return the mean loss of the guesses, in nats per letter.

        letters    int64 (batch, length), length up to 64: a text
        following  int64 (batch, length): the letter after each letter; -100 for no guess
        """
        x = self.letter(letters) + self.place(torch.arange(letters.shape[1]))
        scores = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(scores.flatten(0, 1), following.flatten(), ignore_index=NOTHING)
