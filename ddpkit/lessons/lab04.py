"""Lab 04: data parallel. Whether each answer does what one process would, and with which calls.

Here stand the cases and their hints; in `_lab04_*.py`, what is put to an answer and what it made of
it: a model to be sent, an epoch to be split, gradients to be averaged, a whole training run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ddpkit.errors import Deadlock, Mismatch
from ddpkit.lessons import _lab04_gradients as problem
from ddpkit.lessons import _lab04_start as start
from ddpkit.lessons._lab04_shard import LARGE, epoch
from ddpkit.lessons._lab04_train import Training
from ddpkit.lessons.exercise import Case, Observed, exercise
from ddpkit.lessons.values import Close

Answer = Callable[..., Any]


def _ranks(world_size: int) -> str:
    return f"{world_size} rank{'s' if world_size > 1 else ''}"


# broadcast_parameters


@exercise("broadcast_parameters", lab="04", points=2)
def broadcast_parameters(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Parameters, frozen ones and all buffers as one rank has them, in place."""
    for world_size, src in ((2, 0), (4, 0), (3, 2), (1, 0)):
        seed = rng.randrange(1000)
        yield Case(
            f"{_ranks(world_size)}, from rank {src}",
            observe=partial(start.observe, answer, world_size, src, seed),
            expect={
                "model": start.values(seed, src),
                f"like rank {src}": "all",
                "in place": True,
                "frozen": "as before",
            },
            hint=partial(_start_hint, src=src),
        )


def _start_hint(seen: Observed, src: int) -> str | None:
    if "error" in seen:
        if isinstance(seen["error"], Mismatch | Deadlock):
            return "All ranks call dist.broadcast for the same tensors in the same order."
        if "leaf" in str(seen["error"]):
            return "Copying into a parameter is not to be differentiated: torch.no_grad()."
        return None
    differ = seen[f"like rank {src}"]
    if not seen["in place"]:
        return "The module has other Parameters now: an optimizer would go on with the old ones."
    if seen["frozen"] != "as before":
        return "requires_grad has changed: a frozen parameter is sent, and stays frozen."
    if differ.startswith(f"rank {src} itself"):
        return f"Rank {src} itself has changed: its values are the ones to send, in src={src}."
    if "weight" in differ and "mean" in differ:
        return f"Every rank still has its own values, or another rank's than {src}'s: use src."
    if "scale" in differ:
        return "A frozen parameter is part of the model, though nobody trains it."
    if "mean" in differ:
        return "The buffers differ: a BatchNorm's running mean is part of the model too."
    if "mask" in differ:
        return "state_dict() leaves some buffers out: module.buffers() has them all."
    return None


# shard


