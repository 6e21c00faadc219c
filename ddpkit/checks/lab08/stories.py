"""Lab 08: stories in which workers send requests to `serve`, in a fixed order.

A story is a text. "v1": worker 1 pulls. "p1": worker 1 pushes. "d1": worker 1 is done. "h1": worker
1 sends only the header of a push. "g1": worker 1 sends the gradient that belongs to its header.
"i1": worker 1 pushes and does not wait for its messages. A worker acts when it receives the token
from the previous worker. A send of gloo ends when the message was received, so the order needs no
clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from ddpkit.checks.lab08.servers import DATA, DONE, HEADER, PULL, PUSH, TOKEN

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

# (worker, number of its pull) -> pushes and DONEs that must come before the answer to this pull
Needs = Mapping[tuple[int, int], int]
Numbers = float | list[float]
REQUESTS = {"v": PULL, "p": PUSH, "h": PUSH, "i": PUSH, "d": DONE}
ASKED_AT_MOST = 10_000


class Spinning(RuntimeError):
    """The error raised if the answer calls may_pull in an endless loop and serves no worker."""


def ramp(value: float, length: int) -> Tensor:
    """Return a gradient with the elements value · (1, 2, 3, ...)."""
    return value * torch.arange(1.0, length + 1)


def number_in(tensor: Tensor) -> Numbers:
    """Return the value of a `ramp`, or of a sum of ramps; for other tensors, return all numbers."""
    numbers = tensor.flatten().tolist()
    alike = all(each == k * numbers[0] for k, each in enumerate(numbers, 1))
    return numbers[0] if alike else numbers


class NotedRule:
    """A rule that records the calls of its methods; its parameters are the sum of all gradients."""

    def __init__(self, length: int, needs: Needs) -> None:
        self.flat, self.needs = torch.zeros(length), needs
        self.events: list[str] = []
        self.gradients: list[Tensor] = []
        self._pulls: dict[int, int] = {}
        self._moved = self._asked = 0

    def may_pull(self, worker: int) -> bool:
        self._asked += 1
        if self._asked > ASKED_AT_MOST:
            raise Spinning(f"may_pull was called {ASKED_AT_MOST} times")
        return self._moved >= self.needs.get((worker, self._pulls.get(worker, 0)), 0)

    def pull(self, worker: int) -> Tensor:
        self.events.append(f"v{worker}")
        self._pulls[worker] = self._pulls.get(worker, 0) + 1
        return self.flat

    def push(self, worker: int, gradient: Tensor) -> None:
        self.events.append(f"p{worker}")
        self.gradients.append(gradient)
        self._moved += 1
        self.flat += gradient

    def done(self, worker: int) -> None:
        self.events.append(f"d{worker}")
        self._moved += 1


class Worker:
    """A worker that acts in a story; each push sends the worker's next gradient."""

    def __init__(self, gradients: Sequence[Tensor]) -> None:
        self._gradients, self._got = iter(gradients), list[Tensor]()
        self._open: list[tuple[dist.Work, Tensor]] = []  # works, with the tensors that they send

    def act(self, what: str) -> None:
        """Send the messages of one action, such as "p" for a push, after all previous messages."""
        self.finish()
        if what in REQUESTS:
            header = torch.tensor([REQUESTS[what]])
            self._post(dist.isend, header, HEADER)
            if what != "i":
                self.finish()
        if what == "v":
            self._got.append(torch.zeros_like(self._length))
            self._post(dist.irecv, self._got[-1], DATA)
        elif what in "pgi":
            self._post(dist.isend, next(self._gradients), DATA)
            if what != "i":
                self.finish()

    def play(self, story: str, length: int) -> list[Numbers]:
        """Run this worker's actions of a story; return `number_in` of each pulled tensor."""
        self._length, me = torch.zeros(length), dist.get_rank()
        events = [(each[0], int(each[1:])) for each in story.split()]
        token = torch.zeros(1)
        for place, (what, worker) in enumerate(events):
            if worker != me:
                continue
            if place and events[place - 1][1] != me:
                dist.recv(token, src=events[place - 1][1], tag=TOKEN)
            self.act(what)
            if place + 1 < len(events) and events[place + 1][1] != me:
                dist.send(token, dst=events[place + 1][1], tag=TOKEN)
        self.finish()
        return [number_in(each) for each in self._got]

    def finish(self) -> None:
        """Wait for all messages under way."""
        for work, _ in self._open:
            work.wait()
        self._open.clear()

    def _post(self, start: Callable[..., Any], tensor: Tensor, tag: int) -> None:
        self._open.append((start(tensor, 0, tag=tag), tensor))


def served(
    answer: Answer,
    story: str,
    workers: Sequence[int],
    length: int,
    needs: Needs,
    mine: Sequence[Tensor],
) -> list[Numbers] | tuple[list[str], list[Numbers], bool]:
    """Run a story; the answer serves on rank 0.

    Rank 0 returns the calls of the rule's methods, the gradients, and True if the answer left the
    list of workers unchanged. A worker returns `number_in` of each tensor of parameters that it
    received.
    """
    rank = dist.get_rank()
    if rank:
        return Worker(mine).play(story, length) if rank in workers else []
    server = NotedRule(length, needs)
    given = list(workers)
    answer(server, length, given)
    gradients = [number_in(gradient) for gradient in server.gradients]
    return server.events, gradients, given == list(workers)


def at_once(
    answer: Answer, workers: Sequence[int], length: int, mine: Sequence[Tensor]
) -> list[Numbers] | tuple[float, list[str]]:
    """Let all workers pull and push at any time, without a fixed order.

    Rank 0 returns the last parameter, which is the sum of all pushes, and the sorted calls of the
    rule.
    """
    if dist.get_rank():
        story = f"v{dist.get_rank()} p{dist.get_rank()} "
        return Worker(mine).play(story * len(mine) + f"d{dist.get_rank()}", length)[:1]
    server = NotedRule(length, {})
    answer(server, length, list(workers))
    return float(server.flat[-1]), sorted(server.events)
