"""`heat_of`: the time of every step of every rank, and the time waited for peers. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from operator import add
from statistics import median

from ddpkit.errors import TraceError
from ddpkit.simulate.step.recorded import WARM_UP
from ddpkit.text import columns, count, prose
from ddpkit.trace import Trace, collectives, messages
from ddpkit.trace.intervals import Interval, intersect
from ddpkit.trace.waits import last_in, waiting, waits_between
from ddpkit.view.drawing import words

COLUMNS = 240  # more columns could not be told apart
MUCH = 1.2  # times the median step: a longer step is named in a sentence
CHANCE = 0.05  # the highest probability of lateness by chance for which a straggler is named


@dataclass(frozen=True, slots=True)
class Heat:
    """Step times and waits in ns: a row for each rank, a column for each step.

    In a long run, a column has the longest of ``group`` steps.
    """

    title: str
    notice: str
    ranks: tuple[int, ...]  # the recorded ranks, a row each
    took: tuple[tuple[int, ...], ...]
    waited: tuple[tuple[int, ...], ...]  # time waited without compute
    group: int
    note: str
    text: str  # the picture in words and numbers

    @property
    def typical_ns(self) -> float:
        """The median time of all ranks' steps after the warm-up, in ns; 0 without a step."""
        return _typical(self.took)


def heat_of(trace: Trace) -> Heat:
    """Return the time of each step of each rank. Raises TraceError for a trace without steps."""
    if not trace.steps:
        raise TraceError(
            "this run has no steps to compare: mark each step with `with ddpkit.step():`, "
            "or use an optimizer"
        )
    windows, ranks = trace.step_windows, trace.recorded_ranks
    exposed = {rank: intersect(trace.activity(rank).exposed, windows[rank]) for rank in ranks}
    took = [[end - start for start, end in windows[rank]] for rank in ranks]
    waited = [_inside(_lost(trace, rank, exposed[rank]), windows[rank]) for rank in ranks]
    group = -(-trace.steps // COLUMNS)
    comm = [span for span in trace.spans if span.kind == "comm"]
    # rank -> ns that other ranks lost by waiting for this rank, in each step
    behind: dict[int, list[int]] = {}
    waits = waits_between(comm, last_in([*collectives(comm), *messages(comm)]))
    for (rank, latest), times in waits.items():
        lost = _inside(intersect(times, exposed[rank]), windows[rank])
        lost += [0] * (trace.steps - len(lost))
        behind[latest] = [*map(add, behind.get(latest, [0] * trace.steps), lost)]
    title = words.title(trace, count(trace.steps, "step"))
    notice, note = (
        _notice(ranks, took, waited, behind),
        words.note(trace.facts, compute=True, comm=True),
    )
    text = [prose(title, notice), *_table(ranks, took, waited, behind), prose(note)]
    return Heat(
        title,
        notice,
        tuple(ranks),
        _grouped(took, group),
        _grouped(waited, group),
        group,
        note,
        "\n".join(filter(None, text)),
    )


def _lost(trace: Trace, rank: int, exposed: Sequence[Interval]) -> list[Interval]:
    """Return the intervals in which the rank waited for a peer and computed nothing."""
    return intersect(exposed, (waiting(span) for span in trace.of(rank) if span.is_comm))


def _inside(times: Sequence[Interval], steps: Sequence[Interval]) -> list[int]:
    """Return the ns of ``times`` in each step; both lists are sorted, and steps do not overlap."""
    totals, starts = [0] * len(steps), [start for start, _ in steps]
    for start, end in intersect(times, steps):
        totals[bisect_right(starts, start) - 1] += end - start
    return totals


def _grouped(rows: Sequence[Sequence[int]], group: int) -> tuple[tuple[int, ...], ...]:
    """Return the largest of each ``group`` columns; a rank with fewer steps has a shorter row."""
    return tuple(
        tuple(max(row[at : at + group]) for at in range(0, len(row), group)) for row in rows
    )


def _typical(took: Sequence[Sequence[int]]) -> float:
    warm = WARM_UP if max(map(len, took)) > WARM_UP else 0
    return median([ns for row in took for ns in row[warm:]] or [0])


def _notice(
    ranks: Sequence[int],
    took: Sequence[Sequence[int]],
    waited: Sequence[Sequence[int]],
    behind: Mapping[int, Sequence[int]],
) -> str:
    """Return the sentence about the straggler, or about a long step."""
    typical, n = _typical(took), len(took)
    longest, k = max((max(row[k] for row in took if k < len(row)), k) for k in _columns(took))
    if n > 1 and sum(map(sum, waited)) > 0.05 * sum(map(sum, took)):
        return f"Notice: {_straggler(ranks, behind)}"
    if longest > MUCH * typical:
        return (
            f"Notice: step {k} took {words.ms(longest)}, "
            f"{longest / typical:.1f}× the typical {words.ms(round(typical))}."
        )
    return f"Notice: all steps take about {words.ms(round(typical))}, and nobody waits long."


def _straggler(ranks: Sequence[int], behind: Mapping[int, Sequence[int]]) -> str:
    """Return a sentence that names the straggler, or gives the reason why no rank is a straggler.

    A straggler is the rank for which the other ranks wait longest, under two conditions. The
    other ranks wait more than 1.5 times as long as for an average rank. And in more steps than
    chance explains, the longest wait is for the straggler: if all ranks were equally likely in each
    step, the probability that some rank has this many steps would be at most `CHANCE`.
    """
    n, totals = len(ranks), {rank: sum(behind.get(rank, ())) for rank in ranks}
    rank = max(ranks, key=lambda rank: (totals[rank], -rank))
    if totals[rank] <= 1.5 * sum(totals.values()) / n:
        return "the ranks wait for each other in turn; none is always the last."
    steps = [lost for lost in zip(*behind.values(), strict=True) if any(lost)]
    at = list(behind).index(rank)
    late = sum(lost[at] == max(lost) for lost in steps)
    of = f"all {len(steps)}" if late == len(steps) else f"{late} of {len(steps)}"
    if n * _at_least(late, len(steps), 1 / n) > CHANCE:
        return (
            f"the others wait longest for rank {rank}, in {of} steps. Among {n} equal ranks that "
            "may be chance."
        )
    lost = words.ms(totals[rank])
    return f"waiting for rank {rank}, the straggler, cost the others {lost}, in {of} steps."


def _at_least(successes: int, trials: int, chance: float) -> float:
    """Return the probability of this many successes or more (binomial distribution)."""
    return sum(
        comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(successes, trials + 1)
    )


def _columns(rows: Sequence[Sequence[int]]) -> range:
    return range(max(map(len, rows)))


def _table(
    ranks: Sequence[int],
    took: Sequence[Sequence[int]],
    waited: Sequence[Sequence[int]],
    behind: Mapping[int, Sequence[int]],
) -> Iterator[str]:
    """Yield the lines of a table with a row for each rank."""
    rows = [["", "typical step", "longest", "in step", "lost waiting", "lost by others for it"]]
    for rank, row, waits in zip(ranks, took, waited, strict=True):
        if not row:
            rows.append([f"rank {rank}", *["-"] * 5])
            continue
        longest = max(range(len(row)), key=lambda k: row[k])
        times = words.ms(round(_typical([row]))), words.ms(row[longest])
        lost = words.ms(sum(waits)), words.ms(sum(behind.get(rank, ())))
        rows.append([f"rank {rank}", *times, str(longest), *lost])
    yield from columns(rows)
