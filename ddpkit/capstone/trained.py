"""What an answer's ranks did, and what that is worth: no clock is read, and no loss believed.

`observed` runs beside the answer, in the grader's sandbox too. `outcome` judges what it says: it
computes the held-out loss of the parameters, and the time of the programs that the ranks say they
ran (`ddpkit.simulate.claimed`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ddpkit.capstone.task import LINK, MACHINE, RANKS, TextTask, floor_flops, floor_ms, least_bytes
from ddpkit.cluster.torchrun.job import NoEmulatedTime, active
from ddpkit.errors import LessonError
from ddpkit.exercises.ranks import Did, call
from ddpkit.machine import machines_of
from ddpkit.simulate.claimed import MESSAGES, program_ns
from ddpkit.simulate.operations import schedule_of

CLOCKS = 0.01  # relative difference between the ranks' clocks and the recomputed time
APART = 1e-4  # difference between two ranks' parameters
ALIKE = 0.6  # cosine; nine optimizers, 20 to 150 steps: 0.89 and more; independent tables: 0.0
MOST = 1 << 24  # bytes of programs, unpacked: 14 times those of the course's own answer
Program = list[Any]  # of a rank, see `ddpkit.simulate.claimed`


@dataclass(frozen=True)
class Outcome:
    """What a training is worth. Times in ms, sizes in bytes."""

    loss: float  # of the held-out text, by rank 0's model; infinite if that is no such model
    apart: float  # the most by which a parameter differs between two ranks
    ms: float  # from the common start to the last rank's end, recomputed
    clock: float  # the same by the ranks' own clocks
    beyond: bool  # whether the ranks did what cannot be recomputed: then `ms` is too little
    sent: int  # by all ranks, in messages: those of which collectives are made too
    peak: int  # the most that a rank held: parameters, gradients, optimizer, activations
    shares: tuple[float, ...]  # of all that was computed, by rank
    handed_in: tuple[int, ...]  # bytes given to torch.distributed, by rank
    products: int  # FLOPs of matrix products, by all ranks
    alike: float  # cosine of the letters' and places' tables with the given tables, the lower one

    @property
    def time(self) -> str:
        """Return "recomputed", or the reason why no time is believed."""
        if self.beyond:
            return "cannot be recomputed"
        if self.ms < floor_ms() or self.products < floor_flops():
            return "below the floor"
        same = abs(self.clock - self.ms) <= CLOCKS * self.ms
        return "recomputed" if same else "not that of the clock"

    @property
    def ranks(self) -> str:
        """Return "all train", or the fault of a rank: it rests, or sends less than one gradient."""
        if min(self.shares) <= 0.5 / RANKS:
            return "one rests"
        return "all train" if min(self.handed_in) >= least_bytes() else "one is silent"

    @property
    def replicas(self) -> str:
        """Return "equal" or "different"."""
        return "equal" if self.apart <= APART else "different"

    @property
    def start(self) -> str:
        """Return "the given weights", or "other weights" if the tables are not the given ones."""
        return "the given weights" if self.alike >= ALIKE else "other weights"


def on_a_rank(train: Callable[..., Any], model: Any, text: Any) -> Any:
    """Train, on a rank; the parameters, float32 (n,), in the order in which the model came.

    What is made by NumPy here is not counted.
    """
    import numpy as np
    import torch

    names = [name for name, _ in model.named_parameters()]
    train(model, torch.from_numpy(text.astype(np.int64)))
    state = {name: p.detach() for name, p in model.named_parameters()}
    if sorted(state) != sorted(names):
        return torch.empty(0)
    flat = [state[name].numpy().ravel() for name in names]
    return torch.from_numpy(np.concatenate(flat).astype(np.float32))


def observed(train: Callable[..., Any], model: Any, text: Any) -> dict[str, Any]:
    """What came of a training, and what all ranks did for it, as a claim may hold it."""
    if active():
        raise NoEmulatedTime(NoEmulatedTime.reason)
    on_ranks = partial(on_a_rank, train)
    return claimed(call(on_ranks, model, text, world_size=RANKS, machine=MACHINE, link=LINK))


def claimed(did: Did) -> dict[str, Any]:
    """What `outcome` needs to know of a call of `on_a_rank`."""
    first, *others = did.returned
    alike = all(each.shape == first.shape for each in others)
    apart = [float((each - first).abs().max()) if len(each) else 0.0 for each in others if alike]
    windows = [did.trace.window_of(rank) for rank in did.trace.ranks]
    return {
        "model": first,
        "apart": max(apart) if alike else float("inf"),
        "clock": (max(end for _, end in windows) - min(start for start, _ in windows)) / 1e6,
        "peak": max(did.peak),
        "programs": zlib.compress(json.dumps(did.programs).encode()),
    }


def outcome(task: TextTask, claim: Mapping[str, Any]) -> Outcome:
    """What a claim of `observed` is worth. Raises LessonError: it is none."""
    try:
        programs = _unpacked(claim["programs"])
        known = [[entry for entry in each if entry[0] != "beyond"] for each in programs]
        ms = program_ns(known, MACHINE, LINK) / 1e6
        beyond = known != programs
        work = [_work_ns(each) for each in known]
        return Outcome(
            task.loss(claim["model"]),
            float(claim["apart"]),
            ms,
            float(claim["clock"]),
            beyond,
            sum(_sent(rank, each) for rank, program in enumerate(known) for each in program),
            int(claim["peak"]),
            tuple(each / max(sum(work), 1) for each in work),
            tuple(sum(map(_handed_in, program)) for program in known),
            sum(int(e[5] * e[3]) for each in known for e in each if e[:2] == ["work", "matmul"]),
            task.alike(claim["model"]),
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, zlib.error) as error:
        raise LessonError(f"this training cannot be judged: {error}") from None


def _unpacked(data: bytes) -> Sequence[Program]:
    """The programs in a claim, which may be a stranger's; raises ValueError."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, MOST)
    if unpacking.unconsumed_tail:
        raise ValueError("the ranks' programs are far too long")
    programs: Any = json.loads(text)
    if not isinstance(programs, list) or len(programs) != RANKS:
        raise ValueError(f"the programs must be a list with one for each of {RANKS} ranks")
    return [list(each) for each in programs]


def _work_ns(program: Program) -> int:
    """What a rank computes, without any wait."""
    (machine,) = machines_of(MACHINE, 1)
    done = 0
    for _, kind, dtype, flops, nbytes, times in (e for e in program if e[0] == "work"):
        done += int(times) * machine.cost_ns(kind, flops, nbytes, dtype)
    return done


def _handed_in(entry: Sequence[Any]) -> int:
    """Return the bytes of an entry, given to torch.distributed."""
    if entry[0] == "exchange":
        return int(sum(entry[3]))
    if entry[0] != "post" or (entry[2] in MESSAGES and entry[2] != "send"):
        return 0
    return int(entry[3])


def _sent(rank: int, entry: Sequence[Any]) -> int:
    """The bytes of an entry's messages; those of a collective count with its first rank."""
    if entry[0] == "exchange":
        _, _, _, sends, _, _, members, _ = entry
        return int(sum(sends) - sends[list(members).index(rank)])
    if entry[0] != "post":
        return 0
    _, _, op, nbytes, _, members, *_ = entry
    if op in MESSAGES:
        return int(nbytes) if op == "send" else 0
    return schedule_of(op, nbytes, len(members)).sent() if rank == members[0] else 0
