"""Lab 12: an MLP in one process: the right results, and the results of common mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ddpkit.checks.lab12.on_ranks import learns

INPUTS, OUTPUTS, TOKENS = 8, 4, (2, 6)


class Twin:
    """An MLP, its input, a gradient of its output, and the results in one process."""

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
        twin = deepcopy(self.mlp)
        self.learned, self.learns = learns(twin, twin, self.x, self.gradient)
        self.hidden, self.seed = hidden, seed

    def held(self, n: int) -> list[int]:
        """Return the bytes of each rank's part of the layer.

        The part has the weights and biases of the rank's hidden features, and the whole bias of the
        output.
        """
        sizes = [len(part) for part in torch.arange(self.hidden).tensor_split(n)]
        return [4 * (size * (INPUTS + 1 + OUTPUTS) + OUTPUTS) for size in sizes]

    def layers(self, n: int) -> list[nn.Sequential]:
        """Return an MLP for each rank: the rank's own weights are right, all others are random.

        So a rank that keeps the whole layer still cannot compute the parts of other ranks.
        """
        found = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + 1)
            for mine in torch.arange(self.hidden).tensor_split(n):
                layer = deepcopy(self.mlp)
                first, _, second = layer
                first.reset_parameters(), second.reset_parameters()
                with torch.no_grad():
                    first.weight[mine] = self.mlp[0].weight[mine]
                    first.bias[mine] = self.mlp[0].bias[mine]
                    second.weight[:, mine] = self.mlp[2].weight[:, mine]
                    second.bias.copy_(self.mlp[2].bias)
                found.append(layer)
        return found

    def models(self, n: int) -> Mapping[str, object]:
        """Return the results of common mistakes, by the name of the mistake."""
        second, layers, size = self.mlp[2], self.layers(n), self.hidden // n
        numbers = torch.arange(self.hidden)
        mine = numbers.tensor_split(n)
        with torch.no_grad():
            return {
                "n": n,
                "last_bias": "the second bias",
                "dealt": self._made(layers, [numbers[rank::n] for rank in range(n)]),
                "first_part": self._made(layers, [mine[0]] * n),
                "no_activation": self._made(layers, mine, activated=False),
                "whole": 4 * self.hidden * (INPUTS + OUTPUTS),
                "right": self.output,
                "of_x": self.gradient_of_x,
                "bias_in_each": self.output + (n - 1) * second.bias,
                "no_bias": self.output - second.bias,
                "cut_off": self._made(layers, numbers[: n * size].tensor_split(n)),
                "after_parts": self._after_parts(layers),
            }

    def _made(self, layers: Sequence[Any], parts: Sequence[Any], *, activated: bool = True) -> Any:
        """Return the output if each rank r computes the hidden features `parts[r]` of its layer."""
        total = self.mlp[2].bias
        for (up, activation, down), mine in zip(layers, parts, strict=True):
            hidden = up(self.x)[..., mine]
            total = total + (activation(hidden) if activated else hidden) @ down.weight[:, mine].t()
        return total

    def _after_parts(self, layers: Sequence[Any]) -> Any:
        """Return the output if each rank applies the activation to its own part of a sum.

        This is a common mistake: the activation of a sum is not the sum of activations.
        """
        total, n = self.mlp[2].bias, len(layers)
        inputs = torch.arange(INPUTS).tensor_split(n)
        for mine, (first, activation, second) in zip(inputs, layers, strict=True):
            part = self.x[..., mine] @ first.weight[:, mine].t() + first.bias / n
            total = total + activation(part) @ second.weight.t()
        return total