@exercise("shard", lab="04", points=2)
def shard(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """A partition of every batch and of every epoch, the same permutation on all ranks."""
    sizes = ((12, 4, 2), (50, 16, 4), (40, 16, 3), (10, 8, 4), (40, 20, 1))
    for n, batch_size, world_size in sizes:
        whole, rest = divmod(n, batch_size)
        expect: dict[str, object] = {
            "batches": [batch_size] * whole + [rest] * (rest > 0),
            "parts": "even",
            "samples": "each once",
        }
        if n >= LARGE:
            expect |= {"order": "shuffled", "next epoch": "another"}
        yield Case(
            f"{n} by {batch_size}, {_ranks(world_size)}",
            observe=partial(epoch, answer, n, batch_size, world_size, rng.randrange(100)),
            expect=expect,
            hint=partial(_shard_hint, n=n, world_size=world_size),
        )


def _shard_hint(seen: Observed, n: int, world_size: int) -> str | None:
    if "error" in seen:
        return None
    if isinstance(seen["batches"], str):
        return (
            "The ranks make different numbers of steps, and the one with most would wait for ever: "
            "an empty part belongs in the list."
        )
    samples, total = seen["samples"], sum(seen["batches"])
    if total == n * world_size and samples.startswith("0 missing"):
        return "Every rank gets the whole batch: all would do the same work. Cut it, take one part."
    if samples.startswith("0 missing"):
        return "Some numbers are handed out twice: let the parts of a short batch differ by 1."
    if samples.endswith(" 0 too many"):
        return "Some numbers are left out: what does not divide by the ranks still counts."
    if samples != "each once":
        return (
            "Some numbers are missing and others twice: the ranks cut different permutations. "
            "The seed is the epoch, on every rank."
        )
    if seen["parts"] != "even":
        return "One rank has much more work than the others, who wait: lengths differ by 1 at most."
    if seen.get("order") == "as they come":
        return "The numbers are not shuffled: lab 01's minibatches does that."
    if seen.get("next epoch") == "the same":
        return "Every epoch has the same order: let its seed be the epoch."
    if total == n:
        return "A batch is batch_size for all ranks together, not for each."
    return None


# gradients_of


@exercise("gradients_of", lab="04", points=1)
def gradients_of(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The same list on every rank: missing ones as zeros, shared ones once, no frozen ones."""
    for title, kind, missing in (
        ("a Linear", "linear", ()),
        ("one gradient is None", "linear", (1,)),
        ("shared and frozen ones, two dtypes", "mixed", ()),
        ("all are None", "mixed", tuple(range(problem.TRAINED["mixed"]))),
    ):
        seed = rng.randrange(1000)
        yield Case(
            title,
            observe=partial(problem.listed, answer, kind, seed, missing),
            expect={
                "gradients": problem.gradients(kind, seed, 0, missing, zeros=True),
                "the very .grad": True,
                "frozen .grad": "None",
            },
            hint=partial(_list_hint, count=problem.TRAINED[kind]),
        )


def _list_hint(seen: Observed, count: int) -> str | None:
    if "error" in seen:
        if "None" in str(seen["error"]):
            return "Where p.grad is None there is no tensor yet: put zeros there first."
        return None
    got = seen["gradients"]
    if seen["frozen .grad"] != "None":
        return "A frozen parameter (requires_grad is False) has no gradient, and needs none."
    if any(g is None for g in got):
        return "A None is left in the list: make it zeros, of the shape and dtype of the parameter."
    if len(got) < count:
        return f"{len(got)} of {count} gradients: a missing one must be in the list too, as zeros."
    if len(got) > count:
        return f"{len(got)} gradients for {count} parameters: name a shared one once."
    if not seen["the very .grad"]:
        return "These are copies: put the zeros into p.grad, and return the p.grad themselves."
    return None


# The three averages

MAKES = {
    "average_by_gather": "one gather and one scatter for each parameter",
    "average_per_parameter": "one all_reduce for each parameter",
    "average_flat": "one all_reduce for all gradients of a dtype",
}


def _average_cases(name: str, answer: Answer, rng: random.Random) -> Iterator[Case]:
    """On 4, 3, 2 and 1 ranks: plain; one missing; shared, frozen, two dtypes; none alone."""
    # gloo scatters memory as it lies: a mean with other strides than the gradient would arrive
    # transposed, which is no matter of this exercise.
    three = "linear" if name == "average_by_gather" else "strided"
    for title, world_size, kind, missing in (
        ("4 ranks", 4, "linear", {}),
        ("3 ranks, one None", 3, three, {1: (0,)}),
        ("2 ranks, mixed", 2, "mixed", {0: (0, 3), 1: (3,)}),
        ("1 rank, one None", 1, "linear", {0: (1,)}),
    ):
        task = problem.Task(kind, world_size, rng.randrange(1000), missing)
        expect: dict[str, object] = {"means": task.expected()}
        if world_size > 1:  # alone, a rank may do without any call
            expect["calls"] = problem.calls_of(name, kind)
        yield Case(
            title,
            observe=partial(task.observe, answer, counted=world_size > 1),
            expect=expect,
            hint=partial(_average_hint, name=name, task=task),
        )


@exercise("average_by_gather", lab="04", points=2)
def average_by_gather(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of all ranks' gradients, through rank 0."""
    yield from _average_cases("average_by_gather", answer, rng)


@exercise("average_per_parameter", lab="04", points=1)
def average_per_parameter(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of all ranks' gradients, one all_reduce a parameter."""
    yield from _average_cases("average_per_parameter", answer, rng)


@exercise("average_flat", lab="04", points=3)
def average_flat(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of all ranks' gradients, one all_reduce a dtype."""
    yield from _average_cases("average_flat", answer, rng)


def _average_hint(seen: Observed, name: str, task: problem.Task) -> str | None:
    if "error" in seen:
        return _average_error_hint(seen["error"], task)
    got, expected = seen["means"], task.expected()
    for hint, wrong in task.wrong_values():
        if problem.near(got, wrong):
            return hint
    if problem.near(got, expected):
        return _calls_hint(name, seen["calls"], problem.calls_of(name, task.kind))
    pairs = [pair for rank in zip(got, expected, strict=True) for pair in zip(*rank, strict=True)]
    if any(g is not None and mean is None for g, mean in pairs):
        return "A frozen parameter has got a gradient: leave it out."
    if any(g is None and mean is not None for g, mean in pairs):
        return "A gradient that was None still is: it counts as zeros, and has the mean afterwards."
    if any(not problem.near([one], got[:1]) for one in got[1:]):
        return "The ranks differ: all of them have to add up, and all to divide."
    return None


def _calls_hint(name: str, got: str, wanted: str) -> str:
    if name == "average_flat" and got.startswith("all_reduce ×1,"):
        return (
            f"torch.cat made one dtype of two: {got} where {wanted} would do. Take one vector "
            "for each dtype."
        )
    return f"The means are right, by other calls: {got}. Here it is {MAKES[name]}: {wanted}."


def _average_error_hint(error: Any, task: problem.Task) -> str | None:
    text = " ".join(str(error).split())
    if isinstance(error, Deadlock | Mismatch) and task.missing:
        return "Go through the same list of gradients on all ranks: gradients_of(module)."
    if isinstance(error, Deadlock | Mismatch):
        return "All ranks must make the same calls, in the same order."
    if "view size is not compatible" in text:
        return "A gradient may have strides of its own, which view() cannot flatten: g.flatten()."
    if "NoneType" in text:
        return "A gradient may be None on some rank: take them from gradients_of(module)."
    if "dtype" in text or "different type" in text:
        return "A gradient has its parameter's dtype: make one vector for each dtype."
    return None


# train


@exercise("train", lab="04", points=3)
def train(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """After every step what one process has that trains on the whole batches."""
    for title, lengths, momentum in (
        ("2 ranks, even parts", [(3, 3), (3, 3), (3, 3)], 0.0),
        ("4 ranks, momentum, uneven parts", [(3, 2, 2, 2), (2, 2, 2, 2), (2, 1, 1, 1)], 0.9),
        ("3 ranks, an empty part", [(2, 2, 2), (1, 1, 0), (2, 2, 1)], 0.5),
        ("1 rank, momentum", [(4,), (4,), (1,)], 0.9),
    ):
        training = Training(lengths, momentum, rng.randrange(1000))
        yield Case(
            title,
            observe=partial(training.observe, answer),
            expect={
                "steps": len(lengths),
                "start": "alike",
                "after each": Close(training.by_one_process(), digits=5),
                "ranks": "alike",
            },
            hint=training.hint,
        )
