"""The exercises of lab 05."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab05.caps import (
    CAPS,
    a_byte_short,
    a_large_one,
    alone,
    many_small,
    problems_that_tell,
)
from ddpkit.checks.lab05.flat import (
    SETS,
    flattened,
    looked_at_flat,
    looked_at_pieces,
    tensors_of,
    unflattened,
)
from ddpkit.checks.lab05.hints import BUCKETED, CAP, FLAT, PIECES, VIEWS
from ddpkit.checks.lab05.rules import ORDERS, Kind, by_torchs_rule, that_tell
from ddpkit.checks.lab05.views import drawn_layout, looked_at, places, play, right_story
from ddpkit.exercises.exercise import Case, Observed, exercise

if TYPE_CHECKING:
    from torch.nn import Parameter

    from ddpkit.exercises.guard import Answer


# flatten and unflatten


@exercise("flatten", lab="05", points=1)
def flatten(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that all elements are joined into one new 1-D tensor, in order."""
    for title, dtype, shapes in SETS:
        tensors = tensors_of(shapes, dtype, rng.randrange(100))
        elements = [value for tensor in tensors for value in tensor.reshape(-1).tolist()]
        yield Case(
            title,
            observe=partial(flattened, answer, tensors),
            expect={"flat": tensors[0].new_tensor(elements), "memory": "new", "inputs": "kept"},
            read=partial(looked_at_flat, tensors=tensors),
            trivial=len(shapes) == 1,
            hints=FLAT,
        )


