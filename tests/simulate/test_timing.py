"""The event simulation, compared with a network that moves one byte after the other."""

from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ddpkit.link import Link, Links, LinkSpec
from ddpkit.simulate import Recv, Schedule, Send, schedule, time_of
from ddpkit.simulate.engine.network import Network
from ddpkit.simulate.engine.operations import schedule_of
from ddpkit.simulate.engine.posted import UNKNOWN, End, Part
from ddpkit.simulate.messages.schedules import Step, elements
from tests.properties import examples


def byte_by_byte(plan: Schedule, latency: int) -> list[int]:
    """Return the end of each rank's last message, on equal links of one byte in a nanosecond.

    A free outgoing side chooses among the messages that are sent and awaited: it takes the message
    sent first, once its patience is over. The patience ends `latency` after the message could
    leave, or after the time of its bytes if this is less. The bytes of a message reach the receiver
    one by one. The first byte comes `latency` after the message was sent or at the time it was
    awaited, and after the bytes that its side took before. In each tick, each incoming side takes a
    byte, of the message that came first (by its first byte).
    """
    n = plan.world_size
    programs = [deque(plan.of(rank)) for rank in range(n)]
    sent: dict[_Key, tuple[int, Step]] = {}  # message -> time, step
    awaited: dict[_Key, int] = {}  # message -> time
    ready: list[list[tuple[int, _Key, int]]] = [[] for _ in range(n)]  # sent, message, bytes
    free = [0] * n  # the time at which each outgoing side is free
    arrivals: dict[int, list[tuple[int, _Key]]] = {}  # tick -> (round, message): single bytes
    queue: list[dict[_Key, int]] = [{} for _ in range(n)]  # receiver -> bytes that have arrived
    taken: dict[_Key, int] = {}
    came: set[_Key] = set()
    done, now = [0] * n, 0
    while any(programs):
        for rank, program in enumerate(programs):
            while program:
                step = program[0]
                if isinstance(step, Send):
                    sent[_sent_key(step)] = now, program.popleft()
                    continue
                awaited.setdefault(_key(program[0]), now)
                if _key(program[0]) not in came:
                    break
                program.popleft()
                done[rank] = now
        for key in [key for key in sent if key in awaited]:
            at, message = sent.pop(key)
            ready[message.rank].append((at, key, elements(message.part)))
        for rank in range(n):
            while True:
                due = [
                    each
                    for each in ready[rank]
                    if max(each[0], free[rank]) + min(latency, each[2]) <= now
                ]
                if not due:
                    break
                at, key, nbytes = min(due, key=lambda each: (each[0], each[1][-1]))
                ready[rank].remove((at, key, nbytes))
                leaves = max(at, free[rank], awaited[key] - latency)
                free[rank] = leaves + nbytes
                for byte in range(nbytes):
                    arrivals.setdefault(leaves + latency + byte, []).append((key[-1], key))
        for _, key in sorted(arrivals.pop(now, [])):
            queue[key[1]][key] = queue[key[1]].get(key, 0) + 1
        for there in queue:
            for key, nbytes in there.items():  # in the order of their first bytes
                if taken.get(key, 0) < nbytes:
                    taken[key] = taken.get(key, 0) + 1
                    if taken[key] == key[3] - key[2]:
                        came.add(key)
                    break
        now += 1
    return done


_Key = tuple[int, int, int, int, int]  # message: from, to, first and last element, round


def _sent_key(step: Step) -> _Key:
    return step.rank, step.peer, *step.part, step.round


