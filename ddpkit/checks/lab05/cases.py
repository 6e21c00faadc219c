"""Lab 05: flat tensors and views, buckets by torch's rule, and the best size of a bucket.

`_lab05_flat` and `_lab05_views` tell what an answer has made, `_lab05_caps` knows the wrong rules
that people write.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

from ddpkit.checks.lab05.caps import (
    MB,
    TELLING,
    WRONG_RULES,
    Question,
    cap_hint,
    model_hint,
)
from ddpkit.checks.lab05.flat import (
    SETS,
    flat_hint,
    flattened,
    pieces_hint,
    tensors_of,
    unflattened,
)
from ddpkit.checks.lab05.views import Story, right_story
from ddpkit.checks.lab05.views import hint as views_hint
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
            hint=partial(flat_hint, tensors[0].new_tensor(elements)),
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
            hint=partial(pieces_hint, wanted),
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
    for title, kinds, cap, first in LAYOUTS:
        parameters = [_parameter(kb, kind) for kb, kind in zip(SIZES_KB, kinds, strict=True)]
        yield _bucket_case(answer, title, parameters, cap, first)
    parameters = [_parameter(rng.randrange(1, 900), "float32") for _ in range(12)]
    yield _bucket_case(answer, "12 of random sizes, cap 1.5 MB", parameters, 1.5, 0.25)


def _parameter(kb: int, kind: str) -> Any:
    """Of `kb` times 1,024 bytes; of kind "meta" it is float32 on a device without memory."""
    import torch

    device, dtype = ("meta", "float32") if kind == "meta" else ("cpu", kind)
    elements = kb * 1024 // getattr(torch, dtype).itemsize
    return torch.nn.Parameter(torch.empty(elements, dtype=getattr(torch, dtype), device=device))


def _bucket_case(
    answer: Answer, title: str, parameters: list[Any], cap: float, first: float | None
) -> Case:
    return Case(
        title,
        observe=lambda: {"buckets": _places(answer(iter(parameters), cap, first), parameters)},
        expect={"buckets": _by_torchs_rule(parameters, cap, first)},
        hint=partial(_bucket_hint, parameters, cap, first),
    )


def _places(buckets: Any, parameters: Sequence[Any]) -> list[list[int]]:
    place = {id(p): i for i, p in enumerate(parameters)}
    return [[place[id(p)] for p in bucket] for bucket in buckets]


def _by_torchs_rule(parameters: Sequence[Any], cap: float, first: float | None) -> list[list[int]]:
    """As the simulator has it, which is tested against torch."""
    from ddpkit.simulate import Gradient
    from ddpkit.simulate import assign_buckets as simulated

    gradients = [
        Gradient(str(i), p.numel() * p.element_size(), 0, f"{p.dtype} {p.device}")
        for i, p in enumerate(parameters)
    ]
    buckets = simulated(gradients[::-1], cap, cap if first is None else first)
    return [[int(name) for name in bucket.gradients] for bucket in buckets]


def _bucket_hint(
    parameters: Sequence[Any], cap: float, first: float | None, seen: Observed
) -> str | None:
    if "error" in seen:
        return (
            "parameters may be an iterator, as model.parameters() is: make a list of it first."
            if "iterator" in str(seen["error"]) or "generator" in str(seen["error"])
            else None
        )
    for rule, sentence in WRONG_RULES:
        if seen["buckets"] == rule.buckets(parameters, cap, cap if first is None else first):
            return sentence
    places = sorted(place for bucket in seen["buckets"] for place in bucket)
    if places != list(range(len(parameters))):
        return "Each parameter belongs into one bucket: here some are missing, or in two."
    if [] in seen["buckets"]:
        return "A bucket is empty: at the end close one only if something is in it."
    if any(bucket != sorted(bucket, reverse=True) for bucket in seen["buckets"]):
        return "Within a bucket the parameters stand as they were put in, in reverse order."
    right = _by_torchs_rule(parameters, cap, cap if first is None else first)
    if sorted(seen["buckets"]) == sorted(right):
        return "Buckets come as they closed; those left at the end as they were opened."
    return (
        "A bucket of a kind stays open, whatever comes of other kinds, until its bytes, numel() "
        "times element_size(), reach the cap."
    )


# GradientBuckets


@exercise("GradientBuckets", lab="05", points=3)
def gradient_buckets(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Gradients that are views of the buckets, held in memory once."""
    first, later = rng.randrange(2, 9), rng.randrange(11, 19)
    both = first + later

    def case(
        title: str,
        happens: Callable[[Story], Any],
        factors: tuple[int, int, int],
        none: tuple[int, ...] = (),
        dtype: str = "float32",
    ) -> Case:
        expected = right_story(dtype, factors, none)

        def observe() -> Observed:
            story = Story(dtype)
            return story.seen(happens(story))

        return Case(title, observe, expected, partial(views_hint, expected=expected))

    def after_backward(story: Story) -> Any:
        story.backward(first)
        return story.build(answer)

    def backward_again(story: Story) -> Any:
        buckets = after_backward(story)
        story.backward(later)
        return buckets

    def zero_grad_and_backward(story: Story) -> Any:
        buckets = after_backward(story)
        story.forget()
        story.backward(later)
        for i in range(2):
            buckets.collect(i)
        return buckets

    def one_is_none(story: Story) -> Any:
        buckets = after_backward(story)
        story.forget(1)
        buckets.collect(0)
        return buckets

    yield case("before any backward", lambda s: s.build(answer), (0, 0, 0), (0, 1, 2))
    yield case("after backward", after_backward, (first,) * 3)
    yield case("float64", after_backward, (first,) * 3, dtype="float64")
    yield case("backward twice", backward_again, (both,) * 3)
    yield case("zero_grad, backward", zero_grad_and_backward, (later,) * 3)
    yield case("a gradient is None", one_is_none, (first, 0, first), (1,))


