"""Inside a rank: from an empty process to the user's function and back.

A rank joins the process group, calls the function, sends back what it returned and stays, sockets
open, until the launcher ends it: a rank that left early would make its peers fail with "connection
closed by peer", which hides the cause. Nothing is torn down; a dead process has leaked nothing.
"""

from __future__ import annotations

import pickle
import random
import sys
import threading
from datetime import timedelta
from typing import Any

from ddpkit.protocol.blackbox import BlackBox
from ddpkit.protocol.per_rank import pick
from ddpkit.protocol.ship import pack_result, read_call, send_reply
from ddpkit.rank.agent import Agent
from ddpkit.rank.process import Job, Pipes, settle
from ddpkit.rank.record.recorder import Recorder, activate, current
from ddpkit.rank.report import UnsendableResultError, report

# The launcher sees a deadlock within seconds; gloo's own limit (30 minutes) would instead end a
# rank that rightly waits for a slow peer.
GROUP_TIMEOUT = timedelta(days=7)


def main(job: Job, pipes: Pipes) -> None:
    """The whole life of a rank."""
    settle(job, pipes)
    box = BlackBox(job.folder / f"rank{job.rank}")
    recorder = Recorder(job.rank, box)
    agent = Agent(recorder, box)
    agent.start()
    reply: list[Any]
    try:
        reply = _work(job, recorder, agent)
    except BaseException as error:
        reply = [pickle.dumps(("raised", report(error)))]
    agent.phase = "returned"
    box.write_status(agent.status())
    sys.stdout.flush()
    sys.stderr.flush()
    send_reply(pipes.reply, [pickle.dumps((recorder.spans(), recorder.log.left_out())), *reply])
    threading.Event().wait()  # until the launcher ends this process


def _work(job: Job, recorder: Recorder, agent: Agent) -> list[Any]:
    activate(recorder)
    join(job)
    function, args, kwargs = read_call(job.folder / "call")
    args, kwargs = pick(args, job.rank), pick(kwargs, job.rank)
    start_together()
    agent.phase = "running"
    if job.record:
        from ddpkit.rank.record.compute import watch

        with watch(recorder):
            result = function(*args, **kwargs)
    else:
        result = function(*args, **kwargs)
    recorder.finish()
    try:
        parts = pack_result(result)
    except Exception as error:
        raise UnsendableResultError(function, result, error) from None
    return [pickle.dumps(("returned", None)), *parts]


def join(job: Job) -> None:
    """Join the process group, with this rank's threads and random numbers set."""
    import torch
    import torch.distributed as dist

    from ddpkit.protocol.noticeboard import Noticeboard
    from ddpkit.rank.group import recorded as group
    from ddpkit.rank.group.emulated import Wire

    torch.set_num_threads(job.threads)
    seed_all(job.seed, job.rank)
    use_device(job.device, job.rank)
    wire = None
    if job.links is not None:
        board = Noticeboard(job.folder / "notices", job.world_size)
        wire = Wire(job.rank, job.links, board)
    group.register(wire)
    store = torch._C._distributed_c10d.FileStore(str(job.folder / "store"), job.world_size)
    dist.init_process_group(
        f"ddpkit_{job.backend}",
        store=store,
        rank=job.rank,
        world_size=job.world_size,
        timeout=GROUP_TIMEOUT,
    )


def use_device(device: str, local_rank: int) -> None:
    """Let this rank have the GPU of its number, if it is to have one, and its tensors be there.

    So what a cell makes on a laptop's CPU, `torch.zeros(4)`, the same cell makes on a GPU.
    """
    if device != "cuda":
        return
    import torch

    from ddpkit.rank.record.clock import GpuClock

    gpu = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(gpu)
    torch.set_default_device(gpu)
    recorder = current()
    assert recorder is not None
    recorder.clock = GpuClock()


def leave_device(device: str) -> None:
    """After the run, in a process that goes on, tensors are made where they were before."""
    if device == "cuda":
        import torch

        torch.set_default_device(None)


def start_together() -> None:
    """Wait for all ranks, unrecorded, so that a timeline shows the function and not the start."""
    import torch.distributed as dist

    dist.group.WORLD._inner.barrier().wait()  # type: ignore[union-attr]


def seed_all(seed: int, rank: int) -> None:
    """Seed torch, numpy and random with `1000 * seed + rank`.

    Forked ranks share their random state: unseeded, all would draw the same numbers.
    """
    import torch

    torch.manual_seed(1000 * seed + rank)
    random.seed(1000 * seed + rank)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed((1000 * seed + rank) % 2**32)
