"""The time of a data-parallel step on emulated links, with compute and communication overlapped.

The ranks run forward and backward. When the last gradient of a bucket is ready on a rank, and the
buckets before it are posted, the rank posts the bucket. All buckets go through one stream, in
order: an all_reduce begins when every rank has posted it and the all_reduce before it is done.
Buckets may also take turns through several streams (`streams`). When the last all_reduce is done,
backward finishes and the optimizer steps.

An all_reduce takes the time of its `Price`, from the last rank's post, and ends for all ranks at
once. On equal links this end is exact, to the nanosecond, for the rank that ends last (`events`
plays every message). Other ranks may end a little earlier. On unequal links, ranks that post early
may have moved data before the last post, and then all ranks end earlier than in this model.

The times of ranks with equal compute are computed once: 4,096 such ranks take no longer than one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ddpkit.asked import not_for
from ddpkit.link import Links, LinkSpec
from ddpkit.simulate.engine.prices import Price, price_of
from ddpkit.simulate.step.buckets import Bucket, assign_buckets
from ddpkit.simulate.step.recorded import Step, last_of_each
from ddpkit.simulate.step.streams import streamed
from ddpkit.text import count
from ddpkit.trace import Scalar, Span, Trace


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The all_reduce of one bucket. Times are in ns from the start of the step on all ranks."""

    bucket: Bucket
    ready_ns: int  # time at which the last rank posts the bucket
    start_ns: int  # time at which the bucket is posted and the previous all_reduce is done
    done_ns: int


@dataclass(frozen=True, repr=False)
class Replay:
    """A simulated data-parallel step of all ranks."""

    steps: tuple[Step, ...]  # one per rank; equal steps are one object
    links: Links
    all_reduces: tuple[AllReduce, ...]
    facts: Mapping[str, Scalar]

    @property
    def world_size(self) -> int:
        """The number of ranks that take the step."""
        return len(self.steps)

    @property
    def step_ns(self) -> int:
        """The time until the last rank has ended, and the last host has launched all its work."""
        ends = (end_ns(step, self.all_reduces) for step in _different(self.steps))
        return max(*ends, *(step.host_ns for step in _different(self.steps)))

    def trace(self, ranks: int | None = None) -> Trace:
        """Return a trace of all ranks, or of the first ``ranks`` ranks, as for a picture."""
        shown = self.world_size if ranks is None else min(ranks, self.world_size)
        facts = dict(self.facts)
        if shown < self.world_size:
            facts["shown"] = f"{shown} of {self.world_size} ranks"
        spans = [span for rank in range(shown) for span in _spans(rank, self.steps[rank], self)]
        return Trace(tuple(spans), shown, facts)

    def __repr__(self) -> str:
        many = len(set(self.links.each)) > 4
        links = "links of their own" if many else str(self.links)
        return (
            f"<Replay on {count(self.world_size, 'rank')}: {self.step_ns / 1e6:.4g} ms a step, "
            f"{count(len(self.all_reduces), 'bucket')}, {links}>"
        )


def replay(
    step: Step | Sequence[Step],
    world_size: int,
    link: LinkSpec,
    buckets: Sequence[Bucket] | None = None,
    *,
    algorithm: str = "ring",
    overhead_ns: int = 0,
    slow: Mapping[int, float] | None = None,
    price: Price | None = None,
    streams: int = 1,
) -> Replay:
    """Return the simulation of one data-parallel step.

    ``step`` is the compute of every rank, or a list with the compute of each rank. Without
    ``buckets``, torch's default caps make the buckets; see `assign_buckets`. ``overhead_ns`` is
    added to the time of each all_reduce. ``slow={3: 1.5}``: rank 3 takes 1.5 times as long for its
    own work. ``algorithm`` is the algorithm of the all_reduces, see `price_of`; a ``price``, a
    function from bytes to ns, replaces algorithm and link. ``streams`` is the number of process
    groups that take the buckets in turns and share the links, see `step_program`; a price or an
    overhead needs ``streams=1``. Raises ValueError for ranks, steps, buckets or streams that do not
    fit together.
    """
    not_for("best_cap", "step_time")
    if streams < 1:
        raise ValueError(f"{streams=}: give 1 or more")
    if streams > 1 and (price is not None or overhead_ns):
        raise ValueError(
            f"{streams=} cannot be combined with price= or overhead_ns=: leave these out, or give "
            "streams=1"
        )
    steps = _per_rank(step, world_size, slow or {})
    links = Links.parse(link, world_size)
    if buckets is None:
        buckets = assign_buckets(steps[0].gradients)
    posts = _all_posted(_different(steps), buckets)
    facts: dict[str, Scalar] = {"backend": "simulated", "emulated": str(links)}
    if streams > 1:
        ready_ns = [max(posted) for posted in zip(*posts, strict=True)]
        facts |= {"algorithm": algorithm, "streams": streams}
        done_ns = streamed(steps, links, buckets, ready_ns, algorithm, streams)
        started = [0] * streams + done_ns  # the ends of the streams' previous all_reduces
        rows = zip(buckets, ready_ns, map(max, ready_ns, started), done_ns, strict=False)
        return Replay(steps, links, tuple(AllReduce(*row) for row in rows), facts)
    free = 0
    if price is None:
        price = price_of(algorithm, world_size, links)
    else:
        algorithm = "as priced"
    all_reduces: list[AllReduce] = []
    for bucket, posted in zip(buckets, zip(*posts, strict=True), strict=True):
        ready = max(posted)
        start = max(ready, free)
        free = start + price(bucket.bytes) + overhead_ns
        all_reduces.append(AllReduce(bucket, ready, start, free))
    facts["algorithm"] = algorithm
    return Replay(steps, links, tuple(all_reduces), facts)


