"""Lab 15: the bottleneck of a trace, and a training that is right, and fast."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ddpkit.capstone.task import GIVEN_MS, RANKS, TARGET, TextTask
from ddpkit.capstone.trained import observed, outcome
from ddpkit.checks.lab15 import hints, traces
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.trace import Trace

Answer = Callable[..., Any]
Row = tuple[str, Trace]  # the bottleneck, and a trace that has it
RECORDED = ("straggler", "latency", "bandwidth")

# bottleneck


@exercise("bottleneck", lab="15", points=4)
def bottleneck(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """What a step spends most of its time on, in one of six words."""
    for about, rows in (
        ("compute, or the network", _network(rng)),
        ("few bytes, or many", _sizes(rng)),
        ("who is waited for", _waits(rng)),
        ("ranks unlike each other", _unlike(rng)),
        ("nothing to be seen", _gaps(rng)),
        ("simulated steps", _simulated(rng)),
        ("recorded runs", _recorded(rng)),
    ):
        rng.shuffle(rows)
        yield Case(
            f"{about}: {len(rows)} traces",
            partial(_bottlenecks, answer, [trace for _, trace in rows]),
            {"bottlenecks": [right for right, _ in rows]},
            hints=hints.BOTTLENECK,
            given={"about": about},
        )


def _bottlenecks(answer: Answer, given: Sequence[Trace]) -> Observed:
    return {"bottlenecks": [answer(each) for each in given]}


def _about(rng: random.Random, ms: float) -> list[float]:
    """A time of each rank: all much alike."""
    return [ms * rng.uniform(0.97, 1.03) for _ in range(RANKS)]


def _made(rng: random.Random, compute: float, sizes: Sequence[int] = (), **more: Any) -> Trace:
    nothing = [0.0] * RANKS
    work = {"input": nothing, "idle": nothing, "sizes": sizes} | more
    return traces.of(traces.StepWork(_about(rng, compute), **work))


def _network(rng: random.Random) -> list[Row]:
    ms = rng.uniform(20, 60)
    large = round(ms * 1e5)  # bytes: as long under way as a step computes
    return [
        ("compute", _made(rng, ms, [large // 3])),
        ("bandwidth", _made(rng, ms, [large, large, large // 8])),
        ("compute", _made(rng, 8 * ms, [large // 8], hidden=[large] * 3)),
    ]


def _sizes(rng: random.Random) -> list[Row]:
    ms = rng.uniform(20, 60)
    times = rng.randrange(30, 60)
    a_little_later = _about(rng, ms)
    a_little_later[rng.randrange(RANKS)] *= 1.4
    nothing = [0.0] * RANKS
    large = [round(ms * 2e5), round(ms * 1e5)]
    return [
        ("latency", _made(rng, ms, [4_000] * times, latency=2 * ms / times)),
        ("bandwidth", traces.of(traces.StepWork(a_little_later, nothing, nothing, large))),
    ]


def _waits(rng: random.Random) -> list[Row]:
    ms, late = rng.uniform(20, 60), rng.randrange(RANKS)
    slow = [each * (1 + 2.5 * (rank == late)) for rank, each in enumerate(_about(rng, ms))]
    hungry = [ms * (0.1 + 3 * (rank == late)) for rank in range(RANKS)]
    nothing, sizes = [0.0] * RANKS, [round(ms * 2e4)] * 2
    return [
        ("straggler", traces.of(traces.StepWork(slow, nothing, nothing, sizes))),
        ("input", _made(rng, ms, sizes, input=hungry)),
    ]


def _unlike(rng: random.Random) -> list[Row]:
    """Steps whose ranks' lower median leads to a word, and no other middle to the same."""
    ms, nothing = rng.uniform(5, 15), [0.0] * RANKS
    rows = []
    for right, times in (("straggler", (1, 2, 9, 10)), ("compute", (1, 6, 6, 10))):
        computes = [ms * each * rng.uniform(0.97, 1.03) for each in rng.sample(times, RANKS)]
        rows.append((right, traces.of(traces.StepWork(computes, nothing, nothing, [10_000]))))
    return rows


def _gaps(rng: random.Random) -> list[Row]:
    ms = rng.uniform(20, 60)
    sizes = [round(ms * 2e4)] * 2
    return [
        ("idle", _made(rng, ms, idle=_about(rng, 2 * ms), averages=False)),
        ("idle", _made(rng, ms, sizes, idle=_about(rng, 2 * ms), input=_about(rng, ms / 5))),
        ("input", _made(rng, ms, sizes, input=_about(rng, 2.2 * ms), idle=_about(rng, ms / 5))),
    ]


def _simulated(rng: random.Random) -> list[Row]:
    ms = rng.uniform(20, 60)
    first = [400]  # bytes: the gradient that is ready first
    return [
        ("compute", traces.simulated([*first, *[200_000] * 6], 8 * ms, "1 Gbit/s, 20 us")),
        ("bandwidth", traces.simulated([*first, *[1_500_000] * 6], ms, "500 Mbit/s, 20 us")),
        ("latency", traces.simulated([*first, *[2_000] * 60], ms, "10 Gbit/s, 400 us")),
    ]


def _recorded(rng: random.Random) -> list[Row]:
    return [(name, traces.recorded(name, rng)) for name in RECORDED]


# train_fast


@exercise("train_fast", lab="15", points=10, returns=False)
def train_fast(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """A model below the target, the same on all ranks, sooner than by the given script."""
    for about, times, weight in (
        ("right, and faster than given", 1.1, 4.0),
        ("1.5 times as fast", 1.5, 2.0),
        ("2.5 times as fast", 2.5, 2.0),
        ("4 times as fast", 4.0, 2.0),
    ):
        task = TextTask(rng.randrange(10**9))
        yield Case(
            about,
            partial(observed, answer, task.model(), task.text),
            {
                "parameters": "all of them",
                "time": "recomputed",
                "start": "the given weights",
                "ranks": "all train",
                "replicas": "equal",
                "held out loss": f"below {TARGET}",
                "speed": f"at least {times} times the given script's",
            },
            weight=weight,
            read=partial(_read, task, times),
            hints=hints.TRAIN,
            given={"given_ms": GIVEN_MS, "before": task.loss(_flat(task.model()))},
            stop_if="wrong" if times < 1.5 else "",
            measures=("ms", "loss", "sent", "peak"),
        )


def _flat(model: Any) -> Any:
    import torch

    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _read(task: TextTask, times: float, claim: Mapping[str, Any]) -> Observed:
    sizes = _flat(task.model()).shape
    if claim["model"].shape != sizes:
        return {"parameters": f"{claim['model'].numel():,}, where {sizes.numel():,} are asked for"}
    came = outcome(task, claim)
    return {
        "parameters": "all of them",
        "time": came.time,
        "start": came.start,
        "ranks": came.ranks,
        "replicas": came.replicas,
        "held out loss": f"below {TARGET}" if came.loss < TARGET else f"{came.loss:.3f}",
        "speed": f"at least {times} times the given script's"
        if came.ms * times <= GIVEN_MS
        else f"{GIVEN_MS / came.ms:.2f} times",
        "ms": came.ms,
        "loss": came.loss,
        "sent": came.sent,
        "peak": came.peak,
        "clock_ms": came.clock,
        "apart": came.apart,
        "shares": list(came.shares),
        "alike": came.alike,
    }
