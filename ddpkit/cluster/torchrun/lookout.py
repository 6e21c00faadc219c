"""Rank 0's lookout over a job that torchrun started: it ends the job that has failed, and says why.

On one's own machine the launcher reads the ranks' black boxes and kills the ranks. Here the ranks
may sit on other hosts, and torchrun has started them. So each tells rank 0 what its black box holds
(`Teller`), and rank 0 looks at all of them (`Lookout`). When it has explained a failure it leaves;
with it all connections end, and with its connection each rank. torchrun adds its own report.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from ddpkit.cluster.local.run import ECHO, LOOK, ROOT_CAUSE, Request
from ddpkit.cluster.monitor import Monitor
from ddpkit.cluster.outcome import Report, is_echo, rank_error
from ddpkit.cluster.torchrun import connections
from ddpkit.errors import Interrupted, RankDied, RunFailed, RunTimeout
from ddpkit.protocol.blackbox import BlackBox
from ddpkit.rank.agent import Agent

LAST_WORDS = 10.0  # seconds after which a rank does not wait for rank 0's explanation any more
AFTER_YOU = 0.5  # seconds by which a rank at fault ends first, so that torchrun's report names it


class Teller:
    """A rank's end: tells rank 0 what the rank does, and ends the rank when rank 0 has gone.

    `mourns` is the name of rank 0, where it is for this rank to say if that goes without a word.
    """

    def __init__(self, rank: int, line: Connection, mourns: str | None = None) -> None:
        self._rank, self._line, self._mourns = rank, line, mourns
        self._telling: tuple[Agent, BlackBox] | None = None
        self._speaking = threading.Lock()
        self._failed = False
        threading.Thread(target=self._serve, name="ddpkit-teller", daemon=True).start()

    def begin(self, agent: Agent) -> None:
        """From now on, tell of the run that this agent belongs to. The agent is no thread here."""
        agent.phase = "running"
        self._telling = agent, agent.box

    def returned(self) -> None:
        """The rank's part of the run is done; the last word of it is sent."""
        with self._speaking, suppress(OSError):
            if self._telling is not None:
                self._telling[0].phase = "returned"
                self._tell()
            self._telling = None

    def raised(self, report: Report) -> NoReturn:
        """Leave the explanation to rank 0, which hears of all ranks; then it ends this one."""
        self._failed = True
        with suppress(OSError), self._speaking:
            connections.send(self._line, {"raised": {**report, "pickled": ""}})
        time.sleep(LAST_WORDS)
        say(rank_error({self._rank: report}))  # nobody else has
        os._exit(1)

    def leave(self) -> None:
        """The script has come to its end."""
        with suppress(OSError), self._speaking:
            connections.send(self._line, {"left": True})

    def _serve(self) -> None:
        while not self._line.poll(LOOK):
            with suppress(OSError), self._speaking:
                self._tell()
        word = connections.receive(self._line)
        if word is not None and "left" in word:
            return  # rank 0 is at the end of its script: from here on, each rank is alone
        if word is None and self._mourns is not None:
            say(RankDied(_gone(self._mourns), ranks=(0,)))
        if not self._failed:
            time.sleep(AFTER_YOU)
        os._exit(1)

    def _tell(self) -> None:
        if self._telling is not None:
            agent, box = self._telling
            calls, lost = box.new_calls()
            connections.send(self._line, {"status": agent.status(), "calls": calls, "lost": lost})


