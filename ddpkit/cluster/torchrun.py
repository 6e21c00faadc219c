"""The same runs on ranks that torchrun (or srun, or any launcher of its kind) has started.

Every rank executes the whole script. A run calls the function in place, on the first `world_size`
ranks of the job, and gathers what they returned on all of them, so that the script goes on alike
everywhere; what the script prints outside a run comes from rank 0 alone.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from typing import Any

from ddpkit.cluster.outcome import Outcome, rank_error
from ddpkit.cluster.output import RankOutput
from ddpkit.rank import record
from ddpkit.rank.main import GROUP_TIMEOUT, pick, seed_all
from ddpkit.rank.record import Recorder
from ddpkit.rank.report import report
from ddpkit.rank.ship import pack_call, pack_result, unpack_call, unpack_result

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def active() -> bool:
    """Whether this process is a rank that a launcher started."""
    return all(name in os.environ for name in LAUNCHED)


class Job:
    """The ranks of this job, and a group of their own to exchange replies over."""

    def __init__(self) -> None:
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        self.store, self.rank, self.size = next(rendezvous("env://"))
        store = PrefixStore("ddpkit/control", self.store)
        self.control: Any = dist.ProcessGroupGloo(store, self.rank, self.size, GROUP_TIMEOUT)
        self.runs = 0
        atexit.register(self.leave)
        if self.rank != 0:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # open for as long as the script runs

    def leave(self) -> None:
        """End gloo's threads before the interpreter ends: one that lets go of a tensor later, when
        there is no interpreter any more to ask, aborts the process."""
        self.control = None
        gc.collect()

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


def run(
    world_size: int,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    seed: int,
    expect_error: bool,
) -> Outcome:
    """Call the function on the first ranks of the job; all ranks get the outcome.

    An exception ends its rank and so, by torchrun, the job: the other ranks may be waiting for this
    one inside the function, and there is no launcher of ours to free them.
    """
    here = job()
    nothing = Outcome([None] * world_size)
    if expect_error:
        print("Left out under torchrun: this run breaks its ranks on purpose.")
        return nothing
    if world_size > here.size:
        print(f"Skipped: it needs {world_size} ranks, and torchrun started {here.size}.")
        return nothing
    here.runs += 1
    reply = b""
    if here.rank < world_size:
        reply = _call(
            here, world_size, function, pick(args, here.rank), pick(kwargs, here.rank), seed
        )
    replies = [pickle.loads(data) for data in here.all_gather(reply)[:world_size]]
    if here.rank < world_size:
        import torch.distributed as dist

        dist.destroy_process_group()  # nobody is inside it any more: all have replied
    return Outcome(
        results=[unpack_result(parts) for parts, _, _ in replies],
        output="\n".join(line for _, _, lines in replies for line in lines),
        spans=[span for _, spans, _ in replies for span in spans],
    )


def _call(
    here: Job,
    world_size: int,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    seed: int,
) -> bytes:
    """Run the function on this rank; returns its pickled (result, spans, output)."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore

    from ddpkit.rank import group
    from ddpkit.rank.compute import watch

    recorder, printed = Recorder(here.rank), _Labelled(here.rank)
    record.activate(recorder)
    group.register()
    seed_all(seed, here.rank)
    dist.init_process_group(
        "ddpkit_gloo",
        store=PrefixStore(f"ddpkit/run{here.runs}", here.store),
        rank=here.rank,
        world_size=world_size,
        timeout=GROUP_TIMEOUT,
    )
    # A copy, as a rank of a notebook gets it: what it does to globals is over with the run.
    parts = [bytearray(part) for part in pack_call(function, args, kwargs)]
    function, args, kwargs = unpack_call(parts)
    try:
        with watch(recorder), redirect_stdout(printed):
            result = function(*args, **kwargs)
    except Exception as error:
        print(f"RankError: {rank_error({here.rank: report(error)})}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)
    recorder.finish()
    record.activate(None)
    parts = [bytearray(part) for part in pack_result(result)]
    return pickle.dumps((parts, list(recorder.spans), printed.lines()))


class _Labelled(io.TextIOBase):
    """Shows each line with its rank, on the real standard output, and keeps it."""

    def __init__(self, rank: int) -> None:
        self.label, self.kept, self.partial = f"[rank {rank}] ", RankOutput(), ""
        self.shown: Any = sys.__stdout__

    def write(self, text: str) -> int:
        self.kept.feed(text.encode())
        *whole, self.partial = (self.partial + text).split("\n")
        for line in whole:
            # In one write: torchrun runs Python unbuffered, and print would write the "\n" apart.
            self.shown.write(f"{self.label}{line}\n")
            self.shown.flush()
        return len(text)

    def lines(self) -> list[str]:
        if self.partial:
            self.write("\n")
        self.kept.feed(b"", final=True)
        return [self.label + line for line in self.kept.text()]
