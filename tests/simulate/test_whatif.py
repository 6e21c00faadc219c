"""The content of a recording, and predictions for other conditions."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.errors import TraceError
from ddpkit.link import Link, Links
from ddpkit.simulate import (
    Gradient,
    Step,
    assign_buckets,
    cost,
    fit_link,
    replay,
    what_if,
)
from ddpkit.simulate.step.recorded import recorded_buckets
from ddpkit.simulate.step.whatif import recorded_link
from ddpkit.trace import Span, Trace
from tests.properties import examples

MB = 2**20
LINK = "10 Gbit/s, 200 us"


def a_step(seed: int = 0, size: int | None = None) -> Step:
    rng = random.Random(seed)
    return step_of(
        [(rng.randrange(200_000, 2_000_000), rng.randrange(1, MB)) for _ in range(40)], size
    )


def step_of(drawn: list[tuple[int, int]], size: int | None = None) -> Step:
    """Return a step with gradients that come one after the other: (ns, elements) for each."""
    ready, some = 0, []
    for i, (ns, elements) in enumerate(drawn):
        ready += ns
        some.append(Gradient(f"p{i}", size or 4 * elements, ready))
    return Step(30_000_000, tuple(some), 3_000_000, 500_000, 1_000_000)


def recorded(seeds: tuple[int, ...] = (0, 0), cap: float = 5, size: int | None = None) -> Trace:
    steps = [a_step(seed, size) for seed in seeds]
    buckets = assign_buckets(steps[0].gradients, cap)
    return replay(steps, len(steps), LINK, buckets).trace()


def without_bytes(trace: Trace) -> Trace:
    """Return the trace as recorded without the size and the name of gradients."""
    spans = [replace(s, bytes=0, args={}) if s.kind == "backward" else s for s in trace.spans]
    return replace(trace, spans=tuple(spans))


GRADIENTS = st.tuples(st.integers(200_000, 2_000_000), st.integers(1, MB))


@examples(10)
@given(step=st.lists(GRADIENTS, min_size=1, max_size=40).map(step_of))
def test_a_step_is_read_back_from_its_trace(step: Step) -> None:
    trace = replay(step, 3, LINK, assign_buckets(step.gradients, 5), slow={1: 1.5}).trace()
    assert Step.of_trace(trace, 0, 0) == step
    assert Step.of_trace(trace, -1, 1) == step.slowed(1.5)
    assert recorded_buckets(trace) == assign_buckets(step.gradients, 5)


def test_nothing_changed_is_the_recording() -> None:
    trace = recorded((0, 1, 2))
    assert what_if(trace).spans == trace.spans


@pytest.mark.parametrize("cap", [0, 1, 3, 10, 25, 1000])
@pytest.mark.parametrize("link", [LINK, "1 Gbit/s, 50 us", {1: "3 Gbit/s"}])
def test_another_cap_and_link_as_if_it_had_been_run_so(cap: float, link: str) -> None:
    steps = [a_step(0), a_step(1)]
    there = replay(steps, 2, link, assign_buckets(steps[0].gradients, cap), slow={0: 2.0})
    guess = what_if(recorded((0, 1)), bucket_cap_mb=cap, link=link, slow={0: 2.0})
    assert guess.spans == there.trace().spans
    assert guess.facts["emulated"] == str(Links.parse(link, 2))


def test_what_was_changed_is_said() -> None:
    facts = what_if(recorded(), bucket_cap_mb=1, link="1 us", slow={1: 2.0}).facts
    assert facts["what_if"] == "bucket_cap_mb=1, link=1 us, slow={1: 2.0}"
    assert what_if(recorded()).facts["what_if"] == ""


def test_bytes_of_gradients_come_from_their_buckets_or_are_given() -> None:
    even = recorded(size=MB)
    step = Step.of_trace(without_bytes(even))
    assert [g.bytes for g in step.gradients] == [MB] * 40
    trace = without_bytes(recorded())
    sizes = [g.bytes for g in a_step().gradients]
    assert [g.bytes for g in Step.of_trace(trace, sizes=sizes).gradients] == sizes
    guessed = Step.of_trace(trace)
    assert guessed.bytes == sum(sizes)
    by_name = {g.name: g.bytes for g in guessed.gradients}
    for bucket in recorded_buckets(trace):
        assert sum(by_name[name] for name in bucket.gradients) == bucket.bytes
    with pytest.raises(TraceError, match="3 sizes for 40 gradients"):
        Step.of_trace(trace, sizes=[1, 2, 3])


def test_time_blocked_inside_backward_is_no_compute() -> None:
    """A hook waits for its all_reduce at once: the ready times exclude the wait."""
    spans = [
        Span(0, "compute", "f", "forward", 0, 10),
        Span(0, "compute", "b", "backward", 10, 20),
        Span(0, "comm", "all_reduce", "comm", 20, 50, bytes=8, blocked_ns=20),
        Span(0, "compute", "b", "backward", 20, 60),
        Span(0, "compute", "b", "backward", 60, 61),
        Span(0, "compute", "o", "optimizer", 65, 70),
    ]
    step = Step.of_trace(Trace(spans, 1))
    assert [g.ready_ns for g in step.gradients] == [10, 20]
    assert (step.forward_ns, step.finish_ns, step.optimizer_ns, step.other_ns) == (10, 1, 5, 4)
    assert step.compute_ns == 70 - 30


def many_steps(times: list[int]) -> Trace:
    """Return a run in which step k takes times[k] times as long as usual."""
    return one_after_the_other([a_step().slowed(factor) for factor in times])


def one_after_the_other(steps: list[Step]) -> Trace:
    spans, at = [], 0
    for step in steps:
        trace = replay(step, 2, LINK).trace()
        spans += [
            replace(
                s,
                start_ns=s.start_ns + at,
                end_ns=s.end_ns + at,
                ready_ns=None if s.ready_ns is None else s.ready_ns + at,
                blocked_ns=None if s.blocked_ns is None else s.blocked_ns + at,
            )
            for s in trace.spans
        ]
        at += trace.end_ns
    return Trace(spans, 2, trace.facts)


def test_the_typical_step_is_the_lower_quartile_after_the_warm_up() -> None:
    assert Step.typical(many_steps([1, 1, 1, 4, 7, 3, 8, 9])) == a_step().slowed(4)
    assert Step.typical(many_steps([9, 3])) == a_step().slowed(3), "too short: the last step"
    assert what_if(many_steps([9, 9, 9, 2, 2, 2])).end_ns == what_if(many_steps([2])).end_ns


def test_one_late_layer_in_each_step_is_no_part_of_the_typical_step() -> None:
    """Another layer is late in each step: every step is too long, but each layer is mostly
    right."""
    gradients, steps = a_step().gradients, []
    for late in range(5):
        delayed = [
            replace(g, ready_ns=g.ready_ns + (50_000_000 if i >= 8 * late else 0))
            for i, g in enumerate(gradients)
        ]
        steps.append(replace(a_step(), gradients=tuple(delayed)))
    trace = one_after_the_other([a_step()] * 3 + steps)
    assert Step.typical(trace) == a_step()


def test_a_recording_without_training_is_refused() -> None:
    with pytest.raises(TraceError, match="no steps"):
        what_if(Trace((), 2))
    with pytest.raises(TraceError, match="no backward in this step of rank 0"):
        what_if(Trace([Span(0, "step", "step", "step", 0, 9)], 1))


# The link of the recording


def test_the_recorded_link_and_what_came_on_top() -> None:
    step = a_step()
    trace = replay(step, 4, LINK, overhead_ns=12_345).trace()
    links, overhead = recorded_link(trace)
    assert (links, overhead) == (Links.parse(LINK, 4), 12_345)
    assert what_if(trace).end_ns == trace.end_ns
    assert recorded_link(replace(trace, facts={**trace.facts, "emulated": LINK}))[1] == 12_345
    with pytest.raises(TraceError, match="own link cannot be read: cannot read"):
        recorded_link(replace(trace, facts={"emulated": "a string and two cans"}))


def test_a_real_link_is_fitted() -> None:
    trace = recorded((0, 0, 0))
    real = replace(trace, facts={"backend": "gloo", "emulated": ""})
    links, overhead = recorded_link(real)
    assert overhead == 0
    assert links[0].latency_ns == pytest.approx(200_000, rel=1e-3)
    assert links[0].bytes_per_s == pytest.approx(1.25e9, rel=1e-3)
    assert what_if(real).end_ns == pytest.approx(trace.end_ns, rel=1e-3)


# the clock counts whole ns, so the sizes must be far apart
TENS_OF_MB = st.integers(0, 9).map(lambda tens: tens * 10**7)


@examples(10)
@given(
    n=st.integers(2, 9),
    link=st.builds(Link, st.floats(1e-5, 1e-3), st.floats(1e7, 1e10)),
    sizes=st.lists(TENS_OF_MB, min_size=5, max_size=5, unique=True),
)
def test_fit_finds_the_link(n: int, link: Link, sizes: list[int]) -> None:
    fitted = fit_link([(s, cost("ring", n, s, link)) for s in sizes], n)
    assert fitted.latency_ns == pytest.approx(link.latency_ns, rel=1e-3)
    assert fitted.bytes_per_s == pytest.approx(link.bytes_per_s, rel=1e-3)


def test_fit_of_what_no_link_explains() -> None:
    assert fit_link([], 2) == fit_link([(10, 10)], 1) == Link()
    for samples in ([(10, 40)], [(10, 38), (10, 42)]):
        one_size = fit_link(samples, 2)
        assert (one_size.latency_ns, one_size.bytes_per_s) == (0, pytest.approx(0.25e9))
    # otherwise the latency would be below 0
    assert fit_link([(10, 10), (20, 30)], 2).latency_ns == 0
    assert fit_link([(0, 5), (0, 5)], 2) == Link()
