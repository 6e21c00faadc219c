"""A collective put to an answer: what a serial twin and the schedule say, and what it did.

Expected bytes, peers and rounds are those of its schedule (`ddpkit.simulate`). Of all that is
observed, a case shows what is the same for all right answers: which rank of a tree sends most is
free, and so is whether an empty message is sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Arguments, Did
from ddpkit.simulate import Schedule, Send, schedule
from ddpkit.simulate.schedules import elements
from ddpkit.text import count

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
ROOM = -1  # what tensors hold that are to be written


@dataclass(frozen=True)
class Question:
    """One collective of given tensors, `x` and `chunks`, both by rank.

    A rank that neither gives nor gets chunks has None.
    """

    op: str
    x: list[Any]
    chunks: list[Any]
    units: int  # what the schedule cuts: elements, or the columns of a matrix
    unit_bytes: int
    root: int
    laid: str  # "", or as `call` lays the tensors
    plain: bool = False  # show all that there is to see

    @property
    def n(self) -> int:
        return len(self.x)

    @property
    def out(self) -> str:
        return written_by(self.op)

    @property
    def read_only(self) -> str:
        """What a call only reads, where there is such an argument."""
        return "x" if self.out == "chunks" else "chunks"

    @property
    def title(self) -> str:
        ranks = count(self.n, "rank")
        end = ARGUMENTS[self.op][-1]
        root = f", {end}={self.root}" if end in ("src", "dst") else ""
        what = self.laid or str(self.x[0].dtype).removeprefix("torch.")
        return f"{ranks}, {self.units} {what}{root}"

    @property
    def calls(self) -> Arguments:
        """The arguments of `call` after its first two, by rank."""
        roots = [self.root] * self.n
        given = {"x": self.x, "chunks": self.chunks, "src": roots, "dst": roots}
        arguments = (given[name] for name in ARGUMENTS[self.op])
        return list(zip([self.laid] * self.n, *arguments, strict=True))

    @cached_property
    def after(self) -> tuple[list[Any], list[Any]]:
        """What x and chunks are when a right call is over, by rank: the serial twin."""
        x, chunks, root = list(self.x), list(self.chunks), self.root
        if self.op == "broadcast":
            x = [x[root]] * self.n
        elif self.op == "reduce":
            x[root] = total(x)
        elif self.op == "scatter":
            x = chunks[root]
        elif self.op == "gather":
            chunks[root] = x
        elif self.op == "all_gather":
            chunks = [x] * self.n
        else:
            x = [total(parts) for parts in zip(*chunks, strict=True)]
        return x, chunks

    @cached_property
    def plan(self) -> Schedule:
        return schedule(self.op, self.n, self.units, self.root)

    @property
    def sent(self) -> list[int]:
        """Bytes that each rank sends."""
        return [self.plan.sent(rank) * self.unit_bytes for rank in range(self.n)]

    @cached_property
    def expect(self) -> Observed:
        sends = [one for one in self.plan.steps if isinstance(one, Send)]
        pairs = sorted({(one.rank, one.peer) for one in sends if elements(one.part)})
        to = " ".join(f"{a}→{b}" for a, b in pairs) or "nobody"
        empty = any(not elements(one.part) for one in sends)  # right answers may skip those
        return self.put.seen(self.after, self.sent, to, None if empty else self.plan.rounds)

    @property
    def put(self) -> Put:
        return Put(self.op, {"x": self.x, "chunks": self.chunks}, self.plain)


@dataclass(frozen=True)
class Put:
    """What is put to an answer, and what is looked at then: not what is right."""

    op: str
    given: dict[str, list[Any]]  # "x" and "chunks", by rank
    plain: bool

    def observe(self, told: Callable[[], Did], counted: bool) -> Observed:
        did = told()
        x, chunks = map(list, zip(*did.returned, strict=True))
        return self.seen((x, chunks), did.bytes, did.to, did.rounds if counted else None)

    def seen(
        self, after: tuple[list[Any], list[Any]], sent: list[int], to: str, rounds: int | str | None
    ) -> Observed:
        left = dict(zip(("x", "chunks"), after, strict=True))
        out = written_by(self.op)
        seen: dict[str, Any] = {out: left.pop(out), "bytes": sum(sent)}
        if rounds is not None:
            seen["rounds"] = rounds
        if self.plain and self.op not in TREES:
            seen |= {"bytes": sent, "to": to} if self.op in RINGS else {"bytes": sent}
            ((name, value),) = left.items()  # only to be read
            seen[name] = "kept" if same(value, self.given[name]) else "changed"
        return seen


def written_by(op: str) -> str:
    """What a call writes into: "x" or "chunks"."""
    return "chunks" if op in ("gather", "all_gather") else "x"


def call(op: str, answer: Callable[..., None], laid: str, *arguments: Any) -> tuple[Any, Any]:
    """On a rank: call the answer; what the tensors that it was given hold then, x and chunks.

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
    answer(*((given | {"x": x, "chunks": chunks})[name] for name in ARGUMENTS[op]))
    return x, tensors


def _transposed(x: Any) -> Any:
    """The same matrix, laid out column by column."""
    return x.t().contiguous().t()


# Inputs


def tree_question(
    op: str, n: int, length: int, dtype: str, root: int, laid: str, rng: random.Random
) -> Question:
    """A broadcast or a reduce; of a matrix, where it is transposed."""
    x = [each.view(2, -1) if laid else each for each in _vectors(n, length, dtype, rng)]
    return Question(op, x, [None] * n, length, x[0].element_size(), root, laid)


def chunk_question(
    op: str, n: int, units: int, dtype: str, root: int, laid: str, rng: random.Random
) -> Question:
    """One of the others; where they are transposed, of matrices with three rows."""
    rows = 3 if laid == "transposed" else 1
    gives = op in ("scatter", "reduce_scatter")  # its chunks, not its x
    x: list[Any] = []
    chunks: list[Any] = []
    for rank, whole in enumerate(_vectors(n, rows * units, dtype, rng)):
        cut = list((whole.view(rows, units) if rows > 1 else whole).tensor_split(n, dim=-1))
        rooms = [each.new_full(each.shape, ROOM) for each in cut]
        x.append((rooms if gives else cut)[rank])
        chunks.append(cut if gives else rooms)
    if op in ("scatter", "gather"):
        chunks = [each if rank == root else None for rank, each in enumerate(chunks)]
    return Question(op, x, chunks, units, rows * x[0].element_size(), root, laid)


def _vectors(n: int, length: int, dtype: str, rng: random.Random) -> list[Any]:
    """One for each rank, of such numbers that hardly two sums of some of them are the same."""
    import torch

    rows = [[rng.randrange(1, 1000) for _ in range(length)] for _ in range(n)]
    return [torch.tensor(row, dtype=getattr(torch, dtype)) for row in rows]


# Sums


def total(parts: Sequence[Any]) -> Any:
    return sum(parts[1:], parts[0].clone())


def times_in(got: Any, parts: Sequence[Any]) -> tuple[int, ...] | None:
    """How often each part is in a sum, 0 to 2 times; None if it is no such sum."""
    import torch

    if not isinstance(got, torch.Tensor) or got.shape != parts[0].shape or not got.numel():
        return None
    for times in product(range(3), repeat=len(parts)):
        if same(total([count * part for count, part in zip(times, parts, strict=True)]), got):
            return times
    return None
