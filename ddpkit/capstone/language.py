"""A language for each seed, with four dialects: random Markov chains with a known entropy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

ALPHABET = "abcdefghijklmnopqrstuvwxyz.,;:!?"
DIALECTS = 4
OWN = len(ALPHABET) // DIALECTS  # number of a dialect's letters; dialects share no letters
SHARP = 1.5  # standard deviation of the logits of the next letter

Letters = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Language:
    """A language of four dialects without common letters; tables give the next letter's chances.

    Training on a dialect teaches a model this dialect only, and nothing about another language.
    """

    seed: int

    @cached_property
    def letters(self) -> Letters:
        """The letters of each dialect as indices into `ALPHABET`, int64 (DIALECTS, OWN)."""
        order = np.random.default_rng((self.seed, 0)).permutation(len(ALPHABET))
        return order.reshape(DIALECTS, OWN)

    @cached_property
    def tables(self) -> npt.NDArray[np.float64]:
        """The probability of each next letter after each letter, (DIALECTS, OWN, OWN)."""
        logits = np.random.default_rng((self.seed, 1)).normal(0, SHARP, (DIALECTS, OWN, OWN))
        chances: npt.NDArray[np.float64] = np.exp(logits)
        chances /= chances.sum(-1, keepdims=True)
        return chances

    @cached_property
    def usual(self) -> npt.NDArray[np.float64]:
        """The share of each letter in a long text of its dialect, (DIALECTS, OWN)."""
        shares: npt.NDArray[np.float64] = np.linalg.matrix_power(self.tables, 512)[:, 0]
        return shares

    @property
    def entropy(self) -> float:
        """The lowest loss that a model can reach, in nats per letter; a mean over the dialects."""
        surprise = -(self.tables * np.log(self.tables)).sum(-1)
        return float((self.usual * surprise).sum(-1).mean())

    def stretches(self, dialect: int, count: int, length: int, stream: int) -> Letters:
        """Return texts of a dialect, int64 (count, length). Each `stream` has different texts."""
        chance = np.random.default_rng((self.seed, 2, dialect, stream, length))
        after, begins = self.tables[dialect].cumsum(-1), self.usual[dialect].cumsum()
        state = np.minimum((chance.random((count, 1)) > begins).sum(-1), OWN - 1)
        states = [state]
        for _ in range(length - 1):
            state = np.minimum((chance.random((count, 1)) > after[state]).sum(-1), OWN - 1)
            states.append(state)
        found: Letters = self.letters[dialect][np.stack(states, 1)]
        return found
