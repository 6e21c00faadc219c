"""The same runs on ranks that torchrun (or srun, or any launcher of its kind) has started.

Every rank executes the whole script. A run calls the function in place, on the first `world_size`
ranks of the job, and gathers what they returned on all of them, so that the script goes on alike
everywhere; what the script prints outside a run comes from rank 0 alone.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from ddpkit.cluster import clocks, hosts, wire
from ddpkit.cluster.clocks import Clock
from ddpkit.cluster.devices import VARIABLE, Place
from ddpkit.cluster.hosts import Seat
from ddpkit.cluster.launch import run_folder
from ddpkit.cluster.local import Request
from ddpkit.cluster.lookout import Lookout, Teller
from ddpkit.cluster.outcome import Outcome, is_echo
from ddpkit.cluster.output import Labelled
from ddpkit.errors import ClusterError
from ddpkit.rank import record
from ddpkit.rank.agent import Agent
from ddpkit.rank.blackbox import BlackBox
from ddpkit.rank.main import (
    GROUP_TIMEOUT,
    leave_device,
    pick,
    seed_all,
    start_together,
    use_device,
)
from ddpkit.rank.record import Recorder
from ddpkit.rank.report import UnsendableResultError, report
from ddpkit.rank.ship import pack_result, unpack_call, unpack_result
from ddpkit.trace import LeftOut, Scalar, Span

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def active() -> bool:
    """Whether this process is a rank that a launcher started."""
    return all(name in os.environ for name in LAUNCHED)


def only_rank_0_prints() -> None:
    """Drop what the script prints on the other ranks from here on; inside a run all ranks print."""
    if os.environ["RANK"] != "0" and sys.stdout is sys.__stdout__:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # open for as long as the script runs


@cache
def say_once(text: str) -> None:
    """Print what is true of the whole job."""
    print(text)


class TooFewRanks(ClusterError):
    """A check's run needs more ranks than there are. The judge hears of it, and no reader."""


@contextmanager
def checking() -> Iterator[None]:
    """In it, a run that there are too few ranks for raises TooFewRanks instead of being skipped:
    to a check, a run without results is a wrong answer."""
    here = job() if active() else None
    if here is not None:
        here.checking = True
    try:
        yield
    finally:
        if here is not None:
            here.checking = False


class Job:
    """The ranks of this job, and a group of their own to exchange replies over.

    `hosts` are the ranks of each host, rank 0's first.
    """

    def __init__(self) -> None:
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        self.store, self.rank, self.size = next(rendezvous("env://"))
        store = PrefixStore("ddpkit", self.store)
        seats = hosts.meet(store, self.rank, self.size)
        self.hosts = hosts.by_host(seats)
        control = PrefixStore("control", store)
        self.control: Any = dist.ProcessGroupGloo(control, self.rank, self.size, GROUP_TIMEOUT)
        line, lines = wire.call(store, self.rank, self.size, seats[0].address)
        names = self._names(seats)
        self.teller = Teller(self.rank, line, names[0] if self._is_next_of_kin() else None)
        self.lookout = Lookout(lines, names) if self.rank == 0 else None
        self.runs = 0
        self.checking = False
        atexit.register(self.leave)
        only_rank_0_prints()
        sys.excepthook = self._uncaught

    def _names(self, seats: Sequence[Seat]) -> list[str]:
        """What a reader calls the ranks: the host matters where there are several."""
        several = len(self.hosts) > 1
        return [
            f"rank {rank}{f' on host {seat.host}' * several}" for rank, seat in enumerate(seats)
        ]

    def _is_next_of_kin(self) -> bool:
        """Whether this rank is the first of its host but for rank 0: one says it on each host."""
        return bool(self.rank) and self.rank == min(filter(None, self.on_this_host()))

    def fail(self, error: BaseException) -> NoReturn:
        """Say why this rank cannot go on: to torchrun's report, and to rank 0, which explains."""
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        said = report(error)
        if not is_echo(said):
            get_error_handler().record_exception(error)
        self.teller.raised(said)

    def _uncaught(self, _: object, error: BaseException, traceback: object) -> None:
        """All ranks run the script, so they mostly fail alike; it is said once."""
        try:
            raise error  # torchrun's report wants the exception that is being handled
        except BaseException:
            self.fail(error)

    def leave(self) -> None:
        """Say goodbye, so that nobody takes the end of this rank for a failure.

        End gloo's threads before the interpreter ends: one that lets go of a tensor later, when
        there is no interpreter any more to ask, aborts the process.
        """
        self.teller.leave()
        if self.lookout is not None:
            self.lookout.leave()
        self.control = None
        gc.collect()

    def on_this_host(self) -> list[int]:
        """The ranks of the job on this rank's host."""
        return next(ranks for ranks in self.hosts if self.rank in ranks)

    def agree(self, mine: Place) -> Place:
        """A place for the ranks of all hosts: NCCL if every host has GPUs enough for it.

        Raises ClusterError if some compute on the CPU and others do not.
        """
        places: list[Place] = [pickle.loads(data) for data in self.all_gather(pickle.dumps(mine))]
        if len({place.device for place in places}) > 1:
            said = ", ".join(f"rank {rank}: {place.device}" for rank, place in enumerate(places))
            raise ClusterError(f"all ranks need the same device, by device= or {VARIABLE}: {said}")
        return min(places, key=lambda place: place.backend)  # "gloo" before "nccl"

    def all_gather(self, data: bytes) -> list[bytes]:
        """The bytes of every rank, on every rank."""
        import torch

        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self.control.allgather([sizes], [torch.tensor([len(data)])]).wait()
        longest = max(int(size) for size in sizes)
        mine = torch.zeros(longest, dtype=torch.uint8)
        if data:
            mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        all_data = [torch.empty_like(mine) for _ in range(self.size)]
        self.control.allgather([all_data], [mine]).wait()
        return [
            bytes(tensor[: int(size)].numpy()) for tensor, size in zip(all_data, sizes, strict=True)
        ]


