"""The rank's connection to the timekeeper.

It reports operations, asks questions, and passes each answer to the waiting thread. The main thread
has a connection of its own. The other threads share a second connection, which a thread of ddpkit
reads. Each answer on this connection names the thread for which it is.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.connection import Connection

from ddpkit.protocol.emulation import (
    CHANGE,
    MAIN,
    TURN,
    After,
    Ask,
    AskTimes,
    DeviceTimes,
    Due,
    Follow,
    Found,
    Left,
    Request,
    Source,
    StoreUsed,
    TimesOf,
)


class Desk:
    """Tells the timekeeper of this rank's actions, and asks it for the ends of the rank's waits."""

    def __init__(self, main: Connection, others: Connection) -> None:
        self._main, self._others = main, others
        self._main_thread = threading.main_thread().ident
        self._lock = threading.Lock()
        self._answers: dict[int, queue.SimpleQueue[Due]] = {}
        self._reader: threading.Thread | None = None
        self._starting = threading.Lock()  # the start of a thread may `tell` the timekeeper
        self._actors, self._questions = count(MAIN + 1), count(1)
        self.numbers = count(1)  # numbers for operations
        self.before_ask: Callable[[], None] = lambda: None  # sends a device's launches
        self.learn: Callable[[TimesOf], None] = lambda times: None  # called with a device's times
        self._from_anybody: dict[int, Callable[[int], None]] = {}  # called with a receive's source

    def tell(self, request: Request) -> None:
        """Send a request to the timekeeper.

        Call this method before the thread's clock runs again.
        """
        if threading.get_ident() == self._main_thread:
            self._main.send(request)
        else:
            with self._lock:
                self._others.send(request)

    def ask(
        self, after: After, ns: int, limit_ns: int | None = None, *, posted: bool = False
    ) -> Due:
        """Wait until the end of the operations `after` is known, or `limit_ns` has passed.

        Return the timekeeper's answer.

        posted  True to ask for the time at which all members had posted, in place of the end
        """
        with self._actor() as actor:
            ask = Ask(actor, after, ns, limit_ns, next(self._questions), posted=posted)
            return self._ask(ask)

    @contextmanager
    def turn_at_store(self, ns: int, *, changes: bool) -> Iterator[int]:
        """A block in which this thread has its turn at a store; yields the turn's time, in ns.

        The time is `ns`, or later if the turn has come later.
        """
        with self._actor() as actor:
            due = self._ask(Ask(actor, (), ns, ns, next(self._questions), TURN))
            now_ns = max(ns, due.now_ns)
            try:
                yield now_ns
            finally:
                self.tell(StoreUsed(actor, now_ns, changes))

    def ask_for_change(
        self, ns: int, limit_ns: int | None, is_there: Callable[[], bool], look: float
    ) -> Due:
        """Wait until a store is changed, or until `limit_ns`; return the time of the change.

        Every ``look`` real seconds the rank calls `is_there`, to find a change that no rank has
        reported.
        """
        with self._actor() as actor:
            ask = Ask(actor, (), ns, limit_ns, next(self._questions), CHANGE)
            return self._ask(ask, is_there, look)

    @contextmanager
    def _actor(self) -> Iterator[int]:
        """Yield this thread's number at the timekeeper: MAIN, or a new number for this block."""
        if threading.get_ident() == self._main_thread:
            yield MAIN
            return
        actor = next(self._actors)
        self._answers[actor] = queue.SimpleQueue()
        self._read_answers()
        try:
            yield actor
        finally:
            del self._answers[actor]
            self.tell(Left(actor))  # now, because the end of a user's thread is not seen

    def _ask(
        self, ask: Ask, is_there: Callable[[], bool] | None = None, look: float = math.inf
    ) -> Due:
        """Send a question, and wait for its answer; call `is_there` every `look` real seconds."""
        self.before_ask()
        self.tell(ask)
        while True:
            answer = self._answer(ask.actor, None if is_there is None else look)
            if answer is not None and answer.question == ask.question:
                # An answer with another number belongs to a wait that a signal's handler has ended.
                return answer
            if answer is None and is_there is not None and is_there():
                self.tell(Found(ask.actor, ask.question))
                is_there = None

    def _answer(self, actor: int, seconds: float | None) -> Due | None:
        """Return the next answer to this thread's `actor`; None after `seconds` without one."""
        if actor != MAIN:
            with suppress(queue.Empty):
                return self._answers[actor].get(timeout=seconds)
            return None
        if seconds is not None and not self._main.poll(seconds):
            return None
        answer: Due = self._main.recv()
        if answer.times:
            self.learn(answer.times)
        return answer

    def ask_times(self) -> DeviceTimes:
        """Ask the timekeeper for the times and the stretches of work of this rank's device.

        Only the main thread may ask.
        """
        self.before_ask()
        question = next(self._questions)
        self._main.send(AskTimes(question))
        while True:
            answer: Due | DeviceTimes = self._main.recv()
            self.learn(answer.times or {})
            if isinstance(answer, DeviceTimes) and answer.question == question:
                return answer

    def when_found(self, number: int, act: Callable[[int], None]) -> None:
        """Call `act` in a thread of ddpkit with the sender's rank, once a receive has a sender."""
        self._from_anybody[number] = act
        self._read_answers()

    def follow(self, number: int) -> int:
        """Announce work that begins when the operation `number` ends; return the work's actor."""
        actor = next(self._actors)
        self.tell(Follow(actor, number))
        return actor

    def left(self, actor: int = MAIN) -> None:
        """Tell the timekeeper that an actor does nothing more.

        The main actor is finished when the rank's function has returned.
        """
        self.tell(Left(actor))

    def close(self) -> None:
        """Close the timekeeper's connections in this process, a forked child of the rank."""
        self._main.close()
        self._others.close()

    def _read_answers(self) -> None:
        with self._starting:
            if self._reader is None:
                self._reader = threading.Thread(
                    target=self._read, name="ddpkit-answers", daemon=True
                )
                self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                answer: Due | Source = self._others.recv()
            except (EOFError, OSError):
                return
            if isinstance(answer, Source):
                self._from_anybody.pop(answer.number)(answer.rank)
            else:
                self._answers[answer.actor].put(answer)
