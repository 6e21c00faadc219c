"""The rank's side of the timekeeper: it posts, asks, and hands answers to the threads that wait.

The main thread has a connection of its own. The other threads share one, which a thread of the
kit's reads: it knows from an answer whose it is.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection

from ddpkit.protocol.emulation import MAIN, After, Ask, Due, Follow, Left, Request, Source


class Desk:
    """Tells the timekeeper what this rank does, and what it waits for."""

    def __init__(self, main: Connection, others: Connection) -> None:
        self._main, self._others = main, others
        self._main_thread = threading.main_thread().ident
        self._lock = threading.Lock()
        self._answers: dict[int, queue.SimpleQueue[Due]] = {}
        self._reader: threading.Thread | None = None
        self._actors, self._questions = count(MAIN + 1), count(1)
        self.numbers = count(1)  # of operations
        self._from_anybody: dict[int, Callable[[int], None]] = {}  # what to do with the source

    def tell(self, request: Request) -> None:
        """Tell of something, before the thread's clock goes on."""
        if threading.get_ident() == self._main_thread:
            self._main.send(request)
        else:
            with self._lock:
                self._others.send(request)

    def ask(self, after: After, ns: int, limit_ns: int | None = None) -> Due:
        """When some operations are done; waits until that is known, or the limit is before it."""
        question = next(self._questions)
        if threading.get_ident() == self._main_thread:
            self._main.send(Ask(MAIN, after, ns, limit_ns, question))
            while True:
                answer: Due = self._main.recv()
                if answer.question == question:  # else of a wait that a signal's handler has ended
                    return answer
        actor = next(self._actors)
        self._answers[actor] = queue.SimpleQueue()
        self._read_answers()
        self.tell(Ask(actor, after, ns, limit_ns, question))
        answer = self._answers[actor].get()
        del self._answers[actor]
        self.tell(Left(actor))  # nobody knows when the user's own thread ends
        return answer

    def when_found(self, number: int, act: Callable[[int], None]) -> None:
        """Call `act`, in a thread of the kit's, with a receive's source once that is known."""
        self._from_anybody[number] = act
        self._read_answers()

    def follow(self, number: int) -> int:
        """Say that something will be done when an operation is; the actor that will have `left`."""
        actor = next(self._actors)
        self.tell(Follow(actor, number))
        return actor

    def left(self, actor: int = MAIN) -> None:
        """Say that an actor does nothing more; the main thread, when the function has returned."""
        self.tell(Left(actor))

    def close(self) -> None:
        """Leave the timekeeper's connections to another process."""
        self._main.close()
        self._others.close()

    def _read_answers(self) -> None:
        with self._lock:
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
