"""Lab 08: stories of pulls and pushes that are played to a rule, without ranks and without a clock.

A story is a text: "v1" worker 1 pulls, "p1" it pushes, "d1" it is done, "?1" may it pull?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ddpkit.exercises.exercise import Observed

Answer = Callable[..., Any]
Story = str
Event = tuple[str, int]
Gradients = Sequence[Any]  # of the pushes, in their order


def events(story: Story) -> Iterator[Event]:
    """What happens, and to which worker."""
    return ((each[0], int(each[1:])) for each in story.split())


def play(
    answer: Answer, story: Story, gradients: Gradients, workers: Sequence[int], *more: object
) -> Observed:
    """What a rule says and does in a story; its update adds the gradient.

    "may pull": its answers. "parameters": after each push and each worker that is done.
    """
    flat, updates = torch.zeros_like(gradients[0]), []

    def update(parameters: Any, gradient: Tensor) -> None:
        updates.append(gradient)
        parameters.add_(gradient)

    rule = answer(flat, update, list(workers), *more)
    pushed = (gradient.clone() for gradient in gradients)
    said, parameters, pulled = [], [], []
    for what, worker in events(story):
        if what == "?":
            said.append("yes" if rule.may_pull(worker) else "no")
        elif what == "v":
            pulled.append(_shown(rule.pull(worker)))
        elif what == "p":
            rule.push(worker, next(pushed))
        else:
            rule.done(worker)
        if what in "pd":
            parameters.append(_shown(flat))
    seen = {
        "may pull": " ".join(said),
        "parameters": parameters,
        "pulled": pulled,
        "updates": len(updates),
    }
    if hasattr(rule, "staleness"):
        seen["staleness"] = list(rule.staleness)
    return seen


def _shown(parameters: Any) -> Any:
    """All numbers; a single one as it is."""
    return parameters.tolist() if len(parameters) > 1 else float(parameters[0])


def end_of(
    answer: Answer, stories: Sequence[Story], by_worker: Mapping[int, Any], workers: Sequence[int]
) -> Observed:
    """The parameters after each of several stories of one round each."""
    ends = []
    for story in stories:
        flat = torch.zeros_like(by_worker[workers[0]])
        rule = answer(flat, lambda parameters, gradient: parameters.add_(gradient), list(workers))
        for what, worker in events(story):
            if what == "p":
                rule.push(worker, by_worker[worker].clone())
        ends.append(flat.clone())
    return {"parameters": ends}
