"""`StepCalls`: the calls of a recorded step, and the kind of parallelism that they show.

`Forecast` models only the calls of data parallelism: all_reduces of gradients, posted in the
backward or between the backward and the optimizer, in a group of all ranks. All other calls show
another kind of parallelism. Their number and size on more ranks depend on the mesh of the program,
so a step with such calls cannot be predicted for another number of ranks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddpkit.simulate.step.recorded import after_warm_up
from ddpkit.text import count, size
from ddpkit.trace import Count, Span, Trace

SHARE_OF_STEP = 0.05  # calls with a smaller share of a step hardly change a forecast
SHARE_OF_BYTES = 0.1  # the same limit for bytes, as a share of the bytes of gradients
FORWARD, BACKWARD, AFTER = "in the forward", "in the backward", "after the backward"


@dataclass(frozen=True)
class StepCalls:
    """The calls of a recorded step: the all_reduces of gradients, and all other calls.

    gradients  the number and bytes of the all_reduces of gradients, on one rank
    others     the other calls by name, phase and group
    ns         the time of the other calls
    step_ns    the time of the step
    """

    gradients: Count
    others: Mapping[tuple[str, str, str], Count] = field(default_factory=dict)
    ns: int = 0
    step_ns: int = 0

    @property
    def is_data_parallel(self) -> bool:
        """True if calls that `Forecast` does not model take a small share of the step."""
        return (
            self.ns <= SHARE_OF_STEP * self.step_ns
            and sum(each.bytes for each in self.others.values())
            <= SHARE_OF_BYTES * self.gradients.bytes
        ) or not self.others

    @property
    def kind(self) -> str:
        """The name of the step's kind of parallelism, found from the names of its other calls."""
        found = {(name, phase) for name, phase, _ in self.others}
        names = {name for name, _ in found}
        if names & {"send", "recv"}:
            return "pipeline parallelism"
        if any(name.startswith("all_to_all") for name in names):
            return "expert or context parallelism, by its all-to-alls"
        sharded = {name.partition("_into")[0].partition("_tensor")[0] for name in names}
        if ("all_reduce", FORWARD) in found:
            return "tensor parallelism, by its all-reduces of activations in the forward"
        if any(name.startswith("reduce_scatter") and phase == FORWARD for name, phase in found):
            return "tensor parallelism, by its reduce-scatters of activations in the forward"
        if sharded & {"all_gather", "reduce_scatter"}:
            return "sharded data parallelism (FSDP or ZeRO)"
        if "broadcast" in names:
            return "a sharded optimizer (ZeRO-1), or parameters that a rank sends out"
        if "all_reduce" in names:
            return "data parallelism in groups of some ranks"
        return "another kind of parallelism"

    def in_words(self) -> str:
        """Return the other calls as text.

        An example: "all_reduce ×2, 131 kB, in the forward, group tp [0, 1]".
        """
        return "; ".join(
            f"{name} ×{number.times}, {size(number.bytes)}, {phase}"
            + (f", group {group}" if group else "")
            for (name, phase, group), number in self.others.items()
        )

    def stated(self) -> str:
        """Return the sentence that tells the user which calls of the step `Forecast` models."""
        words = "data parallelism, " if self.gradients.times else "no all-reduces of gradients, "
        found = self.gradients
        text = f"Seen: {words}{count(found.times, 'all-reduce')}, {size(found.bytes)} a step."
        if self.others:
            text += f" Not in the model, and short: {self.in_words()}."
        return text

    def refusal(self) -> str:
        """Return the error's text for a step that `Forecast` cannot predict."""
        return (
            f"this run has {self.kind}: calls that the model leaves out take "
            f"{self.ns / max(1, self.step_ns):.0%} of the typical step ({self.in_words()}). The "
            "model knows only all-reduces of gradients among all ranks, as DDP makes them. Run "
            "the program on more ranks instead: ddpkit run -n RANKS --machine ... --link ... "
            "--no-values train.py"
        )


def seen(trace: Trace) -> StepCalls:
    """Return the calls of the last step after the warm-up, on the rank that made the most calls.

    In a profiler's recording all calls count as calls in the backward, because a kernel may run
    after the end of the forward that launched it.
    """
    if not trace.steps:
        return StepCalls(Count(0, 0))
    cut = trace.step(after_warm_up(trace)[-1])
    profiled = trace.facts.get("recorded_by") == "torch.profiler"
    each = [
        _of_rank(cut.of(rank), cut.window_of(rank), trace.job_size, profiled=profiled)
        for rank in cut.recorded_ranks
    ]
    return max(each, key=lambda one: one.ns)


def _of_rank(
    spans: Sequence[Span], window: tuple[int, int], world_size: int, *, profiled: bool
) -> StepCalls:
    backwards = sorted(s.start_ns for s in spans if s.kind == "backward")
    forwards = sorted((s.start_ns, s.end_ns) for s in spans if s.kind == "forward")
    last_backward = max((s.end_ns for s in spans if s.kind == "backward"), default=window[1])

    def phase(ns: int) -> str:
        at = bisect_right(forwards, (ns, window[1] + 1)) - 1
        if not profiled and backwards:
            if ns < backwards[0] or (at >= 0 and ns < forwards[at][1]):
                return FORWARD
            if ns > last_backward:
                return AFTER
        return BACKWARD

    gradients, others, ns = Count(0, 0), defaultdict[tuple[str, str, str], Count](Count), 0
    for span in spans:
        if not span.is_comm or not window[0] <= span.start_ns < window[1] or span.name == "barrier":
            continue
        here, group = phase(span.start_ns), int(span.args.get("group_size", world_size))
        if span.name.startswith("all_reduce") and here != FORWARD and group in (0, world_size):
            gradients = Count(gradients.times + 1, gradients.bytes + span.bytes)
            continue
        key = span.name, here, str(span.args.get("group_desc", ""))
        others[key] = Count(others[key].times + 1, others[key].bytes + span.bytes)
        ns += span.end_ns - max(span.ready_ns or span.start_ns, span.start_ns)
    return StepCalls(gradients, dict(others), ns, window[1] - window[0])
