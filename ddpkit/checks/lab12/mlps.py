"""Lab 12: an MLP in one process: what its slices on ranks should give, and what mistakes give."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ddpkit.checks.lab12.on_ranks import learned

INPUTS, OUTPUTS, TOKENS = 8, 4, (2, 6)


class Twin:
    """An MLP, an input and a gradient of its output, and what comes of them in one process."""

    def __init__(self, seed: int, hidden: int, activation: str) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers = nn.Linear(INPUTS, hidden), nn.Linear(hidden, OUTPUTS)
            self.mlp: Any = nn.Sequential(layers[0], getattr(nn, activation)(), layers[1])
            self.x, self.gradient = torch.randn(*TOKENS, INPUTS), torch.randn(*TOKENS, OUTPUTS)
        given = self.x.clone().requires_grad_()
        output = self.mlp(given)
        (self.gradient_of_x,) = torch.autograd.grad(output, given, self.gradient)
        self.output = output.detach()
        self.learned = learned(deepcopy(self.mlp), self.x, self.gradient)
        self.hidden = hidden

    def held(self, n: int) -> list[int]:
        """Bytes of each rank's part: its hidden numbers' weights and biases, and the last bias."""
        sizes = [len(part) for part in torch.arange(self.hidden).tensor_split(n)]
        return [4 * (size * (INPUTS + 1 + OUTPUTS) + OUTPUTS) for size in sizes]

    def models(self, n: int) -> Mapping[str, Any]:
        """What some mistakes give."""
        first, activation, second = self.mlp
        whole = self.hidden // n * n
        with torch.no_grad():
            hidden = activation(first(self.x))
            cut = hidden[..., :whole] @ second.weight[:, :whole].t() + second.bias
            return {
                "n": n,
                "whole": 4 * self.hidden * (INPUTS + OUTPUTS),
                "right": self.output,
                "of_x": self.gradient_of_x,
                "bias_in_each": self.output + (n - 1) * second.bias,
                "no_bias": self.output - second.bias,
                "cut_off": cut,
                "after_parts": self._after_parts(n),
            }

    def _after_parts(self, n: int) -> Any:
        """The output if each rank takes the activation of its part of a sum."""
        first, activation, second = self.mlp
        inputs = torch.arange(INPUTS).tensor_split(n)
        sums = [self.x[..., mine] @ first.weight[:, mine].t() for mine in inputs]
        return (
            sum(activation(each + first.bias / n) for each in sums) @ second.weight.t()
            + second.bias
        )
