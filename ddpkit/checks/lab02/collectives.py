"""The inputs of the lab's collectives, and the tensors and messages of a right answer.

Expected bytes, peers and rounds come from the schedule (`ddpkit.simulate`). A case compares only
the values on which all right answers agree. For example, right answers by a tree differ in the rank
that sends the most bytes. An answer may send or skip empty messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Arguments, Did, Looks, title
from ddpkit.exercises.values import digest
from ddpkit.simulate import Send, schedule
from ddpkit.simulate.messages.schedules import elements

if TYPE_CHECKING:
    from torch import Tensor

TREES = ("broadcast", "reduce")
RINGS = ("all_gather", "reduce_scatter")
ARGUMENTS = {  # the arguments of each collective, in the order of torch.distributed
    "broadcast": ("x", "src"),
    "reduce": ("x", "dst"),
    "scatter": ("x", "chunks", "src"),
    "gather": ("x", "chunks", "dst"),
    "all_gather": ("chunks", "x"),
    "reduce_scatter": ("x", "chunks"),
}
# the name of the argument that holds the root
ROOT = {"broadcast": "src", "reduce": "dst", "scatter": "src", "gather": "dst"}
ROOM = -1  # content of tensors that the answer has to fill
Chunks: TypeAlias = "list[Tensor] | None"  # None: the rank neither sends nor receives chunks
Written: TypeAlias = "Tensor | list[Tensor] | None"  # the tensors that a rank has written
Row = tuple[int, int, str, int, str]  # a case: ranks, `Collective.units`, dtype, root, layout


@dataclass(frozen=True)
class Collective:
    """A collective and its input tensors: `x` and `chunks`, both by rank.

    `chunks` is None on a rank that neither sends nor receives chunks.
    """

    op: str
    x: list[Tensor]
    chunks: Sequence[Chunks]
    units: int  # units that the schedule cuts: elements, or columns of a matrix
    unit_bytes: int
    root: int
    laid: str  # "", or the layout that `call` makes

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def before(self) -> Sequence[Tensor | Chunks]:
        """The contents, before the call, of the tensors that the answer writes to, by rank."""
        return self.x if written_by(self.op) == "x" else self.chunks

    @property
    def title(self) -> str:
        """A title like "4 ranks, 6 transposed, src=2"."""
        dtype = str(self.x[0].dtype).removeprefix("torch.")
        root = [f"{ROOT[self.op]}={self.root}"] if self.op in ROOT else []
        return title(self.n, f"{self.units} {self.laid or dtype}", *root)

    @property
    def calls(self) -> Arguments:
        """The arguments of `call` for each rank, without the first two (`op` and `answer`)."""
        roots = [self.root] * self.n
        given = {"x": self.x, "chunks": self.chunks, "src": roots, "dst": roots}
        arguments = (given[name] for name in ARGUMENTS[self.op])
        return list(zip([self.laid] * self.n, *arguments, strict=True))

    def expected(self, plain: bool) -> Observed:
        """Return the observations of a right call.

        The number of rounds is left out if some messages are empty, because right answers then
        differ. With `plain`, the collectives that do not use a tree also show the bytes of each
        rank, and "kept" for the tensors that are only read. With `plain`, a ring also shows the
        peers.
        """
        plan = schedule(self.op, self.n, self.units, self.root)
        sends = [step for step in plan.steps if isinstance(step, Send)]
        sent = [plan.sent(rank) * self.unit_bytes for rank in range(self.n)]
        out, read = written_by(self.op), "chunks" if written_by(self.op) == "x" else "x"
        seen: dict[str, object] = {out: LEFT[self.op](self), "bytes": sum(sent)}
        if all(elements(send.part) for send in sends):
            seen["rounds"] = plan.rounds
        if plain and self.op in RINGS:
            seen["to"] = " ".join(f"{a}→{b}" for a, b in sorted({(s.rank, s.peer) for s in sends}))
        return seen | {"bytes": sent, read: "kept"} if plain and self.op not in TREES else seen


# The right contents of the written tensors, by rank, computed by one process.
LEFT: Mapping[str, Callable[[Collective], Sequence[Tensor | Chunks] | None]] = {
    "broadcast": lambda c: [c.x[c.root]] * c.n,
    "reduce": lambda c: [total(c.x) if rank == c.root else x for rank, x in enumerate(c.x)],
    "scatter": lambda c: c.chunks[c.root],
    "gather": lambda c: [c.x if rank == c.root else None for rank in range(c.n)],
    "all_gather": lambda c: [c.x] * c.n,
    "reduce_scatter": lambda c: [total(parts) for parts in zip(*c.chunks, strict=True)],
}


def total(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors as a new tensor."""
    return sum(parts[1:], parts[0].clone())


