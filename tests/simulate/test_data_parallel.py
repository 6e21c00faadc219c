"""Replayed steps, compared with a simulation of every nanosecond."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.link import Link, Links
from ddpkit.simulate import (
    Bucket,
    Gradient,
    Step,
    assign_buckets,
    cost,
    replay,
    sweep,
)
from ddpkit.trace import Trace, intervals
from tests.properties import examples

MB = 2**20


@st.composite
def a_step(draw: st.DrawFn, names: list[str]) -> Step:
    moment = st.integers(0, 20 * len(names) - 1)
    ready = sorted(draw(st.lists(moment, min_size=len(names), max_size=len(names))))
    order = draw(st.just(names) | st.permutations(names))
    some = [Gradient(n, 1 + int(n[1:]) * 7 % 50, ns) for n, ns in zip(order, ready, strict=True)]
    begin, *others = draw(st.tuples(*[st.integers(0, 29)] * 4))
    return Step(begin, tuple(some), *others)


@st.composite
def steps_of(draw: st.DrawFn, ranks: tuple[int, int], gradients: tuple[int, int]) -> list[Step]:
    """Draw a step for each rank; the numbers of ranks and of gradients lie between two bounds."""
    names = [f"p{i}" for i in range(draw(st.integers(*gradients)))]
    return draw(st.lists(a_step(names), min_size=ranks[0], max_size=ranks[1]))


def tick_by_tick(steps: list[Step], buckets: list[Bucket], link: Link) -> list[int]:
    """Return the end of each rank's step in ns, by looking at all ranks in every nanosecond."""
    n, now = len(steps), 0
    posted = [0] * n  # number of buckets that each rank has posted
    reduced, running_until = 0, None
    ends: list[int | None] = [None] * n
    left = [step.finish_ns + step.optimizer_ns for step in steps]
    while None in ends:
        if running_until == now:
            reduced, running_until = reduced + 1, None
        for rank, step in enumerate(steps):
            ready = {g.name for g in step.gradients if step.begin_ns + g.ready_ns <= now}
            while posted[rank] < len(buckets) and set(buckets[posted[rank]].gradients) <= ready:
                posted[rank] += 1
        while running_until is None and reduced < min(posted):
            running_until = now + cost("ring", n, buckets[reduced].bytes, link)
            if running_until == now:
                reduced, running_until = reduced + 1, None
        for rank, step in enumerate(steps):
            if reduced == len(buckets) and now >= step.begin_ns + step.backward_ns:
                if left[rank] == 0 and ends[rank] is None:
                    ends[rank] = now
                left[rank] -= 1
        now += 1
    return [end for end in ends if end is not None]


@examples(100)
@given(
    steps=steps_of(ranks=(1, 4), gradients=(1, 8)),
    cap=st.sampled_from((0, 40, 100)),
    latency=st.integers(0, 7),
    bandwidth=st.sampled_from((0.5e9, 1e9, 4e9)),
)
def test_agrees_with_the_oracle(
    steps: list[Step], cap: int, latency: int, bandwidth: float
) -> None:
    n, link = len(steps), Link(latency / 1e9, bandwidth)
    buckets = list(assign_buckets(steps[0].gradients, cap / MB))
    done = replay(steps, n, link, buckets)
    ends = tick_by_tick(steps, buckets, link)
    assert done.step_ns == max(ends)
    assert [done.trace().step(0).window_of(rank)[1] for rank in range(n)] == ends


def usual() -> Step:
    """Return a step with a backward of 64 ms and 128 MB of gradients."""
    some = [Gradient(f"p{i}", 2 * MB, (i + 1) * 1_000_000) for i in range(64)]
    return Step(30_000_000, tuple(some), 3_000_000, 500_000, 1_000_000)


def test_all_is_hidden_but_the_last_bucket() -> None:
    """Communication is as fast as compute: with small buckets only the last bucket is exposed."""
    step = usual()
    each = cost("ring", 4, 2 * MB, "40 Gbit/s, 10 us")
    done = replay(step, 4, "40 Gbit/s, 10 us", assign_buckets(step.gradients, 0))
    assert each < 1_000_000
    assert done.step_ns == step.compute_ns + each
    for parts in done.trace().breakdown().values():
        assert parts.exposed_ns == each
        assert parts.overlapped_ns == 63 * each


def test_one_rank_or_no_network_takes_the_compute_alone() -> None:
    step = usual()
    assert replay(step, 1, "1 Mbit/s").step_ns == step.compute_ns
    assert replay(step, 64, "unlimited").step_ns == step.compute_ns
    assert replay(Step(5, (), 7), 4, "1 us").step_ns == 12


def test_one_huge_bucket_overlaps_nothing() -> None:
    step = usual()
    done = replay(step, 4, "10 Gbit/s, 50 us", assign_buckets(step.gradients, 1000))
    assert done.step_ns == step.compute_ns + cost("ring", 4, step.bytes, "10 Gbit/s, 50 us")
    assert {parts.overlapped_ns for parts in done.trace().breakdown().values()} == {0}


def test_the_curve_over_caps_is_a_u() -> None:
    caps = [0, 2, 4, 8, 16, 32, 64, 128]
    times = dict(sweep(usual(), caps, "10 Gbit/s, 200 us", 8))
    best = min(times, key=times.__getitem__)
    assert best not in (caps[0], caps[-1])
    left, right = caps[: caps.index(best) + 1], caps[caps.index(best) :]
    assert [times[c] for c in left] == sorted((times[c] for c in left), reverse=True)
    assert [times[c] for c in right] == sorted(times[c] for c in right)


