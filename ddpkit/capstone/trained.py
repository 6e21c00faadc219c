"""The claim of an answer's ranks about a training, and the outcome recomputed from the claim.

`begun` runs beside the answer, also in the grader's sandbox. `outcome` judges the claim.
`outcome` compares the parameters with the wanted parameters (`TextTask.trained`), and computes the
held-out loss. `outcome` also computes the time of the ranks' recorded programs
(`ddpkit.simulate.engine.claimed`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.capstone.task import LINK, MACHINE, RANKS, TextTask, floor_flops, floor_ms
from ddpkit.cluster.torchrun.job import NoEmulatedTime, active
from ddpkit.errors import LessonError
from ddpkit.exercises.ranks import Did, together
from ddpkit.simulate.engine.claimed import MESSAGES, program_ns
from ddpkit.simulate.engine.operations import schedule_of

if TYPE_CHECKING:
    from torch import Tensor, nn

CLOCKS = 0.01  # largest relative difference between the ranks' clocks and the recomputed time
APART = 1e-4  # largest difference between two ranks' parameters
NEAR = 0.06  # largest distance to the wanted parameters; the start is at distance 1
MOST = 1 << 24  # largest size of unpacked programs, in bytes: 14 times the course's own answer
Program = list[Any]  # the entries of one rank's program, see `ddpkit.simulate.engine.claimed`


@dataclass(frozen=True)
class Outcome:
    """The judged costs of a training. Times in ms, sizes in bytes."""

    loss: float  # loss of rank 0's model on the held-out texts of all dialects
    off: float  # distance to the wanted parameters; the start is at distance 1
    apart: float  # largest difference of a parameter between rank 0 and a further rank
    ms: float  # recomputed time: common start to the last rank's end
    clock: float  # time by the ranks' own clocks: first start to last end
    beyond: bool  # True if some work cannot be recomputed: `ms` is then too small
    sent: int  # bytes of all ranks' messages, including the messages inside collectives
    peak: int  # largest memory of a rank: parameters, gradients, optimizer, activations
    products: int  # FLOPs of matrix products, summed over all ranks

    @property
    def time(self) -> str:
        """The word "recomputed", or the reason why the time is not accepted."""
        if self.beyond:
            return "cannot be recomputed"
        if self.ms < floor_ms() or self.share < 1:
            return "too little"
        same = abs(self.clock - self.ms) <= CLOCKS * self.ms
        return "recomputed" if same else "not that of the clock"

    @property
    def share(self) -> float:
        """The ranks' matrix products divided by `floor_flops`."""
        return self.products / floor_flops()

    @property
    def model(self) -> str:
        """The words "the same" for the model of the given script, or "another"."""
        return "the same" if self.off <= NEAR else "another"

    @property
    def replicas(self) -> str:
        """The word "equal" if all ranks have the same parameters, or "different"."""
        return "equal" if self.apart <= APART else "different"


def on_a_rank(train: Callable[..., object], model: nn.Module, shard: object) -> Tensor:
    """Train on a rank. Return the parameters, float32 (n,), in the order of the given model.

    shard  the rank's stretches, a list for each step

    Returns an empty tensor if training changed the names of the parameters. The parameters are
    joined with NumPy, since the emulated machine does not count the work of NumPy.
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


def begun(train: Callable[..., object], task: TextTask) -> Callable[[], dict[str, object]]:
    """Return a function that trains on all ranks at the first call, and returns the claim.

    The claim has the trained parameters and the ranks' programs. All calls return the claim of the
    first call's run.
    """
    calls = [[(task.model(), shard) for shard in task.shards]]
    (did,) = together(partial(on_a_rank, train), calls, machine=MACHINE, link=LINK)
    return partial(claim_of, did)


def claim_of(did: Callable[[], Did]) -> dict[str, object]:
    """Return the claim of a run; start the run at the first call.

    Raises NoEmulatedTime under torchrun.
    """
    if active():
        raise NoEmulatedTime(NoEmulatedTime.reason)
    return claimed(did())


def observed(train: Callable[..., object], task: TextTask) -> dict[str, object]:
    """Return the claim of a training."""
    return begun(train, task)()


def claimed(did: Did) -> dict[str, object]:
    """Return the claim of a run of `on_a_rank`: the values that `outcome` needs."""
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
    """Return the outcome of a claim of `observed`. Raises LessonError for a malformed claim."""
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
    """Return the programs in an untrusted claim. Raises ValueError for malformed programs."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, MOST)
    if unpacking.unconsumed_tail:
        raise ValueError(f"the ranks' programs are far too long: at most {MOST >> 20} MB are read")
    programs: Any = json.loads(text)
    if not isinstance(programs, list) or len(programs) != RANKS:
        raise ValueError(f"the programs must be a list with one program for each of {RANKS} ranks")
    return [list(each) for each in programs]


def _sent(rank: int, entry: Sequence[Any]) -> int:
    """Return the bytes of the messages in an entry of a rank's program.

    A collective counts once, in the program of its first member.
    """
    if entry[0] == "exchange":
        _, _, _, sends, _, _, members, _ = entry
        return int(sum(sends) - sends[list(members).index(rank)])
    if entry[0] != "post":
        return 0
    _, _, op, nbytes, _, members, *_ = entry
    if op in MESSAGES:
        return int(nbytes) if op == "send" else 0
    return schedule_of(op, nbytes, len(members)).sent() if rank == members[0] else 0
