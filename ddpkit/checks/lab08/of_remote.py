"""Lab 08: the cases of remote calls, and the hints about them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab08.hints import is_case
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import Did, asked
from ddpkit.exercises.values import Between, Close

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

Call = tuple[int, str, tuple[Any, ...]]  # client, name, arguments
Said = tuple[int, list[Any]]  # client, [kind of the answer, value]
LENGTH = 8  # bytes of a message's header
MOST_OF_A_MESSAGE = 4096  # bytes of a message, at most


def of_ranks(ranks: Sequence[int], did: Did) -> list[object]:
    """Return the values that the given ranks returned."""
    return [did.returned[rank] for rank in ranks]


def of_rank(rank: int, did: Did) -> object:
    """Return the value that the given rank returned."""
    return did.returned[rank]


KINDS = ("ok", "raised")  # the first value of an answer


def pairs(s: Seen) -> bool:
    """True if an answer's call returned the pair ("ok", value) in the place of the value.

    The pair ("raised", exception) also counts.
    """
    values = (each for of_client in s.got for each in of_client)
    return any(
        isinstance(each, tuple | list) and each and isinstance(each[0], str) and each[0] in KINDS
        for each in values
    )


def mistaken(s: Seen) -> list[tuple[object, object]]:
    """Return pairs of a call's result and the right result, for the calls with wrong results."""
    calls = (zip(*both, strict=True) for both in zip(s.got, s.expect["got"], strict=True))
    return [(got, wanted) for of_one in calls for got, wanted in of_one if not same(got, wanted)]


def raises(value: object) -> bool:
    """True if the value is the text that stands for a raised exception."""
    return str(value).startswith("raised ")


