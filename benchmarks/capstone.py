"""Lab 15: twelve strategies with their points and costs, and the savings of each mended fault.

    python -m benchmarks.capstone [--part strategies|faults|near]

Prints the points, emulated time, bytes, memory and loss of six honest trainings and seven cheats,
judged by lab 15's check (`strategies`); the emulated ms of the given script with faults mended
alone and together (`faults`); and the distance from the wanted model after training with
approximated gradients and with changed steps (`near`). Times are the same on each machine.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from benchmarks._report import as_text, machine
from ddpkit import answers
from ddpkit.capstone import GIVEN_MS, TextModel, TextTask
from ddpkit.capstone.task import RATE, STEPS
from ddpkit.capstone.trained import NEAR, observed, outcome
from ddpkit.exercises import Case, find
from ddpkit.exercises.exercise import earned
from tests.capstone.lesson import given
from tests.labs.answers import wrong_answers
from tests.labs.lab15 import right_answers

Train = Callable[..., Any]
CHEATS = (
    *("rank_0_for_all", "averages_once", "trained_before", "counts_and_pretends"),
    *("counts_alone", "half_the_stretches", "computes_unseen"),
)


def together(model: TextModel, shard: Any) -> None:
    """Mend four faults: two micro-batches of equal lengths, and one all-reduce in float32."""
    lesson, parameters = given(), list(model.parameters())
    flatten, unflatten = answers.get("flatten"), answers.get("unflatten")
    optimizer = torch.optim.AdamW(parameters, lr=RATE)
    for stretches in shard:
        optimizer.zero_grad()
        for micro in lesson.even(stretches):
            (model(*lesson.padded(micro)) / 2).backward()
        flat = flatten([p.grad for p in parameters]) / dist.get_world_size()
        dist.all_reduce(flat)
        for p, mean in zip(parameters, unflatten(flat, parameters), strict=True):
            p.grad.copy_(mean)
        optimizer.step()


def strategies() -> str:
    """Return the table of trainings, with honest trainings first."""
    lesson = given()
    three = partial(lesson.train_slowly, cut=lesson.even, once=True, reports=False)
    rows: list[tuple[str, Train]] = [
        ("honest: three faults mended", three),
        ("honest: one flat all-reduce, float32", together),
        ("honest: lab 06's class, overlapped", right_answers.by_my_own_ddp),
        ("honest: sharded optimizer, bfloat16", right_answers.with_a_sharded_optimizer),
        ("honest: the kit's answer, flat, bfloat16", answers.get("train_fast")),
        ("honest: host by host, bfloat16", right_answers.host_by_host),
    ]
    cheats = {each.label: each.make() for each in wrong_answers("15") if each.label in CHEATS}
    rows += [(f"cheat: {name}", cheats[name]) for name in CHEATS]
    table = [["training", "points", "ms", "times", "MB sent", "peak MB", "loss", "off"]]
    for name, train in rows:
        table.append([name, *_earned(train)])
        print("   ".join(table[-1]), flush=True)
    return as_text(table)


def _earned(train: Train) -> list[str]:
    """Return the points of a training by lab 15's check, and its costs in the check's first run."""
    exercise, asked, first = find("train_fast"), list[tuple[Case, bool]](), dict[str, Any]()
    stopped = ""
    for case in exercise.asks(train, random.Random(1)):
        try:
            if not stopped:
                seen = case.reading(case.observe())
                first = first or seen
                right = all(seen.get(name) == wanted for name, wanted in case.expect.items())
                stopped = "" if right or case.stop_if != "wrong" else "wrong"
        except Exception as error:
            right, stopped = False, type(error).__name__
        asked.append((case, right and not stopped))
    points = f"{earned(exercise.points, asked):g}"
    if "ms" not in first:
        return [points, stopped, *["–"] * 5]
    costs = GIVEN_MS / max(first["ms"], 1e-9), first["sent"] / 1e6, first["peak"] / 1e6
    numbers = [f"{each:.2f}" for each in (*costs, first["loss"])]
    return [points, f"{first['ms']:,.0f}", *numbers, f"{first['off']:.3f}"]


def faults() -> str:
    """Return the table of times of the given script, with faults mended alone and together."""
    lesson = given()
    slow = partial(partial, lesson.train_slowly)
    even: dict[str, Any] = {"cut": lesson.even}
    rungs: list[tuple[str, Train]] = [
        ("as given", slow()),
        ("equal lengths alone", slow(**even)),
        ("no reports alone", slow(reports=False)),
        ("equal lengths, no reports", slow(**even, reports=False)),
        ("averaged once a step alone", slow(once=True)),
        ("all three of these", slow(**even, reports=False, once=True)),
        ("all three, and one all-reduce", together),
    ]
    task, rows = TextTask(1), [["script", "ms", "times as fast"]]
    for name, train in rungs:
        ms = outcome(task, observed(train, task)).ms
        rows.append([name, f"{ms:,.1f}", f"{GIVEN_MS / ms:.2f}"])
    return as_text(rows)


def near() -> str:
    """Return the table of distances from the wanted model, for two languages."""
    rows = [["steps", "distance", f"at most {NEAR}"]]
    for name, change in (
        ("as given", {}),
        ("bfloat16", {"sum": lambda each: each.bfloat16().float()}),
        ("int8, a scale for each 512 numbers", {"sum": _int8}),
        ("a rate of 0.009", {"rate": 0.009}),
        ("one step fewer", {"steps": STEPS - 1}),
        ("half the stretches", {"part": 4}),
        ("three ranks of four", {"ranks": 3}),
        ("rank 0 alone", {"ranks": 1}),
    ):
        found = [_distance(TextTask(seed), **change) for seed in (1, 2)]
        rows.append([name, " ".join(f"{each:.3f}" for each in found), str(max(found) <= NEAR)])
    return as_text(rows)


def _int8(flat: torch.Tensor) -> torch.Tensor:
    parts = []
    for each in flat.split(512):
        unit = each.abs().max().clamp(min=1e-12) / 127
        parts.append((each / unit).round() * unit)
    return torch.cat(parts)


def _distance(
    task: TextTask,
    sum: Callable[[torch.Tensor], torch.Tensor] = lambda flat: flat,
    rate: float = RATE,
    steps: int = STEPS,
    part: int = 8,
    ranks: int = 4,
) -> float:
    """Return the distance of a model trained in one process.

    `sum` approximates each rank's gradient before the mean is taken.
    """
    model = task.model()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    for number in range(steps):
        gradients = []
        for shard in task.shards[:ranks]:
            optimizer.zero_grad()
            right_answers.backward(model, shard[number][:part])
            gradients.append(sum(torch.cat([p.grad.flatten() for p in parameters])))
        mean = torch.stack(gradients).mean(0)
        for p, new in zip(parameters, mean.split([p.numel() for p in parameters]), strict=True):
            p.grad = new.view_as(p).clone()
        optimizer.step()
    return task.off(torch.cat([p.detach().flatten() for p in parameters]))


PARTS = {"strategies": strategies, "faults": faults, "near": near}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=tuple(PARTS), default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    for name, part in PARTS.items():
        if options.part in ("", name):
            print(part())


if __name__ == "__main__":
    main()
