"""Watches a torchrun job from rank 0, which ends a failed job and explains the failure.

In a local run, the launcher reads the ranks' black boxes and kills the ranks. In a torchrun job,
torchrun has started the ranks, possibly on several hosts. Therefore each rank sends rank 0 the
contents of the rank's black box (`messenger`), and rank 0 examines all boxes (`Watcher`). After the
explanation of a failure, rank 0 ends. All connections close when rank 0 ends, and each rank ends
when its connection closes. torchrun adds a separate report.
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
    """Receives the messages of all ranks, on rank 0, and ends a failed job.

    `lines` are rank 0's ends of the connections to all ranks. `hosts` has the name of each rank's
    host, or "" for each rank if the job has only one host.
    """

    def __init__(self, lines: Sequence[Connection], hosts: Sequence[str]) -> None:
        self._lines, self._hosts = list(lines), hosts
        self._run: WatchedRun | None = None
        self._raised: dict[int, Raised] = {}
        # Ended ranks in the order of their ends: rank -> True if the rank sent a goodbye first.
        self._ended: dict[int, bool] = {}
        self._failing_since: float | None = None
        self._signals = _socket_of_signals()
        threading.Thread(target=self._serve, name="ddpkit-watcher", daemon=True).start()

    def watch(self, request: Request) -> None:
        """Watch a new run; to be called before any rank sends news of the run."""
        self._run = WatchedRun(request)

    def agree(self) -> None:
        """Wait for the last news of a run that has returned on all ranks.

        The last news may show a disagreement between the ranks.
        """
        if self._run is not None:
            self._run.over.wait(EXPLANATION_LIMIT)
        self._run = None

    def leave(self) -> None:
        """Send a goodbye to all ranks at the end of the script."""
        for line in self._lines:
            with suppress(OSError):
                connections.send(line, Goodbye())

    def _serve(self) -> None:
        hearing: dict[Any, int] = {line: rank for rank, line in enumerate(self._lines)}
        while True:
            ready = wait([*hearing, self._signals], LOOK if self._failing_since is None else 0.02)
            while ready:  # read all queued news before a judgement
                for line in ready:
                    if line is self._signals:
                        self._signalled(self._signals.recv(64))
                    elif not self._hear(hearing[line], line):
                        del hearing[line]
                ready = wait([*hearing, self._signals], 0)
            self._judge()

    def _hear(self, rank: int, line: Any) -> bool:
        """Receive a message. Return True if the rank may send more messages."""
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
        # After a rank's failure, SIGTERM is only torchrun's reaction to the failure.
        quiet = not self._raised and not self._ended
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
        """Print the error, and end all ranks."""
        say(error)
        self._hang_up()
        time.sleep(HEAD_START)
        os._exit(1)

    def _hang_up(self) -> None:
        """End all ranks. The last message tells each rank to end without a report."""
        for line in self._lines:
            with suppress(OSError):
                connections.send(line, JobEnded())
            line.close()

    def _failure(self) -> RunFailed:
        """Return the cause of the failure, chosen among the errors and deaths of all ranks."""
        run = self._run
        returned = run.returned if run else set()
        disagreement = run.monitor.disagreement(returned) if run else None
        deaths = {rank: self._death(rank, goodbye) for rank, goodbye in self._ended.items()}
        return blame(self._raised, deaths, disagreement, returned)

    def _death(self, rank: int, goodbye: bool) -> Death:
        """Describe the end of a rank after its connection closed, with or without a goodbye."""
        host, run = self._hosts[rank], self._run
        if goodbye:
            return Death("left", host=host)
        in_run = run is not None and rank < len(run.boxes)
        return Death("gone", host=host, last=run.last_seen(rank) if run and in_run else None)


class WatchedRun:
    """A run in progress, as known from the news that the ranks have sent."""

    def __init__(self, request: Request) -> None:
        self.boxes = [RemoteBox() for _ in range(request.world_size)]
        self.monitor = Monitor(self.boxes)
        self.over = threading.Event()  # set when all ranks have returned without disagreement
        self._request, self._begun = request, time.monotonic()

    @property
    def returned(self) -> set[int]:
        """The set of ranks that have returned from the function."""
        return {rank for rank, box in enumerate(self.boxes) if box.has_returned}

    def wrong(self) -> RunFailed | None:
        """Return the run's failure; None if there is no failure so far."""
        returned = self.returned
        wrong = self.monitor.look(returned)
        if wrong is None and len(returned) == len(self.boxes):
            self.over.set()
        timeout = self._request.timeout
        if timeout is not None and time.monotonic() - self._begun > timeout:
            return wrong or self.monitor.timeout(timeout, self.doing(), returned)
        return wrong

    def last_seen(self, rank: int) -> LastSeen:
        """Return the place of a rank in the program, from the rank's last news."""
        return self.monitor.last_seen(rank) or self._request.somewhere

    def doing(self) -> dict[int, Doing]:
        """Return the current action of each unfinished rank."""
        unfinished = set(range(len(self.boxes))) - self.returned
        return {rank: self.monitor.doing(rank) for rank in sorted(unfinished)}


class RemoteBox:
    """The black box of a rank on any host, made from the news that the rank has sent."""

    def __init__(self) -> None:
        self._status: RankStatus | None = None
        self._calls: list[Call] = []
        self._lost = 0

    def add(self, news: News) -> None:
        """Add news from the rank."""
        # The time in the news may come from the clock of a different host.
        self._status = replace(news.status, wall_ns=time.perf_counter_ns())
        self._calls += news.calls
        self._lost += news.lost

    @property
    def has_returned(self) -> bool:
        """True if the rank's function has returned."""
        return self._status is not None and self._status.phase == "returned"

    def status(self) -> RankStatus | None:
        """Return the newest status; None before the first news."""
        return self._status

    def new_calls(self) -> tuple[list[Call], int]:
        """Return the new calls since the previous `new_calls`, and the number of lost calls."""
        news = self._calls, self._lost
        self._calls, self._lost = [], 0
        return news


def _socket_of_signals() -> socket.socket:
    """Return a socket that receives the numbers of signals, even while the main thread is in gloo.

    After a rank's failure, torchrun sends SIGTERM to the remaining ranks of the host. Rank 0 must
    still be able to explain the failure.
    """
    heard, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    if threading.current_thread() is threading.main_thread():  # no other thread may set handlers
        signal.signal(signal.SIGTERM, _ignore)
        signal.set_wakeup_fd(wakeup.detach(), warn_on_full_buffer=False)
    return heard


def _ignore(number: int, frame: object) -> None:
    """Do nothing: with a handler in Python, the signal only writes its number to the socket."""
