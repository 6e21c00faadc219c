"""A run on this machine: starts, watches and ends the ranks, gathers results, explains errors.

One loop watches the ranks. The loop reads output and results, notices deaths, and reads the ranks'
black boxes a few times a second. At the end of every run, the launcher needs no more data from the
processes of the run, and kills them all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from ddpkit.cluster import blame, phrases, stopped
from ddpkit.cluster.interrupts import interrupts_held
from ddpkit.cluster.local import hashing, launch
from ddpkit.cluster.local.launch import RankProcess
from ddpkit.cluster.local.request import Request
from ddpkit.cluster.local.stall import Stall
from ddpkit.cluster.local.timekeeper import Timekeeper
from ddpkit.cluster.local.unsent import Unsent
from ddpkit.cluster.local.watched import is_ready, served_ns
from ddpkit.cluster.monitor import Monitor
from ddpkit.cluster.outcome import RunOutcome
from ddpkit.cluster.output import Output
from ddpkit.cluster.without_values import without_values
from ddpkit.errors import (
    ClusterError,
    Death,
    Doing,
    Interrupted,
    LastSeen,
    Mismatch,
    RunFailed,
    UnsupportedTorch,
)
from ddpkit.protocol.assignment import ProcessSettings
from ddpkit.protocol.blackbox import BlackBox
from ddpkit.protocol.call import Where
from ddpkit.protocol.emulation import ClockPage
from ddpkit.protocol.past import Past
from ddpkit.protocol.raised import Raised
from ddpkit.protocol.replica import Replica
from ddpkit.protocol.reply import receive_reply
from ddpkit.protocol.ship import unpack_result, write_call
from ddpkit.trace import Dropped, MemoryLevel, Scalar, Span, death_fact

LOOK = 0.25  # seconds between two looks into the black boxes
LATE = 0.5  # seconds in which late ranks may still make a call on which other ranks disagree
ANSWER = 0.4  # seconds in which ranks may report their lines
NEXT_BEAT = 0.4  # seconds in which a rank's agent may report the rank's wait
REAP = 0.5  # seconds to wait for the ends of all killed ranks


def run_local(request: Request) -> RunOutcome:
    """Run a request in fresh processes of this machine, and end the processes.

    A KeyboardInterrupt ends the processes too, and becomes an `Interrupted` with each rank's line.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(launch.run_folder())
        run = LocalRun(request, folder, stack)
        try:
            return run.to_the_end()
        except KeyboardInterrupt:
            with interrupts_held() as more:
                doing = run.doing_when_stopped()
                stack.close()
                more.clear()  # drop a second press of Stop, which asks for the same
            text = stopped.stopped("run", doing, run.results)
            raise Interrupted(text, doing=doing, returned=run.results) from None


