"""Lab 15: the exercises: the bottleneck of a trace, and a training made faster."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ddpkit.capstone.task import GIVEN_MS, MEMORY, RANKS, STEPS, TextTask
from ddpkit.capstone.trained import begun, outcome
from ddpkit.checks.lab15 import hints, traces
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.guard import Answer
from ddpkit.trace import Trace

ENOUGH = "a gradient of each rank but one, in each step"
Row = tuple[str, Trace]  # the bottleneck, and a trace with this bottleneck
RECORDED = ("straggler", "latency", "bandwidth")

# bottleneck


@exercise("bottleneck", lab="15", points=4)
def bottleneck(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the bottleneck that the answer finds in a trace, as one of six words."""
    for about, rows in (
        ("compute, or the network", _network(rng)),
        ("few bytes, or many", _sizes(rng)),
        ("who is waited for", _waits(rng)),
        ("ranks unlike each other", _unlike(rng)),
        ("nothing to be seen", _gaps(rng)),
        ("of one rank, not of all", _of_one(rng)),
        ("counted, or not", _counted(rng)),
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
    """Draw a time near `ms` for each rank."""
    return [ms * rng.uniform(0.97, 1.03) for _ in range(RANKS)]


def _made(rng: random.Random, compute: float, sizes: Sequence[int] = (), **more: Any) -> Trace:
    nothing = [0.0] * RANKS
    work = {"input": nothing, "idle": nothing, "sizes": sizes} | more
    return traces.of(traces.StepWork(_about(rng, compute), **work))


def _network(rng: random.Random) -> list[Row]:
    ms = rng.uniform(20, 60)
    large = round(ms * 1e5)  # bytes that travel as long as a step computes
    return [
        ("compute", _made(rng, ms, [large // 3])),
        ("bandwidth", _made(rng, ms, [large, large, large // 8])),
        ("compute", _made(rng, 8 * ms, [large // 8], hidden=[large] * 3)),
    ]


def _sizes(rng: random.Random) -> list[Row]:
    ms = rng.uniform(20, 60)
    times = rng.randrange(30, 60)
    a_little_later = _about(rng, ms)
    a_little_later[_late(rng)] *= 1.4
    nothing = [0.0] * RANKS
    large = [round(ms * 2e5), round(ms * 1e5)]
    return [
        ("latency", _made(rng, ms, [4_000] * times, latency=2 * ms / times)),
        ("bandwidth", traces.of(traces.StepWork(a_little_later, nothing, nothing, large))),
    ]


def _waits(rng: random.Random) -> list[Row]:
    ms, late = rng.uniform(20, 60), _late(rng)
    slow = [each * (1 + 2.5 * (rank == late)) for rank, each in enumerate(_about(rng, ms))]
    hungry = [ms * (0.1 + 3 * (rank == late)) for rank in range(RANKS)]
    nothing, sizes = [0.0] * RANKS, [round(ms * 2e4)] * 2
    return [
        ("straggler", traces.of(traces.StepWork(slow, nothing, nothing, sizes))),
        ("input", _made(rng, ms, sizes, input=hungry)),
    ]


def _unlike(rng: random.Random) -> list[Row]:
    """Return traces in which only the lower median of the ranks gives the right word."""
    ms, nothing = rng.uniform(5, 15), [0.0] * RANKS
    rows = []
    for right, times in (("straggler", (1, 2, 9, 10)), ("compute", (1, 6, 6, 10))):
        computes = [ms * each * rng.uniform(0.97, 1.03) for each in rng.sample(times, RANKS)]
        slowest = computes.index(max(computes))
        late = _late(rng)
        computes[late], computes[slowest] = computes[slowest], computes[late]
        rows.append((right, traces.of(traces.StepWork(computes, nothing, nothing, [10_000]))))
    three = [ms * each for each in (1, 10, 8)]  # the median without the late rank is the first
    rows.append(("compute", traces.of(traces.StepWork(three, [0.0] * 3, [0.0] * 3, [10_000]))))
    return rows


def _gaps(rng: random.Random) -> list[Row]:
    ms = rng.uniform(20, 60)
    sizes = [round(ms * 2e4)] * 2
    return [
        ("idle", _made(rng, ms, idle=_about(rng, 2 * ms), averages=False)),
        ("idle", _made(rng, ms, sizes, idle=_about(rng, 2 * ms), input=_about(rng, ms / 5))),
        ("input", _made(rng, ms, sizes, input=_about(rng, 2.2 * ms), idle=_about(rng, ms / 5))),
    ]


def _of_one(rng: random.Random) -> list[Row]:
    """Return traces of steps in which one rank is late, and its times alone give the right word."""
    ms, sizes = rng.uniform(20, 60), [10_000]
    late = _late(rng)
    gap = [3 * ms * (rank == late) for rank in range(RANKS)]
    loads = [ms * (1.6 if rank == late else 2.4) for rank in range(RANKS)]
    computes = [ms * (3 if rank == late else 1) for rank in range(RANKS)]
    nothing = [0.0] * RANKS
    fast = [ms * (0.4 if rank == late else 1.0) for rank in range(RANKS)]
    return [
        ("idle", _made(rng, ms, sizes, idle=gap)),
        ("input", _ranks(late, ms, (1.6, 1.0), (1.4, 0), (0, 1.9))),
        ("compute", _ranks(late, ms, (1, 1), (0.65, 0), (0.7, 0), also=2.2)),
        ("straggler", traces.of(traces.StepWork(computes, loads, nothing, sizes))),
        ("idle", traces.of(traces.StepWork(fast, nothing, gap, sizes))),
    ]


def _ranks(late: int, ms: float, *parts: tuple[float, float], also: float = 0) -> Trace:
    """Return the trace of a step from its times of compute, input and idle, in units of `ms`.

    Each of `parts` is (time of rank `late`, time of every other rank). `also` replaces the compute
    time of one other rank.
    """
    compute, loads, gaps = (
        [ms * (one if rank == late else other) for rank in range(RANKS)] for one, other in parts
    )
    if also:
        compute[(late + 1) % RANKS] = also * ms
    return traces.of(traces.StepWork(compute, loads, gaps, [10_000]))


def _counted(rng: random.Random) -> list[Row]:
    """Return traces with calls that must not count as latency: hidden, or not an all_reduce."""
    ms, times = rng.uniform(20, 60), rng.randrange(30, 60)
    large, each = round(ms * 2e5), ms / times
    return [
        ("bandwidth", _made(rng, 2 * ms, [large, large], hidden=[400] * times, latency=2.5 * each)),
        ("bandwidth", _made(rng, ms, others=times, latency=2 * each)),
        # latency of this rank's calls is half of the time of the bytes; of all ranks' calls, twice
        ("bandwidth", _made(rng, ms, [round(ms * 2e5 / times)] * times, latency=each)),
        ("compute", _hidden(rng, ms)),
    ]


def _hidden(rng: random.Random, ms: float) -> Trace:
    """Return a trace in which all messages take longer than compute, but the exposed ones do not.

    The backward hides one message.
    """
    large = ms * 1e5
    some = [round(0.45 * large)], [round(0.7 * large)]
    return _made(rng, ms, some[1], hidden=some[0], input=_about(rng, 0.85 * ms))


def _late(rng: random.Random) -> int:
    """Draw the late rank: never rank 0, so that an answer that reads only rank 0 is wrong."""
    return rng.randrange(1, RANKS)


def _simulated(rng: random.Random) -> list[Row]:
    ms = rng.uniform(20, 60)
    first = [400]  # bytes of the gradient that is ready first
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
    """Check a training of the given model on all ranks, in less time than the given script."""
    tasks = [TextTask(rng.randrange(10**9)) for _ in range(2)]
    runs = [begun(answer, task) for task in tasks]  # the later cases share the second run
    for number, (about, times, memory, weight) in enumerate(
        (
            ("right, and faster than given", 1.1, 0, 4.0),
            ("1.5 times as fast", 1.5, 0, 2.0),
            ("1.8 times as fast", 1.8, 0, 2.0),
            (f"2.1 times as fast, in {MEMORY / 1e6:.0f} MB", 2.1, MEMORY, 2.0),
        )
    ):
        later = min(number, 1)
        yield Case(
            about,
            runs[later],
            {
                "parameters": "all of them",
                "time": "recomputed",
                "replicas": "equal",
                "model": "the same",
                "exchanged": ENOUGH,
                "speed": f"at least {times} times the given script's",
            }
            | ({"memory": f"at most {memory / 1e6:.0f} MB"} if memory else {}),
            weight=weight,
            read=partial(_read, tasks[later], times, memory),
            hints=hints.TRAIN,
            given={"given_ms": GIVEN_MS, "times": times},
            stop_if="wrong" if times < 1.5 else "",
            measures=("ms", "loss", "sent", "peak"),
        )


def least_sent(numbers: int) -> int:
    """Return the fewest bytes that all ranks send: in each step, all but one send their gradients.

    A byte for each number is less than bfloat16, so no honest exchange sends less.
    """
    return STEPS * (RANKS - 1) * numbers


def _read(task: TextTask, times: float, memory: float, claim: Observed) -> Observed:
    sizes = task.size
    if (found := claim["model"].numel()) != sizes:
        return {"parameters": f"{found:,}, where {sizes:,} are asked for"}
    came = outcome(task, claim)
    fast = came.ms * times <= GIVEN_MS
    seen = {
        "parameters": "all of them",
        "time": came.time,
        "replicas": came.replicas,
        "model": came.model,
        "exchanged": ENOUGH if came.sent >= least_sent(sizes) else f"{came.sent / 1e6:.2f} MB",
        "speed": f"at least {times} times the given script's"
        if fast
        else f"{GIVEN_MS / came.ms:.2f} times",
        "ms": came.ms,
        "loss": came.loss,
        "entropy": task.language.entropy,
        "sent": came.sent,
        "peak": came.peak,
        "clock_ms": came.clock,
        "apart": came.apart,
        "off": came.off,
        "share": came.share,
    }
    if memory:
        fits = came.peak <= memory
        held = f"at most {memory / 1e6:.0f} MB" if fits else f"{came.peak / 1e6:.2f} MB"
        seen["memory"] = held
    return seen
