"""The exercises of lab 08."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ddpkit.checks.lab08.hints import PULLED, PUSHED, SECONDS, SERVED, UNTOUCHED
from ddpkit.checks.lab08.leads import bounded_cases
from ddpkit.checks.lab08.of_remote import call_cases, rows_cases, serve_calls_cases
from ddpkit.checks.lab08.of_rules import asynchronous_cases, synchronous_cases
from ddpkit.checks.lab08.rounds import Numbers, by, right
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Did, asked
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank
from ddpkit.text import count

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

HEADER_BYTES = 8


# push and pull

TALKS = (  # servers, world size, length, dtype
    ([0], 2, 5, "float32"),
    ([0, 1], 3, 7, "float32"),
    ([2, 0], 3, 4, "float64"),
    ([1, 3, 0], 4, 4, "float32"),
    ([0, 1, 2], 5, 2, "float32"),  # the last chunk is empty
)
LATE = (([1, 0], 3, 5, "float32"), True)  # servers that take the chunk, and then its header


def _about(servers: Sequence[int], n: int, length: int, dtype: str) -> str:
    return f"servers {servers}, {count(n - len(servers), 'worker')}, {dtype}[{length}]"


@exercise("push", lab="08", points=1, returns=False)
def push(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that a worker sends each server a header and a chunk, all at the same time."""
    import torch

    from ddpkit.checks.lab08.servers import pushed, workers_of

    for (servers, n, length, dtype), data_first in (*((each, False) for each in TALKS), LATE):
        workers = workers_of(servers, n)
        first = rng.randrange(1, 50)
        gradients = {
            rank: torch.arange(length, dtype=getattr(torch, dtype)) + first * rank + 1
            for rank in workers
        }
        chunks = {rank: each.tensor_split(len(servers)) for rank, each in gradients.items()}
        room = torch.zeros(length, dtype=getattr(torch, dtype)).tensor_split(len(servers))
        mine = [gradients.get(rank, 0) for rank in range(n)]
        for place, server in enumerate(servers):
            mine[server] = room[place].clone()
        yield Case(
            _about(servers, n, length, dtype) + ", takes data first" * data_first,
            asked(
                partial(pushed, answer, data_first=data_first),
                PerRank(mine),
                servers,
                world_size=n,
                see={
                    "requests": partial(_requests, servers),
                    "chunks": partial(_chunks, servers),
                    "bytes": partial(_bytes_of, workers),
                    "gradient": lambda did: "kept" if did.kept else "changed",
                },
            ),
            {
                "requests": [[0] * len(workers)] * len(servers),
                "chunks": [
                    [chunks[worker][place] for worker in workers] for place in range(len(servers))
                ],
                "bytes": _expected_bytes(servers, workers, length, dtype),
                "gradient": "kept",
            },
            hints=PUSHED,
            given={"servers": servers, "length": length, "data_first": data_first},
        )


def _requests(servers: Sequence[int], did: Did) -> list[object]:
    return [did.returned[server][0] for server in servers]


def _chunks(servers: Sequence[int], did: Did) -> list[object]:
    return [did.returned[server][1] for server in servers]


def _bytes_of(ranks: Sequence[int], did: Did) -> list[int]:
    return [did.bytes[rank] for rank in ranks]


def _expected_bytes(
    servers: Sequence[int], workers: Sequence[int], length: int, dtype: str
) -> list[int]:
    itemsize = {"float32": 4, "float64": 8}[dtype]
    return [HEADER_BYTES * len(servers) + length * itemsize] * len(workers)