# fmt: off
CALLED = (
    Hint("another server", lambda s: s.server != 0 and (s.error or s.wrong()),
         lambda s: f"Here rank {s.server} serves, not rank 0. `server` is the rank to call."),
    Hint("from anybody", lambda s: is_case(s, "stranger") and (s.error or s.wrong("got")),
         "A message from a different rank arrived first, and you took it for the answer. Receive "
         "from the server by name."),
    Hint("no answer taken", lambda s: s.stuck,
         "The server answers each call. Call send_bytes with the request, and recv_bytes(server) "
         "for the answer."),
    Hint("the pair", lambda s: s.error is None and pairs(s),
         'The answer is a pair, ("ok", value) or ("raised", exception). Return only the value.'),
    Hint("no pair", lambda s: any("no pair" in str(each) for each in s.asked),
         "A request is a pair: the name, and a tuple of all arguments."),
    Hint("other request", lambda s: s.wrong("asked"),
         "The server got a request other than (name, args)."),
    Hint("nothing for 0", lambda s: mistaken(s) == [(None, 0)],
         "The remote function returns 0, but your call returns None. 0 is a value like any "
         "number."),
    Hint("returned, not raised", lambda s: is_case(s, "None")
         and any(raises(got) for got, _ in mistaken(s)),
         "The remote function has returned an exception, and has not raised it. The first element "
         "of the pair tells the difference."),
    Hint("another class", lambda s: all(raises(got) and raises(wanted)
         for got, wanted in mistaken(s)) and s.wrong("got"),
         "You raise an exception of a different class than the remote function."),
    Hint("not raised", lambda s: is_case(s, "fails") and s.wrong("got"),
         "The remote function has failed. Raise its exception here."),
    Hint("other value", lambda s: s.wrong("got"),
         "call returns the result of the remote function."),
)
SERVING = (
    Hint("dies", lambda s: s.raised == "ValueError" and is_case(s, "fails"),
         'The function has raised, and its exception has ended the server. Send ("raised", error), '
         "and continue."),
    Hint("dies of another", lambda s: s.raised == "Error",
         "The server survives a ValueError, but not an exception of a different class. Send every "
         "exception to the caller, and continue."),
    Hint("no such method", lambda s: s.raised == "AttributeError" and is_case(s, "no such"),
         "A client has called a method that the object does not have, and the AttributeError has "
         "ended the server. Every call gets an answer: look for the method inside of `try`."),
    Hint("shutdown unanswered", lambda s: s.stuck and is_case(s, "1 client"),
         'Each call gets an answer, and so does "shutdown": ("ok", None).'),
    Hint("first shutdown", lambda s: s.stuck == "returned" and is_case(s, "in turn"),
         "The server ends with the first shutdown. It must end when every client has called "
         "shutdown."),
    Hint("certain client", lambda s: s.stuck and is_case(s, "three times"),
         "The server waits for a particular client, while a different client has sent. "
         "recv_bytes() receives from any client, and returns the sender."),
    Hint("None unanswered", lambda s: s.stuck and is_case(s, "None"),
         "A function that returns None has also ended, and its caller waits for the answer."),
    Hint("nobody is answered", lambda s: s.stuck, "A client waits for an answer that never "
    "comes."),
    Hint("an ok error", lambda s: is_case(s, "fails") and s.wrong("got"),
         'An exception is not a result. The answer is ("raised", error).'),
    Hint("other total", lambda s: s.wrong("total"),
         "The server called the function a wrong number of times, or with wrong arguments."),
    Hint("other answer", lambda s: s.wrong("got"),
         'The answer to a call is ("ok", result of the function).'),
    Hint("caller's list", lambda s: not s["list as it was"],
         "`clients` is the caller's list, and you have changed it. Work on a copy, set(clients)."),
)
FETCHED = (
    Hint("too few", lambda s: s.raised == "RuntimeError" and s.kind == "gradient count",
         "backward returns one gradient for each argument of forward: None, None, None."),
    Hint("cut off", lambda s: s.kind == "no graph",
         "The rows have no graph. forward must return the server's rows, which autograd joins to "
         "the anchor. Do not detach them, and pass the anchor in."),
    Hint("no answer read", lambda s: s.stuck,
         "A rank waits. Each call gets one answer, and your code must receive the answer."),
    Hint("whole table", lambda s: s.calls and s.calls[0][0] == "rows"
         and len(s.calls[0][1][0]) > len(s.ids),
         lambda s: f"You ask for {len(s.calls[0][1][0])} rows, but the batch needs only "
         f"{len(s.ids)}."),
    Hint("swapped", lambda s: any(name == "add_gradient" and kinds != ["torch.int64"]
                                  and len(tensors) == 2 and tensors[1] in s.all_ids
                                  for name, tensors, kinds in s.calls),
         "The ids come first: add_gradient(ids, gradient)."),
    Hint("float ids", lambda s: any(kinds and kinds != ["torch.int64"] for *_, kinds in s.calls),
         "The ids are int64. Send them unchanged."),
    Hint("other rows", lambda s: s.wrong("rows"), "forward must return the rows that the server "
    "gave."),
    Hint("no gradient", lambda s: all(name == "rows" for name, *_ in s.calls),
         'The gradient never reached the server. backward must call "add_gradient".'),
    Hint("gradient twice",
         lambda s: sum(name == "add_gradient" for name, *_ in s.calls) > s.batches,
         "The server got the gradient more than once, but the server adds up all gradients."),
    Hint("duplicates lost", lambda s: len(s.ids) != len(set(s.ids))
         and [len(each) for each in s.calls[-1][1]] != [len(s.ids)] * 2,
         "An id may be twice in a batch. Send all ids, and a gradient for each id, in their "
         "order."),
    Hint("one for both", lambda s: s.batches == 2 and sum(each == s.calls[-1][1][0]
         for each in (call[1][0] for call in s.calls if call[0] == "add_gradient")) == 2,
         "Rows were fetched twice before one backward, and both gradients came with the ids of one "
         "fetch. Keep the data for backward separately for each `apply`."),
    Hint("other gradient", lambda s: s.wrong("gradients"),
         "The server got a gradient other than the gradient passed to backward."),
    Hint("the anchor", lambda s: s.wrong("anchor"),
         "The anchor has got a gradient, but the loss does not depend on the anchor. Return None "
         "for the anchor."),
    Hint("other calls", lambda s: s.wrong("calls"),
         'Make two calls: "rows" with the ids, and in backward "add_gradient" with ids and '
         "gradient."),
)
# fmt: on

