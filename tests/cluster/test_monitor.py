"""The monitor calls ranks stuck, or does not: fed by hand, without processes."""

from dataclasses import replace

import pytest

from ddpkit.cluster.monitor import (
    PATIENCE_EMULATED_NS,
    PATIENCE_LOST_NS,
    PATIENCE_MATCHED_NS,
    PATIENCE_NS,
    Monitor,
)
from ddpkit.errors import Deadlock, Doing, LastSeen, Mismatch, Waiting
from ddpkit.protocol.call import Call
from ddpkit.protocol.status import RankStatus

LINE = ("/x/cell.py", 3)
SECOND = 1_000_000_000


class Rank:
    """A black box of a rank, which the test fills."""

    def __init__(self):
        self.calls, self.lost, self.now = [], 0, None

    def new_calls(self):
        calls, self.calls = self.calls, []
        lost, self.lost = self.lost, 0
        return calls, lost

    def status(self):
        return self.now


class World:
    """Ranks and a clock that the test moves."""

    def __init__(self, size):
        self.ranks = [Rank() for _ in range(size)]
        self.monitor, self.ns = Monitor(self.ranks), 0
        self.cpu = [0] * size
        self.waits = [None] * size
        self.moved = [0] * size

    def post(self, rank, op, *, seq=1, wait=True, **more):
        call = Call(op, seq=seq, where=LINE, **more)
        self.ranks[rank].calls.append(call)
        self.moved[rank] += 1
        self.waits[rank] = call if wait else None

    def passes(self, seconds, returned=(), busy=(), silent=()):
        """Let time pass in fifths of a second; return the first error found."""
        for _ in range(round(seconds * 5)):
            self.ns += SECOND // 5
            for rank, box in enumerate(self.ranks):
                if rank in silent:
                    continue
                self.cpu[rank] += SECOND // 5 if rank in busy else SECOND // 1000
                box.now = RankStatus(
                    beat=self.ns,
                    phase="running",
                    where=LINE,
                    via="",
                    waiting=self.waits[rank],
                    moved=self.moved[rank],
                    calls=self.moved[rank],
                    wall_ns=self.ns,
                    cpu_ns=self.cpu[rank],
                )
            wrong = self.monitor.look(set(returned))
            if wrong is not None:
                return wrong
        return None


PATIENT, VERY_PATIENT = PATIENCE_NS / SECOND, PATIENCE_MATCHED_NS / SECOND
LOST, EMULATED = PATIENCE_LOST_NS / SECOND, PATIENCE_EMULATED_NS / SECOND


def test_two_that_wait_for_each_other():
    world = World(2)
    for rank in (0, 1):
        world.post(rank, "recv", peer=1 - rank, dtype="f", shape=(1,))
    assert world.passes(PATIENT - 0.4) is None
    wrong = world.passes(1)
    assert type(wrong) is Deadlock
    assert wrong.ranks == (0, 1)
    recv = Call("recv", where=LINE, peer=1, dtype="f", shape=(1,), seq=1)
    assert wrong.waiting == {0: Waiting(recv, LINE), 1: Waiting(recv._replace(peer=0), LINE)}
    assert (wrong.needs, wrong.returned) == ({0: {1}, 1: {0}}, set())
    assert wrong.cause == "receive"


def test_one_that_computes_sleeps_or_moves_bytes_is_not_stuck():
    world = World(2)
    world.post(0, "recv", peer=1, dtype="f", shape=(1,))
    assert world.passes(100) is None  # rank 1 waits for nothing: it sleeps, or computes
    world.post(1, "recv", peer=0, dtype="f", shape=(1,))
    assert world.passes(100, busy={1}) is None  # rank 1 waits, but its CPU is busy
    for _ in range(30):
        world.moved[1] += 1
        assert world.passes(1) is None  # now and then an operation ends or is posted
    assert type(world.passes(3)) is Deadlock


def test_what_has_its_counterpart_gets_more_time():
    world = World(2)
    world.post(0, "send", peer=1, dtype="f", shape=(1,))
    world.post(1, "recv", peer=0, dtype="f", shape=(1,))
    assert world.passes(VERY_PATIENT - 1) is None
    assert type(world.passes(3)) is Deadlock


@pytest.mark.parametrize(
    ("tag", "sender", "patience"),
    [
        (3, "waits", VERY_PATIENT),
        (4, "waits", PATIENT),
        (3, "has returned", PATIENT),
    ],
)
def test_a_message_on_its_way_to_a_receive_from_anybody_gets_more_time(tag, sender, patience):
    """Regression: on busy cores such a message was called a deadlock."""
    world = World(2)
    world.post(0, "recv", tag=3, dtype="f", shape=(1,))
    world.post(1, "send", peer=0, tag=tag, dtype="f", shape=(1,))
    returned = {1} if sender == "has returned" else ()
    assert world.passes(patience - 0.4, returned) is None
    assert type(world.passes(3, returned)) is Deadlock


