"""Runs on ranks that torchrun (or srun, or any launcher of its kind) has started.

Every rank executes the whole script. A run calls the function in place, on the first `world_size`
ranks of the job, and gathers what they returned on all of them, so that the script goes on alike
everywhere; what the script prints outside a run comes from rank 0 alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import redirect_stdout

from ddpkit.cluster.local.launch import run_folder
from ddpkit.cluster.local.request import Request
from ddpkit.cluster.outcome import RunOutcome
from ddpkit.cluster.output import Labelled
from ddpkit.cluster.torchrun import clocks
from ddpkit.cluster.torchrun.clocks import ClockShift
from ddpkit.cluster.torchrun.job import TooFewRanks, TorchrunJob, job
from ddpkit.protocol.blackbox import BlackBox
from ddpkit.protocol.reply import Reply
from ddpkit.protocol.ship import unpack_call, unpack_result
from ddpkit.rank.agent import Agent
from ddpkit.rank.life import live
from ddpkit.rank.record.recorder import Recorder
from ddpkit.trace import Scalar


def run(request: Request, *, expect_error: bool) -> RunOutcome:
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
        print(f"Skipped: {world_size} ranks." if world_size in here.skipped else f"Skipped: {said}")
        here.skipped.add(world_size)
        return _skipped(request, said)
    here.runs += 1
    if here.watcher is not None:
        here.watcher.watch(request)
    try:
        return _run(here, request)
    except BaseException as error:
        here.fail(error)


def _skipped(request: Request, why: str) -> RunOutcome:
    """The outcome of a run that was not made: no results, and a trace that shows nothing."""
    return RunOutcome([None] * request.world_size, facts={"skipped": why})


def _run(here: TorchrunJob, request: Request) -> RunOutcome:
    import torch.distributed as dist

    before = clocks.read(here.control, here.hosts)
    reply = _call(here, request) if here.rank < request.world_size else None
    clock = ClockShift(before, clocks.read(here.control, here.hosts))
    here.messenger.returned()
    gathered = here.all_gather(pickle.dumps((clock, reply)))
    if here.watcher is not None:
        here.watcher.agree()
    if here.rank < request.world_size:
        dist.destroy_process_group()  # nobody is inside it any more: all have replied
    replies = [pickle.loads(data) for data in gathered]
    return _outcome(here, [clock for clock, _ in replies], [r for _, r in replies if r is not None])


def _outcome(here: TorchrunJob, read: Sequence[ClockShift], replies: Sequence[Reply]) -> RunOutcome:
    """The replies of a run's ranks, all times by rank 0's clock. `read` has one of every rank."""
    clock_of = {rank: read[ranks[0]] for ranks in here.hosts for rank in ranks}
    facts: dict[str, Scalar] = {"restart": here.restart} if here.restart else {}
    if len(here.hosts) > 1:
        worst = max(clock.error_ns for clock in clock_of.values())
        facts |= {"hosts": len(here.hosts), "clock_error_ns": worst}
    return RunOutcome(
        results=[unpack_result(reply.result) for reply in replies],
        output="\n".join(line for reply in replies for line in reply.printed),
        spans=[
            clock_of[rank].move(span) for rank, reply in enumerate(replies) for span in reply.spans
        ],
        dropped={rank: reply.dropped for rank, reply in enumerate(replies)},
        facts=facts,
    )


def _call(here: TorchrunJob, request: Request) -> Reply:
    """Run the function on this rank, watched by rank 0."""
    from torch.distributed import PrefixStore

    box = _black_box()
    recorder, printed = Recorder(here.rank, box), Labelled(here.rank)
    result = live(
        request.assignment(here.rank, here.on_this_host().index(here.rank)),
        recorder,
        store=PrefixStore(f"ddpkit/run{here.runs}", here.store),
        # A copy, as a rank of a notebook gets it: what it does to globals is over with the run.
        read_call=lambda: unpack_call([bytearray(part) for part in request.payload]),
        begin=lambda: here.messenger.begin(Agent(recorder, box)),
        output=redirect_stdout(printed),
    )
    return Reply(
        recorder.spans(),
        recorder.log.dropped(),
        result=[bytearray(part) for part in result],
        printed=printed.lines(),
    )


def _black_box() -> BlackBox:
    """A black box that only this process reads: its file has gone as soon as it is mapped."""
    with run_folder() as folder:
        return BlackBox.create(folder / "rank")
