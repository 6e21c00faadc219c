"""Ranks that visit a store at planned times, on a simulated clock.

Each rank is a thread, and only one thread runs at a time. A rank runs until it waits in the store
or sleeps. Then the next rank that can continue runs. If no rank can continue, the clock moves to
the earliest time that a rank waits for. The order of events is the same in every run, and a minute
of waiting takes no real time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from torch.distributed import Store

from ddpkit.checks.shared.store import Kept, fake_store

CLOCKS = ("time", "monotonic", "perf_counter", "sleep")


@dataclass(eq=False)
class Visitor:
    """A rank's thread, and its last wait: for the condition `ready`, or until the time `until`."""

    ready: Callable[[], bool]
    until: float
    floor: threading.Event = field(default_factory=threading.Event)
    left: bool = False


class Room:
    """The simulated clock, and the threads of the ranks, of which only one runs at a time."""

    def __init__(self) -> None:
        self.now, self.people = 0.0, dict[int, Visitor]()

    @property
    def me(self) -> Visitor | None:
        return self.people.get(threading.get_ident())

    def wait(self, until: float, ready: Callable[[], bool] = lambda: False) -> bool:
        """Let other ranks run until `ready()` is true or the time is `until`; return `ready()`."""
        me = self.people[threading.get_ident()]
        me.ready, me.until = ready, until
        me.floor.clear()
        self.next()
        me.floor.wait()
        return ready()

    def next(self) -> None:
        """Wake the first rank that can continue; if no rank can continue, move the clock."""
        here = [each for each in self.people.values() if not each.left]
        if not here:
            return
        able = [each for each in here if each.ready() or each.until <= self.now]
        if not able:
            able = [min(here, key=lambda each: each.until)]
            self.now = able[0].until
        able[0].floor.set()

    # The clocks that ranks see. All remaining threads of the process keep the real clock.

    def sleep(self, seconds: float) -> None:
        self.wait(self.now + seconds) if self.me else SLEEP(seconds)

    @contextmanager
    def clocks(self) -> Iterator[None]:
        """Patch the clocks in `time`: inside the block, ranks read the simulated time."""
        changed: dict[str, Any] = {"sleep": self.sleep}
        for name in CLOCKS[:-1]:
            real = getattr(time, name)
            changed[name] = lambda real=real: self.now if self.me else real()
        with mock.patch.multiple(time, **changed):
            yield


SLEEP = time.sleep


Visit = tuple[str, float]  # the visit's name, and the seconds since the rank's last visit
End = Callable[[Store, str, int], object]  # (store, name of the visit, rank) -> its result


def meet(
    end: End, plans: Sequence[Sequence[Visit]], store_s: float = 0.0
) -> tuple[list[list[tuple[object, float]]], Kept]:
    """Run all planned visits; return each visit's result and seconds by rank, and the store.

    `end` makes a visit and returns its result. Each reading or writing of the store takes
    `store_s` seconds of simulated time. Raises NotImplementedError if the answer is blank.
    """
    room = Room()
    kept, found = Kept(seconds=store_s), [list[tuple[object, float]]() for _ in plans]
    stores = [fake_store(room, kept) for _ in plans]
    blank: list[NotImplementedError] = []
    all_here = threading.Barrier(len(plans) + 1)

    def live(rank: int) -> None:
        try:
            make_visits(rank)
        except NotImplementedError as error:
            blank.append(error)
        finally:
            room.people[threading.get_ident()].left = True
            room.next()

    def make_visits(rank: int) -> None:
        me = room.people[threading.get_ident()] = Visitor(lambda: True, 0.0)
        all_here.wait()
        me.floor.wait()
        for name, later in plans[rank]:
            room.wait(room.now + later)
            begin = room.now
            ended = end(stores[rank], name, rank)
            found[rank].append((ended, round(room.now - begin, 3)))

    threads = [threading.Thread(target=live, args=(r,), daemon=True) for r in range(len(plans))]
    with room.clocks():
        for thread in threads:
            thread.start()
        all_here.wait()
        room.next()
        for thread in threads:
            thread.join()
    if blank:
        raise blank[0]
    return found, kept