@pytest.mark.parametrize("op", ["recv", "all_reduce"])
def test_who_has_waited_long_for_a_slow_rank_gets_its_bytes_after_that_has_returned(op):
    """A rank that computes for a minute, sends and returns has not lost its message."""
    world = World(2)
    peers = [{"peer": 1}, {"peer": 0}] if op == "recv" else [{"members": (0, 1)}] * 2
    world.post(0, op, dtype="f", shape=(1,), **peers[0])
    assert world.passes(60, busy={1}) is None
    world.post(1, "send" if op == "recv" else op, dtype="f", shape=(1,), **peers[1])
    patience = LOST if op == "recv" else VERY_PATIENT
    assert world.passes(patience - 0.4, {1}) is None
    assert type(world.passes(3, {1})) is Deadlock


def test_a_message_whose_sender_has_returned_is_lost():
    """The sender never waits for its isend: the most common mistake with isend."""
    world = World(2)
    world.post(0, "send", peer=1, dtype="f", shape=(1,), via="isend")
    world.post(1, "recv", peer=0, dtype="f", shape=(1,))
    assert world.passes(LOST - 1, returned={0}) is None  # the message may still be on its way
    wrong = world.passes(3, returned={0})
    assert type(wrong) is Deadlock
    assert "the message is lost. Keep the Work that isend returns" in " ".join(str(wrong).split())
    assert (wrong.cause, wrong.returned, wrong.needs) == ("lost", {0}, {1: set()})
    assert LOST + 3 < VERY_PATIENT


def test_a_rank_that_is_silent_is_not_stuck():
    """The rank holds the GIL: its last report, that it waits, is old."""
    world = World(2)
    world.post(1, "recv", peer=0, dtype="f", shape=(1,))
    assert world.passes(10) is None
    world.post(0, "recv", peer=1, dtype="f", shape=(1,))
    assert world.passes(60, silent={1}) is None
    assert type(world.passes(3)) is Deadlock


def test_a_rank_that_has_said_nothing_yet_is_not_stuck():
    world = World(2)
    world.post(0, "barrier")
    assert world.passes(60, silent={1}) is None


@pytest.mark.parametrize("returned", [{1}, {1, 2}])
def test_returned_ranks_need_not_wait(returned):
    world = World(3)
    for rank in {0, 1, 2} - returned:
        world.post(rank, "barrier")
    wrong = world.passes(3, returned=returned)
    assert type(wrong) is Deadlock
    assert "without calling barrier" in str(wrong)
    assert (wrong.cause, wrong.returned) == ("returned", returned)
    assert set(wrong.needs.values()) == {frozenset(returned)}
    assert world.passes(3, returned={0, 1, 2}) is None


def test_ranks_of_a_group_are_needed_and_no_others():
    world = World(3)
    world.post(0, "barrier", group="7", members=(0, 2))
    world.post(1, "recv", peer=0, dtype="f", shape=(1,))
    world.post(2, "recv", peer=1, dtype="f", shape=(1,))
    assert "rank 0 needs rank 2 to call barrier" in str(world.passes(3))


def test_the_store_is_waited_for_by_those_who_did_not_all_come():
    world = World(3)
    wait = Call("new_group", where=LINE)
    world.waits = [wait, wait, None]
    wrong = world.passes(3, returned={2})
    assert "ranks 0, 1 wait in new_group()" in str(wrong)
    assert "rank 2, which has returned" in str(wrong)


def test_groups_are_waited_for_by_those_who_make_others():
    world = World(4)
    make = {n: Call("new_group", str(n), LINE, members=(0, 1, 2, 3)) for n in (1, 2)}
    world.waits = [make[2], make[2], make[1], make[1]]
    wrong = world.passes(3)
    assert "ranks 0, 1 have made 2 groups" in " ".join(str(wrong).split())
    assert wrong.needs == {0: {2, 3}, 1: {2, 3}, 2: {0, 1}, 3: {0, 1}}


def test_members_that_all_make_one_group_get_more_time():
    """The members are connecting, and other ranks may already be making the next group."""
    world = World(4)
    pairs = {n: Call("new_group", str(n), LINE, members=(2 * n - 2, 2 * n - 1)) for n in (1, 2)}
    world.waits = [pairs[1], pairs[1], pairs[2], pairs[2]]
    assert world.passes(VERY_PATIENT - 1) is None
    assert world.passes(3).cause == "nothing"


