"""A run on this machine: start the ranks, watch them, gather, explain, and end them all.

One loop does the watching. It reads what ranks print and return, notices those that die, looks into
their black boxes a few times a second, and in the end, whatever the end is, kills every process of
the run: by then nothing that a rank still has is needed.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from ddpkit.cluster import explain
from ddpkit.cluster.devices import Place
from ddpkit.cluster.local import launch
from ddpkit.cluster.local.launch import RankProcess
from ddpkit.cluster.monitor import Monitor
from ddpkit.cluster.outcome import Outcome, Report, is_echo, rank_error
from ddpkit.cluster.output import Output
from ddpkit.errors import (
    ClusterError,
    Interrupted,
    Mismatch,
    RankDied,
    RunFailed,
    RunTimeout,
)
from ddpkit.link import Links
from ddpkit.protocol.blackbox import BlackBox
from ddpkit.protocol.noticeboard import Noticeboard
from ddpkit.protocol.ship import receive_reply, unpack_result, write_call
from ddpkit.rank.process import Job
from ddpkit.source import locate
from ddpkit.trace import Dropped, Span

LOOK = 0.25  # seconds between two looks into the black boxes
ROOT_CAUSE = 0.15  # seconds that the other ranks get to say what they, too, have to say
ANSWER = 0.4  # seconds that ranks get to say where they are
REAP = 0.5  # seconds that killed ranks get to be seen dead, all together
ECHO = 2.0  # the same, where all that is known is that a peer has gone


@dataclass(frozen=True)
class Request:
    """What to run; `payload` is the pickled call."""

    world_size: int
    payload: list[Any]
    function: tuple[str, str, int]  # its name, file and first line
    place: Place
    threads: int
    seed: int
    timeout: float | None
    record: bool
    links: Links | None

    @property
    def somewhere(self) -> str:
        """Where a rank must be of which nothing else is known."""
        name, filename, line = self.function
        return f"somewhere in {name}, {locate(filename, line)}"


def run_local(request: Request) -> Outcome:
    """Run a request on fresh processes of this machine, and end them all.

    A KeyboardInterrupt ends them too, and becomes an `Interrupted` that says where each rank was.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(launch.run_folder())
        run = LocalRun(request, folder, stack)
        try:
            return run.to_the_end()
        except KeyboardInterrupt:
            with launch.interrupts_held() as more:
                where = run.where_stopped()
                stack.close()
                more.clear()  # an impatient reader has pressed again, and this is the answer
            raise Interrupted(f"you stopped the run. At that moment,\n{where}") from None