@exercise("pull", lab="08", points=1, returns=False)
def pull(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that a worker receives all servers' chunks in place, requested at the same time."""
    import torch

    from ddpkit.checks.lab08.servers import pulled, workers_of

    for servers, n, length, dtype in TALKS:
        workers = workers_of(servers, n)
        parameters = torch.arange(length, dtype=getattr(torch, dtype)) + rng.randrange(1, 50)
        mine = [torch.full_like(parameters, UNTOUCHED) for _ in range(n)]
        for server, chunk in zip(servers, parameters.tensor_split(len(servers)), strict=True):
            mine[server] = chunk.clone()
        yield Case(
            _about(servers, n, length, dtype),
            asked(
                partial(pulled, answer),
                PerRank(mine),
                servers,
                world_size=n,
                see={
                    "requests": partial(_returned_by, servers),
                    "flat": partial(_returned_by, workers),
                    "bytes": partial(_bytes_of, workers),
                },
            ),
            {
                "requests": [[1] * len(workers)] * len(servers),
                "flat": [parameters] * len(workers),
                "bytes": [HEADER_BYTES * len(servers)] * len(workers),
            },
            hints=PULLED,
            given={"servers": servers, "length": length},
        )


def _returned_by(ranks: Sequence[int], did: Did) -> list[object]:
    return [did.returned[rank] for rank in ranks]


# serve

Needs = dict[tuple[int, int], int]
STORIES: tuple[
    tuple[str, list[int], str, Needs], ...
] = (  # about; workers; story; (worker, number of its pull) -> pushes and DONEs before the answer
    ("1 worker", [1], "v1 p1 v1 p1 d1", {}),
    ("2 workers, in turn", [1, 2], "v1 v2 p1 p2 v1 v2 p1 p2 d1 d2", {}),
    ("one comes three times", [1, 2], "v1 p1 v1 p1 v1 p1 v2 p2 d1 d2", {}),
    ("one is held back", [1, 2], "v1 v2 p1 v1 p2 p1 v2 d1 d2", {(1, 1): 2}),
    (
        "two wait, one is freed",
        [1, 2, 3],
        "v1 v2 p3 v1 v3 p3 d2 d3 d1",
        {(1, 0): 1, (2, 0): 2, (1, 1): 2},
    ),
    ("a DONE frees one", [1, 2], "v1 p1 v1 d2 p1 d1", {(1, 1): 2}),
    ("two at once", [1, 2], "h1 i2 g1 v1 v2 p2 d1 d2", {}),
    ("workers 2 and 3", [2, 3], "p3 v2 p2 v3 p3 d2 v3 d3", {}),
)


@exercise("serve", lab="08", points=3, returns=False)
def serve(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a server that answers requests of any worker until all workers are done."""
    import torch

    from ddpkit.checks.lab08.stories import at_once, ramp, served

    for about, workers, story, needs in STORIES:
        n, length = max(workers) + 1, rng.randrange(2, 6)
        pushes = [int(each[1:]) for each in story.split() if each[0] in "phi"]
        # odd numbers above 2048, which float16 cannot hold
        values = rng.sample(range(2049, 9000, 2), len(pushes))
        mine = [
            [
                ramp(float(value), length)
                for value, worker in zip(values, pushes, strict=True)
                if worker == rank
            ]
            for rank in range(n)
        ]
        calls, got = _right_story(story, needs, dict.fromkeys(workers, 0), iter(values))
        yield Case(
            about,
            asked(
                partial(served, answer, story, workers, length, needs),
                PerRank(mine),
                world_size=n,
                see={
                    "calls": lambda did: _in_order(did.returned[0][0]),
                    "gradients": lambda did: did.returned[0][1],
                    "got": partial(_returned_by, workers),
                    "list as it was": lambda did: did.returned[0][2],
                    "handed in": lambda did: did.handed_in[:1],
                },
            ),
            {
                "calls": _in_order(calls),
                "gradients": [float(value) for value in values],
                "got": [got[worker] for worker in workers],
                "list as it was": True,
                "handed in": [_of_pulls(sum(len(got[worker]) for worker in workers), length)],
            },
            hints=SERVED,
            given={"about": about, "n": n},
        )
    steps, length = rng.sample(range(3, 6), 3), 4
    mine = [[torch.full((length,), float(rank))] * (steps[rank - 1] if rank else 0)
            for rank in range(4)]  # fmt: skip
    calls = [f"{what}{worker + 1}" for worker, each in enumerate(steps) for what in "vp" * each]
    yield Case(
        f"3 workers at once, {steps} steps",
        asked(
            partial(at_once, answer, [1, 2, 3], length),
            PerRank(mine),
            world_size=4,
            see={
                "sum": lambda did: did.returned[0][0],
                "calls": lambda did: _in_order(did.returned[0][1]),
                "handed in": lambda did: did.handed_in[:1],
            },
        ),
        {
            "sum": float(sum(worker * each for worker, each in enumerate(steps, 1))),
            "calls": _in_order(sorted([*calls, "d1", "d2", "d3"])),
            "handed in": [_of_pulls(sum(steps), length)],
        },
        hints=SERVED,
        given={"about": "at once", "n": 4},
    )


def _of_pulls(pulls: int, length: int) -> Between:
    """Return the range of bytes that a server may send to answer pulls of float32 parameters.

    The maximum is twice the parameters' bytes, and 4 kB more for a few counts.
    """
    least = pulls * 4 * length
    return Between(least, 2 * least + 4096)


def _right_story(
    story: str, needs: Needs, pulls: dict[int, int], values: Iterator[int]
) -> tuple[list[str], dict[int, list[float]]]:
    """Return the right calls of the rule's methods in a story, and each worker's parameters."""
    calls, waiting, moved, flat = list[str](), list[int](), 0, 0
    got: dict[int, list[float]] = {worker: [] for worker in pulls}
    order: list[int] = []  # workers with a header sent and a gradient not yet sent
    for each in story.split():
        what, worker = each[0], int(each[1:])
        if what == "v":
            waiting.append(worker)
        elif what == "d":
            moved += 1
            calls.append(each)
        elif what in "hi":
            order.append(worker)
        if what in "pg":
            for pusher in order if what == "g" else [worker]:
                moved += 1
                flat += next(values)
                calls.append(f"p{pusher}")
        for other in [w for w in waiting if moved >= needs.get((w, pulls[w]), 0)]:
            waiting.remove(other)
            pulls[other] += 1
            calls.append(f"v{other}")
            got[other].append(float(flat))
    return calls, got


def _in_order(calls: Sequence[str]) -> str:
    """Join the calls to one text; consecutive pulls are sorted, because their order is free."""
    text, pulls = list[str](), list[str]()
    for each in calls:
        if each[0] == "v":
            pulls.append(each)
            continue
        text += [*sorted(pulls), each]
        pulls.clear()
    return " ".join([*text, *sorted(pulls)])


# The rules


@exercise("Synchronous", lab="08", points=3)
def synchronous(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check synchronous rounds: one update with the mean gradient, then all workers continue."""
    yield from synchronous_cases(answer, rng)


@exercise("Asynchronous", lab="08", points=1)
def asynchronous(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check asynchronous updates: each push is applied at once, and its age is recorded."""
    yield from asynchronous_cases(answer, rng)


@exercise("Bounded", lab="08", points=3)
def bounded(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that no worker gets more than `bound` pushes ahead of the slowest worker."""
    yield from bounded_cases(answer, rng)


# seconds_per_round


@exercise("seconds_per_round", lab="08", points=2)
def seconds_per_round(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the seconds of a synchronous round for given numbers of workers and servers."""
    for workers, servers in ((1, 1), (4, 3), (3, 1), (4, 4), (16, 5), (64, 8)):
        compute, latency = rng.randrange(5, 80) / 1e3, rng.randrange(1, 9) / 1e4
        numbers = workers, servers, 1000 * rng.randrange(200, 9000), compute, latency, 125e6
        for known in (numbers, (*numbers[:4], 0.0, 125e6))[: 1 + (workers == 3 > servers + 1)]:
            yield Case(
                f"{count(workers, 'worker')}, {count(servers, 'server')}"
                + ("" if known[4] else ", no latency"),
                partial(_seconds, answer, known),
                {"seconds": Close(by(right, known))},
                hints=SECONDS,
                given={"numbers": known},
            )


def _seconds(answer: Answer, numbers: Numbers) -> Observed:
    return {"seconds": answer(*numbers)}


# Calls of functions on a different rank


@exercise("call", lab="08", points=1, returns=False)
def call(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the call of a function on a different rank: the result, or the exception."""
    yield from call_cases(answer, rng)


@exercise("serve_calls", lab="08", points=1, returns=False)
def serve_calls(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a server that answers calls of any client until all clients have called shutdown."""
    yield from serve_calls_cases(answer, rng)


@exercise("RemoteRows", lab="08", points=3, returns=False)
def remote_rows(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check autograd through a remote call: rows arrive, and their gradient is sent back."""
    yield from rows_cases(answer, rng)
