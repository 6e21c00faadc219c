"""What an answer's ranks did, and what that is worth: no clock is read, and no loss believed.

`begun` runs beside the answer, in the grader's sandbox too. `outcome` judges the claim: it
compares the parameters with those that one process gets from all shards, computes the held-out
loss, and the time of the programs that the ranks say they ran (`ddpkit.simulate.engine.claimed`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ddpkit.capstone.task import LINK, MACHINE, RANKS, TextTask, floor_flops, floor_ms
from ddpkit.cluster.torchrun.job import NoEmulatedTime, active
from ddpkit.errors import LessonError
from ddpkit.exercises.ranks import Did, together
from ddpkit.simulate.engine.claimed import MESSAGES, program_ns
from ddpkit.simulate.engine.operations import schedule_of

CLOCKS = 0.01  # relative difference between the ranks' clocks and the recomputed time
APART = 1e-4  # difference between two ranks' parameters
NEAR = 0.06  # the largest distance to the wanted parameters; the start is at distance 1
MOST = 1 << 24  # bytes of programs, unpacked: 14 times those of the course's own answer
Program = list[Any]  # of a rank, see `ddpkit.simulate.engine.claimed`


@dataclass(frozen=True)
class Outcome:
    """What a training is worth. Times in ms, sizes in bytes."""

    loss: float  # rank 0's model on the held-out texts of all dialects
    off: float  # distance to the parameters asked for: 0 there, 1 at the start
    apart: float  # the most by which a parameter differs between two ranks
    ms: float  # from the common start to the last rank's end, recomputed
    clock: float  # the same by the ranks' own clocks
    beyond: bool  # whether the ranks did what cannot be recomputed: then `ms` is too little
    sent: int  # by all ranks, in messages: those of which collectives are made too
    peak: int  # the most that a rank held: parameters, gradients, optimizer, activations
    products: int  # FLOPs of matrix products, by all ranks

    @property
    def time(self) -> str:
        """Return "recomputed", or the reason why no time is believed."""
        if self.beyond:
            return "cannot be recomputed"
        if self.ms < floor_ms() or self.share < 1:
            return "too little"
        same = abs(self.clock - self.ms) <= CLOCKS * self.ms
        return "recomputed" if same else "not that of the clock"

    @property
    def share(self) -> float:
        """The matrix products of the ranks, in those of all stretches' gradients."""
        return self.products / floor_flops()

    @property
    def model(self) -> str:
        """Return "the same", or "another" if this is not the model of the given script."""
        return "the same" if self.off <= NEAR else "another"

    @property
    def replicas(self) -> str:
        """Return "equal" or "different"."""
        return "equal" if self.apart <= APART else "different"


def on_a_rank(train: Callable[..., Any], model: Any, shard: Any) -> Any:
    """Train, on a rank; the parameters, float32 (n,), in the order in which the model came.

    shard  the rank's stretches, a list for each step

    NumPy's work here is not counted.
    """
    import numpy as np
    import torch

    names = [name for name, _ in model.named_parameters()]
    train(model, shard)
    state = {name: p.detach() for name, p in model.named_parameters()}
    if sorted(state) != sorted(names):
        return torch.empty(0)
    flat = [state[name].numpy().ravel() for name in names]
    return torch.from_numpy(np.concatenate(flat).astype(np.float32))


def begun(train: Callable[..., Any], task: TextTask) -> Callable[[], dict[str, Any]]:
    """Return a function that trains on all ranks when first called, and returns the claim.

    The claim has the model and the programs of the ranks. Later calls return the claim of the same
    run.
    """
    calls = [[(task.model(), shard) for shard in task.shards]]
    (did,) = together(partial(on_a_rank, train), calls, machine=MACHINE, link=LINK)
    return partial(claim_of, did)


def claim_of(did: Callable[[], Did]) -> dict[str, Any]:
    """Return the claim of a run, which begins now if it has not begun."""
    if active():
        raise NoEmulatedTime(NoEmulatedTime.reason)
    return claimed(did())


def observed(train: Callable[..., Any], task: TextTask) -> dict[str, Any]:
    """Return the claim of a training."""
    return begun(train, task)()


def claimed(did: Did) -> dict[str, Any]:
    """Return the claim of a call of `on_a_rank`: `outcome` needs no more."""
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
        return Outcome(
            task.loss(claim["model"]),
            task.off(claim["model"]),
            float(claim["apart"]),
            ms,
            float(claim["clock"]),
            beyond,
            sum(_sent(rank, each) for rank, program in enumerate(known) for each in program),
            int(claim["peak"]),
            sum(int(e[5] * e[3]) for each in known for e in each if e[:2] == ["work", "matmul"]),
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
        raise ValueError(f"the programs must be a list with one program for each of {RANKS} ranks")
    return [list(each) for each in programs]


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