class LocalRun:
    """The state of a run: who has returned, raised or died, and what they left."""

    def __init__(self, request: Request, folder: Path, stack: ExitStack) -> None:
        self.request, self.folder, size = request, folder, request.world_size
        write_call(folder / "call", request.payload)
        self.boxes = [BlackBox.create(folder / f"rank{rank}") for rank in range(size)]
        for box in self.boxes:
            stack.callback(box.close)
        if request.links is not None:
            Noticeboard.create(folder / "notices", size)
        self.monitor = Monitor(self.boxes)
        self.output = Output(size)
        self.results: dict[int, Any] = {}
        self.raised: dict[int, Report] = {}
        self.died: dict[int, int | None] = {}  # rank -> exit code
        self.spans: list[Span] = []
        self.left_out: dict[int, Dropped] = {}
        self.ranks: list[RankProcess] = []
        stack.callback(self.end)

    def _job(self, rank: int) -> Job:
        request = self.request
        return Job(
            rank=rank,
            world_size=request.world_size,
            backend=request.place.backend,
            device=request.place.device,
            threads=request.threads,
            seed=request.seed,
            folder=self.folder,
            environ=dict(os.environ),
            cwd=os.getcwd(),
            record=request.record,
            links=request.links,
        )

    # The loop

    def to_the_end(self) -> Outcome:
        for rank in range(self.request.world_size):
            self.ranks.append(launch.start(self._job(rank)))
        error = self._watch()
        for ends in self.ranks:
            ends.kill()  # first: a rank that prints without end would never let us finish reading
        self._read_everything()
        self.output.show(final=True)
        results = [self.results.get(rank) for rank in range(self.request.world_size)]
        return Outcome(results, str(self.output), self.spans, self.left_out, error)

    def _watch(self) -> RunFailed | None:
        begun = time.monotonic()
        next_look = begun + LOOK
        failing_since: float | None = None
        while len(self.results) < self.request.world_size:
            self._read(next_look - time.monotonic())
            now = time.monotonic()
            if now - begun > Output.HOLD:
                self.output.show()
            if self.raised or self.died:
                failing_since = failing_since or now
                if now - failing_since >= self._grace():
                    return self._failure()
                next_look = min(next_look, now + 0.02)
            if now >= next_look:
                next_look = now + LOOK
                wrong = self.monitor.look(set(self.results))
                if isinstance(wrong, Mismatch) or (wrong and not self.raised and not self.died):
                    return wrong
            timeout = self.request.timeout
            if timeout is not None and now - begun > timeout:
                return RunTimeout(
                    f"The run took longer than its timeout of {timeout:g} s. When it was stopped,\n"
                    + self._where()
                )
        return self.monitor.disagreement()

    def _grace(self) -> float:
        """How long to wait for the cause, once there is a failure."""
        if self.died or any(not is_echo(report) for report in self.raised.values()):
            return ROOT_CAUSE
        return ECHO

    def _read(self, seconds: float) -> None:
        """Wait for something to read, and read it."""
        sources: dict[Any, tuple[str, int]] = {}
        for rank, ends in enumerate(self.ranks):
            if not ends.output.closed:
                sources[ends.output] = ("output", rank)
            if rank not in self.results and rank not in self.raised and rank not in self.died:
                sources[ends.reply] = ("reply", rank)
                sources[ends.process.sentinel] = ("death", rank)
        ready = [sources[source] for source in wait(list(sources), max(0.0, seconds))]
        for kind, rank in sorted(ready, key=lambda pair: pair[0] == "death"):
            if kind == "output":
                self._read_output(rank)
            elif kind == "reply":
                self._read_reply(rank)
            elif rank not in self.results and rank not in self.raised:
                self._read_death(rank)

    def _read_output(self, rank: int) -> None:
        connection = self.ranks[rank].output
        data = launch.read_bytes(connection)
        self.output.feed(rank, data, final=not data)
        if not data:
            connection.close()

    def _read_reply(self, rank: int) -> None:
        connection = self.ranks[rank].reply
        try:
            (spans, left_out), (kind, report), *parts = receive_reply(connection)
        except (EOFError, OSError):
            self._read_death(rank)
            return
        self.spans += spans
        self.left_out[rank] = left_out
        if kind == "raised":
            self.raised[rank] = report
            return
        try:
            self.results[rank] = unpack_result(parts)
        except Exception as error:
            message = f"what {explain.ranks([rank])} returned cannot be read here: {error}"
            raise ClusterError(message) from error

    def _read_death(self, rank: int) -> None:
        process = self.ranks[rank].process
        process.join(5)  # the sentinel may be ready a moment before the exit code
        self.died[rank] = process.exitcode

    def _read_everything(self) -> None:
        """What is left in the pipes, without waiting for more."""
        for rank, ends in enumerate(self.ranks):
            while not ends.output.closed and wait([ends.output], 0):
                self._read_output(rank)
            if not ends.output.closed:
                self.output.feed(rank, b"", final=True)

    # What went wrong

    def _failure(self) -> RunFailed:
        """The cause, among what several ranks may have to say."""
        disagreement = self.monitor.disagreement()
        if disagreement is not None:
            return disagreement
        causes = {rank: r for rank, r in self.raised.items() if not is_echo(r)}
        if causes and not self.died:
            return rank_error(causes)
        if self.died:
            return self._death(causes)
        return rank_error(self.raised)

    def _death(self, causes: dict[int, Report]) -> RankDied:
        lines = []
        for rank, exitcode in sorted(self.died.items()):
            lines.append(f"{explain.ranks([rank])} {explain.death(exitcode)}")
            lines.append(f"  {self._last_seen(rank)}")
        if -9 in self.died.values():
            lines.append("SIGKILL comes from outside: the system when memory ran out, or a person.")
        lines += [
            f"{explain.ranks([rank])} raised {report['type']}: {report['message']}"
            for rank, report in causes.items()
        ]
        return RankDied("\n".join(lines), ranks=tuple(sorted(self.died)))

    def _last_seen(self, rank: int) -> str:
        """The user's line that a rank was in: from its last words, else from its black box."""
        frame = self.ranks[rank].last_line()
        if frame is not None:
            return f"in {explain.place(frame)}"
        return self.monitor.last_seen(rank) or self.request.somewhere

    def where_stopped(self) -> str:
        """Where each unfinished rank is; what the ranks have printed until now is shown."""
        where = self._where()
        for ends in self.ranks:
            ends.kill()
        self._read_everything()
        self.output.show(final=True)
        return where

    def _where(self) -> str:
        """A line for each unfinished rank; asks the ranks, and waits a moment for the answers.

        What one answers is newer than its black box, where it holds the GIL.
        """
        unfinished = [r for r in range(self.request.world_size) if r not in self.results]
        self.monitor.look(set(self.results))  # before the signal, which ends a system call
        for ends in self.ranks:
            ends.ask_where()
        asked = [ends for rank, ends in enumerate(self.ranks) if rank in unfinished]
        give_up = time.monotonic() + ANSWER
        while time.monotonic() < give_up and not all(ends.last_line() for ends in asked):
            time.sleep(0.02)
        lines = [f"  {self._doing(rank)}" for rank in unfinished]
        if self.results:
            lines.append(f"  {explain.ranks(self.results)} had returned")
        return "\n".join(lines)

    def _doing(self, rank: int) -> str:
        frame = self.ranks[rank].last_line() if rank < len(self.ranks) else None
        return self.monitor.doing(rank, frame)

    def end(self) -> None:
        """End every process of the run. Never fails, never waits long."""
        with launch.interrupts_held():
            for ends in self.ranks:
                ends.kill()
            give_up = time.monotonic() + REAP
            for ends in self.ranks:
                ends.close(give_up - time.monotonic())