def test_a_group_whose_number_is_another_ranks_group():
    world = World(4)
    for rank in range(4):
        members = (0, 1) if rank < 2 else (2, 3)
        world.post(rank, "barrier", group="1", members=members, wait=False)
    wrong = world.passes(0.2)
    assert type(wrong) is Mismatch
    assert (wrong.kind, wrong.ranks) == ("members", (0, 2))


def test_a_group_of_ones_own_may_have_any_number():
    world = World(2)
    for rank in (0, 1):
        world.post(rank, "barrier", group="1", members=(rank,), wait=False)
    assert world.passes(0.2) is None


def test_disagreement_is_found_at_the_next_look():
    world = World(3)
    world.post(0, "all_reduce", dtype="f", shape=(4,))
    world.post(2, "all_reduce", dtype="f", shape=(5,))
    wrong = world.passes(0.2)
    assert type(wrong) is Mismatch
    assert (wrong.ranks, wrong.kind) == ((0, 2), "shape")
    assert {rank: call.shape for rank, call in wrong.calls.items()} == {0: (4,), 2: (5,)}


def test_calls_that_agree_are_forgotten():
    world = World(2)
    for seq in range(1, 100):
        for rank in (0, 1):
            world.post(rank, "all_reduce", seq=seq, dtype="f", shape=(4,), wait=False)
            world.post(rank, "send", seq=seq, peer=1 - rank, dtype="f", shape=(4,), wait=False)
            world.post(rank, "recv", seq=seq, peer=1 - rank, dtype="f", shape=(4,), wait=False)
    assert world.passes(1) is None
    assert not world.monitor._collectives
    assert not world.monitor._messages


def test_messages_are_paired_by_ends_tag_and_number():
    world = World(2)
    world.post(0, "send", peer=1, seq=1, dtype="f", shape=(4,), wait=False)
    world.post(0, "send", peer=1, seq=2, dtype="f", shape=(5,), wait=False)
    world.post(0, "send", peer=1, seq=1, tag=9, dtype="f", shape=(6,), wait=False)
    world.post(1, "recv", peer=0, seq=1, tag=9, dtype="f", shape=(2, 3), wait=False)
    world.post(1, "recv", peer=0, seq=1, dtype="f", shape=(4,), wait=False)
    assert world.passes(0.2) is None
    world.post(1, "recv", peer=0, seq=2, dtype="f", shape=(4,), wait=False)
    wrong = world.passes(0.2)
    assert "rank 0 sends f[5] to rank 1" in str(wrong)
    assert (wrong.ranks, wrong.kind) == ((0, 1), "message")
    assert {rank: call.op for rank, call in wrong.calls.items()} == {0: "send", 1: "recv"}


def from_anybody(world, rank, source, seq, tag=0):
    """Record a receive from any rank, as ranks do: once when posted, once when it came."""
    world.post(rank, "recv", seq=1, tag=tag, dtype="f", shape=(4,), wait=False)
    world.post(
        rank, "recv", peer=source, seq=seq, tag=tag, dtype="f", shape=(4,), found=True, wait=False
    )


def test_messages_from_anybody_are_forgotten_and_others_still_compared():
    world = World(3)
    for seq in range(1, 100):
        for source in (1, 2):
            world.post(source, "send", peer=0, seq=seq, dtype="f", shape=(4,), wait=False)
            from_anybody(world, 0, source, seq)
    assert world.passes(0.2) is None
    assert not world.monitor._messages
    world.post(2, "send", peer=0, seq=1, tag=2, dtype="f", shape=(4,), wait=False)
    world.post(0, "recv", peer=2, seq=1, tag=2, dtype="f", shape=(5,), wait=False)
    assert "rank 2 sends f[4] to rank 0 with tag 2" in str(world.passes(0.2))


@pytest.mark.parametrize("named_first", [True, False])
def test_what_is_received_by_name_and_from_anybody_with_one_tag_is_not_compared(named_first):
    world = World(2)
    world.post(1, "send", peer=0, seq=1, dtype="f", shape=(4,), wait=False)
    world.post(1, "send", peer=0, seq=2, dtype="f", shape=(5,), wait=False)
    if named_first:
        world.post(0, "recv", peer=1, seq=1, dtype="f", shape=(5,), wait=False)
    from_anybody(world, 0, 1, seq=2 if named_first else 1)
    if not named_first:
        world.post(0, "recv", peer=1, seq=2, dtype="f", shape=(4,), wait=False)
    assert world.passes(0.2) is None


