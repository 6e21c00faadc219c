"""Lab 08: functions on ranks for checks of remote calls.

A message has two parts: a length with tag HEADER, and a pickled value with tag DATA.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from copy import Error as Unlikely  # every process can unpickle a class of the standard library
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ddpkit.checks.lab08.servers import DATA, HEADER, TOKEN
from ddpkit.exercises.raised import named

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

Result = TypeVar("Result")
NO_PAIR = "no pair of a name and arguments"
Arguments = tuple[object, ...]  # the arguments of a call
Asked = tuple[int, str, Arguments]  # (client, name, arguments)


def send(value: object, dst: int) -> None:
    """Send an object: first its length, then its pickled bytes."""
    data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
    dist.send(torch.tensor([len(data)]), dst, tag=HEADER)
    dist.send(data, dst, tag=DATA)


def receive(src: int | None) -> tuple[int, Any]:
    """Receive an object; return the sender and the object."""
    length = torch.zeros(1, dtype=torch.int64)
    source = dist.recv(length, src, tag=HEADER)
    data = torch.zeros(int(length), dtype=torch.uint8)
    dist.recv(data, source, tag=DATA)
    return source, pickle.loads(data.numpy().tobytes())


class Sums:
    """The base class of `Account`; some of the methods that clients call are inherited."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, *numbers: int) -> int:
        self.total += sum(numbers)
        return self.total

    def clear(self) -> None:
        self.total = 0


class Account(Sums):
    """The object on the server; the clients call its methods."""

    def double(self, x: int = 0) -> int:
        return 2 * x

    def fail(self, text: str) -> None:
        raise ValueError(text)

    def problem(self) -> ValueError:
        """Return an exception object without raising it."""
        return ValueError("none")

    def refuse(self, text: str) -> None:
        raise Unlikely(text)

    def shutdown(self) -> str:
        """Return a text; a server that calls this method at a shutdown is wrong."""
        return "closed"


def _in_turn(asked: Sequence[Asked], place: int, act: Callable[[], Result]) -> Result:
    """Run `act` when all earlier calls of the story are over, and return its result.

    The ranks pass a token from call to call.
    """
    token, me = torch.zeros(1), asked[place][0]
    if place and asked[place - 1][0] != me:
        dist.recv(token, src=asked[place - 1][0], tag=TOKEN)
    result = act()
    if place + 1 < len(asked) and asked[place + 1][0] != me:
        dist.send(token, dst=asked[place + 1][0], tag=TOKEN)
    return result


def called(answer: Answer, asked: Sequence[Asked], server: int, strangers: int) -> list[object]:
    """Run a story of calls; return a client's results, or on the server the requests.

    The rank `strangers` first sends the first client a message that answers no call; -1 means that
    there is no such rank.
    """
    me, found = dist.get_rank(), []
    if me == strangers:
        work = dist.isend(torch.tensor([3]), asked[0][0], tag=HEADER)
        dist.send(torch.zeros(1), server, tag=TOKEN)
        dist.recv(torch.zeros(1), asked[0][0], tag=TOKEN + 1)
        assert work is not None
        work.wait()
        return []
    if me == server:
        if strangers >= 0:
            dist.recv(torch.zeros(1), strangers, tag=TOKEN)
        account = Account()
        for client, *_ in asked:
            _, request = receive(client)
            found.append(request)
            send(_answer_of(account, request), client)
        return [_shown(each) for each in found]
    for place, (client, name, arguments) in enumerate(asked):
        if client == me:
            found.append(_in_turn(asked, place, partial(_tried, answer, server, name, arguments)))
    if strangers >= 0 and me == asked[0][0]:
        dist.recv(torch.zeros(1, dtype=torch.int64), strangers, tag=HEADER)
        dist.send(torch.zeros(1), strangers, tag=TOKEN + 1)
    return found


def _answer_of(account: Account, request: Any) -> tuple[str, object]:
    if _shown(request) == NO_PAIR:
        return "ok", None
    try:
        name, arguments = request
        return "ok", getattr(account, name)(*arguments)
    except Exception as error:
        return "raised", error


def _tried(answer: Answer, server: int, name: str, arguments: Arguments) -> object:
    try:
        value = answer(server, name, *arguments)
        return f"returned {_text(value)}" if isinstance(value, Exception) else value
    except (ValueError, Unlikely) as error:
        kind, said = type(error).__name__, named(error, map(str, arguments))
        return f"raised {kind}: {', '.join(said)}"


def _shown(request: object) -> list[object] | str:
    """Return a request as [name, [arguments]]; return NO_PAIR if the request has another form."""
    if isinstance(request, tuple) and len(request) == 2 and isinstance(request[1], tuple | list):
        return [request[0], list(request[1])]
    return NO_PAIR


def served_calls(answer: Answer, asked: Sequence[Asked], clients: Sequence[int]) -> object:
    """Run a story of calls; the answer serves on rank 0.

    Rank 0 returns the account's total, and True if the answer left the list of clients unchanged.
    Clients call in the order of the story, and return the results that they received.
    """
    me, found = dist.get_rank(), []
    if not me:
        account, given = Account(), list(clients)
        answer(account, given)
        return account.total, given == list(clients)
    for place, (client, name, arguments) in enumerate(asked):
        if client == me:
            found.append(_in_turn(asked, place, partial(_exchange, name, arguments)))
    return found


def _exchange(name: str, arguments: Arguments) -> list[object]:
    send((name, arguments), 0)
    kind, value = receive(0)[1]
    return [kind, _text(value) if isinstance(value, Exception) else value]


def _text(value: Exception) -> str:
    return f"{type(value).__name__}: {value}"


def fetched(
    answer: Any, table: Tensor, batches: Sequence[tuple[Tensor, Tensor]], server: int
) -> list[list[object]] | tuple[Tensor, float]:
    """Fetch rows on a trainer and run backward through them; the server returns the requests.

    A trainer returns the rows and the size of the anchor's gradient. A batch is a pair of ids and
    weights. The loss is the weighted sum of the squares of all batches' rows.
    """
    if dist.get_rank() == server:
        told: list[list[object]] = []
        while True:
            client, (name, arguments) = receive(None)
            if name == "over":
                return sorted(told, key=_rows_first)
            told.append([name, [each.tolist() for each in arguments if torch.is_tensor(each)]])
            told[-1].append([str(each.dtype) for each in arguments if torch.is_tensor(each)][:1])
            send(("ok", table[arguments[0].long()] if name == "rows" else None), client)
    anchor = torch.full((1,), 3.0, requires_grad=True)
    try:
        rows = [answer.apply(anchor, ids, server) for ids, _ in batches]
        got = torch.cat([each.detach() for each in rows])
        losses: list[Any] = [
            (r.square() * w).sum() for r, (_, w) in zip(rows, batches, strict=True)
        ]
        sum(losses[1:], losses[0]).backward()
        of_anchor = 0.0 if anchor.grad is None else float(anchor.grad.abs().sum())
    finally:
        send(("over", ()), server)
    return got, of_anchor


def _rows_first(call: list[object]) -> tuple[bool, str]:
    """Return a sort key for calls: autograd may visit the batches in any order."""
    return call[0] != "rows", str(call[1])
