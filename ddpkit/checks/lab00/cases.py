"""Lab 00: what a token and a shift around a ring of ranks must do.

Both are judged by what they return and by what they send: the right sum by another way (through a
hub, by a collective) is not a ring.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ddpkit.cluster import Cluster
from ddpkit.errors import Deadlock
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.rank.main import PerRank
from ddpkit.text import count

Answer = Callable[[Any], Any]


def observe(answer: Answer, world_size: int, inputs: list[Any]) -> Observed:
    """Run the answer on every rank, each with its own input."""
    run = Cluster(world_size, device="cpu").run(_call, answer, PerRank(inputs))
    returned, after = zip(*run.results, strict=True)
    sent = [
        f"{rank}→{peer}"
        for (rank, peer), count in sorted(run.traffic.p2p.items())
        for _ in range(count.times)
    ]
    collectives = sorted({name for _, name in run.traffic.collective})
    kept = all(_is(a, b) for a, b in zip(inputs, after, strict=True))
    return {
        "gave": list(returned),
        "sent": " ".join(sent + collectives) or "nothing",
        "kept": kept,  # its input as it was
    }


def _call(answer: Answer, x: Any) -> tuple[Any, Any]:
    """On a rank: what the answer returns, and what it left of its input."""
    return answer(x), x


def _expected(returned: list[Any]) -> Observed:
    n = len(returned)
    ring = " ".join(f"{rank}→{(rank + 1) % n}" for rank in range(n))
    return {"gave": returned, "sent": ring if n > 1 else "nothing", "kept": True}


@exercise("token_ring", lab="00", points=2)
def token_ring(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """A token goes once around the ring and comes back changed by every rank."""
    import torch

    for world_size, length, dtype in (
        (2, 1, torch.float32),
        (4, 1, torch.float32),
        (3, 5, torch.int64),
        (1, 2, torch.float32),
    ):
        token = torch.tensor([rng.randrange(100) for _ in range(length)], dtype=dtype)
        total = sum(range(1, world_size + 1))
        passed_on = [token + sum(range(1, rank + 2)) for rank in range(world_size)]
        yield Case(
            _title(world_size, length, dtype),
            observe=partial(observe, answer, world_size, [token] * world_size),
            expect=_expected([token + total, *passed_on[1:]]),
            hint=partial(_token_hint, n=world_size, token=token),
        )


def _token_hint(seen: Observed, n: int, token: Any) -> str | None:
    if "error" in seen:
        return _waiting_hint(seen["error"], n)
    first, *others = seen["gave"]
    if (general := _ring_hint(seen, n, "token")) is not None:
        return general
    if n > 1 and seen["sent"].count("→") == n - 1:
        return "The last rank must send the token back to rank 0, and rank 0 must receive it."
    if _is(seen["gave"][-1], token + sum(range(n))):
        return "Each rank adds its rank + 1: rank 0 adds 1, so that it too leaves a mark."
    if n > 1 and _is(first, token + 1):
        return "Rank 0 returns what it sent. It must receive once more, at the end, from the last."
    if n > 1 and _is(first, token + sum(range(1, n + 1)) + 1):
        return "Rank 0 adds to the token twice. It only starts, and in the end only receives."
    if any(_is(each, token + rank + 1) for rank, each in enumerate(others, 1)):
        return "A rank passes on its own copy of the token, not the one that it received."
    return None


@exercise("who_waits", lab="00", points=2)
def who_waits(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Every rank sends to the right and receives from the left, and none waits for ever."""
    import torch

    for world_size, length, dtype in (
        (2, 1, torch.float32),
        (4, 3, torch.int64),
        (3, 1, torch.float64),
        (3, 9_999, torch.float32),
        (1, 2, torch.float32),
    ):
        first = rng.randrange(100)
        inputs = [torch.full((length,), first + rank, dtype=dtype) for rank in range(world_size)]
        yield Case(
            _title(world_size, length, dtype),
            observe=partial(observe, answer, world_size, inputs),
            expect=_expected([inputs[rank - 1] for rank in range(world_size)]),
            hint=partial(_shift_hint, n=world_size, inputs=inputs),
        )


def _shift_hint(seen: Observed, n: int, inputs: list[Any]) -> str | None:
    if "error" in seen:
        return _waiting_hint(seen["error"], n)
    if (general := _ring_hint(seen, n, "x")) is not None:
        return general
    if n > 1 and all(_is(each, x) for each, x in zip(seen["gave"], inputs, strict=True)):
        return "Every rank returns its own x. Return the tensor that you received into."
    if n > 1 and seen["sent"].count("→") < n:
        return "Not every rank sends: the ring is closed, the last rank sends to rank 0."
    return None


def _ring_hint(seen: Observed, n: int, name: str) -> str | None:
    """What goes wrong in any ring: the input, a collective, the direction, a hub."""
    sent = seen["sent"].split()
    if not seen["kept"]:
        return f"The tensor {name} that you were given has changed: work on {name}.clone()."
    if seen["sent"] != "nothing" and not all("→" in each for each in sent):
        return f"Use dist.send and dist.recv only: {sent[-1]} hides who talks to whom."
    if n > 2 and sorted(sent) == sorted(f"{rank}→{(rank - 1) % n}" for rank in range(n)):
        return "It goes the wrong way round: rank r sends to (r + 1) % world_size."
    if n > 2 and any(each not in _expected([None] * n)["sent"].split() for each in sent):
        return "A rank sends to one that is not its neighbour: rank r to (r + 1) % world_size only."
    return None


def _waiting_hint(error: Any, n: int) -> str | None:
    """For an answer that raised; mostly it waits for ever."""
    text = " ".join(str(error).split())  # its lines are wrapped
    if n == 1 and any(call in text for call in ("send", "recv")):
        return "With one rank there is nobody to send to: the neighbour of rank 0 is rank 0 itself."
    if not isinstance(error, Deadlock):
        return None
    if "have returned" in text or "has returned" in text:
        return "A rank has returned, and another still waits for it: count the sends and the recvs."
    if "receive before they send" in text:
        return "All ranks wait in recv. One of them has to send first, to set the ring going."
    if "wait in send" in text:
        return "All ranks wait in send. Let some receive first: the odd ones, for example."
    return "Draw an arrow from each rank to the one it waits for, and look for the circle."


def _is(a: Any, b: Any) -> bool:
    import torch

    return isinstance(a, torch.Tensor) and a.shape == b.shape and bool(torch.equal(a, b))


def _title(world_size: int, length: int, dtype: Any) -> str:
    ranks = count(world_size, "rank")
    return f"{ranks}, {str(dtype).removeprefix('torch.')}[{length}]"
