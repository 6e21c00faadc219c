"""`bucket_model`: a step with one bucket cap, and the step times with all other caps. Pure."""

from dataclasses import dataclass

from ddpkit.link import Link
from ddpkit.simulate import Replay, Step, assign_buckets, replay, sweep
from ddpkit.text import count, size
from ddpkit.trace import Breakdown, Trace
from ddpkit.view.drawing import words
from ddpkit.view.drawing.rows import RankRow, RowBuilder
from ddpkit.view.drawing.steps import caps
from ddpkit.view.drawing.words import ms, percent


@dataclass(frozen=True)
class CapSweep:
    """The numbers and words of the picture.

    ``curve`` has pairs (cap in MB, step time in ns), in the order of caps.
    """

    title: str
    notice: str
    cap_mb: float
    curve: tuple[tuple[float, int], ...]
    replay: Replay
    row: RankRow  # the row of one rank; all ranks do the same
    compute_ns: int  # the step without communication

    @property
    def step_ns(self) -> int:
        return self.replay.step_ns

    @property
    def breakdown(self) -> Breakdown:
        return self.row.breakdown

    @property
    def best(self) -> tuple[float, int]:
        """The cap that gives the shortest step, in MB, and the time of this step, in ns.

        Of several equally good caps, this is the largest, because it makes the fewest buckets.
        """
        return min(self.curve, key=lambda point: (point[1], -point[0]))

    @property
    def text(self) -> str:
        """The finding: the step with the present cap, and the best cap."""
        cap, shortest = self.best
        hidden = "nothing to hide"
        if self.breakdown.comm_ns:
            share = percent(self.breakdown.overlapped_ns, self.breakdown.comm_ns)
            hidden = f"{share} of communication hidden"
        now = (
            f"Cap {self.cap_mb:g} MB: {count(len(self.replay.all_reduces), 'bucket')}, step "
            f"{ms(self.step_ns)}, {hidden}."
        )
        if shortest == self.step_ns:
            return f"{now} No cap is better."
        less = percent(self.step_ns - shortest, self.step_ns)
        return f"{now} Best cap: {cap:g} MB, {ms(shortest)}, {less} less."

    def table(self) -> str:
        """Return the curve as text: the step time with each cap."""
        rows = [f"{cap:>9g} MB  {ms(ns):>9}" for cap, ns in self.curve]
        best = [cap for cap, _ in self.curve].index(self.best[0])
        rows[best] += "  best"
        return "\n".join([self.title, "bucket cap        step", *rows, self.notice])


def bucket_model(
    step: Step, cap_mb: float, link: Link, world_size: int, speed: float = 1.0
) -> CapSweep:
    """Return the step with cap ``cap_mb`` on ``world_size`` ranks, and the times with other caps.

    ``speed=2``: the ranks compute twice as fast as in ``step``.

    Raises ValueError for a cap or a speed that is not above 0.
    """
    if not (cap_mb > 0 and speed > 0):
        raise ValueError(f"a cap and a speed must be above 0: {cap_mb=}, {speed=}")
    step = step.slowed(1 / speed)
    done = replay(step, world_size, link, assign_buckets(step.gradients, cap_mb))
    curve = tuple(sweep(step, sorted({*caps(step), cap_mb}), link, world_size))
    title = f"A step of {count(world_size, 'rank')}, {size(step.bytes)} of gradients, {link}"
    title += words.of_step(step)
    row = _row(done)
    return CapSweep(
        title, _notice(curve, step.compute_ns), cap_mb, curve, done, row, step.compute_ns
    )


def _row(done: Replay) -> RankRow:
    """Return the row of rank 0, without the all-reduces that take no time."""
    trace = done.trace(1)
    seen = tuple(span for span in trace.spans if not span.is_comm or span.duration_ns)
    shown = Trace(seen, trace.world_size, trace.facts)
    return RowBuilder(shown, shown).row(0)


def _notice(curve: tuple[tuple[float, int], ...], compute_ns: int) -> str:
    """Return a sentence on the shape of the curve of step times."""
    times = [ns for _, ns in curve]
    least = min(times)
    margin = least * 0.01
    left, right = times[0] > least + margin, times[-1] > least + margin
    if left and right:
        shape = "small buckets pay the latency many times, one large bucket starts too late."
    elif left:
        shape = "here latency costs most, so the fewest buckets win."
    elif right:
        shape = "here bandwidth costs most, so the first bucket cannot start too early."
    else:
        shape = "here the cap hardly matters."
    if least > 1.5 * compute_ns:
        shape = f"{shape[:-1]}; even the best step waits {ms(least - compute_ns)} for the link."
    return f"Notice: {shape}"