# about; ranks; stranger's rank, or -1; calls: (client, name, arguments)
CALLS: tuple[tuple[str, int, int, list[Call]], ...] = (
    ("a number", 2, -1, [(1, "add", (2, 3)), (1, "add", (4,)), (1, "double", (0,))]),
    ("None, and no arguments", 2, -1, [(1, "add", (7,)), (1, "clear", ()), (1, "problem", ()),
                                       (1, "add", (1,))]),
    ("one that fails, and another", 2, -1, [(1, "fail", ("no money",)), (1, "add", (5,)),
                                            (1, "refuse", ("too late",))]),
    ("2 clients", 3, -1, [(1, "add", (1,)), (2, "add", (2,)), (1, "add", (3,))]),
    ("a stranger's message is there first", 3, 2, [(1, "add", (6,))]),
    ("the server is rank 1", 2, -1, [(0, "add", (2, 5)), (0, "double", (4,)), (0, "add", (1,))]),
)  # fmt: skip


def call_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield cases with one or two clients, and with a message from a third rank to a client."""
    from ddpkit.checks.lab08.remote import called

    for about, n, stranger, plot in CALLS:
        story, clients, _, got = _drawn(plot, rng)
        server = int(clients == [0])
        yield Case(
            about,
            asked(
                partial(called, answer),
                story,
                server,
                stranger,
                world_size=n,
                see={
                    "asked": partial(of_rank, server),
                    "got": partial(of_ranks, clients),
                    "handed in": "handed_in",
                },
            ),
            {
                "asked": [[name, list(arguments)] for _, name, arguments in story],
                "got": [
                    [
                        value if kind == "ok" else f"raised {value}"
                        for client, (kind, value) in got
                        if client == each
                    ]
                    for each in clients
                ],
                "handed in": [
                    _messages([name for client, name, _ in story if client == rank], len(story))
                    for rank in range(n)
                ],
            },
            hints=CALLED,
            given={"about": about, "server": server},
        )


def _messages(words: Sequence[str], calls: int) -> Between:
    """Return the range of bytes of messages with these words, each with a header and data."""
    least = sum(LENGTH + len(word) for word in words)
    return Between(least, MOST_OF_A_MESSAGE * (calls + 1))


RAISE = {"fail": "ValueError", "refuse": "Error"}  # function -> class of its exception
NO_METHOD = "AttributeError: 'Account' object has no attribute 'lose'"


def _drawn(
    plot: Sequence[Call], rng: random.Random
) -> tuple[list[Call], list[int], int, list[Said]]:
    """Draw the numbers in a story of remote calls.

    Return the story, its clients, the account's final total, and the result of each call.
    """
    story, total, got = [], 0, list[Said]()
    for client, name, arguments in plot:
        if name == "add":
            arguments = tuple(rng.randrange(1, 1000) for _ in arguments)
            total += sum(arguments)
        total *= name != "clear"
        story.append((client, name, arguments))
        value = f"{RAISE[name]}: {arguments[0]}" if name in RAISE else None
        value = NO_METHOD if name == "lose" else value
        double = 2 * sum(arguments) if name == "double" else 0
        values = {"add": total, "double": double, "problem": "returned ValueError: none"}
        got.append((client, ["raised", value] if value else ["ok", values.get(name)]))
    return story, sorted({client for client, *_ in story}), total, got


BYE: tuple[()] = ()
SERVINGS: tuple[tuple[str, list[Call]], ...] = (
    ("1 client", [(1, "add", (2, 3)), (1, "shutdown", BYE)]),
    ("2 clients, in turn", [(1, "add", (2,)), (2, "add", (3,)), (1, "shutdown", BYE),
                            (2, "shutdown", BYE)]),
    ("one comes three times", [(2, "add", (2,)), (2, "add", (4,)), (2, "shutdown", BYE),
                               (1, "add", (9,)), (1, "shutdown", BYE)]),
    ("one that returns None", [(1, "add", (2,)), (1, "clear", BYE), (1, "add", (4,)),
                               (1, "shutdown", BYE)]),
    ("one that fails, and another", [(1, "add", (2,)), (1, "fail", ("no",)), (2, "add", (3,)),
                                     (1, "refuse", ("too late",)), (1, "shutdown", BYE),
                                     (2, "add", (5,)), (2, "shutdown", BYE)]),
    ("no such method", [(1, "lose", BYE), (1, "add", (2,)), (1, "shutdown", BYE)]),
    ("3 clients", [(1, "shutdown", BYE), (3, "add", (2,)), (3, "shutdown", BYE),
                   (2, "add", (4,)), (2, "shutdown", BYE)]),
)  # fmt: skip


def serve_calls_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield stories of remote calls; the clients call in a fixed order."""
    from ddpkit.checks.lab08.remote import served_calls

    for about, plot in SERVINGS:
        story, clients, total, got = _drawn(plot, rng)
        yield Case(
            about,
            asked(
                partial(served_calls, answer),
                story,
                clients,
                world_size=len(clients) + 1,
                see={
                    "total": lambda did: did.returned[0][0],
                    "got": partial(of_ranks, clients),
                    "list as it was": lambda did: did.returned[0][1],
                    "handed in": lambda did: did.handed_in[:1],
                },
            ),
            {
                "total": total,
                "got": [[answer for client, answer in got if client == each] for each in clients],
                "list as it was": True,
                "handed in": [_messages([answer[0] for _, answer in got], len(got))],
            },
            hints=SERVING,
            given={"about": about},
        )


