"""Lab 07: ranks with a clock of their own, that come to a store when the check says.

Each rank is a thread, and one of them runs at a time: it has the floor until it waits in the store
or sleeps. Then the next one that can go on has it, and if none can, the clock goes on. So what
happens when is the same in every run, and a minute of waiting takes no time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from torch.distributed import HashStore

from ddpkit.checks.lab07.store import Kept, LooksForEver, fake_store
from ddpkit.exercises.raised import listed

Answer = Callable[..., Any]
CLOCKS = ("time", "monotonic", "perf_counter", "sleep")


@dataclass(eq=False)
class Visitor:
    """A rank: it has the floor, or waits until something is true or a time has come."""

    ready: Callable[[], bool]
    until: float
    floor: threading.Event = field(default_factory=threading.Event)
    left: bool = False


class Room:
    """The clock, and who has the floor."""

    def __init__(self) -> None:
        self.now, self.people = 0.0, dict[int, Visitor]()

    @property
    def me(self) -> Visitor | None:
        return self.people.get(threading.get_ident())

    def wait(self, until: float, ready: Callable[[], bool] = lambda: False) -> bool:
        """Give the floor to others until something is true, or a time has come: whether it is."""
        me = self.people[threading.get_ident()]
        me.ready, me.until = ready, until
        me.floor.clear()
        self.next()
        me.floor.wait()
        return ready()

    def next(self) -> None:
        """Give the floor to the first who can go on; if none can, when the next one's time came."""
        here = [each for each in self.people.values() if not each.left]
        if not here:
            return
        able = [each for each in here if each.ready() or each.until <= self.now]
        if not able:
            able = [min(here, key=lambda each: each.until)]
            self.now = able[0].until
        able[0].floor.set()

    # Clocks of the ranks: those of all other threads of the process stay as they are

    def sleep(self, seconds: float) -> None:
        self.wait(self.now + seconds) if self.me else SLEEP(seconds)

    @contextmanager
    def clocks(self) -> Iterator[None]:
        """Inside, ranks see this room's time."""
        changed: dict[str, Any] = {"sleep": self.sleep}
        for name in CLOCKS[:-1]:
            real = getattr(time, name)
            changed[name] = lambda real=real: self.now if self.me else real()
        with mock.patch.multiple(time, **changed):
            yield


SLEEP = time.sleep


Visit = tuple[str, float]  # the barrier's name, and how long after its last visit a rank comes


def visits(answer: Answer, plans: Sequence[Sequence[Visit]], timeout: float) -> dict[str, Any]:
    """How each visit ended (`_end`) and its seconds, by rank; whether a key was deleted."""
    room = Room()
    kept, found = Kept(), [list[tuple[Any, float]]() for _ in plans]
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
            end = _end(answer, stores[rank], name, rank, len(plans), timeout)
            found[rank].append((end, round(room.now - begin, 3)))

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
    return {
        "ends": [[end for end, _ in of_rank] for of_rank in found],
        "took": [[seconds for _, seconds in of_rank] for of_rank in found],
        "deleted": kept.deleted,
    }


def alone_of(
    answer: Answer, name: str, world_size: int, timeout: float
) -> dict[str, list[list[Any]]]:
    """How rank 0's visit ends in a real store, to which nobody else comes."""
    return {"ends": [[_end(answer, HashStore(), name, 0, world_size, timeout)]]}


def _end(
    answer: Answer, store: Any, name: str, rank: int, world_size: int, timeout: float
) -> list[int] | str:
    """The ranks that the answer's RuntimeError names; "passes", or what else it raised."""
    try:
        answer(store, name, rank, world_size, timeout)
    except LooksForEver:
        return "looks for ever"
    except NotImplementedError:
        raise
    except RuntimeError as error:
        return listed(error)
    except Exception as error:
        return type(error).__name__
    return "passes"