class LocalRun:
    """A run in progress: its returned, failed and dead ranks, and their data."""

    def __init__(self, request: Request, folder: Path, stack: ExitStack) -> None:
        self.request, self.folder, size = request, folder, request.processes
        write_call(folder / "call", request.payload)
        self.boxes = [BlackBox.create(folder / f"rank{rank}") for rank in range(size)]
        self.pasts = [Past.create(folder / f"past{rank}") for rank in range(size)]
        for box, past in zip(self.boxes, self.pasts, strict=True):
            stack.callback(box.close)
            stack.callback(past.close)
        self.timekeeper: Timekeeper | None = None
        if request.links is not None:
            pages = [ClockPage.create(folder / f"clock{rank}") for rank in range(size)]
            counted = bool(request.machines)
            devices = [machine.has_device for machine in request.machines]
            self.timekeeper = Timekeeper(
                request.links, request.speeds, pages, counted=counted, devices=devices
            )
            stack.callback(self.timekeeper.stop)
        self.stall = Stall()
        self.monitor = Monitor(self.boxes, self.timekeeper)
        self.output = Output(size)
        self.results: dict[int, Any] = {}
        self.raised: dict[int, Raised] = {}
        self.died: dict[int, int | None] = {}  # rank -> exit code
        self.died_ns: dict[int, int] = {}
        self.spans: list[Span] = []
        self.dropped: dict[int, Dropped] = {}
        self.memory: dict[int, tuple[MemoryLevel, ...]] = {}
        self.replicas: dict[int, list[Replica]] = {}
        self.limits: dict[int, float] = {}  # timeouts of default groups, in seconds
        self.reads: dict[int, Mapping[tuple[str, int], int]] = {}
        self.timed = ""  # the newest `Reply.timed`
        self.ranks: list[RankProcess] = []
        self._joined = False  # True if a rank has joined the default group
        # True if a rank imported a part of the compiler that the forkserver could import for all
        self._ranks_import = False
        self._served: dict[int, int] = {}  # CPU time of ranks, in ns, at the first bad news
        stack.callback(self.end)

    def _settings(self) -> ProcessSettings:
        return ProcessSettings(
            folder=self.folder,
            threads=self.request.threads,
            environ=dict(os.environ),
            cwd=os.getcwd(),
            emulated=self.timekeeper is not None,
            epoch_ns=time.time_ns(),
            own_interpreters=hashing.needs_own_interpreters(
                self.request.payload[0], self.request.function[1], self.request.script
            ),
        )

    # The loop

    def to_the_end(self) -> RunOutcome:
        """Start the ranks, watch them until all return or one fails, and end all ranks."""
        settings = self._settings()
        launch.load_compiler_for(
            self.request.payload[0], self.request.function[1], values=self.request.values
        )
        size, on_a_host = self.request.processes, self.request.host_size
        for rank in range(size):
            local_rank = rank % (on_a_host or self.request.world_size)
            started = launch.start(self.request.assignment(rank, local_rank), settings)
            self.ranks.append(started)
            if self.timekeeper is not None:
                assert started.process.pid is not None
                self.timekeeper.serve(rank, started.process.pid, *started.timekeeping)
        if self.timekeeper is not None:
            self.timekeeper.start()
        error = self._watch()
        ended_ns = time.perf_counter_ns()
        for ends in self.ranks:
            ends.kill()  # a rank that prints without end would keep `_read_everything` busy forever
        if self._ranks_import:
            launch.load_more_of_compiler()
        self._read_everything()
        if isinstance(error, Mismatch):
            self.output.leave_out_gloos_lines()
        self.output.show(final=True)
        results = [self.results.get(rank) for rank in range(size)]
        facts = {} if self.timekeeper is None else self.timekeeper.facts
        facts |= self._take_unsent(ended_ns) | ({"timed": self.timed} if self.timed else {})
        if not self.request.values:
            facts |= without_values(self.reads)
        if self.request.alike is not None:
            facts |= {"alike": str(self.request.alike), "world_size": self.request.world_size}
        if error is None and size > 1 and not self._joined:
            facts["separate"] = size
        memory = dict(sorted(self.memory.items()))
        # in the order of the ranks, not of their replies
        spans = sorted(self.spans, key=lambda span: span.rank)
        outcome = RunOutcome(results, str(self.output), spans, self.dropped, error, facts)
        outcome.memory, outcome.replicas, outcome.limits = memory, self.replicas, self.limits
        outcome.by_luck = self.monitor.by_luck() if error is None else {}
        return outcome

    def _watch(self) -> RunFailed | None:
        begun = time.monotonic()
        next_look = begun + LOOK
        failing_since: float | None = None
        while len(self.results) < self.request.processes:
            self._read(next_look - time.monotonic())
            now = time.monotonic()
            if self.timekeeper is not None and self.timekeeper.error is not None:
                raise ClusterError(f"the emulated network has failed: {self.timekeeper.error!r}")
            if now - begun > Output.HOLD:
                self.output.show()
            if self.raised or self.died:
                failing_since = failing_since or now
                if self._all_is_said(now - failing_since):
                    return self._failure()
                next_look = min(next_look, now + 0.02)
            if now >= next_look:
                next_look = now + LOOK
                wrong = self.monitor.look(self.results)
                if isinstance(wrong, Mismatch):
                    wrong = self._with_late_ranks(wrong)
                if isinstance(wrong, Mismatch) or (wrong and not self.raised and not self.died):
                    return wrong
                self._say_if_it_stalls()
            timeout = self.request.timeout
            if timeout is not None and now - begun > timeout:
                return self.monitor.timeout(timeout, self._doing(), self.results)
        return self.monitor.disagreement(self.results)

    def _say_if_it_stalls(self) -> None:
        """Print, only once, the ranks' lines of code if no rank has worked for a long time."""
        pids = [ends.process.pid for ends in self.ranks if ends.process.pid is not None]
        if self.stall.is_new(pids, self.timekeeper.happened if self.timekeeper else 0):
            unfinished = set(range(len(self.ranks))) - self.results.keys()
            doing = {rank: self.monitor.doing(rank) for rank in unfinished}
            self.output.show()
            stream = sys.stderr if self.request.script else sys.stdout
            text = stopped.stalled(self.stall.patience, doing, self.results)
            print(text, file=stream, flush=True)

    def _read(self, seconds: float) -> None:
        """Wait for output, a reply or a death, and read everything that has arrived."""
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
            reply = receive_reply(connection)
        except (EOFError, OSError):
            self._read_death(rank)
            return
        self.spans += reply.spans
        self.dropped[rank] = reply.dropped
        self._ranks_import |= reply.imported
        self._joined |= reply.has_joined
        if reply.memory:
            self.memory[rank] = tuple(reply.memory)
        self.reads[rank] = reply.reads
        self.timed = reply.timed or self.timed
        self.replicas[rank] = reply.replicas
        if reply.limit is not None:
            self.limits[rank] = reply.limit
        if reply.raised is not None and reply.raised.type == UnsupportedTorch.__name__:
            raise UnsupportedTorch(reply.raised.message)
        if reply.raised is not None:
            self.raised[rank] = reply.raised
            return
        try:
            self.results[rank] = unpack_result(reply.result)
        except Exception as error:
            message = f"the result of {phrases.ranks([rank])} cannot be read here: {error}"
            raise ClusterError(message) from error

    def _read_death(self, rank: int) -> None:
        process = self.ranks[rank].process
        process.join(5)  # the sentinel may be ready a moment before the exit code
        self.died[rank] = process.exitcode
        self.died_ns[rank] = time.perf_counter_ns()

    def _take_unsent(self, ended_ns: int) -> dict[str, Scalar]:
        """Add the spans of ranks that could not send their spans; return facts about dead ranks.

        In emulated time, a dead rank's record ends at the rank's last known event.
        """
        facts: dict[str, Scalar] = {}
        for rank, (box, past) in enumerate(zip(self.boxes, self.pasts, strict=True)):
            if rank in self.dropped:
                continue
            seen_ns = 0 if self.timekeeper else self.died_ns.get(rank, ended_ns)
            unsent = Unsent(rank, self.request.processes, box, past, seen_ns)
            spans, self.dropped[rank] = unsent.record()
            self.spans += spans
            if rank in self.died:
                facts |= death_fact(rank, unsent.until_ns)
        return facts

    def _read_everything(self) -> None:
        """Read the remaining output from the pipes, without waiting for more."""
        for rank, ends in enumerate(self.ranks):
            while not ends.output.closed and wait([ends.output], 0):
                self._read_output(rank)
            if not ends.output.closed:
                self.output.feed(rank, b"", final=True)

    # Failures

    def _all_is_said(self, seconds: float) -> bool:
        """True if the ranks that have not reported yet had enough time to report a failure.

        A rank that waits for a core gets more time. `seconds` is the time since the first failure.
        """
        patience = blame.patience(self.raised, self.died)
        heard = self.results.keys() | self.raised.keys() | self.died.keys()
        silent = {
            rank: ends.process.pid
            for rank, ends in enumerate(self.ranks)
            if rank not in heard and ends.process.pid is not None
        }
        if not self._served:
            self._served = {rank: served_ns(pid) for rank, pid in silent.items()}
        if seconds < patience or seconds >= blame.ECHO:
            return seconds >= patience
        return not any(
            served_ns(pid) - self._served.get(rank, 0) < 1e9 * patience and is_ready(pid)
            for rank, pid in silent.items()
        )

    def _with_late_ranks(self, wrong: Mismatch) -> Mismatch:
        """Wait a moment until more ranks have made the call on which ranks disagree."""
        give_up, ended = time.monotonic() + LATE, self.raised.keys() | self.died.keys()
        while self.monitor.late(wrong) - ended and time.monotonic() < give_up:
            time.sleep(0.02)
            wrong = self.monitor.disagreement(self.results) or wrong
        return wrong

    def _failure(self) -> RunFailed:
        """Return the error with the cause of the failure, chosen from the failures of all ranks."""
        disagreement = self.monitor.disagreement(self.results)
        if disagreement is not None:
            disagreement = self._with_late_ranks(disagreement)
        deaths = {rank: self._death(rank) for rank in self.died} if not disagreement else {}
        return blame.blame(self.raised, deaths, disagreement, self.results)

    def _death(self, rank: int) -> Death:
        """Return the death of a rank with its line, from its last stack or from its black box."""
        frame = self.ranks[rank].last_line()
        seen = LastSeen(frame) if frame is not None else self.monitor.last_seen(rank)
        return blame.process_death(self.died[rank], seen or self.request.somewhere)

    def doing_when_stopped(self) -> dict[int, Doing]:
        """Return the action of each unfinished rank; end the ranks, and show their output."""
        doing = self._doing()
        for ends in self.ranks:
            ends.kill()
        self._read_everything()
        self.output.show(final=True)
        return doing

    def _doing(self) -> dict[int, Doing]:
        """Return the action of each unfinished rank, after asking the ranks for their stacks.

        If a rank holds the GIL, its stack is newer than its black box.
        """
        unfinished = [r for r in range(self.request.processes) if r not in self.results]
        self.monitor.look(self.results)  # before `ask_where`: its signal may end a rank's wait
        for ends in self.ranks:
            ends.ask_where()
        asked = [ends for rank, ends in enumerate(self.ranks) if rank in unfinished]
        give_up = time.monotonic() + ANSWER
        while time.monotonic() < give_up and not all(ends.last_line() for ends in asked):
            time.sleep(0.02)
        lines = {rank: ends.last_line() for rank, ends in enumerate(self.ranks)}
        doing = {rank: self.monitor.doing(rank, lines.get(rank)) for rank in unfinished}
        return doing | self._heard_of({rank: lines.get(rank) for rank in unfinished})

    def _heard_of(self, lines: Mapping[int, Where | None]) -> dict[int, Doing]:
        """Return the actions of ranks with an outdated status, after waiting for a new status.

        A rank that has just reached its line has not yet reported a wait in this line. Ranks with a
        current status are left out, because the signal may have ended their waits.
        """
        behind = {
            rank: (line, self.monitor.beat(rank))
            for rank, line in lines.items()
            if line and self.monitor.is_behind(rank, line)
        }
        give_up = time.monotonic() + NEXT_BEAT
        while time.monotonic() < give_up and any(
            self.monitor.beat(rank) == beat for rank, (_, beat) in behind.items()
        ):
            time.sleep(0.02)
            self.monitor.look(self.results)
        return {rank: self.monitor.doing(rank, line) for rank, (line, _) in behind.items()}

    def end(self) -> None:
        """End every process of the run. The method never raises and never waits long."""
        with interrupts_held():
            for ends in self.ranks:
                ends.kill()
            give_up = time.monotonic() + REAP
            for ends in self.ranks:
                ends.close(give_up - time.monotonic())