@cache
def job() -> Job:
    """The job that this process belongs to, joined at the first call."""
    return Job()


def run(request: Request, *, expect_error: bool) -> Outcome:
    """Call the function on the first ranks of the job; all ranks get the outcome.

    Whatever fails ends the job: the other ranks may be waiting for this one inside the function,
    and torchrun, not we, could start them again.
    """
    here, world_size = job(), request.world_size
    if expect_error:
        print("Left out under torchrun: this run breaks its ranks on purpose.")
        return _skipped(request, "it breaks its ranks on purpose")
    if world_size > here.size:
        said = f"it needs {world_size} ranks, and torchrun started {here.size}."
        if here.checking:
            raise TooFewRanks(said)
        print(f"Skipped: {said}")
        return _skipped(request, said)
    here.runs += 1
    if here.lookout is not None:
        here.lookout.watch(request)
    try:
        return _run(here, request)
    except BaseException as error:
        here.fail(error)


def _skipped(request: Request, why: str) -> Outcome:
    """Of a run that was not made: no results, and a trace of which nothing can be shown."""
    return Outcome([None] * request.world_size, facts={"skipped": why})


def _run(here: Job, request: Request) -> Outcome:
    import torch.distributed as dist

    before = clocks.read(here.control, here.hosts)
    reply = _call(here, request) if here.rank < request.world_size else None
    clock = Clock(before, clocks.read(here.control, here.hosts))
    here.teller.returned()
    gathered = here.all_gather(pickle.dumps((clock, reply)))
    if here.lookout is not None:
        here.lookout.agree()
    if here.rank < request.world_size:
        dist.destroy_process_group()  # nobody is inside it any more: all have replied
    replies = [pickle.loads(data) for data in gathered]
    return _outcome(here, [clock for clock, _ in replies], [r for _, r in replies if r is not None])


def _outcome(here: Job, read: Sequence[Clock], replies: Sequence[Reply]) -> Outcome:
    """The replies of a run's ranks, all times by rank 0's clock. `read` has one of every rank."""
    clock_of = {rank: read[ranks[0]] for ranks in here.hosts for rank in ranks}
    facts: dict[str, Scalar] = {}
    if len(here.hosts) > 1:
        worst = max(clock.error_ns for clock in clock_of.values())
        facts = {"hosts": len(here.hosts), "clock_error_ns": worst}
    return Outcome(
        results=[unpack_result(reply.result) for reply in replies],
        output="\n".join(line for reply in replies for line in reply.lines),
        spans=[
            clock_of[rank].move(span) for rank, reply in enumerate(replies) for span in reply.spans
        ],
        left_out={rank: reply.left_out for rank, reply in enumerate(replies)},
        facts=facts,
    )


@dataclass(frozen=True)
class Reply:
    """What a rank sends to all when its function has returned."""

    result: list[bytearray]  # packed
    spans: list[Span]
    left_out: LeftOut
    lines: list[str]  # what it printed


def _call(here: Job, request: Request) -> Reply:
    """Run the function on this rank, watched by rank 0."""
    from ddpkit.rank.compute import watch

    box = _black_box()
    recorder, printed = Recorder(here.rank, box), Labelled(here.rank)
    record.activate(recorder)
    seed_all(request.seed, here.rank)
    use_device(request.place.device, here.on_this_host().index(here.rank))
    _join(here, request)
    # A copy, as a rank of a notebook gets it: what it does to globals is over with the run.
    function, args, kwargs = unpack_call([bytearray(part) for part in request.payload])
    args, kwargs = pick(args, here.rank), pick(kwargs, here.rank)
    start_together()
    here.teller.begin(Agent(recorder, box))
    with watch(recorder) if request.record else nullcontext(), redirect_stdout(printed):
        result = function(*args, **kwargs)
    recorder.finish()
    record.activate(None)
    leave_device(request.place.device)
    try:
        parts = [bytearray(part) for part in pack_result(result)]
    except Exception as error:
        raise UnsendableResultError(function, result, error) from None
    return Reply(parts, recorder.spans(), recorder.log.left_out(), printed.lines())


def _black_box() -> BlackBox:
    """One that only this process reads: its file has gone as soon as it is mapped."""
    with run_folder() as folder:
        return BlackBox.create(folder / "rank")


def _join(here: Job, request: Request) -> None:
    """Join the default process group of a run."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore

    from ddpkit.rank import group

    group.register()
    hook = sys.excepthook
    dist.init_process_group(
        f"ddpkit_{request.place.backend}",
        store=PrefixStore(f"ddpkit/run{here.runs}", here.store),
        rank=here.rank,
        world_size=request.world_size,
        timeout=GROUP_TIMEOUT,
    )
    sys.excepthook = hook  # each call wraps it into one more, which writes "[rank0]:" everywhere