@pytest.mark.parametrize("lost", [True, False])
def test_after_a_loss_messages_are_not_compared(lost):
    world = World(2)
    world.ranks[0].lost = int(lost)
    world.post(0, "send", peer=1, dtype="f", shape=(4,), wait=False)
    world.post(1, "recv", peer=0, dtype="f", shape=(5,), wait=False)
    assert (world.passes(0.2) is None) == lost


def test_after_a_loss_a_stuck_run_is_still_found():
    world = World(2)
    world.ranks[0].lost = 1
    world.post(0, "recv", peer=1, seq=2, dtype="f", shape=(4,))
    world.post(1, "recv", peer=0, seq=1, dtype="f", shape=(4,))
    assert type(world.passes(VERY_PATIENT + 3)) is Deadlock


def test_a_rank_is_last_seen_where_its_newest_word_is_from():
    """A status is up to a fifth of a second old: the rank may have posted a call since."""
    world = World(2)
    assert world.monitor.last_seen(1) is None
    world.post(1, "isend", peer=0, wait=False)
    world.passes(0.2)
    assert world.monitor.last_seen(1) == LastSeen(LINE, "status")
    world.post(1, "isend", peer=0, seq=2, wait=False)
    newest = world.ranks[1].calls[-1]
    world.passes(0.2, silent=[1])
    assert world.monitor.last_seen(1) == LastSeen(newest.where, "call", newest)
    world.passes(0.2)
    assert world.monitor.last_seen(1) == LastSeen(LINE, "status")


@pytest.mark.parametrize("takes", [(2, 3), (1, 3)])
def test_parts_of_an_all_to_all_that_do_not_fit_are_found(takes):
    world, more = World(2), {"members": (0, 1), "dtype": "f"}
    world.post(0, "all_to_all_single", shape=(3,), sends=(1, 2), takes=(1, 1), **more)
    world.post(1, "all_to_all_single", shape=(4,), sends=(1, 3), takes=takes, **more)
    wrong = world.passes(0.2)
    if takes == (2, 3):
        assert wrong is None
    else:
        assert (type(wrong), wrong.kind, wrong.ranks) == (Mismatch, "splits", (0, 1))
        assert [call.takes for call in wrong.calls.values()] == [(1, 1), (1, 3)]


def test_what_a_rank_is_doing_is_what_its_newest_status_says_of_the_line_it_is_in():
    world, elsewhere = World(2), ("/x/cell.py", 9)
    assert world.monitor.doing(0) == Doing()
    assert world.monitor.doing(0, elsewhere) == Doing(elsewhere)
    assert (world.monitor.beat(0), world.monitor.is_behind(0, LINE)) == (0, True)
    world.post(1, "recv", peer=0)
    world.passes(0.2)
    assert world.monitor.doing(0) == world.monitor.doing(0, LINE) == Doing(LINE)
    assert world.monitor.doing(1) == Doing(LINE, world.waits[1])
    assert world.monitor.doing(1, elsewhere) == Doing(elsewhere)  # the rank has moved on since
    assert world.monitor.beat(0) == world.ns
    assert [world.monitor.is_behind(0, line) for line in (LINE, elsewhere)] == [False, True]
    world.monitor.statuses[1] = replace(world.monitor.statuses[1], phase="starting")
    world.monitor.statuses[0] = replace(world.monitor.statuses[0], where=("", 0))
    assert [world.monitor.doing(rank) for rank in (0, 1)] == [Doing(), Doing()]


class Busy:
    """An emulated network that handles an event between any two looks, until it stops."""

    stands, has_more, stopped, events = False, False, False, 0

    @property
    def happened(self):
        self.events += not self.stopped
        return self.events


def test_ranks_that_wait_for_a_network_at_work_are_in_no_deadlock():
    """An emulated network of 512 ranks may compute a step for longer than the patience."""
    world = World(2)
    network = Busy()
    world.monitor = Monitor(world.ranks, network)
    for rank in (0, 1):
        world.post(rank, "all_reduce")
    assert world.passes(2 * EMULATED) is None
    network.stopped = True
    assert world.passes(VERY_PATIENT + 5) is None
    assert isinstance(world.passes(EMULATED), Deadlock)


def test_ranks_with_a_message_under_way_are_in_no_deadlock():
    """The network waits for a rank that seems to compute, as on busy cores."""
    world = World(2)
    network = Busy()
    network.stopped = network.has_more = True
    world.monitor = Monitor(world.ranks, network)
    for rank in (0, 1):
        world.post(rank, "all_gather")
    assert world.passes(3 * EMULATED) is None
    network.has_more = False
    assert isinstance(world.passes(1), Deadlock)
