"""Lab 15: how far trainings stay below the target, and what each mended fault brings.

    python -m benchmarks.capstone [--seeds N] [--part losses|times]

Prints held-out losses of four trainings over N seeds (20), each with its text, its alphabet, its
first weights and its tenth held out: least, median, greatest, how far that is below the target, and
how many are above it. Four ranks' stretches go through one process as one batch: the same sums.
Then emulated ms a step of the given script with one fault after the other mended; these are the
same on each machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks._report import as_text, machine
from ddpkit import Cluster, answers
from ddpkit.capstone import GIVEN_MS, LINK, MACHINE, RANKS, TARGET, TextModel, TextTask
from tests.capstone.lesson import given

GIVEN_STEPS = 20


@dataclass(frozen=True)
class Plan:
    """A training by AdamW: steps, stretches of 32 letters on each rank, and learning rate."""

    name: str
    steps: int
    size: int
    rate: float


PLANS = (
    Plan("as given, mended", GIVEN_STEPS, 8, 0.006),
    Plan("fewer steps", 16, 8, 0.01),
    Plan("far fewer", 12, 8, 0.01),
    Plan("the kit's", 20, 4, 0.01),
)


def loss_of(task: TextTask, plan: Plan) -> float:
    """The held-out loss after a plan, in nats a letter."""
    model, text = task.model(), torch.from_numpy(task.text).long()
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.rate)
    generators = [torch.Generator().manual_seed(rank) for rank in range(RANKS)]
    for _ in range(plan.steps):
        optimizer.zero_grad()
        batches = [given().even(text, plan.size, each) for each in generators]
        letters, following = (torch.cat(parts) for parts in zip(*batches, strict=True))
        model(letters, following).backward()
        optimizer.step()
    return task.loss(torch.cat([p.detach().flatten() for p in model.parameters()]))


def losses(seeds: int) -> str:
    """The table of losses."""
    rows = [["training", "least", "median", "greatest", "margin", f"above {TARGET}"]]
    for plan in PLANS:
        found = [loss_of(TextTask(seed), plan) for seed in range(seeds)]
        above = sum(each >= TARGET for each in found)
        numbers = (min(found), median(found), max(found), TARGET - max(found))
        about = f"{plan.name}: {plan.steps} steps of {plan.size}, {plan.rate}"
        rows.append([about, *(f"{each:.3f}" for each in numbers), f"{above} of {seeds}"])
    return as_text(rows)


def together(model: TextModel, text: Tensor, steps: int, dtype: torch.dtype, size: int) -> None:
    """Steps of one batch, whose gradients go in one all-reduce of `dtype`."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=0.006)
    flatten, unflatten = answers.get("flatten"), answers.get("unflatten")
    for _ in range(steps):
        optimizer.zero_grad()
        model(*given().even(text, size, generator)).backward()
        flat = flatten([p.grad for p in parameters]).to(dtype) / RANKS
        dist.all_reduce(flat)
        for p, mean in zip(parameters, unflatten(flat, parameters), strict=True):
            p.grad.copy_(mean)
        optimizer.step()


def times() -> str:
    """The table of times: the given script, mended fault by fault."""
    task, lesson = TextTask(1), given()
    text, slow = torch.from_numpy(task.text).long(), lesson.train_slowly
    even = {"steps": 4, "batch": lesson.even}
    thick, thin = torch.float32, torch.bfloat16
    rungs: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
        ("as given", slow, {"steps": 4}),
        ("and equal lengths", slow, even),
        ("and once a step", slow, even | {"once": True}),
        ("and no reports", slow, even | {"once": True, "reports": False}),
        ("and one all-reduce, of one batch", together, {"steps": 3, "dtype": thick, "size": 8}),
        ("and two bytes a number", together, {"steps": 3, "dtype": thin, "size": 8}),
        ("and half the batch", together, {"steps": 3, "dtype": thin, "size": 4}),
    ]
    rows = [["script", "ms a step", "times as fast"]]
    for name, train, more in rungs:
        run = Cluster(RANKS, machine=MACHINE, link=LINK).run(train, task.model(), text, **more)
        start, end = run.trace.window_of(0)
        ms = (end - start) / 1e6 / more["steps"]
        rows.append([name, f"{ms:.1f}", f"{GIVEN_MS / GIVEN_STEPS / ms:.2f}"])
    return as_text(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--part", choices=("losses", "times"), default="")
    options = parser.parse_args()
    print(machine())
    if options.part != "times":
        print(losses(options.seeds))
    if options.part != "losses":
        print(times())


if __name__ == "__main__":
    main()
