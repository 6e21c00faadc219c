"""Runs on ranks started by torchrun, srun or a similar launcher.

Every rank executes the whole script. A run calls the function in place, on the first `world_size`
ranks of the job. All ranks of the job get all results, so the script continues in the same way on
every rank. Outside a run, only rank 0 prints.
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

    Any failure ends the job. After a failure, the peers of a rank may block inside the function,
    and only torchrun can start ranks again.
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
    """Return the outcome of a skipped run, without results, and with an empty trace."""
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
        dist.destroy_process_group()  # all ranks have replied, so no rank uses the group any more
    replies = [pickle.loads(data) for data in gathered]
    return _outcome(here, [clock for clock, _ in replies], [r for _, r in replies if r is not None])


def _outcome(here: TorchrunJob, read: Sequence[ClockShift], replies: Sequence[Reply]) -> RunOutcome:
    """Return the outcome of a run, with all times on rank 0's clock.

    `read` has a clock shift for every rank of the job.
    """
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
    """Run the function on the current rank, while rank 0 watches."""
    from torch.distributed import PrefixStore

    box = _black_box()
    recorder, printed = Recorder(here.rank, box), Labelled(here.rank)
    result = live(
        request.assignment(here.rank, here.on_this_host().index(here.rank)),
        recorder,
        store=PrefixStore(f"ddpkit/run{here.runs}", here.store),
        # The rank gets a copy, like a rank of a notebook: changes of globals end with the run.
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
    """Return a black box for the current process alone. The file is deleted after the mapping."""
    with run_folder() as folder:
        return BlackBox.create(folder / "rank")