def test_a_slow_rank_holds_up_all() -> None:
    step = usual()
    done = replay(step, 4, "100 Gbit/s, 5 us", slow={2: 1.5})
    assert done.steps[2] == step.slowed(1.5)
    assert done.steps[2].compute_ns == round(step.compute_ns * 1.5)
    assert done.step_ns == replay(step.slowed(1.5), 4, "100 Gbit/s, 5 us").step_ns
    blocked = {rank: parts.exposed_ns for rank, parts in done.trace().breakdown().items()}
    assert blocked[2] < blocked[0] == blocked[1] == blocked[3]


def test_overhead_is_paid_by_each_all_reduce() -> None:
    step = usual()
    buckets = assign_buckets(step.gradients, 1000)
    with_it, without = (
        replay(step, 2, "1 Gbit/s", buckets, overhead_ns=ns).step_ns for ns in (777, 0)
    )
    assert with_it == without + 777


@examples(50)
@given(
    steps=steps_of(ranks=(2, 5), gradients=(1, 20)),
    cap=st.integers(0, 199),
    latency_ns=st.integers(0, 49),
    bandwidth=st.floats(1e8, 1e10),
)
def test_bounds_and_better_links(
    steps: list[Step], cap: int, latency_ns: int, bandwidth: float
) -> None:
    n, latency = len(steps), latency_ns / 1e9
    buckets = assign_buckets(steps[0].gradients, cap / MB)
    done = replay(steps, n, Link(latency, bandwidth), buckets)
    comm = sum(reduce.done_ns - reduce.start_ns for reduce in done.all_reduces)
    compute = max(step.compute_ns for step in steps)
    assert max(compute, comm) <= done.step_ns <= sum(s.compute_ns for s in steps) + comm
    assert replay(steps, n, Link(latency, bandwidth * 2), buckets).step_ns <= done.step_ns
    assert replay(steps, n, Link(latency / 2, bandwidth), buckets).step_ns <= done.step_ns
    worse = Links.parse({"default": Link(latency, bandwidth), 1: Link(latency, bandwidth / 2)}, n)
    assert replay(steps, n, worse, buckets).step_ns >= done.step_ns
    assert sum(bucket.bytes for bucket in buckets) == steps[0].bytes


@examples(20)
@given(steps=steps_of(ranks=(3, 3), gradients=(6, 6)))
def test_the_trace_is_one_that_could_be_recorded(steps: list[Step]) -> None:
    done = replay(steps, 3, "1 GB/s, 3 ns", assign_buckets(steps[0].gradients, 30 / MB))
    trace = done.trace()
    assert trace.steps == 1
    for rank, parts in trace.step(0).breakdown().items():
        step = steps[rank]
        assert parts.compute_ns == step.compute_ns - step.other_ns
        assert parts.idle_ns == step.other_ns, "what is not compute or a wait was put before it"
        ops = [span for span in trace.of(rank) if span.is_comm]
        assert [op.args["bucket"] for op in ops] == list(range(len(ops)))
        moving = [(reduce.start_ns, reduce.done_ns) for reduce in done.all_reduces]
        assert intervals.total(moving) == sum(end - start for start, end in moving), "one stream"
        assert [op.ready_ns for op in ops] == [reduce.ready_ns for reduce in done.all_reduces]
        assert all(op.start_ns <= op.ready_ns <= op.end_ns for op in ops)


def test_a_trace_of_the_first_ranks_says_so() -> None:
    done = replay(usual(), 64, "10 Gbit/s, 5 us")
    some = done.trace(2)
    assert (some.world_size, some.facts["shown"]) == (2, "2 of 64 ranks")
    assert some.breakdown()[1] == done.trace().breakdown()[63]


def test_4096_ranks() -> None:
    """The time is printed, not asserted, because a busy machine is no failure."""
    start = time.perf_counter()
    done = replay(usual(), 4096, "100 Gbit/s, 5 us", slow={17: 1.2})
    done.trace(8)
    print(f"\n4,096 ranks: {1e3 * (time.perf_counter() - start):.0f} ms for {done}")
    assert done.world_size == 4096
    by_hand = replay([usual()] * 2, 2, Link(4095 * 5e-6, 0.5 * 4096 / 4095 * 12.5e9))
    assert replay(usual(), 4096, "100 Gbit/s, 5 us").step_ns == pytest.approx(
        by_hand.step_ns, rel=1e-6
    )


def test_a_trace_can_be_saved_and_shown_like_any_other(tmp_path) -> None:  # type: ignore[no-untyped-def]
    trace = replay(usual(), 2, "10 Gbit/s, 50 us").trace()
    trace.save(tmp_path / "step.json.gz")
    assert Trace.load(tmp_path / "step.json.gz") == trace


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: replay([usual()], 2, "1 us"),
        lambda: replay([], 0, "1 us"),
        lambda: replay(usual(), 2, "1 us", slow={2: 2.0}),
        lambda: replay(usual(), 2, "1 us", slow={0: 0.0}),
        lambda: replay(usual(), 2, "1 us", [Bucket(("q",), 1)]),
        lambda: replay(usual(), 2, "1 us", algorithm="rings"),
        lambda: Step(1, (Gradient("a", 1, 2), Gradient("b", 1, 1))),
        lambda: Step(1, (Gradient("a", 1, 1), Gradient("a", 1, 2))),
    ],
)
def test_what_does_not_fit_is_refused(wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        wrong()
    assert "\n" not in str(caught.value)
