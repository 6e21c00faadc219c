"""Two emulated times of lab 19, computed by hand: a ring over two hosts, and rollouts."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, busy

pytestmark = pytest.mark.processes

ALPHA, BETA = 0.05, 1.25e6  # ms, and bytes per ms: "10 Gbit/s, 50 us"
ASKED, ANSWERED = 4000, 12  # bytes of a request and of an answer
RANKS, STEPS, BATCH = 9, 10, 8


def test_a_ring_over_two_hosts_waits_once_for_the_shared_link() -> None:
    link: Any = {"hosts of": 2, "inside": "100 Gbit/s, 5 us", "between": "1 Gbit/s, 20 ms"}
    run = Cluster(4, link=link, speed=math.inf).run(lambda: dist.all_reduce(torch.ones(75658)))
    part = 75658  # bytes: a quarter of the tensor
    crossing, inside = part / 125e3, part / 12.5e6  # ms
    # A part crosses between the hosts three times in six rounds. At the start two parts need a
    # host's link: the part from inside waits until the link has carried the earlier part.
    waits = crossing - (0.005 + inside)
    due = 3 * (20 + crossing) + 3 * (0.005 + inside) + waits
    assert run.trace.duration_ms == pytest.approx(due, abs=1e-3)


@pytest.mark.parametrize("bound", [0, 2])
def test_rollouts_take_the_time_of_an_event_loop(bound: int) -> None:
    def work() -> float:
        if dist.get_rank():
            generate()
            return 0.0
        began = time.perf_counter()
        free = train(bound)
        ended = time.perf_counter()
        while len(free) < RANKS - 1:
            free.append(dist.recv(torch.empty(3)))
        for rank in free:
            dist.send(torch.full((1000,), -1.0), rank)
        return 1e3 * (ended - began)

    run = Cluster(RANKS, link="10 Gbit/s, 50 us", speed=math.inf).run(work)
    assert run.results[0] == pytest.approx(by_events(bound), abs=1e-3)


def generate() -> None:
    drawn, x = random.Random(dist.get_rank()).paretovariate, torch.empty(1000)
    while dist.recv(x, 0) == 0 and x[0] >= 0:
        busy(f"{10 * drawn(1.5)} ms")
        dist.send(torch.tensor([x[1].item(), x[0].item(), 0.0]), 0)


def train(bound: int) -> list[int]:
    free, there = list(range(1, RANKS)), set[int]()
    version = asked = 0
    while version < STEPS:
        while free and asked // BATCH - version <= bound:
            dist.send(torch.tensor([version, asked] + [0.0] * 998), free.pop(0))
            asked += 1
        answer = torch.empty(3)
        free.append(dist.recv(answer))
        there.add(int(answer[0]))
        if there.issuperset(range(version * BATCH, (version + 1) * BATCH)):
            busy("20 ms")
            version += 1
    return free


def by_events(bound: int) -> float:
    """Return the ms until the last step, by the rule for a message (docs/emulation.md)."""
    draw: dict[int, Any] = {r: random.Random(r).paretovariate for r in range(1, RANKS)}
    now, side_free, version, asked = 0.0, 0.0, 0, 0
    free, there, waits_since = list(draw), set[int](), dict.fromkeys(draw, 0.0)
    answers: dict[int, tuple[float, int]] = {}  # rank: moment of the send, number
    while version < STEPS:
        while free and asked // BATCH - version <= bound:
            rank = free.pop(0)
            leaves = max(now, waits_since[rank] - ALPHA, side_free)
            side_free = leaves + ASKED / BETA
            answers[rank] = side_free + ALPHA + 10 * draw[rank](1.5), asked
            now, asked = max(side_free, waits_since[rank]), asked + 1
        awaited = now
        rank = min(answers, key=lambda r: (max(answers[r][0], awaited - ALPHA), answers[r][0]))
        sent, number = answers.pop(rank)
        leaves = max(sent, awaited - ALPHA)
        now = max(leaves + ALPHA, awaited) + ANSWERED / BETA
        waits_since[rank] = max(leaves + ANSWERED / BETA, awaited)
        free.append(rank)
        there.add(number)
        if there.issuperset(range(version * BATCH, (version + 1) * BATCH)):
            now, version = now + 20, version + 1
    return now
