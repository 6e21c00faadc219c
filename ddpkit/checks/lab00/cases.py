"""Lab 00: what a token and a shift around a ring of ranks must do.

Both are judged by what they return and by what they send: the right sum by another way (through a
hub, by a collective) is not a ring.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import Did, asked, title
from ddpkit.protocol.per_rank import PerRank

Answer = Callable[[Any], Any]

# With two ranks several mistakes come to the same: so four come first.
TOKENS = ((4, 1, "float32"), (2, 1, "float32"), (3, 5, "int64"), (1, 2, "float32"))
SHIFTS = (
    *((2, 1, "float32"), (4, 3, "int64"), (3, 1, "float64")),
    *((3, 9_999, "float32"), (1, 2, "float32")),
)
SEE = {"gave": "returned", "sent": "sent", "kept": "kept"}


def ring(n: int, step: int = 1) -> str:
    """The messages of a ring, or of one that goes the wrong way round (`step` -1)."""
    return " ".join(f"{rank}→{(rank + step) % n}" for rank in range(n)) if n > 1 else "nothing"


def arrows(s: Seen) -> list[str]:
    """Who sent to whom, without the collectives."""
    return [each for each in s.sent.split() if "→" in each]


def added(s: Seen) -> list[float]:
    """How much more than the token each rank returns.

    Raises: a rank returns no tensor like the token, or not the same more in each element.
    """
    more = [(each - s.token).tolist() for each in s.gave]
    if any(len(set(each)) != 1 for each in more):
        raise ValueError("a rank added different numbers to the token's elements")
    return [each[0] for each in more]


def passed_on(n: int) -> list[int]:
    """How much more than the token is what each rank passes on."""
    return list(accumulate(range(1, n + 1)))  # n is what a stranger says: no sum for each


def holds(did: Did) -> list[tuple[int, str]]:
    """Who sent a message, and the different numbers in it; "" where that is not known."""
    sends = (one for one in did.trace.spans if one.is_send)
    return sorted((one.rank, str(one.args.get("holds", ""))) for one in sends)


def carried(token: Any, seen: Observed) -> Observed:
    """With the first message that does not hold the token as it has to be there."""
    from ddpkit.rank.group.arguments import numbers

    passed = list(map(numbers, (token + more for more in passed_on(len(seen["gave"])))))
    other = (
        f"{each} from rank {rank}" for rank, each in seen["hold"] if each not in ("", passed[rank])
    )
    told = {name: value for name, value in seen.items() if name != "hold"}
    return {**told, "messages": next(other, "hold the token")}


MISTAKES: dict[str, Callable[[int], list[int]]] = {  # name -> what `added` is then, of n ranks
    "adds its rank": lambda n: [sum(range(n)), *(sum(range(rank + 1)) for rank in range(1, n))],
    "others add their rank": lambda n: [
        1 + sum(range(n)),
        *(1 + sum(range(rank + 1)) for rank in range(1, n)),
    ],
    "one each, or its own copy": lambda n: [n, *range(2, n + 1)],
    "returns what came": lambda n: [passed_on(n)[-1], *passed_on(n)[:-1]],
    "returns what it sent": passed_on,
    "adds twice": lambda n: [passed_on(n)[-1] + 1, *passed_on(n)[1:]],
}


def only(name: str, s: Seen) -> bool:
    """Whether the ranks return what comes of this mistake, and of no other one."""
    seen = added(s)
    return s.n > 1 and [each for each in MISTAKES if MISTAKES[each](s.n) == seen] == [name]


def first_wrong_sum(s: Seen) -> str:
    """A sentence on the first rank, on the token's way, that returns something wrong.

    Raises StopIteration: there is none.
    """
    right = [passed_on(s.n)[-1], *passed_on(s.n)[1:]]
    seen = added(s)
    rank = next(rank for rank in [*range(1, s.n), 0] if seen[rank] != right[rank])
    parts = " + ".join(map(str, range(1, (rank or s.n - 1) + 2)))
    got = f"the token {'+' if seen[rank] > 0 else '-'} {abs(seen[rank]):g}"
    got = got if seen[rank] else "the token as it was"
    return f"Rank {rank} returns {got}. It has to be the token + {right[rank]}: {parts}."


def collectives(s: Seen) -> list[str]:
    """The collectives that the answer called, a barrier first: it hides nothing."""
    names = [each for each in s.sent.split() if "→" not in each and each != "nothing"]
    return sorted(names, key=lambda name: name != "barrier")


def no_tensors(s: Seen) -> list[str]:
    """The types of all returned values that are no tensors."""
    return [type(each).__name__ for each in s.gave if not hasattr(each, "new_empty")]


# fmt: off
IN_A_RING = (
    Hint("one rank", lambda s: s.error and s.n == 1 and s.kind in ("to itself", "no such rank"),
         "With one rank there is nobody to send to: the neighbour of rank 0 is rank 0 itself."),
    Hint("no such rank", lambda s: s.kind == "no such rank", lambda s:
         f"With {s.n} ranks there is no rank of that number: reckon with dist.get_world_size(), "
         "not with a number of your own."),
    Hint("has returned", lambda s: s.stuck == "returned",
         "A rank has returned, and another still waits for it: count the sends and the recvs."),
    Hint("all receive", lambda s: s.stuck == "receive",
         "All ranks wait in recv. One of them has to send first, to set the ring going."),
    Hint("all send", lambda s: s.stuck == "send",
         "All ranks wait in send. Let some receive first: the odd ones, for example."),
    Hint("circle", lambda s: s.stuck,
         "Draw an arrow from each rank to the one it waits for, and look for the circle."),
    Hint("input changed", lambda s: not s.kept,
         lambda s: f"The tensor {s.x} that you were given has changed: work on {s.x}.clone()."),
    Hint("barrier", lambda s: collectives(s) == ["barrier"],
         "No barrier is needed: what a rank receives is there when its recv returns."),
    Hint("collective", collectives, lambda s:
         f"Use dist.send and dist.recv only: {collectives(s)[-1]} hides who talks to whom."),
    Hint("sender's number", lambda s: any(type(each) is int and each < s.n for each in s.gave),
         "A rank returns a number. recv writes into the tensor that it is given, and returns the "
         "number of the sender: do not assign it."),
    Hint("no tensor", no_tensors,
         lambda s: f"A rank returns a {no_tensors(s)[0]}, and not a tensor."),
    Hint("dtype", lambda s: {each.dtype for each in s.gave} != {s.expect["gave"][0].dtype},
         lambda s: f"{s.x} is of {s.expect['gave'][0].dtype}, and a rank returns another dtype."),
    Hint("no message", lambda s: s.sent == "nothing" and s.n > 1, lambda s:
         f"No rank has sent a message. With {s.n} ranks, {s.n} messages go round: each rank sends "
         "one to the rank on its right."),
    Hint("backwards", lambda s: s.n > 2 and sorted(arrows(s)) == sorted(ring(s.n, -1).split()),
         "It goes the wrong way round: rank r sends to (r + 1) % world_size."),
    Hint("no neighbour", lambda s: s.n > 2 and not set(arrows(s)) <= set(ring(s.n).split()),
         "A rank sends to one that is not its neighbour: rank r to (r + 1) % world_size only."),
)
OTHER_MESSAGES = Hint("other messages", lambda s: s.wrong("sent"), lambda s:
                      f"The ranks send {s.sent}; once around the ring is {s.expect['sent']}.")
TOKEN = (
    *IN_A_RING,
    Hint("never comes back", lambda s: s.n > 1 and sorted(arrows(s)) == ring(s.n).split()[:-1],
         "The last rank must send the token back to rank 0, and rank 0 must receive it."),
    *(Hint(name, partial(only, name), says) for name, says in (
        ("adds its rank",
         "Each rank adds its rank + 1: rank 0 adds 1, so that it too leaves a mark."),
        ("others add their rank",
         "Each rank adds its rank + 1. Rank 0 adds 1, but the others add their rank alone: rank 1 "
         "has to add 2."),
        ("one each, or its own copy",
         "Rank r returns the token + r + 1. So either each rank adds 1, and has to add its rank + "
         "1; or it adds to its own copy of the token, and not to the one that it received."),
        ("returns what came",
         "What comes back to rank 0 is right. But any other rank returns what it received, and has "
         "to return what it passed on."),
        ("returns what it sent",
         "Rank 0 returns what it sent. It must receive once more, at the end, from the last."),
        ("adds twice",
         "Rank 0 adds to the token twice. It only starts, and in the end only receives."),
    )),
    Hint("not the token", lambda s: not s.wrong("gave") and s.wrong("messages"),
         lambda s: "What the ranks return is right, but it is not the token that went round: here "
         f"{s.messages}. A rank has to send what it received, and what it has added to it."),
    Hint("wrong sum", say=first_wrong_sum),
    OTHER_MESSAGES,
)
SHIFT = (
    *IN_A_RING,
    Hint("its own x", lambda s: s.n > 1 and same(s.gave, s.inputs),
         "Every rank returns its own x. Return the tensor that you received into."),
    Hint("open ring", lambda s: s.n > 1 and len(arrows(s)) < s.n, lambda s:
         f"{len(arrows(s))} of {s.n} ranks send: {' '.join(arrows(s)) or 'none'}. The ring is "
         "closed: each rank sends once, the last rank to rank 0."),
    Hint("other numbers", lambda s: s.wrong("gave"),
         "What a rank returns is not the x of the rank on its left: send all of x, and return what "
         "came as it came."),
    OTHER_MESSAGES,
)
# fmt: on


@exercise("token_ring", lab="00", points=2)
def token_ring(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """A token goes once around the ring and comes back changed by every rank."""
    import torch

    for n, length, dtype in TOKENS:
        token = torch.tensor(
            [rng.randrange(100) for _ in range(length)], dtype=getattr(torch, dtype)
        )
        gave = [token + more for more in passed_on(n)]
        yield Case(
            title(n, f"{dtype}[{length}]"),
            asked(answer, token, world_size=n, see={**SEE, "hold": holds}),
            {
                "gave": [gave[-1], *gave[1:]],
                "sent": ring(n),
                "kept": True,
                "messages": "hold the token",
            },
            read=partial(carried, token),
            hints=TOKEN,
            given={"n": n, "token": token, "x": "token"},
            trivial=n == 1,
        )


@exercise("who_waits", lab="00", points=2)
def who_waits(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Every rank sends to the right and receives from the left, and none waits for ever."""
    import torch

    for n, length, dtype in SHIFTS:
        rows = [[1000 * r + rng.randrange(1000) for _ in range(length)] for r in range(n)]
        inputs = [torch.tensor(row, dtype=getattr(torch, dtype)) for row in rows]
        yield Case(
            title(n, f"{dtype}[{length}]"),
            asked(answer, PerRank(inputs), world_size=n, see=SEE),
            {"gave": [inputs[rank - 1] for rank in range(n)], "sent": ring(n), "kept": True},
            hints=SHIFT,
            given={"n": n, "inputs": inputs, "x": "x"},
            trivial=n == 1,
        )
