"""`plan_time`: the trace of a training step under a plan on a mesh, simulated event by event.

Each rank follows 1F1B through its blocks, as `ddpkit.mesh.train_on_mesh` does on real ranks. The
slices of a block add up their results once in the block's forward and once in its backward. In the
last micro-batch's backward, each block's gradients are sent to the other replicas as soon as they
are ready. With shards the gradients are reduce-scattered, and the new parameters are all-gathered
after the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ddpkit.simulate.engine.operations import schedule_of
from ddpkit.simulate.engine.play import play_program
from ddpkit.simulate.engine.program import Action, After, CollectivePart, MessageEnd, Program, Work
from ddpkit.simulate.mesh.plans import NUMBER, MeshMachine, MeshModel, MeshPlan
from ddpkit.simulate.step.pipeline import one_f_one_b, op_name
from ddpkit.trace import Span, Trace


def plan_time(plan: MeshPlan, model: MeshModel, machine: MeshMachine) -> Trace:
    """Return the trace of one training step under a plan: all operations and messages of all ranks.

    Raises ValueError for a plan that does not divide the model. The function ignores memory.
    """
    trace = play_program(mesh_program(plan, model, machine), machine.link).trace()
    return replace(trace, spans=tuple(_by_stage(trace.spans)))


def mesh_program(plan: MeshPlan, model: MeshModel, machine: MeshMachine) -> Program:
    """Return the program of a step, with one lane for each rank.

    Raises ValueError for a plan that does not divide the model.
    """
    model.check(plan)
    lanes = [_MeshLane(rank, plan, model, machine).actions() for rank in range(plan.ranks)]
    return Program.of_lanes(f"a mesh of {plan}", (list(lane) for lane in lanes))


def _by_stage(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans of a step; the spans of a stage's blocks are merged into one span.

    The merged span reaches from the first block's start to the last block's end. The all-reduces of
    slices lie inside it, as in the span of a real rank.
    """
    stages: dict[tuple[int, str], Span] = {}
    for span in spans:
        if span.is_compute:
            whole = stages.setdefault((span.rank, span.name), span)
            end = max(whole.end_ns, span.end_ns)
            stages[span.rank, span.name] = replace(whole, end_ns=end)
        else:
            yield span
    yield from stages.values()


class _MeshLane:
    """The program of one rank in a step: its compute, messages and collectives in order."""

    def __init__(self, rank: int, plan: MeshPlan, model: MeshModel, machine: MeshMachine) -> None:
        self.rank, self.plan = rank, plan
        self.stage = rank // plan.slices % plan.stages
        self.blocks = model.blocks // plan.stages
        rows = model.batch // (plan.replicas * plan.micro)
        part = model.width * model.hidden // plan.slices
        # A block multiplies by two matrices forward, and by four backward.
        self.matmul_ns = round(2e9 * rows * part / machine.flops)
        self.travels = NUMBER * rows * model.width
        self.gradient = NUMBER * 2 * part
        self.shard = -(-self.gradient // plan.replicas)
        self._numbers = dict.fromkeys(plan.shape, 0)

    def actions(self) -> Iterator[Action]:
        """Yield the actions of the rank, in order."""
        reduction = "reduce_scatter_tensor" if self.plan.shards else "all_reduce"
        for kind, micro, *_ in one_f_one_b(self.stage, self.plan.stages, self.plan.micro):
            forward = kind == "F"
            matmuls = self.matmul_ns * (2 if forward else 4)
            work = Work(matmuls, op_name((kind, micro)), facts={"micro": micro})
            yield from self._message("recv", -1 if forward else 1)
            for block in range(self.blocks):
                yield work
                if not forward and micro == self.plan.micro - 1:
                    handle = "gradient", block
                    yield from self._part(reduction, "replica", self.gradient, handle)
                yield from self._part("all_reduce", "slice", self.travels)
            # A span of no length tells where the stage's last sum ends.
            yield replace(work, ns=0)
            yield from self._message("isend", 1 if forward else -1)
        if self.plan.replicas > 1:
            yield After(tuple(("gradient", block) for block in range(self.blocks)))
        if self.plan.shards:
            for _ in range(self.blocks):
                yield from self._part("all_gather_into_tensor", "replica", self.shard)

    def _message(self, op: str, step: int) -> Iterator[Action]:
        """Yield a send to, or a recv from, the previous (-1) or next (1) stage, if there is one."""
        if 0 <= self.stage + step < self.plan.stages:
            peer = self.rank + step * self.plan.slices
            back = (step == 1) == (op == "recv")
            yield MessageEnd(op, peer, self.travels, tag=int(back))

    def _part(
        self, operation: str, axis: str, nbytes: int, handle: tuple[str, int] | None = None
    ) -> Iterator[Action]:
        """Yield this rank's part in a collective of its group along a dimension of the mesh.

        If the group has no other rank, yield no step. With a handle the rank goes on at once;
        without a handle the rank waits for the end.
        """
        stride, many = self.plan.strides[axis], self.plan.shape[axis]
        if many == 1:
            return
        first = self.rank - self.rank // stride % many * stride
        members = tuple(range(first, first + stride * many, stride))
        group = f"{axis} {list(members)}"
        yield CollectivePart(
            schedule_of(operation, nbytes, many), members, self._numbers[axis], nbytes, group,
            async_op=handle is not None, handle=handle, facts={"group_desc": group},
        )  # fmt: skip
        self._numbers[axis] += 1
