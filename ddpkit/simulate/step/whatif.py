"""`what_if`: replays a recorded run with new buckets, a new link, or a slow rank.

The ranks' compute is taken from the recording, the communication is simulated. The result assumes
that compute takes as long during the new communication as during the recorded communication.

The simulation also needs the recorded link. The trace names an emulated link. There a recorded
all_reduce takes longer than its messages (copying, waking threads), and this overhead is added to
each simulated all_reduce. For a real link, a latency and a bandwidth are fitted to the recorded
all_reduces.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from ddpkit.asked import not_for
from ddpkit.errors import TraceError
from ddpkit.link import Link, Links, LinkSpec
from ddpkit.simulate.engine.prices import price_of
from ddpkit.simulate.messages.costs import terms
from ddpkit.simulate.step.buckets import assign_buckets
from ddpkit.simulate.step.data_parallel import Replay, replay
from ddpkit.simulate.step.recorded import WARM_UP, Step, bucket_spans, recorded_buckets, undisturbed
from ddpkit.trace import Trace

Sample = tuple[int, int]  # an all_reduce: its bytes, and the ns for which it moved them


def what_if(
    trace: Trace,
    *,
    bucket_cap_mb: float | None = None,
    first_bucket_mb: float | None = None,
    link: LinkSpec | None = None,
    slow: Mapping[int, float] | None = None,
    step: int | None = None,
    sizes: Sequence[int] = (),
) -> Trace:
    """Return the trace of one recorded step, replayed with the given changes.

    ``step`` is the number of a step, as in `Trace.step`; by default the typical step after the
    warm-up is replayed. ``sizes``: bytes of the gradients in order of readiness, for a trace
    without them. Raises TraceError if the trace has no step with a backward, ValueError for a bad
    link.
    """
    known = {rank: _step(trace, step, rank, sizes) for rank in trace.recorded_ranks}
    copied = list(known.values())  # the ranks that were not recorded are copies of these
    first = trace.recorded_ranks[0]
    buckets = recorded_buckets(trace, -1 if step is None else step, first, sizes)
    if bucket_cap_mb is not None or first_bucket_mb is not None or not buckets:
        buckets = assign_buckets(copied[0].gradients, bucket_cap_mb, first_bucket_mb)
    was, overhead = recorded_link(trace)
    n = trace.job_size
    steps = [known.get(rank, copied[rank % len(copied)]) for rank in range(n)]
    links = was if link is None else Links.parse(link, n)
    done = replay(steps, n, links, buckets, overhead_ns=overhead, slow=slow)
    changes = {"bucket_cap_mb": bucket_cap_mb, "link": link and links, "slow": slow}
    said = ", ".join(f"{name}={value}" for name, value in changes.items() if value)
    return Replay(done.steps, links, done.all_reduces, {**done.facts, "what_if": said}).trace()


def recorded_link(trace: Trace, among: Sequence[int] | None = None) -> tuple[Links, int]:
    """Return the links of a recorded run, and the typical overhead of an all_reduce in ns.

    If the run had no emulated link, return the links that fit the recorded all_reduces, and 0.
    ``among``: use only these steps.
    """
    n, samples = trace.job_size, list(moved(trace, among))
    emulated = str(trace.facts.get("emulated", ""))
    if not emulated:
        return Links.parse(fit_link(samples, n), n), 0
    try:
        links = Links.parse(emulated, n)
    except ValueError as error:
        raise TraceError(f"the trace's own link cannot be read: {error}") from None
    price = price_of("ring", n, links)
    beyond = [max(0, ns - price(nbytes)) for nbytes, ns in samples]
    return links, undisturbed(beyond) if beyond else 0


def fit_link(samples: Sequence[Sample], world_size: int) -> Link:
    """Return the link on which ring all_reduces take as long as the samples, by least squares.

    Each sample is (bytes, ns). If all samples have one size, the latency is unknown and set to 0.
    """
    not_for("fit_link", "fit")
    if world_size < 2 or not samples:
        return Link()
    ((latencies, payloads),) = terms("ring", world_size)
    slope, intercept = _line(samples)  # in ns per byte, and in ns
    if slope <= 0 or intercept < 0:
        slope, intercept = _line_through_0(samples)
    if slope <= 0:
        return Link()
    return Link(intercept / latencies / 1e9, payloads / (slope / 1e9))


def _line(samples: Sequence[Sample]) -> tuple[float, float]:
    if len({nbytes for nbytes, _ in samples}) < 2:
        return 0.0, 0.0
    sizes, times = zip(*samples, strict=True)
    line = statistics.linear_regression(sizes, times)
    return line.slope, line.intercept


def _line_through_0(samples: Sequence[Sample]) -> tuple[float, float]:
    squares = sum(nbytes * nbytes for nbytes, _ in samples)
    return sum(nbytes * ns for nbytes, ns in samples) / squares if squares else 0.0, 0.0


def _step(trace: Trace, step: int | None, rank: int, sizes: Sequence[int]) -> Step:
    if step is None:
        return Step.typical(trace, rank, sizes)
    return Step.of_trace(trace, step, rank, sizes)


def moved(trace: Trace, among: Sequence[int] | None = None) -> Iterator[Sample]:
    """Yield the bytes and the time, in ns, of each all_reduce of the first recorded rank.

    All_reduces in the warm-up are left out. The time of an all_reduce is counted from the moment
    when all ranks have posted it and the previous all_reduce is done. If not all ranks were
    recorded, the time is counted from the start of the all_reduce's span. ``among``: use only these
    steps.
    """
    rank = trace.recorded_ranks[0]
    every = range(WARM_UP if trace.steps > WARM_UP else 0, trace.steps)
    for k in every if among is None else among:
        cut, before = trace.step(k), 0
        for span in bucket_spans(cut.of(rank), cut.window_of(rank)):
            begin = max(span.ready_ns or span.start_ns, before)
            if span.end_ns > begin:
                yield span.bytes, span.end_ns - begin
            before = span.end_ns
