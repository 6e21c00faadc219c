"""No answer earns points with a function of the kit.

`ANSWERS` has short answers by functions of the kit. The answers earn points if no function refuses,
and no points in a check. A search tries all functions and classes of simulate and mesh as answers.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any
from unittest import mock

import cloudpickle
import pytest
import torch
import torch.distributed as dist

import ddpkit.mesh
import ddpkit.simulate
from ddpkit import Cluster, answers, asked
from ddpkit.exercises import exercises, judge
from ddpkit.exercises import ranks as on_ranks
from ddpkit.exercises.exercise import Case
from ddpkit.exercises.guard import own
from ddpkit.exercises.verdict import verdict_text
from ddpkit.link import Link
from ddpkit.mesh import blocks
from ddpkit.simulate import (
    FORMULAS,
    Gradient,
    Send,
    Step,
    bubbles,
    cost,
    mesh_groups,
    parameter_server,
    pipeline_plans,
    pipeline_time,
    price_of,
    replay,
    schedule,
)
from ddpkit.simulate import assign_buckets as kits_buckets
from ddpkit.simulate import fit_link as kits_link
from ddpkit.simulate.messages.collectives import reduce_scatter as kits_halves
from ddpkit.simulate.messages.schedules import elements
from ddpkit.simulate.step.pipeline import gpipe, one_f_one_b
from tests.labs.test_trivial_answers import in_this_process

MOST = 0.06  # a share of an exercise's points
SEARCHED = ("04", "11")  # labs, in each run of the tests
NS = 1e9

cloudpickle.register_pickle_by_value(sys.modules[__name__])


# Answers by functions of the kit


def by_plan(name: str, stage: int, stages: int, micro: int) -> Any:
    return pipeline_plans(name, stages, micro)[stage]


def on_a_rank(function: Callable[..., Any], *given: Any) -> Any:
    return Cluster(1).run(function, *given).results[0]


def in_a_thread(function: Callable[..., Any], *given: Any) -> Any:
    """Call the function in a thread without a line of the answer's."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(function, *given).result()


def idle(stages: int, micro: int) -> float:
    return bubbles(pipeline_time(pipeline_plans("gpipe", stages, micro), backward="20 ms"))[0]


def worked_on(stages: int, pieces: int) -> Any:
    trace = pipeline_time(pipeline_plans("gpipe", stages, pieces), forward="10 ms")
    table: dict[int, list[tuple[int, int]]] = {}
    for span in trace.spans:
        if span.name.startswith("F"):
            table.setdefault(span.start_ns, []).append((span.rank, int(span.name[1:])))
    return [table[at] for at in sorted(table)]


def named_buckets(parameters, bucket_cap_mb, first_bucket_mb=None):
    turned = list(reversed(list(parameters)))
    given = [
        Gradient(str(i), p.numel() * p.element_size(), 0, f"{p.dtype} {p.device}")
        for i, p in enumerate(turned)
    ]
    found = kits_buckets(given, bucket_cap_mb, first_bucket_mb)
    return [[turned[int(name)] for name in bucket.gradients] for bucket in found]


def _step(ready, sizes, forward=0.0, after=0.0) -> Step:
    rows = enumerate(zip(ready, sizes, strict=True))
    gradients = tuple(Gradient(str(i), size, round(at * NS)) for i, (at, size) in rows)
    return Step(round(forward * NS), gradients, round(after * NS))


def swept_cap(caps, ready, sizes, latency, bandwidth, world_size):
    step, link = _step(ready, sizes), Link(latency, bandwidth)

    def done(cap):
        buckets = kits_buckets(step.gradients, cap, cap)
        return replay(step, world_size, link, buckets).all_reduces[-1].done_ns

    return min(caps, key=done)


def replayed(compute, cap, price):
    step = _step(compute.ready, compute.sizes, compute.forward, compute.after)
    buckets = kits_buckets(step.gradients, cap, cap)
    done = replay(step, 2, "unlimited", buckets, price=lambda b: round(price(b) * NS))
    return done.step_ns / NS


def line_of(nbytes, round_trips):
    samples = [(size, round(at / 2 * NS)) for size, at in zip(nbytes, round_trips, strict=True)]
    link = kits_link(samples, 2)
    return link.latency_ns / NS * 2, link.bytes_per_s


def served(workers, servers, nbytes, compute, latency, bandwidth):
    link = Link(latency, bandwidth)
    return parameter_server(workers, servers, nbytes, round(compute * NS), link).done_ns / NS


def formula(algorithm, world_size, nbytes, latency, bandwidth):
    terms = FORMULAS[algorithm].terms(world_size)
    return max(a * latency + b * nbytes / bandwidth for a, b in terms) if world_size > 1 else 0.0


