"""Lab 01: what to say of wrong minibatches and wrong steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpkit.exercises.exercise import Observed


def epoch_hint(seen: Observed, rest: int) -> str | None:
    if "error" in seen:
        return None
    if "type" in seen["samples"]:
        return "A batch is a tensor of int64, which says which images to take: x[batch]."
    if "missing" in seen["samples"]:
        if rest and seen["samples"].endswith(" 0 twice"):
            return "The last batch is left out: it is smaller, and still counts."
        return "Draw without putting back: shuffle all numbers once (torch.randperm), then cut."
    if seen["order"] == "as they come":
        return (
            "The numbers are not shuffled, or only within their batches: shuffle all of them, then "
            "cut. Digits that stand together may be alike."
        )
    if seen["seed"] == "ignored":
        return "Another seed must give another order: torch.Generator().manual_seed(seed)."
    if seen["seed"] == "not enough":
        return (
            "The same seed must give the same batches, whatever was drawn before: seed your own "
            "torch.Generator, and pass it on as generator=."
        )
    if seen["global seed"] == "used":
        return "torch.manual_seed changes everybody's random numbers: make a torch.Generator."
    return "Each batch has batch_size numbers, and the last one what is left: it may be short."


def step_hint(
    start: list[Any],
    gradients: list[Any],
    rates: list[float],
    momentum: float,
    seen: Observed,
) -> str | None:
    m = momentum
    if "error" in seen:
        text = str(seen["error"])
        if "requires grad" in text:
            return "The step is not to be differentiated: put it under `with torch.no_grad():`."
        if "NoneType" in text:
            return "At the first step velocities is None: begin with zeros."
        return None
    variants: list[tuple[str, Callable[[Any, Any, float], Any], Callable[[Any, float], Any]]] = [
        ("Downhill is against the gradient: subtract.", lambda v, g, lr: m * v + g,
         lambda v, lr: -lr * v),
        ("The step must be lr times the velocity; lr is not used.", lambda v, g, lr: m * v + g,
         lambda v, lr: v),
        ("torch does not damp the gradient: m * v + g, not m * v + (1 - m) * g.",
         lambda v, g, lr: m * v + (1 - m) * g, lambda v, lr: lr * v),
        ("Multiply by lr when you take the step, not inside the velocity: lr may change.",
         lambda v, g, lr: m * v + lr * g, lambda v, lr: v),
        ("The velocity itself has been multiplied by lr: lr * v makes a new tensor, v *= lr none.",
         lambda v, g, lr: lr * (m * v + g), lambda v, lr: v),
    ]  # fmt: skip
    got = seen["parameters"]
    if seen["velocities"] == "not returned":
        return "Return the new velocities, one for each parameter: the next step needs them."
    if near(got, start):
        return (
            "The parameters have not changed. Change them in place, p -= ..., not p = p - ..., and "
            "by the new velocity."
        )
    if seen["gradients"] == "changed":
        return "The gradients that you were given have changed: a velocity must be a new tensor."
    for hint, velocity, step in variants:
        if near(got, _variant(start, gradients, rates, velocity, step)):
            return hint
    if m and near(got, _variant(start, gradients, rates, lambda v, g, lr: g, lambda v, lr: lr * v)):
        return "Momentum has no effect: add momentum times the velocity of the step before."
    return (
        "For each parameter: its new velocity is momentum * velocity + gradient (at the first step "
        "the gradient alone), and lr * velocity is all that is subtracted."
    )


def _variant(
    start: list[Any],
    gradients: list[Any],
    rates: list[float],
    velocity: Callable[[Any, Any, float], Any],
    step: Callable[[Any, float], Any],
) -> list[Any]:
    """A step that some people write: `velocity(v, g, lr)` is kept, `step(v, lr)` subtracted."""
    parameters, velocities = [p.clone() for p in start], [0.0 * p for p in start]
    for given, lr in zip(gradients, rates, strict=True):
        velocities = [velocity(v, g, lr) for v, g in zip(velocities, given, strict=True)]
        parameters = [p - step(v, lr) for p, v in zip(parameters, velocities, strict=True)]
    return parameters


def near(one: list[Any], other: list[Any]) -> bool:
    import torch

    return all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(one, other, strict=True))