@exercise("unflatten", lab="05", points=1)
def unflatten(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that a flat tensor is split into views with the shapes of given tensors."""
    import torch

    for title, dtype, shapes in SETS:
        wanted = tensors_of(shapes, dtype, rng.randrange(100))
        flat = torch.cat([t.reshape(-1) for t in wanted])
        yield Case(
            title,
            observe=partial(unflattened, answer, flat, [torch.full_like(t, -1) for t in wanted]),
            expect={"pieces": wanted, "memory": "views of flat", "tensors": "kept"},
            read=looked_at_pieces,
            trivial=len(shapes) == 1,
            hints=PIECES,
        )


# assign_buckets

F32, F64, OTHER = ("float32", "cpu"), ("float64", "cpu"), ("float32", "meta")
PLAIN = ("forward", "below the cap", "past the cap", "no rest", "elements", "decimal")
LAYOUTS: tuple[tuple[tuple[Kind, ...], float, float | None, tuple[str, ...]], ...] = (
    # dtypes and devices, cap and first cap in MB, mistakes that each draw identifies
    ((F32,) * 8, 1, None, PLAIN),
    ((F32,) * 8, 1.25, None, PLAIN),
    ((F32,) * 8, 25, None, ("forward", "no rest")),
    ((F32,) * 8, 2, 0.5, ("forward", "below the cap", "no first", "always first")),
    ((F32,) * 8, 1.5, 0, ("forward", "below the cap", "no first", "always first")),
    ((F32, F64) * 4, 0.75, None, ("two dtypes", "large alone", "four bytes", *PLAIN)),
    ((F32, F64) * 4, 25, None, ("forward", "two dtypes")),
    ((F32, F64) * 4, 2, 0.25, ("one first of all", "always first", "no first", "kinds in turn")),
    ((F32, OTHER) * 4, 1, None, ("two devices", "forward", "no rest")),
    ((F32, F64, OTHER) * 4, 1.5, 0.25, (*ORDERS, "two devices", "two dtypes", "one first of all")),
)


@exercise("assign_buckets", lab="05", points=3)
def assign_buckets(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check buckets by torch's rule: reversed order, a cap, one dtype and device in each bucket."""
    one_each = ((F32,) * 8, 0, None, ("forward",))
    for kinds, cap, first, told in (*LAYOUTS, one_each):
        opened = cap if first is None else first
        drawn = that_tell(rng, kinds, cap, opened, told)
        parameters = [_parameter(size, *kind) for kind, size in drawn]
        for p in rng.sample(parameters, len(parameters) // 4):
            p.requires_grad_(False)  # lab 06 also puts buffers, without gradients, into buckets
        yield Case(
            _named(kinds, cap, first),
            observe=partial(_bucketed, answer, parameters, cap, first),
            expect={"buckets": by_torchs_rule(parameters, cap, opened)},
            # one parameter in each bucket, or all parameters in one bucket
            trivial=cap in (0, 25) and kinds == (F32,) * 8,
            hints=BUCKETED,
            given={"parameters": parameters, "cap": cap, "first": opened},
        )


def _named(kinds: Sequence[Kind], cap: float, first: float | None) -> str:
    """Return a title like "2 dtypes, cap 2 MB, the first 0.25"."""
    dtypes, devices = (len(set(column)) for column in zip(*kinds, strict=True))
    several = [f"{n} {what}" for n, what in ((dtypes, "dtypes"), (devices, "devices")) if n > 1]
    caps = [f"cap {cap:g} MB"] + ([] if first is None else [f"the first {first:g}"])
    return ", ".join([*several, *caps])


def _parameter(nbytes: int, dtype: str, device: str) -> Parameter:
    """Return a parameter of `nbytes` bytes; the device "meta" uses no memory."""
    import torch

    kind = getattr(torch, dtype)
    return torch.nn.Parameter(torch.empty(nbytes // kind.itemsize, dtype=kind, device=device))


def _bucketed(
    answer: Answer, parameters: Sequence[Parameter], cap: float, first: float | None
) -> Observed:
    import torch

    number = {id(p): i for i, p in enumerate(parameters)}
    buckets = answer(iter(parameters), cap, first)
    if not isinstance(buckets, list | tuple):
        raise TypeError(f"assign_buckets gave a {type(buckets).__name__}, not a list")
    if any(isinstance(each, torch.Tensor) for each in buckets):  # iterating tensors is slow
        return {"buckets": "a list of tensors, not of lists"}
    for each in buckets:
        if not isinstance(each, list | tuple):
            raise TypeError(f"a bucket is a {type(each).__name__}, not a list")
    return {"buckets": [[number.get(id(p), "no parameter") for p in bucket] for bucket in buckets]}


# GradientBuckets


@exercise("GradientBuckets", lab="05", points=3)
def gradient_buckets(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check gradients that are views of the buckets, so that they are in memory only once."""
    first, later = (4 * rng.randrange(*limits) + 1 for limits in ((1025, 1049), (1050, 1099)))
    none, other = rng.randrange(3), rng.randrange(2)
    begin = [("backward", first), ("build",)]
    forgotten = [*begin, ("forget",), ("backward", later), ("collect", 0, 1)]
    without = [first * (place != none) for place in range(3)]
    for title, dtype, steps, factors, nones, held in (
        ("before any backward", "float32", [("build",)], [0] * 3, [0, 1, 2], 0),
        ("after backward", "float32", begin, [first] * 3, [], 0),
        ("float64", "float64", begin, [first] * 3, [], 0),
        ("backward twice", "float32", [*begin, ("backward", later)], [first + later] * 3, [], 0),
        ("zero_grad, backward", "float32", forgotten, [later] * 3, [], first),
        ("a gradient is None", "float32", [*begin, ("forget", none), ("collect", other, 1 - other)],
         without, [none], 0),
    ):  # fmt: skip
        layout = drawn_layout(rng, dtype)
        yield Case(
            title,
            partial(play, answer, layout, steps),
            right_story(layout, factors, nones),
            read=partial(looked_at, layout),
            trivial=steps == [("build",)],
            hints=VIEWS,
            given={"held": [held] * 3},
        )
    on_meta = rng.sample([False, True] * 6, 12)
    yield Case(
        "two devices",
        observe=partial(places, answer, on_meta),
        expect={"devices": ["meta" if each else "cpu" for each in on_meta]},
        hints=VIEWS,
    )


# best_cap


@exercise("best_cap", lab="05", points=3)
def best_cap(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the choice of the bucket cap for which the last all-reduce ends earliest."""
    small = partial(many_small, rng)
    telling = problems_that_tell(rng)
    for title, problems, weight in (
        (f"10 gradients, {len(telling)} networks", telling, 3),
        ("32 gradients on 2, 3 and 8 ranks",
         [small(2, (100, 400), (100, 200)), small(3, (5e3, 15e3), (20, 50), CAPS[:5]),
          small(8, (500, 1500), (300, 600), CAPS[:5])], 2),
        ("no latency, much of it, all ready at once",
         [small(2, (0, 0), (60, 200), CAPS[:4]), small(2, (15e3, 30e3), (500, 1000), CAPS[:5]),
          small(4, (500, 2000), (60, 200), CAPS[:6], at_once=True)], 2),
        ("a byte less than a cap, a large one first",
         [a_byte_short(rng, 0), a_byte_short(rng, 10), a_large_one(rng)], 2),
        ("1 rank: all equal", [alone(rng)], 1),
    ):  # fmt: skip
        yield Case(
            title,
            observe=partial(_chosen, answer, [astuple(problem) for problem in problems]),
            expect={"caps": [problem.best() for problem in problems]},
            weight=weight,
            trivial=title.startswith("1 rank"),
            hints=CAP,
            given={"problems": problems, "telling": problems is telling},
        )


def _chosen(answer: Answer, problems: Sequence[tuple[Any, ...]]) -> Observed:
    chosen = [
        answer(list(caps), list(ready), list(sizes), *link)
        for caps, ready, sizes, *link in problems
    ]
    return {"caps": [cap if isinstance(cap, str) else float(cap) for cap in chosen]}
