"""`progress_of`: the ranks' reports after each step, as curves and a sentence. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

from ddpkit.text import count, prose
from ddpkit.view.drawing import words

WINDOW = 10  # steps over which a throughput is averaged
RECENT = 20  # steps over which the median of a lag is taken
MUCH = 0.1  # share of a step: a rank with a larger lag behind the first is named


class Report(NamedTuple):
    """The report of one rank after one step."""

    at_s: float  # time.perf_counter(), common to the ranks of a host, or the rank's emulated time
    loss: float
    samples: float
    emulated: bool = False


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run. Steps count from 0."""

    losses: Mapping[int, tuple[float, ...]]  # rank -> loss of each step
    rates: tuple[tuple[int, float], ...]  # (step, samples per s of all ranks)
    # rank -> median time by which the rank ends a step after the earliest rank
    lags_ms: Mapping[int, float]
    title: str
    notice: str  # may be ""

    @property
    def text(self) -> str:
        return prose(f"{self.title}.", self.notice)


def progress_of(reports: Mapping[int, Sequence[Report]]) -> RunProgress:
    """Return the progress, from the reports of each rank; ranks may report unequally many steps."""
    steps = min(map(len, reports.values()), default=0)  # number of steps that all ranks have done
    losses = {rank: tuple(report.loss for report in reports[rank]) for rank in sorted(reports)}
    if not steps:
        return RunProgress(losses, (), {}, "No step is done yet", "")
    rates, lags = tuple(_rates(reports, steps)), _lags_ms(reports, steps)
    loss = fmean(losses[rank][steps - 1] for rank in losses)
    title = f"Step {steps - 1} on {count(len(reports), 'rank')}: loss {loss:.4g}"
    if rates:
        title += f", {rates[-1][1]:,.0f} samples/s"
    if any(each[0].emulated for each in reports.values()):
        title += " (emulated)"
    return RunProgress(losses, rates, lags, title, _notice(reports, lags))


def _rates(reports: Mapping[int, Sequence[Report]], steps: int) -> Iterator[tuple[int, float]]:
    """Yield (step, samples per second); a step ends when the last rank reports it."""
    done = [max(each[k].at_s for each in reports.values()) for k in range(steps)]
    samples = [sum(each[k].samples for each in reports.values()) for k in range(steps)]
    for k in range(1, steps):
        first = max(0, k - WINDOW)
        if done[k] > done[first]:
            yield k, sum(samples[first + 1 : k + 1]) / (done[k] - done[first])


def _lags_ms(reports: Mapping[int, Sequence[Report]], steps: int) -> dict[int, float]:
    recent = range(max(0, steps - RECENT), steps)
    first = {k: min(each[k].at_s for each in reports.values()) for k in recent}
    return {
        rank: 1e3 * median(reports[rank][k].at_s - first[k] for k in recent)
        for rank in sorted(reports)
    }


def _notice(reports: Mapping[int, Sequence[Report]], lags: Mapping[int, float]) -> str:
    """Return a sentence on the rank that is furthest behind; "" if the run has only one rank."""
    last = max(lags, key=lambda rank: (lags[rank], -rank))
    times = [report.at_s for report in reports[last]][-RECENT:]
    step_ms = 1e3 * (times[-1] - times[0]) / max(1, len(times) - 1)
    late = words.ms(round(lags[last] * 1e6))
    if len(lags) > 1 and lags[last] > MUCH * step_ms:
        return f"Notice: rank {last} ends its steps {late} after the first."
    return f"Notice: all ranks end a step within {late}." if len(lags) > 1 else ""
