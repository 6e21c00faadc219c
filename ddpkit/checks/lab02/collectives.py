"""Collectives put to an answer: what goes in, what a right one leaves in the tensors and sends.

Expected bytes, peers and rounds are those of the schedule (`ddpkit.simulate`). A case shows only
what all right answers have in common: which rank of a tree sends most is free, and so is whether
an empty message is sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Arguments, Did, Looks, title
from ddpkit.exercises.values import digest
from ddpkit.simulate import Send, schedule
from ddpkit.simulate.messages.schedules import elements

if TYPE_CHECKING:
    from torch import Tensor

TREES = ("broadcast", "reduce")
RINGS = ("all_gather", "reduce_scatter")
ARGUMENTS = {  # in the order of torch.distributed
    "broadcast": ("x", "src"),
    "reduce": ("x", "dst"),
    "scatter": ("x", "chunks", "src"),
    "gather": ("x", "chunks", "dst"),
    "all_gather": ("chunks", "x"),
    "reduce_scatter": ("x", "chunks"),
}
ROOT = {"broadcast": "src", "reduce": "dst", "scatter": "src", "gather": "dst"}  # its argument
ROOM = -1  # what tensors hold that are to be written
Row = tuple[int, int, str, int, str]  # of a case: ranks, `Collective.units`, dtype, root, laid


@dataclass(frozen=True)
class Collective:
    """A collective of given tensors, `x` and `chunks`, both by rank.

    A rank that neither gives nor gets chunks has None.
    """

    op: str
    x: list[Any]
    chunks: list[Any]
    units: int  # what the schedule cuts: elements, or the columns of a matrix
    unit_bytes: int
    root: int
    laid: str  # "", or as `call` lays the tensors

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def before(self) -> list[Any]:
        """What the tensors that a call writes hold before it, by rank."""
        return self.x if written_by(self.op) == "x" else self.chunks

    @property
    def title(self) -> str:
        """ "4 ranks, 6 transposed, src=2"."""
        dtype = str(self.x[0].dtype).removeprefix("torch.")
        root = [f"{ROOT[self.op]}={self.root}"] if self.op in ROOT else []
        return title(self.n, f"{self.units} {self.laid or dtype}", *root)

    @property
    def calls(self) -> Arguments:
        """The arguments of `call` after its first two, by rank."""
        roots = [self.root] * self.n
        given = {"x": self.x, "chunks": self.chunks, "src": roots, "dst": roots}
        arguments = (given[name] for name in ARGUMENTS[self.op])
        return list(zip([self.laid] * self.n, *arguments, strict=True))

    def expected(self, plain: bool) -> Observed:
        """What is seen of a right call; of a plain one, all that there is to see.

        Rounds are left out where right answers differ in them, for some messages are empty.
        """
        plan = schedule(self.op, self.n, self.units, self.root)
        sends = [step for step in plan.steps if isinstance(step, Send)]
        sent = [plan.sent(rank) * self.unit_bytes for rank in range(self.n)]
        out, read = written_by(self.op), "chunks" if written_by(self.op) == "x" else "x"
        seen: dict[str, Any] = {out: LEFT[self.op](self), "bytes": sum(sent)}
        if all(elements(send.part) for send in sends):
            seen["rounds"] = plan.rounds
        if plain and self.op in RINGS:
            seen["to"] = " ".join(f"{a}→{b}" for a, b in sorted({(s.rank, s.peer) for s in sends}))
        return seen | {"bytes": sent, read: "kept"} if plain and self.op not in TREES else seen


# What the tensors that a call writes hold after a right one, by rank: the serial twin
LEFT: Mapping[str, Callable[[Collective], list[Any]]] = {
    "broadcast": lambda c: [c.x[c.root]] * c.n,
    "reduce": lambda c: [total(c.x) if rank == c.root else x for rank, x in enumerate(c.x)],
    "scatter": lambda c: c.chunks[c.root],
    "gather": lambda c: [c.x if rank == c.root else None for rank in range(c.n)],
    "all_gather": lambda c: [c.x] * c.n,
    "reduce_scatter": lambda c: [total(parts) for parts in zip(*c.chunks, strict=True)],
}


def total(parts: Sequence[Any]) -> Any:
    """The sum of tensors, a new one."""
    return sum(parts[1:], parts[0].clone())


# A call


def written_by(op: str) -> str:
    """What a call writes into: "x" or "chunks"."""
    return "chunks" if op in ("gather", "all_gather") else "x"


def call(op: str, answer: Callable[..., None], laid: str, *arguments: object) -> tuple[Any, str]:
    """Run on a rank; what the answer left in what it writes, and "kept" if the rest is as before.

    How a tensor lies in memory does not survive shipping, so they are laid out here: `laid` is
    "transposed" if what is read, and x of a tree, is a matrix laid out column by column, which is
    not contiguous; "in place" if x is one of the chunks.
    """
    import torch.distributed as dist

    given: dict[str, Any] = dict(zip(ARGUMENTS[op], arguments, strict=True))
    x, chunks = given["x"], given.get("chunks")
    if laid == "transposed" and op in ("scatter", "reduce_scatter"):
        chunks = chunks and [_transposed(each) for each in chunks]
    elif laid == "transposed":
        x = _transposed(x)
    elif laid == "in place":
        own = given["chunks"][dist.get_rank()]
        x = own.copy_(x) if op == "all_gather" else own
    tensors = chunks and list(chunks)  # the answer may put others into its list
    read = x if written_by(op) == "chunks" else tensors
    out = _memory(tensors if written_by(op) == "chunks" else x)
    before = digest(read)
    answer(*((given | {"x": x, "chunks": chunks})[name] for name in ARGUMENTS[op]))
    return out, "kept" if digest(read) == before else "changed"


def _memory(given: Any) -> Any:
    """Tensors that share the memory of those given.

    Who gives a tensor another memory, x.data = y, leaves this as it was: "in place" is not done.
    """
    if given is None:
        return None
    return [each.detach() for each in given] if isinstance(given, list) else given.detach()


def _transposed(x: Tensor) -> Any:
    """The matrix again, laid out column by column."""
    return x.t().contiguous().t()


def looks(op: str, expect: Observed) -> Looks:
    """What to see of a run of `call`: all that `expect` names."""
    see: Looks = {
        "x": _read,
        "chunks": _read,
        written_by(op): _written,
        "bytes": "bytes" if isinstance(expect["bytes"], list) else _bytes,
        "rounds": "rounds",
        "to": "to",
    }
    return {name: see[name] for name in expect}


def _written(did: Did) -> list[Any]:
    return [out for out, _ in did.returned]


def _read(did: Did) -> str:
    return "changed" if "changed" in (read for _, read in did.returned) else "kept"


def _bytes(did: Did) -> int:
    """Bytes that all ranks together sent."""
    return sum(did.bytes)


# Inputs


def collective(op: str, row: Row, rng: random.Random) -> Collective:
    """A collective of random numbers.

    Where tensors are transposed, x of a tree is a matrix with two rows; of the others, what is cut
    into chunks is one with three.
    """
    n, units, dtype, root, laid = row
    if op in TREES:
        x = [each.view(2, -1) if laid else each for each in _vectors(n, units, dtype, rng)]
        return Collective(op, x, [None] * n, units, x[0].element_size(), root, laid)
    rows = 3 if laid == "transposed" else 1
    vectors = _vectors(n, rows * units, dtype, rng)
    wholes = [each.view(rows, units) if rows > 1 else each for each in vectors]
    cut = [list(whole.tensor_split(n, dim=-1)) for whole in wholes]
    rooms = [[each.new_full(each.shape, ROOM) for each in chunks] for chunks in cut]
    chunks: list[Any]
    chunks, own = (rooms, cut) if written_by(op) == "chunks" else (cut, rooms)
    x = [own[rank][rank] for rank in range(n)]
    if op not in RINGS:
        chunks = [each if rank == root else None for rank, each in enumerate(chunks)]
    return Collective(op, x, chunks, units, rows * x[0].element_size(), root, laid)


def _vectors(n: int, length: int, dtype: str, rng: random.Random) -> list[Any]:
    """One for each rank, of such numbers that hardly two sums of some of them are the same."""
    import torch

    rows = [[rng.randrange(1, 1000) for _ in range(length)] for _ in range(n)]
    return [torch.tensor(row, dtype=getattr(torch, dtype)) for row in rows]