def rows_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield cases with rows of a remote table and their gradient; the last has two batches."""
    import torch

    from ddpkit.checks.lab08.remote import fetched

    two = rng.sample(range(10), 8)
    for about, server, batches in (
        ("3 rows of 10", 0, [rng.sample(range(10), 3)]),
        ("one row twice", 0, [[4, 1, 4]]),
        ("the server is rank 1", 1, sorted([two[:4], two[4:]], key=str)),
    ):
        table = torch.arange(20.0).reshape(10, 2) + rng.randrange(1, 9)
        weights = [torch.tensor([[float(rng.randrange(1, 5))] for _ in ids]) for ids in batches]
        gradients = [2 * table[i] * w for i, w in zip(batches, weights, strict=True)]
        asked_for = [["rows", [ids], ["torch.int64"]] for ids in batches]
        sent = [
            ["add_gradient", [ids, gradient.tolist()], ["torch.int64"]]
            for ids, gradient in zip(batches, gradients, strict=True)
        ]
        yield Case(
            about,
            asked(
                partial(fetched, answer, table),
                [(torch.tensor(i), w) for i, w in zip(batches, weights, strict=True)],
                server,
                world_size=2,
                see={
                    "rows": partial(_of_trainer, 1 - server, 0),
                    "anchor": partial(_of_trainer, 1 - server, 1),
                    "calls": partial(of_rank, server),
                    "gradients": partial(_gradients, server),
                },
            ),
            {
                "rows": torch.cat([table[ids] for ids in batches]),
                "anchor": 0.0,
                "calls": [*asked_for, *sent],
                "gradients": Close([gradient.tolist() for gradient in gradients]),
            },
            hints=FETCHED,
            given={"ids": batches[0], "all_ids": batches, "batches": len(batches)},
        )


def _of_trainer(trainer: int, place: int, did: Did) -> object:
    """Return the element `place` of the trainer's result: the rows, or the anchor's gradient."""
    return did.returned[trainer][place]


def _gradients(server: int, did: Did) -> list[object]:
    """Return the gradients that the server received."""
    return [each[1][-1] for each in did.returned[server] if each[0] == "add_gradient" and each[1]]