class Lookout:
    """On rank 0: hears all ranks, and ends the job that has failed.

    `names` say who and where each rank is: "rank 3 on host b", or on one host "rank 3".
    """

    def __init__(self, lines: Sequence[Connection], names: Sequence[str]) -> None:
        self._lines, self._names = list(lines), names
        self._run: _Run | None = None
        self._raised: dict[int, Report] = {}
        self._gone: dict[int, bool] = {}  # the first one first; whether it had said goodbye
        self._failing_since: float | None = None
        self._signals = _heard_signals()
        threading.Thread(target=self._serve, name="ddpkit-lookout", daemon=True).start()

    def watch(self, request: Request) -> None:
        """A run begins, before any rank tells of it."""
        self._run = _Run(request)

    def agree(self) -> None:
        """All ranks have returned. Hear their last words: they may have disagreed unnoticed."""
        if self._run is not None:
            self._run.over.wait(LAST_WORDS)
        self._run = None

    def leave(self) -> None:
        """The script has come to its end."""
        for line in self._lines:
            with suppress(OSError):
                connections.send(line, {"left": True})

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
        """Take a message; whether the rank may have more to say."""
        message = connections.receive(line)
        if message is None or "left" in message:
            self._gone[rank] = message is not None
            return False
        if "raised" in message:
            self._raised[rank] = message["raised"]
        elif self._run is not None:
            self._run.told[rank].add(message)
        return True

    def _signalled(self, numbers: bytes) -> None:
        if signal.SIGINT in numbers:
            where = self._run.where() if self._run else "  no run was going on"
            self._end(Interrupted(f"you stopped the job. At that moment,\n{where}"))
        quiet = not self._raised and not self._gone  # else torchrun only reacts to that
        if signal.SIGTERM in numbers and quiet and signal.getsignal(signal.SIGTERM) is _ignore:
            self._hang_up()
            os._exit(128 + signal.SIGTERM)

    def _judge(self) -> None:
        run, now = self._run, time.monotonic()
        if self._raised or any(run or not goodbye for goodbye in self._gone.values()):
            self._failing_since = self._failing_since or now
            only_echoes = not self._gone and all(map(is_echo, self._raised.values()))
            if now - self._failing_since >= (ECHO if only_echoes else ROOT_CAUSE):
                self._end(self._failure())
        elif run is not None and (wrong := run.wrong()):
            self._end(wrong)

    def _end(self, error: BaseException) -> NoReturn:
        """Say what has happened, and end all ranks."""
        say(error)
        self._hang_up()
        time.sleep(AFTER_YOU)
        os._exit(1)

    def _hang_up(self) -> None:
        """End all ranks; they know by a last word that nothing is left for them to say."""
        for line in self._lines:
            with suppress(OSError):
                connections.send(line, {"ended": True})
            line.close()

    def _failure(self) -> RunFailed:
        """The cause, among what several ranks may have to say."""
        disagreement = self._run.monitor.disagreement() if self._run else None
        causes = {rank: report for rank, report in self._raised.items() if not is_echo(report)}
        if disagreement is not None:
            return disagreement
        if causes:
            return rank_error(causes)
        return self._death() if self._gone else rank_error(self._raised)

    def _death(self) -> RankDied:
        """Of the first that went: the others on its host were ended by torchrun."""
        rank, goodbye = next(iter(self._gone.items()))
        name, run = self._names[rank], self._run
        if goodbye:
            return RankDied(f"{name} has left the script; the others still run it.", ranks=(rank,))
        text = _gone(name)
        if run is not None and rank < len(run.told):
            text += f"\n  {run.last_seen(rank)}"
        return RankDied(text, ranks=(rank,))


def _gone(name: str) -> str:
    return (
        f"{name} has gone: it was killed, it crashed, or its host is out of reach. "
        "torchrun's own report may say more."
    )


class _Run:
    """One run, as its ranks tell of it."""

    def __init__(self, request: Request) -> None:
        self.told = [_Told() for _ in range(request.world_size)]
        self.monitor = Monitor(self.told)
        self.over = threading.Event()
        self._request, self._begun = request, time.monotonic()

    def wrong(self) -> RunFailed | None:
        """What is wrong with the run, if anything is."""
        returned = {rank for rank, told in enumerate(self.told) if told.has_returned}
        wrong = self.monitor.look(returned)
        if wrong is None and len(returned) == len(self.told):
            self.over.set()
        timeout = self._request.timeout
        if timeout is not None and time.monotonic() - self._begun > timeout:
            text = f"The run took longer than its timeout of {timeout:g} s. When it was stopped,\n"
            return wrong or RunTimeout(text + self.where())
        return wrong

    def last_seen(self, rank: int) -> str:
        return self.monitor.last_seen(rank) or self._request.somewhere

    def where(self) -> str:
        """A line for each rank."""
        return "\n".join(f"  {self.monitor.doing(rank)}" for rank in range(len(self.told)))


class _Told:
    """The black box of a rank, as far as it has told of it."""

    def __init__(self) -> None:
        self._status: dict[str, Any] | None = None
        self._calls: list[dict[str, Any]] = []
        self._lost = 0

    def add(self, message: dict[str, Any]) -> None:
        # The time that is in it may be that of another host's clock.
        self._status = message["status"] | {"wall_ns": time.perf_counter_ns()}
        self._calls += message["calls"]
        self._lost += message["lost"]

    @property
    def has_returned(self) -> bool:
        return self._status is not None and self._status["phase"] == "returned"

    def status(self) -> dict[str, Any] | None:
        return self._status

    def new_calls(self) -> tuple[list[dict[str, Any]], int]:
        news = self._calls, self._lost
        self._calls, self._lost = [], 0
        return news


def say(error: BaseException) -> None:
    kind = "KeyboardInterrupt" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    sys.stdout.flush()
    print(f"{kind}: {error}", file=sys.stderr, flush=True)


def _heard_signals() -> socket.socket:
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
