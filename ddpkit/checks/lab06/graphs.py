"""Lab 06: models whose graphs reach some of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ddpkit.cluster import Cluster
from ddpkit.exercises.exercise import Observed

Answer = Callable[..., Any]
Build = Callable[[list[Any]], Any]  # five parameters -> the model's output

FOR_EVER = 20  # seconds: an answer that notes the nodes takes milliseconds


def unused(answer: Answer, build: Build) -> Observed:
    """The numbers of the parameters that the answer calls unused, or what it did to the model."""
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(5)]
    output = build(parameters)
    number = {id(p): i for i, p in enumerate(parameters)}
    found = [number.get(id(p), "no parameter") for p in answer(output, parameters)]
    if any(p.grad is not None for p in parameters):
        return {"unused": "gradients were made"}
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    try:  # the model's own backward, later
        torch.autograd.backward([each.sum() for each in tensors if each.requires_grad])
    except RuntimeError:
        return {"unused": "the graph is used up"}
    return {"unused": found}


def unused_in_time(answer: Answer, build: Build) -> Observed:
    """Asks on a rank that is ended after some seconds, for who walks each path takes for ever."""
    alone = Cluster(1, device="cpu")
    return dict(alone.run(unused, answer, build, timeout=FOR_EVER).results[0])


# fmt: off
GRAPHS: tuple[tuple[str, Callable[..., Observed], Build, list[int]], ...] = (
    ("a layer", unused, lambda p: (p[0] * p[1]).sum(), [2, 3, 4]),
    ("branches", unused, lambda p: p[0] * p[2] + p[4], [1, 3]),
    ("a dict of lists", unused,
     lambda p: {"loss": p[1].sum(), "more": [p[3] * 2, ("text", p[4].exp())], "epoch": 3}, [0, 2]),
    ("a parameter is an output", unused, lambda p: [p[2], p[0].sum()], [1, 3, 4]),
    ("a detached factor", unused, lambda p: (p[0] * p[1].detach()).sum() + p[3].sum(), [1, 2, 4]),
    ("an output without a graph", unused, lambda p: p[0].detach() + p[1].detach(),
     [0, 1, 2, 3, 4]),
    ("3,000 nodes in a row", unused, lambda p: reduce(lambda x, _: x + 1, range(3000), p[1]),
     [0, 2, 3, 4]),
    ("60 nodes, 2**60 paths", unused_in_time, lambda p: reduce(lambda x, _: x + x, range(60), p[3]),
     [0, 1, 2, 4]),
)
# fmt: on