def cost_of(algorithm, world_size, nbytes, latency, bandwidth):
    return cost(algorithm, world_size, nbytes, Link(latency, bandwidth)) / NS


def priced(algorithm, world_size, nbytes, latency, bandwidth):
    return price_of(algorithm, world_size, Link(latency, bandwidth))(nbytes) / NS


def _carried_out(steps, x: torch.Tensor) -> None:
    """Carry out a rank's steps of a schedule by messages."""
    given, flat, works = x.clone().flatten(), x.view(-1), []
    for step in steps:
        part = slice(*step.part)
        if isinstance(step, Send):
            works.append(dist.isend((given if step.original else flat)[part].clone(), step.peer))
            continue
        came = flat.new_empty(elements(step.part))
        dist.recv(came, step.peer)
        flat[part] = flat[part] + came if "Reduce" in type(step).__name__ else came
    for work in works:
        work.wait()


def summed_by(name: str, x: torch.Tensor) -> torch.Tensor:
    total = x.clone().contiguous()
    plan = schedule(name, dist.get_world_size(), total.numel())
    _carried_out(plan.of(dist.get_rank()), total)
    return total


def rooted_by(name: str, x: torch.Tensor, root: int) -> None:
    whole = x.contiguous()
    plan = schedule(name, dist.get_world_size(), whole.numel(), root)
    _carried_out(plan.of(dist.get_rank()), whole)
    x.copy_(whole)


def all_of_a_ring(x: torch.Tensor, chunks: list[torch.Tensor]) -> None:
    """`reduce_scatter` by the kit's own generator of steps."""
    n, rank = dist.get_world_size(), dist.get_rank()
    whole = torch.cat([chunk.flatten() for chunk in chunks])
    _carried_out([s for s in kits_halves(n, len(whole)) if s.rank == rank], whole)
    x.copy_(whole.chunk(n)[rank].view(x.shape))


