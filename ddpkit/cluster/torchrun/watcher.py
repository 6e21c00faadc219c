"""Rank 0 watches over a job that torchrun started: it ends the job that has failed, and says why.

On one's own machine the launcher reads the ranks' black boxes and kills the ranks. Here the ranks
may sit on other hosts, and torchrun has started them. So each tells rank 0 what its black box holds
(`messenger`), and rank 0 looks at all of them (`Watcher`). When it has explained a failure it
leaves; with it all connections end, and with its connection each rank. torchrun adds a report of
its own.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from ddpkit.cluster import stopped
from ddpkit.cluster.blame import blame, patience
from ddpkit.cluster.local.request import Request
from ddpkit.cluster.local.run import LOOK
from ddpkit.cluster.monitor import Monitor
from ddpkit.cluster.torchrun import connections
from ddpkit.cluster.torchrun.messenger import EXPLANATION_LIMIT, HEAD_START, say
from ddpkit.errors import Death, Doing, Interrupted, LastSeen, RunFailed
from ddpkit.protocol.call import Call
from ddpkit.protocol.messages import Failed, Goodbye, JobEnded, News
from ddpkit.protocol.raised import Raised
from ddpkit.protocol.status import RankStatus


class Watcher:
    """Hears all ranks, on rank 0, and ends the job that has failed.

    `lines` are rank 0's ends of the connections to all ranks. `hosts` are the names of the ranks'
    hosts, where there are several: else "" for each rank.
    """

    def __init__(self, lines: Sequence[Connection], hosts: Sequence[str]) -> None:
        self._lines, self._hosts = list(lines), hosts
        self._run: WatchedRun | None = None
        self._raised: dict[int, Raised] = {}
        self._ended: dict[int, bool] = {}  # the first one first; whether it had said goodbye
        self._failing_since: float | None = None
        self._signals = _socket_of_signals()
        threading.Thread(target=self._serve, name="ddpkit-watcher", daemon=True).start()

    def watch(self, request: Request) -> None:
        """Watch a run that begins, before any rank tells of it."""
        self._run = WatchedRun(request)

    def agree(self) -> None:
        """Wait for the last news of a run whose ranks have all returned.

        They may have disagreed, and nobody has noticed yet.
        """
        if self._run is not None:
            self._run.over.wait(EXPLANATION_LIMIT)
        self._run = None

    def leave(self) -> None:
        """Say goodbye to all ranks: the script has come to its end."""
        for line in self._lines:
            with suppress(OSError):
                connections.send(line, Goodbye())

    def _serve(self) -> None:
        hearing: dict[Any, int] = {line: rank for rank, line in enumerate(self._lines)}
        while True:
            ready = wait([*hearing, self._signals], LOOK if self._failing_since is None else 0.02)
            while ready:  # all that there is, before a judgement: news may have queued up
                for line in ready:
                    if line is self._signals:
                        self._signalled(self._signals.recv(64))
                    elif not self._hear(hearing[line], line):
                        del hearing[line]
                ready = wait([*hearing, self._signals], 0)
            self._judge()

    def _hear(self, rank: int, line: Any) -> bool:
        """Take a message; return whether the rank may have more to say."""
        message = connections.receive(line)
        if message is None or isinstance(message, Goodbye):
            self._ended[rank] = message is not None
            return False
        if isinstance(message, Failed):
            self._raised[rank] = message.raised
        elif isinstance(message, News) and self._run is not None:
            self._run.boxes[rank].add(message)
        return True

    def _signalled(self, numbers: bytes) -> None:
        if signal.SIGINT in numbers:
            run = self._run
            doing, returned = (run.doing(), run.returned) if run else ({}, set())
            text = stopped.stopped("job", doing, returned)
            self._end(Interrupted(text, doing=doing, returned=returned))
        quiet = not self._raised and not self._ended  # else torchrun only reacts to that
        if signal.SIGTERM in numbers and quiet and signal.getsignal(signal.SIGTERM) is _ignore:
            self._hang_up()
            os._exit(128 + signal.SIGTERM)

    def _judge(self) -> None:
        run, now = self._run, time.monotonic()
        if self._raised or any(run or not goodbye for goodbye in self._ended.values()):
            self._failing_since = self._failing_since or now
            if now - self._failing_since >= patience(self._raised, self._ended):
                self._end(self._failure())
        elif run is not None and (wrong := run.wrong()):
            self._end(wrong)

    def _end(self, error: BaseException) -> NoReturn:
        """Say what has happened, and end all ranks."""
        say(error)
        self._hang_up()
        time.sleep(HEAD_START)
        os._exit(1)

    def _hang_up(self) -> None:
        """End all ranks; the last message tells them that nothing is left for them to say."""
        for line in self._lines:
            with suppress(OSError):
                connections.send(line, JobEnded())
            line.close()

    def _failure(self) -> RunFailed:
        """The cause, among what several ranks may have to say."""
        run = self._run
        returned = run.returned if run else set()
        disagreement = run.monitor.disagreement(returned) if run else None
        deaths = {rank: self._death(rank, goodbye) for rank, goodbye in self._ended.items()}
        return blame(self._raised, deaths, disagreement, returned)

    def _death(self, rank: int, goodbye: bool) -> Death:
        """How a rank ended whose connection has ended."""
        host, run = self._hosts[rank], self._run
        if goodbye:
            return Death("left", host=host)
        in_run = run is not None and rank < len(run.boxes)
        return Death("gone", host=host, last=run.last_seen(rank) if run and in_run else None)


class WatchedRun:
    """A run under way, as far as its ranks have told of it."""

    def __init__(self, request: Request) -> None:
        self.boxes = [RemoteBox() for _ in range(request.world_size)]
        self.monitor = Monitor(self.boxes)
        self.over = threading.Event()  # all have returned, and agreed
        self._request, self._begun = request, time.monotonic()

    @property
    def returned(self) -> set[int]:
        """The ranks whose function has returned."""
        return {rank for rank, box in enumerate(self.boxes) if box.has_returned}

    def wrong(self) -> RunFailed | None:
        """What is wrong with the run, if anything is."""
        returned = self.returned
        wrong = self.monitor.look(returned)
        if wrong is None and len(returned) == len(self.boxes):
            self.over.set()
        timeout = self._request.timeout
        if timeout is not None and time.monotonic() - self._begun > timeout:
            return wrong or self.monitor.timeout(timeout, self.doing(), returned)
        return wrong

    def last_seen(self, rank: int) -> LastSeen:
        """Where a rank was when it was last heard of."""
        return self.monitor.last_seen(rank) or self._request.somewhere

    def doing(self) -> dict[int, Doing]:
        """What each unfinished rank does."""
        unfinished = set(range(len(self.boxes))) - self.returned
        return {rank: self.monitor.doing(rank) for rank in sorted(unfinished)}


class RemoteBox:
    """The black box of a rank on any host, as far as the rank has told of it."""

    def __init__(self) -> None:
        self._status: RankStatus | None = None
        self._calls: list[Call] = []
        self._lost = 0

    def add(self, news: News) -> None:
        """Take in what the rank tells."""
        # The time that is in it may be that of another host's clock.
        self._status = replace(news.status, wall_ns=time.perf_counter_ns())
        self._calls += news.calls
        self._lost += news.lost

    @property
    def has_returned(self) -> bool:
        """Whether the rank's function has returned."""
        return self._status is not None and self._status.phase == "returned"

    def status(self) -> RankStatus | None:
        """The newest status; None before the first."""
        return self._status

    def new_calls(self) -> tuple[list[Call], int]:
        """Calls since the last time this was asked, and how many were lost."""
        news = self._calls, self._lost
        self._calls, self._lost = [], 0
        return news


def _socket_of_signals() -> socket.socket:
    """A socket on which the numbers of signals arrive, even while the main thread is in gloo.

    torchrun ends the ranks of a host with SIGTERM when one has failed. That must not keep rank 0
    from saying what happened.
    """
    heard, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    if threading.current_thread() is threading.main_thread():  # no other may
        signal.signal(signal.SIGTERM, _ignore)
        signal.set_wakeup_fd(wakeup.detach(), warn_on_full_buffer=False)
    return heard


def _ignore(number: int, frame: object) -> None:
    """A handler in Python, so that the signal is written to the socket and does nothing else."""
