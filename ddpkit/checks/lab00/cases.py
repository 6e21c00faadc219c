"""Lab 00: a token that goes around a ring of ranks, and a shift to the right neighbour.

The check compares the returned tensors and also the messages. A right sum by a hub or by a
collective fails, because the ranks have to form a ring.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import Did, asked, title
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer

# Four ranks come first: with two ranks, several mistakes give the same result.
TOKENS = ((4, 1, "float32"), (2, 1, "float32"), (3, 5, "int64"), (1, 2, "float32"))
SHIFTS = (
    *((2, 1, "float32"), (4, 3, "int64"), (3, 1, "float64")),
    *((3, 9_999, "float32"), (1, 2, "float32")),
)
SEE = {"gave": "returned", "sent": "sent", "kept": "kept"}


def ring(n: int, step: int = 1) -> str:
    """Return the messages of a ring of `n` ranks as text; `step` -1 reverses the direction."""
    return " ".join(f"{rank}→{(rank + step) % n}" for rank in range(n)) if n > 1 else "nothing"


def arrows(s: Seen) -> list[str]:
    """Return the messages that the answer sent, each as "sender→receiver", without collectives."""
    return [each for each in s.sent.split() if "→" in each]


def added(s: Seen) -> list[float]:
    """Return, for each rank, its returned tensor minus the token, as a single number.

    Raises an error if a rank returned no tensor of the token's shape, or added different numbers to
    the token's elements.
    """
    more = [(each - s.token).tolist() for each in s.gave]
    if any(len(set(each)) != 1 for each in more):
        raise ValueError("a rank added different numbers to the token's elements")
    return [each[0] for each in more]


def passed_on(n: int) -> list[int]:
    """Return, for each rank, the sum of all additions to the token when the rank sends it."""
    # in linear time, because a malicious answer may claim a huge n
    return list(accumulate(range(1, n + 1)))


def holds(did: Did) -> list[tuple[int, str]]:
    """Return (sender, text) for each message: its distinct numbers as text, or "" if unknown."""
    sends = (one for one in did.trace.spans if one.is_send)
    return sorted((one.rank, str(one.args.get("holds", ""))) for one in sends)


def carried(token: Tensor, seen: Observed) -> Observed:
    """Replace the observation "hold" by "messages".

    "messages" describes the first message that does not hold the right token. If there is no such
    message, "messages" is "hold the token".
    """
    from ddpkit.rank.group.arguments import numbers

    passed = list(map(numbers, (token + more for more in passed_on(len(seen["gave"])))))
    other = (
        f"{each} from rank {rank}" for rank, each in seen["hold"] if each not in ("", passed[rank])
    )
    told = {name: value for name, value in seen.items() if name != "hold"}
    return {**told, "messages": next(other, "hold the token")}


MISTAKES: dict[str, Callable[[int], list[int]]] = {  # name -> the result of `added` for n ranks
    "adds its rank": lambda n: [sum(range(n)), *(sum(range(rank + 1)) for rank in range(1, n))],
    "others add their rank": lambda n: [
        1 + sum(range(n)),
        *(1 + sum(range(rank + 1)) for rank in range(1, n)),
    ],
    "one each, or its own copy": lambda n: [n, *range(2, n + 1)],
    "returns the received": lambda n: [passed_on(n)[-1], *passed_on(n)[:-1]],
    "returns the sent": passed_on,
    "adds twice": lambda n: [passed_on(n)[-1] + 1, *passed_on(n)[1:]],
}


def only(name: str, s: Seen) -> bool:
    """True if `added` has the values of the mistake `name`, and of no other mistake."""
    seen = added(s)
    return s.n > 1 and [each for each in MISTAKES if MISTAKES[each](s.n) == seen] == [name]


def first_wrong_sum(s: Seen) -> str:
    """Return a sentence about the first rank, in the order of the ring, that has a wrong sum.

    Raises StopIteration if all sums are right.
    """
    right = [passed_on(s.n)[-1], *passed_on(s.n)[1:]]
    seen = added(s)
    rank = next(rank for rank in [*range(1, s.n), 0] if seen[rank] != right[rank])
    parts = " + ".join(map(str, range(1, (rank or s.n - 1) + 2)))
    got = f"the token {'+' if seen[rank] > 0 else '-'} {abs(seen[rank]):g}"
    got = got if seen[rank] else "the token unchanged"
    return f"Rank {rank} returns {got}. The right sum is the token + {right[rank]}: {parts}."


def collectives(s: Seen) -> list[str]:
    """Return the names of the collectives that the answer called, with all barriers first."""
    names = [each for each in s.sent.split() if "→" not in each and each != "nothing"]
    return sorted(names, key=lambda name: name != "barrier")


def no_tensors(s: Seen) -> list[str]:
    """Return the type names of all returned values that are not tensors."""
    return [type(each).__name__ for each in s.gave if not hasattr(each, "new_empty")]


# fmt: off
IN_A_RING = (
    Hint("one rank", lambda s: s.error and s.n == 1 and s.kind in ("to itself", "no such rank"),
         "With one rank there is no second rank to send to: the neighbour of rank 0 is rank 0 "
         "itself. Return without a message."),
    Hint("no such rank", lambda s: s.kind == "no such rank", lambda s:
         f"With {s.n} ranks, no rank has the number that you use. Compute the neighbours with "
         "dist.get_world_size(), not with a fixed number."),
    Hint("has returned", lambda s: s.stuck == "returned",
         "A rank has returned while a second rank still waits for a message from the first. Count "
         "the sends and the recvs of both."),
    Hint("all receive", lambda s: s.stuck == "receive",
         "All ranks wait in recv. One rank has to send first, to start the ring."),
    Hint("all send", lambda s: s.stuck == "send",
         "All ranks wait in send. Let some ranks receive first, for example the odd ranks."),
    Hint("circle", lambda s: s.stuck,
         "Draw an arrow from each rank to the rank for which the first waits, and look for the "
         "circle."),
    Hint("input changed", lambda s: not s.kept,
         lambda s: f"The tensor {s.x} that you were given has changed. Work on {s.x}.clone()."),
    Hint("barrier", lambda s: collectives(s) == ["barrier"],
         "No barrier is needed: when recv returns, the message is already in the tensor."),
    Hint("collective", collectives, lambda s:
         f"Use only dist.send and dist.recv: {collectives(s)[-1]} hides the messages between the "
         "ranks."),
    Hint("sender's number", lambda s: any(type(each) is int and each < s.n for each in s.gave),
         "A rank returns a number. recv writes into the tensor that you pass, and returns the "
         "number of the sender. Do not assign the result of recv."),
    Hint("no tensor", no_tensors,
         lambda s: f"A rank returns a {no_tensors(s)[0]}, not a tensor."),
    Hint("dtype", lambda s: {each.dtype for each in s.gave} != {s.expect["gave"][0].dtype},
         lambda s: f"{s.x} has the dtype {s.expect['gave'][0].dtype}, but a rank returns a "
         "different dtype."),
    Hint("no message", lambda s: s.sent == "nothing" and s.n > 1, lambda s:
         f"No rank has sent a message. With {s.n} ranks, {s.n} messages go round: each rank sends "
         "one message to the rank on its right."),
    Hint("backwards", lambda s: s.n > 2 and sorted(arrows(s)) == sorted(ring(s.n, -1).split()),
         "The messages go round in the wrong direction: rank r has to send to (r + 1) % "
         "world_size."),
    Hint("no neighbour", lambda s: s.n > 2 and not set(arrows(s)) <= set(ring(s.n).split()),
         "A rank sends to a rank that is not its right neighbour. Rank r sends only to (r + 1) % "
         "world_size."),
)
OTHER_MESSAGES = Hint("other messages", lambda s: s.wrong("sent"), lambda s:
                      f"The ranks send {s.sent}. The messages of one round are "
                      f"{s.expect['sent']}.")
TOKEN = (
    *IN_A_RING,
    Hint("never comes back", lambda s: s.n > 1 and sorted(arrows(s)) == ring(s.n).split()[:-1],
         "The last rank must send the token back to rank 0, and rank 0 must receive it."),
    *(Hint(name, partial(only, name), says) for name, says in (
        ("adds its rank",
         "Each rank adds its rank + 1. Rank 0 adds 1, so that rank 0 leaves a mark too."),
        ("others add their rank",
         "Each rank adds its rank + 1. Rank 0 adds 1, but all further ranks add only their rank: "
         "rank 1 has to add 2."),
        ("one each, or its own copy",
         "Rank r returns the token + r + 1. Either each rank adds 1, where rank + 1 is needed; or "
         "each rank adds to its own copy of the token, where the received token is needed."),
        ("returns the received",
         "Rank 0 returns the right token. But each further rank returns the token as received, "
         "where the token as passed on is needed."),
        ("returns the sent",
         "Rank 0 returns the token that rank 0 sent. At the end, rank 0 must receive once more, "
         "from the last rank."),
        ("adds twice",
         "Rank 0 adds to the token twice. Rank 0 adds once, at the start; at the end, rank 0 only "
         "receives."),
    )),
    Hint("not the token", lambda s: not s.wrong("gave") and s.wrong("messages"),
         lambda s: "The returned tensors are right, but the messages do not hold the token: "
         f"{s.messages}. A rank has to send the received token, with its own addition."),
    Hint("wrong sum", say=first_wrong_sum),
    OTHER_MESSAGES,
)
SHIFT = (
    *IN_A_RING,
    Hint("its own x", lambda s: s.n > 1 and same(s.gave, s.inputs),
         "Every rank returns its own x. Return the tensor into which you received."),
    Hint("open ring", lambda s: s.n > 1 and len(arrows(s)) < s.n, lambda s:
         f"{len(arrows(s))} of {s.n} ranks send: {' '.join(arrows(s)) or 'none'}. The ring is "
         "closed only if each rank sends once, and the last rank sends to rank 0."),
    Hint("other numbers", lambda s: s.wrong("gave"),
         "A rank returns a tensor that is not the x of the rank on its left. Send all of x, and "
         "return the received tensor unchanged."),
    OTHER_MESSAGES,
)
# fmt: on


@exercise("token_ring", lab="00", points=2)
def token_ring(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that a token goes once around the ring, and that every rank changes the token."""
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
    """Check that every rank sends right and receives from the left, and that no rank hangs."""
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
