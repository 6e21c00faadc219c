"""The engine runs any program exactly to the nanosecond, and every shortcut agrees with it."""

import gc
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.link import Link, Links
from ddpkit.simulate import (
    After,
    CollectivePart,
    Gradient,
    MessageEnd,
    Program,
    Resumed,
    ShardUnit,
    Step,
    Work,
    assign_buckets,
    cost,
    pipeline_plans,
    pipeline_time,
    play_program,
    replay,
    schedule,
    shard_program,
    step_ends,
    step_program,
)
from ddpkit.simulate.step.data_parallel import posted_ns
from ddpkit.simulate.step.pipeline import pipeline_program
from ddpkit.simulate.step.streams import _one_for_all
from tests.properties import examples
from tests.simulate.topologies import a_link, a_step, a_topology

LINK = "8 MB/s, 10 us"  # 8 bytes take a microsecond


def test_lanes_go_on_at_the_same_time_and_wait_for_each_other() -> None:
    rank = {
        "compute": [Work(100, "a", handle="a"), Work(50, "b"), After(("c",)), Work(1, "d")],
        "other": [After(("a",)), Work(200, "c", handle="c")],
    }
    played = play_program(Program("two lanes", (rank,)), "unlimited")
    assert played.ns == 301
    spans = [(span.name, span.start_ns, span.end_ns) for span in played.spans]
    assert spans == [("a", 0, 100), ("b", 100, 150), ("c", 100, 300), ("d", 300, 301)]
    assert played.stuck == ()


def test_a_lane_waits_for_several_and_for_what_is_posted_later() -> None:
    first = [After(("x", "y")), Work(5, "z")]
    others = {"x": [Work(30, "x", handle="x")], "y": [Work(10), Work(10, "y", handle="y")]}
    assert play_program(Program("three", ({"z": first, **others},)), "unlimited").ns == 35


def test_messages_take_what_the_link_says() -> None:
    there = [Work(1000), MessageEnd("isend", 1, 8, handle="s"), Work(7), After(("s",))]
    here = [MessageEnd("irecv", 0, 8, handle="r"), Work(3), After(("r",)), Work(1)]
    played = play_program(Program.of_lanes("one message", [there, here]), LINK)
    assert played.ends_ns == (2000, 12_001)
    irecv = next(span for span in played.spans if span.name == "irecv")
    assert (irecv.start_ns, irecv.blocked_ns, irecv.end_ns) == (0, 3, 12_000)
    assert played.trace().traffic.received(1) == 8


def test_who_receives_from_anybody_learns_who_came() -> None:
    heard: list[Resumed] = []

    def server() -> Generator[MessageEnd, Resumed, None]:
        for _ in range(2):
            heard.append((yield MessageEnd("recv", None, 8)))
            assert heard[-1].peer is not None
            yield MessageEnd("isend", heard[-1].peer, 8)

    clients = [[Work(wait), MessageEnd("send", 0, 8), MessageEnd("recv", 0, 8)] for wait in (9, 5)]
    program = Program.of_lanes("a server", [server, *clients])
    for _ in range(2):  # a program can be played twice
        heard.clear()
        assert play_program(program, LINK).stuck == ()
        assert [moment.peer for moment in heard] == [2, 1]
        assert heard[0].ns == 11_005


