"""Lab 06: what a check of a DistributedDataParallel sees of the ranks on which it ran."""

from __future__ import annotations

from typing import Any

from ddpkit.checks.lab06 import steps
from ddpkit.errors import Deadlock
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import call
from ddpkit.trace import Trace


def asked(function: Any, n: int, ask: Any, arguments: Any) -> Observed:
    try:
        did = call(function, *arguments, world_size=n)
    except Deadlock:
        if ask is not steps.gated:
            raise
        return {"on their way": "a hook waits for rank 1", "ranks agree": False}
    return _read(ask, did.returned, did.trace)


def _on_their_way(trace: Trace) -> int | str:
    """How many all_reduces rank 0 posts before it tells rank 1, which it does after all layers."""
    spans = trace.of(0)
    told = min(span.start_ns for span in spans if span.is_send)
    last_ready = max(s.end_ns for s in spans if s.kind == "backward" and s.bytes)
    posted = [span.start_ns for span in spans if span.name == "all_reduce"]
    early = [start for start in posted if start < told]
    if len(early) > 1 and min(early) > last_ready:
        return "all after the last gradient"
    return len(early)


def _read(ask: Any, returned: list[Any], trace: Trace) -> Observed:
    """What a check prints of what the ranks gave."""
    if ask is steps.start:
        return {"rank 0's start": returned}
    if ask is steps.one_backward:
        return {"gradients": returned[0]}
    if ask is steps.two_forwards:
        return dict(zip(("gradients", "a third adds"), returned[1], strict=True))
    if ask is steps.gated:
        return {"on their way": _on_their_way(trace), "ranks agree": steps.same(*returned)}
    if ask is steps.default_caps:
        return {"all-reduces": steps.all_reduces(trace)}
    if ask is steps.sizes:
        before, *_, after = [steps.all_reduces(trace.step(k)) for k in range(trace.steps)]
        last = trace.step(trace.steps - 1).of(0)
        others = {span.name for span in last if span.is_comm} - {"all_reduce"}
        return {"before": before, "after": ", ".join(["again a", *others]) if others else after}
    if ask is steps.said_of_missing:
        return {"said": returned[0]}
    as_torchs, other = zip(*returned, strict=True)
    name = "storages" if ask is steps.beside_torchs else "None"
    return {"as torch's": list(as_torchs), name: other[0]}
