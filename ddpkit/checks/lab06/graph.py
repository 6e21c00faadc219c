"""Lab 06: models whose graphs reach some of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpkit.exercises.exercise import Observed

Answer = Callable[..., Any]
Build = Callable[[list[Any]], Any]  # parameters -> the model's output


def a_layer(p: list[Any]) -> Any:
    return (p[0] * p[1]).sum()


def branches(p: list[Any]) -> Any:
    return p[0] * p[2] + p[4]


def nested(p: list[Any]) -> Any:
    return {"loss": p[1].sum(), "more": [p[3] * 2, ("text", p[4].exp())], "epoch": 3}


def itself(p: list[Any]) -> Any:
    return [p[2], p[0].sum()]


def detached(p: list[Any]) -> Any:
    return (p[0] * p[1].detach()).sum() + p[3].sum()


def no_graph(p: list[Any]) -> Any:
    return p[0].detach() + p[1].detach()


def long_chain(p: list[Any]) -> Any:
    x = p[1] * 1
    for _ in range(3000):
        x = x + 1
    return x


def many_paths(p: list[Any]) -> Any:
    """2**60 paths from the output to one parameter, over 60 nodes."""
    x = p[3] * 1
    for _ in range(60):
        x = x + x
    return x


GRAPHS: dict[str, tuple[Build, list[int]]] = {
    "a layer": (a_layer, [2, 3, 4]),
    "branches": (branches, [1, 3]),
    "a dict of lists": (nested, [0, 2]),
    "a parameter is an output": (itself, [1, 3, 4]),
    "a detached factor": (detached, [1, 2, 4]),
    "an output without a graph": (no_graph, [0, 1, 2, 3, 4]),
    "3,000 nodes in a row": (long_chain, [0, 2, 3, 4]),
    "60 nodes, 2**60 paths": (many_paths, [0, 1, 2, 4]),
}


def unused(answer: Answer, build: Build) -> Observed:
    """The places of the parameters that the answer calls unused."""
    import torch

    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(5)]
    output = build(parameters)
    found = answer(output, parameters)
    place = {id(p): i for i, p in enumerate(parameters)}
    places = [place.get(id(p), "no parameter") for p in found]
    if any(p.grad is not None for p in parameters):
        return {"unused": "gradients were made"}
    try:
        for leaf in torch.utils._pytree.tree_leaves(output):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                torch.autograd.backward(leaf.sum(), retain_graph=True)  # the model's own, later
    except RuntimeError:
        return {"unused": "the graph is used up"}
    return {"unused": places}


def unused_in_time(answer: Answer, build: Build) -> Observed:
    """On a rank that is ended after some seconds, for who walks each path takes for ever."""
    from ddpkit.cluster import Cluster

    seen: Observed = Cluster(1, device="cpu").run(unused, answer, build, timeout=20).results[0]
    return seen


def hint(expected: list[int], seen: Observed) -> str | None:
    if "error" in seen:
        return _of_error(seen["error"])
    found = seen["unused"]
    if isinstance(found, str):
        return "The model's backward comes later: look at the graph, and run none."
    if "no parameter" in found:
        return "Give back the parameters themselves."
    if found == [place for place in range(5) if place not in expected]:
        return "These are the parameters that are used: the others were asked for."
    if sorted(found) == expected:
        return "Give them back in the order of `parameters`."
    if missed := sorted(set(found) - set(expected)):
        return (
            f"Parameter {missed[0]} is used. Begin at every tensor of the output, look through "
            "all nodes before a node, and theirs; a tensor may be a parameter itself."
        )
    return "A parameter counts as used only if a node of the graph has it as its `variable`."


def _of_error(error: Any) -> str | None:
    from ddpkit.errors import RunTimeout

    text = f"{type(error).__name__}: {error}"
    if isinstance(error, RunTimeout):
        return "It walks each path for itself, and there are 2**60. Note which nodes you have seen."
    if "does not require grad" in text:
        return "The model's backward comes later: look at the graph, and run none."
    if "RecursionError" in text:
        return "A deep model has more nodes than Python has room for calls: keep a list of nodes."
    if "Boolean value" in text:
        return "`in` compares tensors element by element: compare their id()."
    if "'grad_fn'" in text:
        return "Tensors alone have a grad_fn: take those among tree_leaves(output)."
    if "next_functions" in text or "NoneType" in text:
        return "A tensor without a graph has no grad_fn, and next_functions may hold None: skip it."
    return None