def test_who_waits_for_ever_is_told_with_the_step() -> None:
    lanes = [[MessageEnd("recv", 1, 8, tag=3)], [Work(5), After(("nothing",))], [Work(5)]]
    first, second = play_program(Program.of_lanes("stuck", lanes), LINK).stuck
    assert (first.rank, first.lane, first.step) == (0, "main", lanes[0][0])
    assert (second.rank, second.step) == (1, After(("nothing",)))


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (MessageEnd("isend", None, 8), "a send needs a peer"),
        (MessageEnd("push", 0, 8), "op must be one of"),
        (MessageEnd("isend", 7, 8), "the peer is rank 7, but the ranks of the program are 0 to "),
    ],
)
def test_what_cannot_be_posted_is_refused(step: MessageEnd, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        play_program(Program.of_lanes("wrong", [[step]]), LINK)


@pytest.mark.parametrize("usual", [True, False])
@pytest.mark.parametrize("step", [Work(5, "x"), MessageEnd("push", 0, 8)])
def test_no_garbage_is_looked_for_meanwhile_and_then_as_before(
    step: Work | MessageEnd, usual: bool
) -> None:
    looked: list[bool] = []

    def lane() -> Generator[Work | MessageEnd, Resumed, None]:
        looked.append(gc.isenabled())
        yield step

    before = gc.isenabled()
    (gc.enable if usual else gc.disable)()
    try:
        with suppress(ValueError):  # for operations that cannot be posted
            play_program(Program.of_lanes("looked", [lane]), LINK).trace()
        assert (looked, gc.isenabled()) == ([False], usual)
    finally:
        (gc.enable if before else gc.disable)()


# Schedules, steps, pipelines and shards are programs


@examples(60)
@given(link=a_link(), n=st.integers(1, 9), nbytes=st.sampled_from((0, 2520, 2_520_000)))
def test_closed_forms_are_the_engines(link: Link, n: int, nbytes: int) -> None:
    """Both agree to the ns on equal links, for even shares and whole ns a byte.

    In other cases a message is rounded to a ns, and the formula is not.
    """
    whole = link.bytes_per_s in (float("inf"), 1e8, 1e9)
    links = Links((link,) * n)
    for name in ("ring", "reduce_scatter", "all_gather", "broadcast"):
        took = play_program(Program.of_schedule(schedule(name, n, nbytes)), links).ns
        assert abs(took - cost(name, n, nbytes, link)) <= (0 if whole else 2 * n)


@examples(40)
@given(links=a_topology(), step=a_step(), cap=st.sampled_from((0.0, 0.2, 100)))
def test_a_step_on_two_lanes_is_that_of_one(links: Links, step: Step, cap: float) -> None:
    """torch posts buckets and goes on.

    A communication lane that waits for buckets does the same.
    """
    n, buckets = len(links), assign_buckets(step.gradients, cap)
    plans = [schedule("ring", n, bucket.bytes) for bucket in buckets]
    backward = zip(step.gradients, step.gaps_ns, strict=True)
    lanes = {
        "compute": [
            Work(step.begin_ns),
            *(Work(gap, handle=gradient.name) for gradient, gap in backward),
            After((("reduced", len(buckets) - 1),)),
            Work(step.finish_ns + step.optimizer_ns),
        ],
        "comm": [
            action
            for i, (plan, bucket) in enumerate(zip(plans, buckets, strict=True))
            for action in (
                After(bucket.gradients),
                CollectivePart(plan, tuple(range(n)), i, handle=("reduced", i)),
            )
        ],
    }
    played = play_program(Program("two lanes", (lanes,) * n), links)
    assert list(played.ends_ns) == step_ends([step] * n, links, buckets)


def test_the_trace_of_a_step_is_the_replays() -> None:
    rows = (("p0", 30_000, 200_000), ("p1", 90_000, 500_000), ("p2", 60_000, 900_000))
    step = Step(400_000, tuple(Gradient(*row) for row in rows), 70_000, finish_ns=7, other_ns=11)
    buckets = assign_buckets(step.gradients, 0.1)
    played = play_program(step_program([step] * 4, buckets), "1 Gbit/s, 40 us").trace()
    told = replay(step, 4, "1 Gbit/s, 40 us", buckets).trace()
    for kind in ("forward", "backward", "optimizer"):
        seen, said = (
            [(span.rank, span.duration_ns) for span in trace.spans if span.kind == kind]
            for trace in (played, told)
        )
        assert sorted(seen) == sorted(said)
    assert len(played.of(0)) == len([span for span in told.of(0) if span.kind != "step"])


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zero bubble"])
def test_a_pipelines_program_can_be_played_on_any_links(name: str) -> None:
    plans = pipeline_plans(name, 3, 4)
    program = pipeline_program(plans, (20_000_000, 40_000_000, 20_000_000), 4)
    trace = pipeline_time(plans, link={"default": "10 ms", 1: "20 ms"}, nbytes=4)
    assert play_program(program, {"default": "10 ms", 1: "20 ms"}).ns == trace.end_ns


UNITS = [ShardUnit(800_000, 5_000_000, 10_000_000)] * 4


def test_shards_cost_what_is_not_hidden() -> None:
    """4 ranks at 1 Gbit/s: a gather and a scatter take 3 · 200 kB, 4.8 ms.

    Compute hides the rest.
    """
    moved, forward, backward = 4_800_000, 5_000_000, 10_000_000
    program = shard_program(UNITS, 4)
    took = play_program(program, "1 Gbit/s").ns
    assert took == moved + 4 * forward + 4 * backward + moved
    slow = play_program(program, "500 Mbit/s").ns
    assert slow > took + 2 * moved
    alone = play_program(shard_program(UNITS, 1), "1 Gbit/s").ns
    assert alone == 4 * (forward + backward)


def test_gathering_ahead_hides_and_keeping_saves_the_second_gather() -> None:
    none, one, two = (
        play_program(shard_program(UNITS, 4, ahead=ahead), "1 Gbit/s").ns for ahead in (0, 1, 2)
    )
    assert none > one >= two
    kept = play_program(shard_program(UNITS, 4, keep=True), "1 Gbit/s").trace()
    gathers = [span for span in kept.of(0) if span.name == "all_gather"]
    assert len(gathers) == 4
    with pytest.raises(ValueError, match="ahead=-1"):
        shard_program(UNITS, 4, ahead=-1)


# Streams


@examples(25)
@given(step=a_step(), streams=st.integers(2, 3), n=st.sampled_from((2, 4, 5)))
def test_streams_are_the_engines(step: Step, streams: int, n: int) -> None:
    """One rank that stands for all agrees with all ranks, if the ranks share the bytes evenly."""
    even = [Gradient(g.name, g.bytes * 60, g.ready_ns) for g in step.gradients]
    step = replace(step, gradients=even)
    buckets, link = assign_buckets(step.gradients, 0.2), "1 GB/s, 40 us"
    links = Links.parse(link, n)
    (posted,) = {tuple(posted_ns(step, buckets))}
    program = _one_for_all(n, buckets, posted, streams)
    alone = play_program(program, Links(links.each[:1])).collective_parts
    done = replay(step, n, link, buckets, streams=streams)
    assert [part.done_ns for part in alone] == [each.done_ns for each in done.all_reduces]
    ends = step_ends([step] * n, link, buckets, streams=streams)
    assert max(ends) == done.step_ns


def test_streams_hide_latency_and_no_bytes() -> None:
    gradients = tuple(Gradient(f"p{i}", 2**20, 1000 * i) for i in range(8))
    step, buckets = Step(0, gradients), assign_buckets(gradients, 0.5)
    far, wide = (
        [replay(step, 8, link, buckets, streams=k).step_ns for k in (1, 2, 4)]
        for link in ("100 Gbit/s, 1 ms", "1 Gbit/s")
    )
    assert far[1] == pytest.approx(far[0] / 2, rel=0.01)
    assert far[2] == pytest.approx(far[0] / 4, rel=0.02)
    assert wide[2] == pytest.approx(wide[0], rel=0.01)
    many = replay(step, 512, "100 Gbit/s, 10 us", buckets, streams=2)
    assert many.step_ns < 0.6 * replay(step, 512, "100 Gbit/s, 10 us", buckets).step_ns
    assert many.trace(2).facts["streams"] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"streams": 0}, "give 1 or more"),
        ({"streams": 2, "price": lambda nbytes: nbytes}, "cannot be combined"),
        ({"streams": 2, "overhead_ns": 5}, "cannot be combined"),
        ({"streams": 2, "algorithm": "butterfly"}, "ring on equal links"),
    ],
)
def test_streams_that_cannot_be_worked_out_are_refused(arguments, says) -> None:
    step = Step(0, (Gradient("p", 100, 5),))
    with pytest.raises(ValueError, match=says):
        replay(step, 128, "1 Gbit/s", **arguments)
