"""Lab 08: stories (sequences of pulls and pushes) for a rule, without ranks and without a clock.

A story is a text. "v1": worker 1 pulls. "p1": worker 1 pushes. "d1": worker 1 is done. "?1": the
check asks the rule if worker 1 may pull.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddpkit.exercises.exercise import Observed

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

Story = str
Event = tuple[str, int]
Gradients = Sequence[Tensor]  # gradients of the pushes, in order


def events(story: Story) -> Iterator[Event]:
    """Yield the kind ("v", "p", "d" or "?") and the worker of each event."""
    return ((each[0], int(each[1:])) for each in story.split())


def play(
    answer: Answer, story: Story, gradients: Gradients, workers: Sequence[int], *more: object
) -> Observed:
    """Observe an answer's rule in a story; the update of the rule adds the gradient.

    "may pull" holds the rule's answers. "parameters" holds the parameters after each push, and
    after each event at which a worker is done.
    """
    flat, updates = torch.zeros_like(gradients[0]), []

    def update(parameters: Tensor, gradient: Tensor) -> None:
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


def _shown(parameters: Tensor) -> list[float] | float:
    """Return the parameters as a list of numbers; a single parameter becomes a float."""
    return parameters.tolist() if len(parameters) > 1 else float(parameters[0])


def end_of(
    answer: Answer,
    stories: Sequence[Story],
    by_worker: Mapping[int, Tensor],
    workers: Sequence[int],
) -> Observed:
    """Observe the final parameters of several stories; each story is one round of pushes."""
    ends = []
    for story in stories:
        flat = torch.zeros_like(by_worker[workers[0]])
        rule = answer(flat, lambda parameters, gradient: parameters.add_(gradient), list(workers))
        for what, worker in events(story):
            if what == "p":
                rule.push(worker, by_worker[worker].clone())
        ends.append(flat.clone())
    return {"parameters": ends}
