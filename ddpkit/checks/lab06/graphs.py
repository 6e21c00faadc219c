"""Lab 06: models in which an output depends on only some of the parameters."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import torch

from ddpkit.checks.lab06.hints import PARAMETERS
from ddpkit.cluster import Cluster
from ddpkit.exercises.exercise import Observed
from ddpkit.torch_private import tree_leaves

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

Build = Callable[[list[torch.Tensor]], object]  # seven parameters -> the model's output
# title, function that asks the answer, model, places of unused parameters
Graph = tuple[str, Callable[..., Observed], Build, list[int]]

NO_GRAPH = "an output without a graph"  # all parameters are unused
FOR_EVER = 20  # seconds after which a rank is ended; a good answer takes milliseconds


def unused(answer: Answer, build: Build, order: Sequence[int]) -> Observed:
    """Return the numbers of the parameters that the answer calls unused.

    If the answer has run a backward, return a text about this mistake instead. `build` gets the
    parameters in the order `order`.
    """
    parameters = [torch.nn.Parameter(torch.ones(2 - i % 2)) for i in range(len(order))]
    output = build([parameters[i] for i in order])
    number = {id(p): i for i, p in enumerate(parameters)}
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    gave = answer(output, parameters)
    if not isinstance(gave, list | tuple):
        raise TypeError(f"unused_parameters gave a {type(gave).__name__}, not a list")
    found = [number.get(id(p), "no parameter") for p in gave]
    if any(p.grad is not None for p in parameters):
        return {"unused": "gradients were made"}
    try:  # the model's own backward, which needs the graph after the answer
        torch.autograd.backward([each.sum() for each in tensors if each.requires_grad])
    except RuntimeError:
        return {"unused": "the graph is used up"}
    return {"unused": found}


def unused_in_time(answer: Answer, build: Build, order: Sequence[int]) -> Observed:
    """Call `unused` on a rank, and kill the rank after FOR_EVER: some answers never return."""
    alone = Cluster(1, device="cpu")
    return dict(alone.run(unused, answer, build, order, timeout=FOR_EVER).results[0])


@dataclass(frozen=True)
class Random:
    """A model of random products: each of `steps` multiplies two of the values so far."""

    steps: tuple[tuple[int, int], ...]
    outputs: tuple[int, ...]

    def __call__(self, p: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        values = list(p)
        for a, b in self.steps:
            values.append(values[a] * values[b])
        return {"all": [values[i] for i in self.outputs]}

    def used(self, parameters: int) -> set[int]:
        """Return the numbers of the parameters that an output depends on."""
        reached, todo = set(), [*self.outputs]
        while todo:
            place = todo.pop()
            reached.add(place)
            todo += self.steps[place - parameters] if place >= parameters else ()
        return {place for place in reached if place < parameters}


def drawn(rng: random.Random, parameters: int = PARAMETERS) -> tuple[Random, list[int]]:
    """Draw a model; return the model and the numbers of its unused parameters."""
    while True:
        steps = tuple((rng.randrange(n), rng.randrange(n)) for n in range(parameters, 12))
        made = Random(steps, (rng.randrange(parameters, 12), rng.randrange(parameters, 12)))
        unused = [i for i in range(parameters) if i not in made.used(parameters)]
        if 2 <= len(unused) <= parameters - 2:
            return made, unused


# fmt: off
GRAPHS: tuple[Graph, ...] = (
    ("a layer", unused, lambda p: (p[0] * p[1]).sum(), [2, 3, 4, 5, 6]),
    ("branches", unused, lambda p: p[0] * p[2] + p[4], [1, 3, 5, 6]),
    ("a dict of lists", unused,
     lambda p: {"loss": p[1].sum(), "more": [p[3] * 2, ("text", p[4].exp())], "epoch": 3},
     [0, 2, 5, 6]),
    ("a parameter is an output", unused, lambda p: [p[2], p[0].sum()], [1, 3, 4, 5, 6]),
    ("a detached factor", unused, lambda p: (p[0] * p[1].detach()).sum() + p[3].sum(),
     [1, 2, 4, 5, 6]),
    (NO_GRAPH, unused, lambda p: p[0].detach() + p[1].detach(), [*range(PARAMETERS)]),
    ("3,000 nodes in a row", unused, lambda p: reduce(lambda x, _: x + 1, range(3000), p[1]),
     [0, 2, 3, 4, 5, 6]),
    ("60 nodes, 2**60 paths", unused_in_time, lambda p: reduce(lambda x, _: x + x, range(60), p[3]),
     [0, 1, 2, 4, 5, 6]),
)
# fmt: on