def _key(step: Step) -> _Key:
    return step.peer, step.rank, *step.part, step.round


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw messages among ranks; the order of posts and waits is drawn too, without deadlocks."""
    n, length = draw(st.integers(2, 4)), 9
    steps: list[Step] = []
    late: list[Step] = []
    # each message has its own round, so that no two messages tie
    for round in range(draw(st.integers(1, 8))):
        a, b = draw(st.permutations(range(n)))[:2]
        start = draw(st.integers(0, length - 1))
        part = start, draw(st.integers(start + 1, length))
        steps.append(Send(a, b, part, round))
        late.append(Recv(b, a, part, round))
        if draw(st.booleans()):
            steps += late
            late = []
    return Schedule("random", "p2p", n, length, tuple(steps + late))


def ends(plan: Schedule, link: Link) -> list[int]:
    trace = time_of(plan, link, itemsize=1)
    return [
        max((s.end_ns for s in trace.of(r) if s.is_recv), default=0) for r in range(plan.world_size)
    ]


@examples(150)
@given(plan=schedules(), latency=st.sampled_from((0, 1, 3, 20)))
def test_agrees_with_the_network_of_single_bytes(plan: Schedule, latency: int) -> None:
    assert ends(plan, Link(latency / 1e9, 1e9)) == byte_by_byte(plan, latency)


@pytest.mark.parametrize("algorithm", ["ring", "butterfly", "tree", "master_worker"])
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_algorithms_on_the_network_of_single_bytes(algorithm: str, n: int) -> None:
    plan = schedule(algorithm, n, n + 3)
    plan = Schedule(plan.name, "all_reduce", n, plan.length, _without_empty(plan))
    assert max(ends(plan, Link(4e-9, 1e9))) == max(byte_by_byte(plan, 4))


def _without_empty(plan: Schedule) -> tuple[Step, ...]:
    return tuple(step for step in plan.steps if elements(step.part))


def test_spans_say_what_moved_when() -> None:
    plan = schedule("broadcast", 2, 1000)
    trace = time_of(plan, "4 GB/s, 500 ns")
    send, recv = trace.of(0)[0], trace.of(1)[0]
    assert (send.name, send.peer, send.bytes) == ("isend", 1, 4000)
    assert (send.start_ns, send.end_ns, send.blocked_ns) == (0, 1000, None)
    assert (recv.name, recv.peer, recv.bytes) == ("recv", 0, 4000)
    assert (recv.start_ns, recv.end_ns, recv.blocked_ns, recv.ready_ns) == (0, 1500, 0, 0)
    assert dict(recv.args) == {"round": 0, "start": 0, "stop": 1000}
    assert trace.facts["emulated"] == "32 Gbit/s, 500 ns"
    assert trace.traffic.sent(0) == 4000


def test_a_rank_that_starts_late_is_waited_for() -> None:
    plan = schedule("ring", 4, 400)
    usual = time_of(plan, "1 GB/s, 100 ns").end_ns
    late = time_of(plan, "1 GB/s, 100 ns", starts={2: 10_000})
    assert late.end_ns == 10_000 + usual, "its own first chunk has the whole way to go"


def test_all_to_a_slow_rank_queue_on_its_side() -> None:
    plan = schedule("gather", 4, 400)
    times = time_of(plan, {"default": "1 GB/s", 0: "100 MB/s"}, itemsize=1)
    assert times.end_ns == 3 * 1000  # 3 messages of 100 bytes at 0.1 byte/ns


LINKS = st.builds(Link, st.integers(0, 999).map(lambda ns: ns / 1e9), st.floats(1e8, 1e9))


@examples(30)
@given(each=st.lists(LINKS, min_size=2, max_size=6), length=st.integers(0, 99), data=st.data())
def test_more_bandwidth_or_less_latency_never_slows_a_ring(
    each: list[Link], length: int, data: st.DataObject
) -> None:
    plan = schedule("ring", len(each), length)
    before = time_of(plan, Links(tuple(each))).end_ns
    rank = data.draw(st.integers(0, len(each) - 1), "the rank whose link gets better")
    faster = Link(each[rank].latency_ns / 1e9, 2 * each[rank].bytes_per_s)
    nearer = Link(0.0, each[rank].bytes_per_s)
    each[rank] = data.draw(st.sampled_from((faster, nearer)))
    assert time_of(plan, Links(tuple(each))).end_ns <= before


@pytest.mark.parametrize("algorithm", ["ring", "all_to_all", "scatter", "barrier"])
def test_traffic_of_the_trace_is_that_of_the_schedule(algorithm: str) -> None:
    plan = schedule(algorithm, 5, 23)
    traffic = time_of(plan, "1 Gbit/s").traffic
    for rank in range(5):
        assert traffic.sent(rank) == 4 * plan.sent(rank)
        assert traffic.messages(rank) == plan.messages(rank)
        assert traffic.received(rank) == 4 * plan.received(rank)


def test_a_deadlock_is_said() -> None:
    steps = (Recv(0, 1, (0, 1), 0), Recv(1, 0, (0, 1), 0))
    with pytest.raises(ValueError, match=r"ranks \[0, 1\]"):
        time_of(Schedule("wrong", "p2p", 2, 1, steps), "1 us")


NETWORKS = (
    "1 GB/s, 7 us",
    {"hosts of": 2, "inside": "2 GB/s, 1 us", "between": "1 GB/s, 5 us"},
    {"default": "1 GB/s, 7 us", 1: "500 MB/s"},
)
POSTS = st.lists(
    st.tuples(
        st.permutations(range(4)),  # the first rank sends to the second
        st.sampled_from((0, 1000, 5000, 7000, 12_000)),  # the time of the send
        st.sampled_from((0, 1000, 5000, 7000, 14_000)),  # the time of the receive
        st.sampled_from((0, 1000, 4000, 7000)),  # bytes
    ),
    max_size=12,
)


@examples(100)
@given(posts=POSTS, links=st.sampled_from(NETWORKS))
@example(  # two events of one message at one time
    posts=[
        ([2, 0, 1, 3], 5000, 5000, 4000),
        ([2, 3, 0, 1], 0, 5000, 7000),
        ([2, 1, 0, 3], 5000, 1000, 0),
    ],
    links=NETWORKS[2],
)
def test_messages_at_equal_times_all_come_whatever_is_told_first(
    posts: list[tuple[list[int], int, int, int]], links: LinkSpec
) -> None:
    def ends(order: list[int]) -> list[tuple[int, int]]:
        network, found = Network(Links.parse(links, 4)), {}
        for each in order:
            (src, dst, *_), sent, awaited, nbytes = posts[each]
            send = network.send(sent, "", src, dst, nbytes, each)
            found[each] = send, network.recv(awaited, "", dst, src, nbytes, each)
        network.advance()
        return [(found[each][0].done_ns, found[each][1].done_ns) for each in range(len(posts))]

    usual = ends(list(range(len(posts))))
    for (_, sent, awaited, _), (through, came) in zip(posts, usual, strict=True):
        assert came >= through >= max(sent, awaited)
    assert ends(sorted(range(len(posts)), key=lambda k: posts[k][0][0])) == usual  # rank by rank


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_who_is_done_at_one_time_is_known_to_be_before_time_is_there(
    operation: str, n: int
) -> None:
    network, members = Network(Links.parse("1 Gbit/s, 10 us", n)), tuple(range(n))
    plan = schedule_of(operation, 1000 * n, n)
    parts = [network.enter(0, "", 1, rank, members, plan) for rank in members]
    while all(part.done_ns == UNKNOWN for part in parts):
        network.happen()
    known = max(part.done_ns for part in parts)
    network.advance(before_ns=known)
    assert [part.done_ns for part in parts] == [known] * n
    assert network.now_ns < known


@pytest.mark.parametrize("last", range(4))
def test_ranks_leave_a_barrier_together_and_a_reduce_not_before_its_last_post(last: int) -> None:
    links, plan = Links.parse({"default": "1 Gbit/s, 10 us", 2: "1 Mbit/s, 1 ms"}, 4), "broadcast"
    posts = [9_000_000 if rank == last else 1000 * rank for rank in range(4)]

    def done(**how: bool) -> list[int]:
        network, parts = Network(links), {}
        steps = schedule(plan, 4, length=8)
        for rank in sorted(range(4), key=lambda rank: posts[rank]):
            network.advance(before_ns=posts[rank])  # a late rank finds ranks that are done
            parts[rank] = network.enter(posts[rank], "", 1, rank, (0, 1, 2, 3), steps, **how)
        network.advance()
        return [parts[rank].done_ns for rank in range(4)]

    alone, together, after_all = done(), done(together=True), done(after_all=True)
    assert len({*alone}) > 1
    assert together == [max(alone)] * 4
    assert after_all == [max(ns, posts[last]) for ns in alone]
    assert (min(alone) < posts[last]) == (last != 0)  # all ranks wait for the root's message


COLLECTIVES = ("all_to_all_single", "all_gather", "reduce", "barrier")
MIXED = st.lists(
    st.tuples(
        st.sampled_from((*COLLECTIVES, "message", "message")),
        st.sampled_from("abc"),  # the stream of a collective
        st.permutations(range(2)),  # a message's sender and receiver
        # the time after the last post at which each rank posts
        st.tuples(*[st.sampled_from((0, 0, 1, 500))] * 3),
        st.sampled_from((0, 8, 1000)),  # bytes
    ),
    max_size=7,
)
AT_ONCE = (0, 0, 0)


@examples(100)
@given(
    n=st.sampled_from((2, 3)),
    mixed=MIXED,
    link=st.sampled_from(("8 Gbit/s", "8 Gbit/s, 1 ns", "unlimited")),
)
@example(  # a collective's message is sent at 0, and waits until 1000 beside a message sent at 1
    n=2,
    mixed=[
        ("message", "a", [1, 0], AT_ONCE, 1000),
        ("all_to_all_single", "a", [0, 1], (1000, 0, 0), 8),
        ("message", "a", [1, 0], (0, 1, 0), 8),
    ],
    link="8 Gbit/s",
)
@example(  # a message without bytes leaves at 1000 before a long message, over the same link
    n=2,
    mixed=[
        ("message", "a", [1, 0], AT_ONCE, 1000),
        ("barrier", "b", [0, 1], AT_ONCE, 0),
        ("message", "a", [1, 0], (0, 1, 0), 1000),
    ],
    link="8 Gbit/s",
)
def test_collectives_beside_messages_end_alike_told_at_once_or_when_time_is_there(
    n: int, mixed: list[tuple[str, str, list[int], tuple[int, ...], int]], link: str
) -> None:
    now, posts = [0] * n, []
    for number, (what, _, (src, dst), later, _) in enumerate(mixed):
        for rank in range(n) if what != "message" else (src, dst):
            now[rank] += later[rank]
            posts.append((now[rank], rank, number))

    def ends(order: list[tuple[int, int, int]], just_in_time: bool) -> list[int]:
        network = Network(Links.parse(link, n))
        found: dict[tuple[int, int], End | Part] = {}
        for ns, rank, number in order:
            what, stream, (src, dst), _, nbytes = mixed[number]
            if just_in_time:
                network.advance(before_ns=ns)
            if what != "message":
                plan = schedule_of(what, nbytes, n)
                alike = {"together": what == "barrier", "after_all": what == "reduce"}
                part = network.enter(ns, stream, number, rank, tuple(range(n)), plan, **alike)
                found[number, rank] = part
            elif rank == src:
                found[number, rank] = network.send(ns, "", src, dst, nbytes, number)
            else:
                found[number, rank] = network.recv(ns, "", dst, src, nbytes, number)
        network.advance()
        return [found[place].done_ns for place in sorted(found)]

    usual = ends(posts, False)
    assert UNKNOWN not in usual
    by_rank = sorted(posts, key=lambda post: post[1])
    by_time = sorted(posts, key=lambda post: post[0])
    assert ends(by_rank, False) == usual
    assert ends(by_time, True) == ends(by_time, False) == usual