# A call


def written_by(op: str) -> str:
    """Return the name of the argument that the collective `op` writes to: "x" or "chunks"."""
    return "chunks" if op in ("gather", "all_gather") else "x"


def call(
    op: str, answer: Callable[..., None], laid: str, *arguments: object
) -> tuple[Written, str]:
    """Run the answer on a rank; return the written tensors, and "kept" or "changed".

    The word is "kept" if the tensors that are only read are unchanged. `laid` is the memory layout:
    "", "transposed" or "in place". With "transposed", the tensors that are only read, and the x of
    a tree, are matrices laid out column by column, so they are not contiguous. With "in place", x
    is one of the chunks. This function makes the layout on the rank, because shipping a tensor to a
    rank loses the layout.
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
    tensors = chunks and list(chunks)  # the answer may replace elements of its list
    read = x if written_by(op) == "chunks" else tensors
    out = _memory(tensors if written_by(op) == "chunks" else x)
    before = digest(read)
    answer(*((given | {"x": x, "chunks": chunks})[name] for name in ARGUMENTS[op]))
    kept = digest(read) == before
    if written_by(op) == "x" and chunks is not None:  # an answer may pop from the list itself
        kept = kept and digest(chunks) == before
    return out, "kept" if kept else "changed"


def _memory(given: Written) -> Written:
    """Return new tensors in the memory of the given tensors.

    An answer that gives a tensor new memory (x.data = y) does not write in place: the returned
    tensors then keep the old values.
    """
    if given is None:
        return None
    return [each.detach() for each in given] if isinstance(given, list) else given.detach()


def _transposed(x: Tensor) -> Tensor:
    """Return a copy of the matrix that is laid out column by column."""
    return x.t().contiguous().t()


def looks(op: str, expect: Observed) -> Looks:
    """Return, for each name in `expect`, the function that reads this observation from a run."""
    see: Looks = {
        "x": _read,
        "chunks": _read,
        written_by(op): _written,
        "bytes": "bytes" if isinstance(expect["bytes"], list) else _bytes,
        "rounds": "rounds",
        "to": "to",
    }
    return {name: see[name] for name in expect}


def _written(did: Did) -> list[Written]:
    return [out for out, _ in did.returned]


def _read(did: Did) -> str:
    return "changed" if "changed" in (read for _, read in did.returned) else "kept"


def _bytes(did: Did) -> int:
    """Return the sum of the bytes that all ranks sent."""
    return sum(did.bytes)


# Inputs


def collective(op: str, row: Row, rng: random.Random) -> Collective:
    """Draw the inputs of a collective at random.

    With the layout "transposed", the x of a tree is a matrix with two rows. In the other
    collectives, the tensor that is cut into chunks is then a matrix with three rows.
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
    chunks: Sequence[Chunks]
    chunks, own = (rooms, cut) if written_by(op) == "chunks" else (cut, rooms)
    x = [own[rank][rank] for rank in range(n)]
    if op not in RINGS:
        chunks = [each if rank == root else None for rank, each in enumerate(chunks)]
    return Collective(op, x, chunks, units, rows * x[0].element_size(), root, laid)


def _vectors(n: int, length: int, dtype: str, rng: random.Random) -> list[Tensor]:
    """Draw a vector for each rank, so that sums of different vectors are hardly ever equal."""
    import torch

    rows = [[rng.randrange(1, 1000) for _ in range(length)] for _ in range(n)]
    return [torch.tensor(row, dtype=getattr(torch, dtype)) for row in rows]
