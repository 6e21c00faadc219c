"""The exercises of lab 05."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

from ddpkit.checks.lab05.flat import SETS, flattened, tensors_of, unflattened
from ddpkit.checks.lab05.hints import BUCKETED, CAP, FLAT, PIECES, VIEWS
from ddpkit.checks.lab05.rules import MB, TELLING, CapProblem, by_torchs_rule
from ddpkit.checks.lab05.views import play, right_story
from ddpkit.exercises.exercise import Case, Observed, exercise

Answer = Callable[..., Any]

# flatten and unflatten


@exercise("flatten", lab="05", points=1)
def flatten(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """All elements in one new 1-D tensor, in order."""
    for title, dtype, shapes in SETS:
        tensors = tensors_of(shapes, dtype, rng.randrange(100))
        elements = [value for tensor in tensors for value in tensor.reshape(-1).tolist()]
        yield Case(
            title,
            observe=partial(flattened, answer, tensors),
            expect={"flat": tensors[0].new_tensor(elements), "memory": "new", "inputs": "kept"},
            hints=FLAT,
        )


@exercise("unflatten", lab="05", points=1)
def unflatten(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Views of a flat tensor, in the shapes of others."""
    import torch

    for title, dtype, shapes in SETS:
        wanted = tensors_of(shapes, dtype, rng.randrange(100))
        flat = torch.cat([t.reshape(-1) for t in wanted])
        yield Case(
            title,
            observe=partial(unflattened, answer, flat, [torch.full_like(t, -1) for t in wanted]),
            expect={"pieces": wanted, "memory": "views of flat", "tensors": "kept"},
            hints=PIECES,
        )


# assign_buckets

SIZES_KB = (256, 1024, 512, 512, 256, 1536, 64, 1000)
LAYOUTS: tuple[tuple[str, tuple[str, ...], float, float | None], ...] = (
    ("cap 1 MB", ("float32",) * 8, 1, None),
    ("cap 0.99 MB", ("float32",) * 8, 0.99, None),
    ("cap 0: one in each", ("float32",) * 8, 0, None),
    ("cap 25 MB: all in one", ("float32",) * 8, 25, None),
    ("cap 2 MB, the first 0.5 MB", ("float32",) * 8, 2, 0.5),
    ("cap 2 MB, the first 0", ("float32",) * 8, 2, 0),
    ("float32 and float64, cap 0.7 MB", ("float32", "float64") * 4, 0.7, None),
    ("float32 and float64, cap 25 MB", ("float32", "float64") * 4, 25, None),
    ("two dtypes, cap 9 MB, the first 0.2 MB", ("float64",) * 7 + ("float32",), 9, 0.2),
    ("cpu and another device, cap 1 MB", ("float32", "meta") * 4, 1, None),
)