def sweep(
    step: Step | Sequence[Step], caps: Iterable[float], link: LinkSpec, world_size: int
) -> list[tuple[float, int]]:
    """Return the step time in ns for each ``bucket_cap_mb``: the U-shaped curve of lab 05."""
    gradients = (step if isinstance(step, Step) else step[0]).gradients
    times = []
    for cap in caps:
        buckets = assign_buckets(gradients, cap)
        times.append((cap, replay(step, world_size, link, buckets).step_ns))
    return times


def posted_ns(step: Step, buckets: Sequence[Bucket]) -> list[int]:
    """Return the time at which a rank posts each bucket, in ns from the start of the step.

    A rank posts the buckets in order: a bucket that is ready early waits for the earlier buckets.
    """
    return _all_posted([step], buckets)[0]


def _all_posted(steps: Sequence[Step], buckets: Sequence[Bucket]) -> list[list[int]]:
    """Return the times at which each rank posts each bucket.

    Ranks whose gradients become ready in the same order wait for the same gradient of each bucket,
    so the gradient is looked up once for all of them.
    """
    orders: dict[tuple[str, ...], list[int]] = {}
    posts = []
    for step in steps:
        order = tuple(gradient.name for gradient in step.gradients)
        last = orders.get(order)
        if last is None:
            last = orders[order] = last_of_each(order, buckets)
        ready = step.gradients
        posts.append([step.begin_ns + (ready[i].ready_ns if i >= 0 else 0) for i in last])
    return posts


def end_ns(step: Step, all_reduces: Sequence[AllReduce]) -> int:
    """Return the time at which a rank ends the step, in ns from the start of the step."""
    return _reduced_ns(step, all_reduces) + step.finish_ns + step.optimizer_ns


def _reduced_ns(step: Step, all_reduces: Sequence[AllReduce]) -> int:
    """Return the time, in ns, at which the backward is over and all all_reduces are done."""
    done = (reduce.done_ns for reduce in all_reduces)
    return max(step.begin_ns + step.backward_ns, max(done, default=0))


def _per_rank(
    step: Step | Sequence[Step], world_size: int, slow: Mapping[int, float]
) -> tuple[Step, ...]:
    steps = [step] * world_size if isinstance(step, Step) else list(step)
    if world_size < 1 or len(steps) != world_size:
        raise ValueError(f"{len(steps)} steps for {world_size} ranks: give one step for each rank")
    for rank, factor in slow.items():
        if rank not in range(world_size) or not factor > 0:
            raise ValueError(
                f"slow={{{rank!r}: {factor!r}}}: give a rank from 0 to {world_size - 1} and a "
                "factor above 0, such as 1.5 for compute that takes 1.5 times as long"
            )
        steps[rank] = steps[rank].slowed(factor)
    return tuple(steps)


def _different(steps: Sequence[Step]) -> list[Step]:
    """Return the different step objects in `steps`, each of them once."""
    return list({id(step): step for step in steps}.values())


def _spans(rank: int, step: Step, replay: Replay) -> list[Span]:
    """Return the spans of one rank, in the form in which a run records them."""
    end = end_ns(step, replay.all_reduces)
    whole = Span(rank, "step", "step", "step", 0, max(end, step.host_ns))
    host = [Span(rank, "host", "launches", "host", 0, step.host_ns)] if step.host_ns else []
    return [whole, *host, *_compute(rank, step, end), *_comm(rank, step, replay)]


def _compute(rank: int, step: Step, end: int) -> list[Span]:
    optimizer = end - step.optimizer_ns
    reduced = optimizer - step.finish_ns
    spans = [Span(rank, "compute", "forward", "forward", step.other_ns, step.begin_ns)]
    at = step.begin_ns
    for g in step.gradients:
        start, at = at, step.begin_ns + g.ready_ns
        named = {"gradient": g.name}
        spans.append(Span(rank, "compute", "backward", "backward", start, at, g.bytes, args=named))
    spans.append(Span(rank, "compute", "backward", "backward", reduced, optimizer))
    return [*spans, Span(rank, "compute", "optimizer", "optimizer", optimizer, end)]


def _comm(rank: int, step: Step, replay: Replay) -> list[Span]:
    waits = step.begin_ns + step.backward_ns  # here the rank begins to wait
    posts = posted_ns(step, [reduce.bucket for reduce in replay.all_reduces])
    return [
        Span(
            rank,
            "comm",
            "all_reduce",
            "comm",
            posted,
            reduce.done_ns,
            bytes=reduce.bucket.bytes,
            seq=n + 1,
            ready_ns=reduce.ready_ns,
            blocked_ns=waits if reduce.done_ns > waits else None,
            args={"bucket": n, "group_size": replay.world_size},
        )
        for n, (reduce, posted) in enumerate(zip(replay.all_reduces, posts, strict=True))
    ]
