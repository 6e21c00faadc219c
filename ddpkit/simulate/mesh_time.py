"""A step of a plan on a mesh, event by event: `plan_time`.

Each rank follows 1F1B through its blocks, as `ddpkit.mesh.train_on_mesh` does on real ranks. Where
slices begin and end they add up, once in each block's forward and once in its backward. In the last
micro-batch's backward each block's gradients leave for the other replicas as soon as they are
there. With shards they are scattered, and the new parameters gathered after the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpkit.link import Links
from ddpkit.simulate.mesh_plans import NUMBER, MeshMachine, MeshModel, MeshPlan
from ddpkit.simulate.network import Network
from ddpkit.simulate.operations import schedule_of
from ddpkit.simulate.pipeline import one_f_one_b
from ddpkit.simulate.posted import UNKNOWN, End, Part
from ddpkit.trace import Span, Trace, match_peers

Posted = End | Part


def plan_time(plan: MeshPlan, model: MeshModel, machine: MeshMachine) -> Trace:
    """The trace of one training step by a plan: every operation and message of every rank.

    Raises ValueError for a plan that does not divide the model. Memory is not looked at.
    """
    model.check(plan)
    network = Network(Links.parse(machine.link, plan.ranks))
    ranks = [_MeshRank(rank, plan, model, machine, network) for rank in range(plan.ranks)]
    for rank in ranks:
        rank.go_on()
    network.advance()
    spans = [span for rank in ranks for span in rank.spans()]
    facts = {"backend": "simulated", "emulated": str(network.links)}
    return Trace(match_peers(spans), plan.ranks, facts)


@dataclass(frozen=True)
class _Posted:
    """Communication as a rank has posted it, before its span is made."""

    name: str
    what: Posted
    nbytes: int
    blocked: bool
    peer: int | None = None
    axis: str = ""
    seq: int = 0


class _MeshRank:
    """A rank that carries out its part of a plan on a network."""

    def __init__(
        self,
        rank: int,
        plan: MeshPlan,
        model: MeshModel,
        machine: MeshMachine,
        network: Network,
    ) -> None:
        self.rank, self.plan, self.network, self.ns = rank, plan, network, 0
        self.stage = rank // plan.slices % plan.stages
        self.blocks = model.blocks // plan.stages
        self.rows = model.batch // (plan.replicas * plan.micro)
        part = model.width * model.hidden // plan.slices
        # A block multiplies by two matrices forward, and by four backward.
        self.matmul_ns = round(2e9 * self.rows * part / machine.flops)
        self.travels = NUMBER * self.rows * model.width
        self.gradient = NUMBER * 2 * part
        self.shard = -(-self.gradient // plan.replicas)
        self._posted: list[_Posted] = []
        self._work: list[Span] = []
        self._seqs = dict.fromkeys(plan.shape, 0)
        self._program = self._steps()

    def go_on(self, awaited: Posted | None = None) -> None:
        """Go on until something is waited for that is not done."""
        while True:
            if awaited is not None:
                self.ns = max(self.ns, awaited.done_ns)
            awaited = next(self._program, None)
            if awaited is None:
                return
            if awaited.done_ns == UNKNOWN:
                awaited.then = self.go_on
                return

    def spans(self) -> Iterator[Span]:
        """What it has done."""
        yield from self._work
        for one in self._posted:
            start = one.what.posted_ns
            facts: dict[str, str | int] = {}
            group, members = "", self._members(one.axis)
            if one.axis:
                group = f"{one.axis} {list(members)}"
                facts = {"group_desc": group, "group_size": len(members)}
            yield Span(
                *(self.rank, "comm", one.name, "comm", start, one.what.done_ns, one.nbytes),
                *(one.peer, group, one.seq or None),
                blocked_ns=start if one.blocked else None,
                args=facts,
            )

    def _steps(self) -> Iterator[Posted]:
        """The step; what is waited for comes out, and time has passed when it goes on."""
        gradients: list[Posted] = []
        reduction = "reduce_scatter_tensor" if self.plan.shards else "all_reduce"
        for kind, micro, *_ in one_f_one_b(self.stage, self.plan.stages, self.plan.micro):
            forward = kind == "F"
            yield from self._receive(-1 if forward else 1)
            start = self.ns
            for _ in range(self.blocks):
                self.ns += self.matmul_ns * (2 if forward else 4)
                if not forward and micro == self.plan.micro - 1:
                    gradients += self._enter(reduction, "replica", self.gradient)
                yield from self._enter("all_reduce", "slice", self.travels, blocked=True)
            facts = {"micro": micro, "layer": self.stage}
            self._work.append(
                Span(self.rank, "compute", f"{kind}{micro}", "span", start, self.ns, args=facts)
            )
            self._send(1 if forward else -1)
        yield from gradients
        if self.plan.shards:
            for _ in range(self.blocks):
                yield from self._enter(
                    "all_gather_into_tensor", "replica", self.shard, blocked=True
                )

    def _neighbour(self, step: int) -> int | None:
        """The rank of the stage before (-1) or behind (1); None if there is none."""
        there = 0 <= self.stage + step < self.plan.stages
        return self.rank + step * self.plan.slices if there else None

    def _receive(self, step: int) -> Iterator[Posted]:
        peer = self._neighbour(step)
        if peer is not None:
            end = self.network.recv(self.ns, "", self.rank, peer, self.travels, tag=step == 1)
            self._posted.append(_Posted("recv", end, self.travels, True, peer))
            yield end

    def _send(self, step: int) -> None:
        peer = self._neighbour(step)
        if peer is not None:
            end = self.network.send(self.ns, "", self.rank, peer, self.travels, tag=step == -1)
            self._posted.append(_Posted("isend", end, self.travels, False, peer))

    def _enter(
        self, name: str, axis: str, nbytes: int, *, blocked: bool = False
    ) -> Iterator[Posted]:
        """Post a collective of this rank's group along a dimension, if it has other ranks."""
        members = self._members(axis)
        if len(members) > 1:
            self._seqs[axis] += 1
            seq, schedule = self._seqs[axis], schedule_of(name, nbytes, len(members))
            part = self.network.enter(self.ns, members, seq, self.rank, members, schedule)
            self._posted.append(_Posted(name, part, nbytes, blocked, axis=axis, seq=seq))
            yield part

    def _members(self, axis: str) -> tuple[int, ...]:
        if not axis:
            return ()
        stride, many = self.plan.strides[axis], self.plan.shape[axis]
        first = self.rank - self.rank // stride % many * stride
        return tuple(first + stride * i for i in range(many))