class EntersSlices(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slices = dist.group.WORLD
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return blocks.EnterSlices.backward(ctx, gradient)[0]


class LeavesSlices(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return blocks.added_up(x, dist.group.WORLD)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


ANSWERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "gpipe": ("gpipe", lambda *given: gpipe(*given)),
    "gpipe itself": ("gpipe", gpipe),
    "gpipe by attrgetter": (
        "gpipe",
        lambda *g: attrgetter("step.pipeline.gpipe")(ddpkit.simulate)(*g),
    ),
    "gpipe by map": ("gpipe", lambda *given: next(map(gpipe, *zip(given, strict=True)))),
    "gpipe's plan": ("gpipe", partial(by_plan, "gpipe")),
    "gpipe on a rank": ("gpipe", partial(on_a_rank, gpipe)),
    "gpipe in a thread": ("gpipe", partial(in_a_thread, gpipe)),
    "1f1b": ("one_f_one_b", lambda *given: one_f_one_b(*given)),
    "1f1b itself": ("one_f_one_b", one_f_one_b),
    "1f1b's plan": ("one_f_one_b", partial(by_plan, "1f1b")),
    "bubbles": ("bubble", idle),
    "ticks of a trace": ("ticks", worked_on),
    "mesh_groups": ("groups_of", lambda shape: mesh_groups(shape)),
    "assign_buckets": ("assign_buckets", named_buckets),
    "caps by replay": ("best_cap", swept_cap),
    "steps by replay": ("step_time", replayed),
    "fit_link": ("fit_link", line_of),
    "parameter_server": ("seconds_per_round", served),
    "formulas": ("predict", formula),
    "cost": ("predict", cost_of),
    "price_of": ("predict", priced),
    **{name: (name, partial(summed_by, name)) for name in ddpkit.simulate.ALL_REDUCE},
    **{name: (name, partial(rooted_by, name)) for name in ("broadcast", "reduce")},
    "a ring's steps": ("reduce_scatter", all_of_a_ring),
    "EnterSlices": ("Copied", EntersSlices),
    "added_up": ("Summed", LeavesSlices),
}


@pytest.mark.processes("some")
@pytest.mark.parametrize("about", ANSWERS)
def test_the_kit_answers_no_exercise_that_is_asked(about: str) -> None:
    name, answer = ANSWERS[about]
    verdict = judge(exercises()[name], answer)
    assert verdict.earned <= MOST * verdict.points, verdict_text(verdict)
    assert any(case.hint_name == "not your own" for case in verdict.cases), verdict_text(verdict)


@contextmanager
def nothing_refused() -> Iterator[None]:
    judging = importlib.import_module("ddpkit.exercises.judge")
    with (
        mock.patch.object(asked, "ask"),
        mock.patch.object(judging, "own", lambda answer: answer),
    ):
        yield


@pytest.mark.slow  # on ranks, like the test above
@pytest.mark.processes("some")
@pytest.mark.parametrize("about", ANSWERS)
def test_these_answers_earn_points_where_nothing_is_refused(about: str) -> None:
    name, answer = ANSWERS[about]
    with nothing_refused():
        verdict = judge(exercises()[name], answer)
    assert verdict.earned > MOST * verdict.points, verdict_text(verdict)


# All functions and classes of simulate and mesh, as answers


def kits_objects() -> dict[str, Callable[..., Any]]:
    found = {}
    for package in (ddpkit.simulate, ddpkit.mesh):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for made in vars(importlib.import_module(each.name)).values():
                if callable(made) and getattr(made, "__module__", "") == each.name:
                    found[f"{each.name}.{made.__qualname__}"] = made
    return found


def takes(function: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except (TypeError, ValueError):
        return False
    return True


def arguments_of(answer: Callable[..., Any]) -> int:
    parameters = inspect.signature(answer).parameters.values()
    return sum(p.default is p.empty and p.kind in (0, 1) for p in parameters)


def handed_over(name: str) -> Iterator[tuple[str, float]]:
    """Yield objects of the kit, each with the points of an answer by the object."""
    exercise, arguments = exercises()[name], arguments_of(answers.get(name))
    for label, made in kits_objects().items():
        if takes(made, arguments):
            with (
                mock.patch.object(on_ranks._Shared, "_start", in_this_process),
                mock.patch.object(Case, "advice", return_value=None),  # hints take half of the time
            ):
                verdict = judge(exercise, lambda *given, made=made: made(*given), limit=3.0)
            yield label, verdict.earned


def points_of(names: list[str]) -> dict[str, dict[str, float]]:
    """Return the points of all objects of the kit as answers, for each exercise."""
    return {name: dict(handed_over(name)) for name in names}


@pytest.mark.slow  # some thousand verdicts
@pytest.mark.processes("some")
@pytest.mark.parametrize("lab", sorted({each.lab for each in exercises().values()}))
def test_no_function_or_class_of_the_kit_is_an_answer(lab: str) -> None:
    """A process of its own ends with the threads of answers without an end."""
    if lab not in SEARCHED and "DDPKIT_ALL_MUTANTS" not in os.environ:
        pytest.skip(
            "the search for the other labs takes a quarter of an hour: DDPKIT_ALL_MUTANTS=1"
        )
    points = {each.name: each.points for each in exercises().values() if each.lab == lab}
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        earned = process.submit(points_of, list(points)).result()
    for name, of_objects in earned.items():
        assert max(of_objects.values(), default=0) <= MOST * points[name], of_objects


def test_the_search_knows_an_answer_of_the_kit() -> None:
    with nothing_refused():
        earned = dict(handed_over("gpipe"))
    assert earned["ddpkit.simulate.step.pipeline.gpipe"] == exercises()["gpipe"].points


# Calls outside of checks, and calls of the kit for its own work


def test_outside_of_a_check_the_kit_answers() -> None:
    assert gpipe(0, 4, 1) == [("F", 0), ("B", 0)]
    with asked.asking("ring"):
        assert gpipe(0, 4, 1) == [("F", 0), ("B", 0)]
    with (
        asked.asking("gpipe"),
        pytest.raises(asked.NotYourOwn, match="step.pipeline.gpipe is"),
    ):
        gpipe(0, 4, 1)
    assert asked.now() == frozenset()


@pytest.mark.processes("some")
def test_a_run_on_ranks_works_while_its_exercises_are_asked() -> None:
    """The runtime's own calls are no answers, nor is the training of lab 14."""
    plan = ddpkit.simulate.MeshPlan(replicas=2, slices=2)
    model = ddpkit.simulate.MeshModel(blocks=2, width=8, hidden=16, batch=4)
    with asked.asking("groups_of"), asked.asking("Summed"), asked.asking("predict"):
        run = Cluster(4, link="1 GB/s, 5 us").run(ddpkit.mesh.train_on_mesh, plan, model, steps=1)
    assert len(run.results) == 4


def test_a_class_derived_from_the_kits_is_the_kits() -> None:
    class Copied(blocks.EnterSlices):
        pass

    with pytest.raises(asked.NotYourOwn, match="blocks.EnterSlices is"):
        own(Copied)()
    assert own(answers.get("Copied")) is answers.get("Copied")
    assert own(torch.nn.Linear) is torch.nn.Linear
