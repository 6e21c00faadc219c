"""`what_if`: a recorded run beside its replay with another link, other buckets or a slow rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ddpkit import simulate
from ddpkit.link import Link, Links, LinkSpec
from ddpkit.simulate import Step
from ddpkit.simulate.step.whatif import recorded_link
from ddpkit.text import prose
from ddpkit.trace import Trace, how_made
from ddpkit.view.comparison.model import Comparison, compare_steps
from ddpkit.view.drawing.runs import HasTrace, skipped, trace_of
from ddpkit.view.drawing.shell import View, nothing
from ddpkit.view.drawing.sliders import choice, link_sliders, numbers_of, slider
from ddpkit.view.drawing.steps import caps
from ddpkit.view.drawing.typical import typical_step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASSUMED = (
    "Replayed: each part of the compute takes what it took in the quieter of the recorded steps "
    "(the lower quartile), so it can be shorter than above; the communication is simulated."
)
EMULATED = "The recorded run is emulated."
TIMES = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)


def what_if(
    run_or_trace: HasTrace | Trace,
    *,
    bucket_cap_mb: float | None = None,
    link: LinkSpec | None = None,
    slow: Mapping[int, float] | None = None,
    rank: int | None = 0,
) -> View[Comparison]:
    """Show the effect of another bucket cap, another link or a slow rank on a recorded step.

    The picture shows the typical recorded step of one rank, or of all ranks with ``rank=None``;
    below, it shows the same step replayed (`simulate.what_if`). The replay starts with the given
    changes. Without changes, the two steps differ by the error of the replay, and by disturbances
    of the recorded step (`simulate.Step.typical`). In a notebook, sliders change the
    settings. ``what_if(...).figure(cap_mb=5, gbits=1, us=200, slow=3, times=1.5)`` returns the
    picture without a notebook, with rank 3 slowed 1.5 times; ``cap_mb=0`` keeps the recorded
    buckets. Raises TraceError for a run without the rank, or without a backward to replay,
    ValueError for a bad link or more than one slow rank.
    """
    if why := skipped("what_if", run_or_trace):
        return nothing(why)
    trace = trace_of(run_or_trace)
    was = recorded_link(trace)[0].slowest
    now = was if link is None else Links.parse(link, trace.world_size).slowest
    if len(slow := dict(slow or {trace.world_size - 1: 1.0})) > 1:
        raise ValueError(
            "this picture takes one slow rank; `simulate.what_if` takes several slow ranks"
        )
    ((slow_rank, times),) = slow.items()
    start = {"cap_mb": bucket_cap_mb or 0.0, **numbers_of(now), "slow": slow_rank, "times": times}
    # Replay the recording only once; each move of a slider replays the resulting step.
    again = simulate.what_if(trace)
    typical = typical_step(trace, rank)
    assumed = [ASSUMED, *([EMULATED] if how_made(trace.facts) == "emulated" else [])]

    def model(**at: Any) -> Comparison:
        changed = _changes(at, was)
        replayed = simulate.what_if(again, **changed) if changed else again
        labels = ["recorded", _label(changed)]
        return compare_steps([(trace, typical), (replayed, 0)], labels, rank)

    def describe(model: Comparison) -> str:
        return prose(model.title, model.notice, *assumed)

    view = View(start, model, _draw, describe, lambda model: "\n".join([model.text, *assumed]))
    return view.show(lambda view: _controls(view, trace))


def _changes(at: Mapping[str, Any], was: Link) -> dict[str, Any]:
    """Return the settings that differ from the recording, as arguments of `simulate.what_if`."""
    changed: dict[str, Any] = {}
    if at["cap_mb"]:
        changed["bucket_cap_mb"] = at["cap_mb"]
    if {"gbits": at["gbits"], "us": at["us"]} != numbers_of(was):
        changed["link"] = Link(at["us"] / 1e6, at["gbits"] * 1e9 / 8)
    if at["times"] != 1:
        changed["slow"] = {at["slow"]: at["times"]}
    return changed


def _label(changed: Mapping[str, Any]) -> str:
    said = [f"cap {changed['bucket_cap_mb']:g} MB"] if "bucket_cap_mb" in changed else []
    said += [str(changed["link"])] if "link" in changed else []
    said += [f"rank {r} takes {t:g}× as long" for r, t in changed.get("slow", {}).items()]
    return ", ".join(said) or "replayed as recorded"


def _draw(model: Comparison) -> Figure:
    from ddpkit.view.comparison.figure import draw_comparison

    return draw_comparison(model)


def _controls(view: View[Comparison], trace: Trace) -> Any:
    at, known = view.start, [0.0, *caps(Step.typical(trace))]
    return view.live(
        {
            "cap_mb": slider("Bucket cap", known, at["cap_mb"], _cap),
            **link_sliders(at),
            "slow": choice("Slow rank", trace.ranks, at["slow"], "rank {}".format),
            "times": slider("Takes", TIMES, at["times"], "{:g} times".format),
        }
    )


def _cap(cap_mb: float) -> str:
    return f"{cap_mb:g} MB" if cap_mb else "recorded"