@exercise("assign_buckets", lab="05", points=3)
def assign_buckets(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Torch's rule: in reverse order, closed at the cap, one dtype and device in each."""
    random_sizes = [rng.randrange(1, 900) for _ in range(12)]
    for title, sizes, kinds, cap, first in (
        *((title, SIZES_KB, kinds, cap, first) for title, kinds, cap, first in LAYOUTS),
        ("12 of random sizes, cap 1.5 MB", random_sizes, ("float32",) * 12, 1.5, 0.25),
    ):
        parameters = [_parameter(kb, kind) for kb, kind in zip(sizes, kinds, strict=True)]
        opened = cap if first is None else first
        yield Case(
            title,
            observe=partial(_bucketed, answer, parameters, cap, first),
            expect={"buckets": by_torchs_rule(parameters, cap, opened)},
            hints=BUCKETED,
            given={"parameters": parameters, "cap": cap, "first": opened},
        )


def _parameter(kb: int, kind: str) -> Any:
    """A parameter of `kb` times 1,024 bytes; "meta" is float32 on a device without memory."""
    import torch

    device, dtype = ("meta", "float32") if kind == "meta" else ("cpu", kind)
    elements = kb * 1024 // getattr(torch, dtype).itemsize
    return torch.nn.Parameter(torch.empty(elements, dtype=getattr(torch, dtype), device=device))


def _bucketed(
    answer: Answer, parameters: Sequence[Any], cap: float, first: float | None
) -> Observed:
    number = {id(p): i for i, p in enumerate(parameters)}
    buckets = answer(iter(parameters), cap, first)
    return {"buckets": [[number[id(p)] for p in bucket] for bucket in buckets]}


# GradientBuckets


@exercise("GradientBuckets", lab="05", points=3)
def gradient_buckets(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Gradients that are views of the buckets, held in memory once."""
    first, later = rng.randrange(2, 9), rng.randrange(11, 19)
    begin = [("backward", first), ("build",)]
    forgotten = [*begin, ("forget",), ("backward", later), ("collect", 0, 1)]
    for title, dtype, steps, factors, none in (
        ("before any backward", "float32", [("build",)], [0] * 3, [0, 1, 2]),
        ("after backward", "float32", begin, [first] * 3, []),
        ("float64", "float64", begin, [first] * 3, []),
        ("backward twice", "float32", [*begin, ("backward", later)], [first + later] * 3, []),
        ("zero_grad, backward", "float32", forgotten, [later] * 3, []),
        ("a gradient is None", "float32", [*begin, ("forget", 1), ("collect", 0)],
         [first, 0, first], [1]),
    ):  # fmt: skip
        observe = partial(play, answer, dtype, steps)
        yield Case(title, observe, right_story(dtype, factors, none), hints=VIEWS)


# best_cap

CAPS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@exercise("best_cap", lab="05", points=3)
def best_cap(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The cap with which the last all-reduce is done first."""
    even = tuple(0.004 * i for i in range(1, 33))
    quarter = (MB // 4,) * 32
    yield Case(
        "10 gradients, 3 networks",
        observe=partial(_chosen_each, answer, [astuple(problem) for problem in TELLING]),
        expect={"caps": [problem.best() for problem in TELLING]},
        hints=CAP,
    )
    problems = {
        "2 ranks, 200 us, 1 Gbit/s": CapProblem(CAPS, even, quarter, 200e-6, 125e6, 2),
        "latency 20 ms": CapProblem(CAPS, even, quarter, 20e-3, 1e9, 2),
        "no latency": CapProblem(CAPS[:4], even, quarter, 0.0, 125e6, 2),
        "1 rank: all equal": CapProblem(CAPS, even, quarter, 1e-3, 125e6, 1),
        "all ready at once": CapProblem(CAPS, (0.1,) * 32, quarter, 1e-3, 125e6, 4),
        "8 ranks": CapProblem(CAPS, even, quarter, 1e-3, 500e6, 8),
        "slow network": CapProblem(CAPS, even, quarter, 10e-3, 30e6, 3),
        "8 MB, then 9 small ones": CapProblem(
            (1.0, 8.0, 9.0), (0.05, *(0.06 + 0.001 * i for i in range(9))),
            (8 * MB, *(MB // 8,) * 9), 5e-3, 500e6, 2,
        ),
    }  # fmt: skip
    while True:
        sizes = tuple(rng.randrange(1, MB) for _ in range(24))
        random_one = CapProblem(CAPS, even[:24], sizes, 500e-6, 60e6 + rng.random() * 1e8, 4)
        if random_one.clear():
            break
    for title, problem in {**problems, "random sizes": random_one}.items():
        yield Case(
            title,
            observe=partial(_chosen, answer, *astuple(problem)),
            expect={"cap": problem.best()},
            hints=CAP,
            given={"problem": problem},
        )


def _chosen(answer: Answer, caps: Any, ready: Any, sizes: Any, *link: float) -> Observed:
    return {"cap": float(answer(list(caps), list(ready), list(sizes), *link))}


def _chosen_each(answer: Answer, problems: list[Any]) -> Observed:
    return {"caps": [_chosen(answer, *problem)["cap"] for problem in problems]}