# best_cap

CAPS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@exercise("best_cap", lab="05", points=3)
def best_cap(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The cap with which the last all-reduce is done first."""
    even = tuple(0.004 * i for i in range(1, 33))
    quarter = (MB // 4,) * 32
    yield Case(
        "10 gradients, 3 networks",
        observe=partial(_chosen_each, answer, [astuple(question) for question in TELLING]),
        expect={"caps": [question.best() for question in TELLING]},
        hint=model_hint,
    )
    questions = {
        "2 ranks, 200 us, 1 Gbit/s": Question(CAPS, even, quarter, 200e-6, 125e6, 2),
        "latency 20 ms": Question(CAPS, even, quarter, 20e-3, 1e9, 2),
        "no latency": Question(CAPS[:4], even, quarter, 0.0, 125e6, 2),
        "1 rank: all equal": Question(CAPS, even, quarter, 1e-3, 125e6, 1),
        "all ready at once": Question(CAPS, (0.1,) * 32, quarter, 1e-3, 125e6, 4),
        "8 ranks": Question(CAPS, even, quarter, 1e-3, 500e6, 8),
        "slow network": Question(CAPS, even, quarter, 10e-3, 30e6, 3),
        "8 MB, then 9 small ones": Question(
            (1.0, 8.0, 9.0), (0.05, *(0.06 + 0.001 * i for i in range(9))),
            (8 * MB, *(MB // 8,) * 9), 5e-3, 500e6, 2,
        ),
    }  # fmt: skip
    while True:
        sizes = tuple(rng.randrange(1, MB) for _ in range(24))
        random_one = Question(CAPS, even[:24], sizes, 500e-6, 60e6 + rng.random() * 1e8, 4)
        if random_one.clear():
            break
    for title, question in {**questions, "random sizes": random_one}.items():
        yield Case(
            title,
            observe=partial(_chosen, answer, *astuple(question)),
            expect={"cap": question.best()},
            hint=partial(cap_hint, question),
        )


def _chosen(answer: Answer, caps: Any, ready: Any, sizes: Any, *link: float) -> Observed:
    return {"cap": float(answer(list(caps), list(ready), list(sizes), *link))}


def _chosen_each(answer: Answer, questions: list[Any]) -> Observed:
    return {"caps": [_chosen(answer, *question)["cap"] for question in questions]}
