"""The words of explanations: from calls to sentences, without processes."""

import pytest

from ddpkit.cluster import causes, disagreement, explain, phrases, stopped
from ddpkit.cluster.blame import blame, is_echo, process_death
from ddpkit.errors import Deadlock, Death, Doing, LastSeen, Waiting
from ddpkit.protocol.call import Call
from ddpkit.protocol.raised import Frame, Raised

LINE = ("/x/cell.py", 3)


def call(op, *, seq=1, shape=(), **more):
    return Call(op, seq=seq, where=LINE, shape=tuple(shape), **more)


def deadlock(calls, needs, returned=(), made=None):
    """Return the error for ranks that wait in these calls."""
    waiting = {rank: Waiting(each, LINE) for rank, each in calls.items()}
    cause = causes.deadlock_cause(calls, needs, returned)
    return Deadlock(explain.deadlock(waiting, needs, returned, cause, made or {}), cause=cause)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (call("recv", peer=1), "recv(src=1)"),
        (call("recv"), "recv(src=any)"),
        (call("send", peer=0, dtype="float32", shape=[2]), "send(dst=0)"),
        (call("send", peer=0, via="isend"), "isend(dst=0)"),
        (call("recv", peer=1, tag=7), "recv(src=1, tag=7)"),
        (call("recv", tag=7), "recv(src=any, tag=7)"),
        (call("send", peer=0, tag=7, via="isend"), "isend(dst=0, tag=7)"),
        (
            call("send", peer=0, tag=7, group="3", members=(0, 1)),
            "send(dst=0, tag=7, group=[0, 1])",
        ),
        (call("recv", peer=2, via="irecv"), "irecv(src=2)"),
        (call("barrier"), "barrier()"),
        (call("all_reduce", dtype="float32", shape=[4, 2]), "all_reduce(float32[4, 2])"),
        (call("all_reduce", dtype="int64"), "all_reduce(int64[])"),
        (call("all_reduce", dtype="int64", shape=[1], reduce="MAX"), "all_reduce(int64[1], MAX)"),
        (call("all_reduce", dtype="int64", shape=[1], reduce="SUM"), "all_reduce(int64[1])"),
        (call("broadcast", dtype="bool", shape=[1], root=2), "broadcast(bool[1], src=2)"),
        (call("reduce", dtype="bool", shape=[1], root=0), "reduce(bool[1], dst=0)"),
        (call("barrier", group="7", members=(2, 0)), "barrier(group=[0, 2])"),
        (
            call("barrier", group="7", members=(0, 2), group_desc="dp"),
            "barrier() of group dp [0, 2]",
        ),
        (
            call("send", peer=1, via="isend", group="7", members=(0, 1), group_desc="tp"),
            "isend(dst=1) of group tp [0, 1]",
        ),
        (
            call("all_reduce", dtype="float32", shape=[9], via="backward"),
            "all_reduce(float32[9]) inside backward()",
        ),
        (call("new_group", seq=0), "new_group()"),
        (
            call("new_group", seq=0, group="1", members=(0, 2)),
            "new_group() for group [0, 2]",
        ),
    ],
)
def test_a_call(given, text):
    assert phrases.describe(given) == text


@pytest.mark.parametrize(
    ("numbers", "text"), [([2], "rank 2"), ({1, 0}, "ranks 0, 1"), ((5, 3, 4), "ranks 3, 4, 5")]
)
def test_ranks(numbers, text):
    assert phrases.ranks(numbers) == text


def test_a_place():
    assert phrases.place(("", 0)) == "outside your code"
    assert phrases.place(("/no/such/file.py", 3)) == "file.py, line 3"
    line = phrases.place((__file__, 1))
    assert line.startswith('test_explain.py, line 1: """The words')


@pytest.mark.parametrize(
    ("needs", "cycle"),
    [
        ({}, []),
        ({0: {1}}, []),
        ({0: {1}, 1: {2}, 2: set()}, []),
        ({0: {1}, 1: {0}}, [0, 1]),
        ({0: {0}}, [0]),
        ({0: {1}, 1: {2}, 2: {0}}, [0, 1, 2]),
        ({0: {1}, 1: {2}, 2: {1}}, [1, 2]),  # rank 0 waits for a cycle without being in it
        ({0: {1, 2}, 1: {3}, 2: {0}, 3: {0}}, [0, 2]),  # the shorter of two cycles
    ],
)
def test_cycles(needs, cycle):
    assert causes.cycle(needs) == cycle


def test_ranks_that_do_the_same_share_a_line():
    wait = call("all_reduce", dtype="float32", shape=[2])
    others = [rank for rank in range(8) if rank != 3]
    error = deadlock(dict.fromkeys(others, wait), {rank: {3} for rank in others}, {3})
    text, cause = str(error), error.cause
    assert cause == "returned"
    assert text.splitlines()[1:] == [
        "  ranks 0, 1, 2, 4, 5, 6, 7 wait in all_reduce(float32[2])",
        "      cell.py, line 3",
        "  rank 3 returned already",
        "Why: ranks 0, 1, 2, 4, 5, 6, 7 wait for rank 3, which has returned without",
        "  calling all_reduce.",
    ]


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (
            {0: 4, 1: 4, 2: 3},
            "ranks 0, 1 wait in their 4th all_reduce for rank 2, which has returned after 3.",
        ),
        (
            {0: 22, 1: 23, 2: 3},
            "ranks 0, 1 wait in all_reduce for rank 2, which has returned after 3.",
        ),
        (
            {0: 1, 1: 1, 2: 0},
            "ranks 0, 1 wait for rank 2, which has returned without calling all_reduce.",
        ),
        ({}, "ranks 0, 1 wait for rank 2, which has returned without calling all_reduce."),
    ],
)
def test_unequal_numbers_of_calls(made, sentence):
    calls = dict.fromkeys((0, 1), call("all_reduce"))
    error = deadlock(calls, {0: {2}, 1: {2}}, {2}, made)
    assert f"Why: {sentence}" in " ".join(map(str.strip, str(error).splitlines()))


def test_returned_ranks_with_different_numbers_of_calls():
    error = deadlock({0: call("barrier")}, {0: {1, 2}}, {1, 2}, {0: 3, 1: 2, 2: 0})
    assert "rank 0 waits in its 3rd barrier for ranks 1, 2, which have returned after 2" in str(
        error
    )
    assert str(error).endswith("and 0.")


@pytest.mark.parametrize(
    ("calls", "needs", "returned", "cause", "words"),
    [
        (
            [call("recv", peer=1), call("recv", peer=0)],
            {0: {1}, 1: {0}},
            (),
            "receive",
            "ranks 0, 1 each wait to receive before they send, so nobody sends.",
        ),
        (
            [call("recv"), call("recv", peer=0), call("recv", peer=0)],
            {0: {1, 2}, 1: {0}, 2: {0}},
            (),
            "receive",
            "ranks 1, 2 wait for an answer from rank 0, and rank 0 waits for the next message, "
            "from any rank. A server must answer a request before it receives the next one.",
        ),
        (
            [call("send", peer=1), call("send", peer=2), call("send", peer=0)],
            {0: {1}, 1: {2}, 2: {0}},
            (),
            "send",
            "ranks 0, 1, 2 each wait in send until the next of them receives, so nobody receives.",
        ),
        (
            [call("recv"), call("recv", peer=0)],
            {0: {1, 2}, 1: {0}},
            (2,),
            "receive",
            "rank 1 waits for an answer from rank 0",
        ),
        (
            [call("recv")],
            {0: {1, 2}},
            (1, 2),
            "returned",
            "rank 0 waits for ranks 1, 2, which have returned without sending that message",
        ),
        (
            [call("send", peer=1), call("send", peer=0)],
            {0: {1}, 1: {0}},
            (),
            "send",
            "so nobody receives",
        ),
        (
            [call("recv", peer=1), call("barrier")],
            {0: {1}, 1: {0}},
            (),
            "cycle",
            "rank 0 needs rank 1 to send, but rank 1 needs rank 0 to call barrier",
        ),
        (
            [
                call("barrier", group="1", members=(0, 1), group_desc="dp"),
                call("barrier", group="2", members=(0, 1), group_desc="tp"),
            ],
            {0: {1}, 1: {0}},
            (),
            "cycle",
            "rank 0 needs rank 1 to call barrier of group dp [0, 1], but rank 1 needs rank 0 to "
            "call barrier of group tp [0, 1]",
        ),
        ([call("recv", peer=0)], {0: {0}}, (), "itself", "rank 0 waits for itself"),
        (
            [call("recv", peer=1), call("recv", peer=0)],
            {0: set(), 1: set()},
            (),
            "nothing",
            "no rank has posted a call",
        ),
        ([call("recv", peer=1)], {0: set()}, (1,), "lost", "the message is lost"),
        ([call("recv", peer=1)], {0: {1}}, (1,), "returned", "without sending that message"),
        ([call("send", peer=1)], {0: {1}}, (1,), "returned", "without receiving the message"),
    ],
)
def test_why(calls, needs, returned, cause, words):
    error = deadlock(dict(enumerate(calls)), needs, returned)
    assert error.cause == cause
    assert words in " ".join(str(error).split())


def making(group, *members):
    """Return a wait in new_group, as another rank sees it."""
    return call("new_group", seq=0, group=group, members=members)


@pytest.mark.parametrize(
    ("calls", "needs", "words"),
    [
        (
            [making("2", 0, 1, 2), making("2", 0, 1, 2), making("1", 0, 1, 2)],
            {0: {2}, 1: {2}, 2: {0, 1}},
            "Why: including the group [0, 1, 2], ranks 0, 1 have made 2 groups, rank 2 has made "
            "1 group. Every rank must call new_group for every group, in the same order",
        ),
        (
            # Rank 0 has made one group more, and the group of the second mesh dimension shows
            # nothing of it.
            [making("2", 0, 2), making("3", 0, 1), making("1", 0, 2), making("4", 2, 3)],
            {0: {2}, 1: {0}, 2: {0}, 3: {2}},
            "Why: including the group [0, 2], rank 0 has made 2 groups, rank 2 has made 1 group.",
        ),
        (
            [making("1", 0, 1), making("1", 0, 1, 2), making("1", 0, 1, 2)],
            {0: {1}, 1: {0}, 2: {0}},
            "Why: the ranks make different groups: rank 0 [0, 1], rank 1 [0, 1, 2], rank 2 [0, "
            "1, 2]. Every",
        ),
        (
            [making("a1f", 0, 1), making("b2e", 1, 2), making("c3d", 0, 2)],
            {0: {1}, 1: {2}, 2: {0}},
            "Why: rank 0 waits in new_group for [0, 1] until rank 1 comes, but rank 1 waits in "
            "new_group for [1, 2]; rank 1 waits in new_group for [1, 2] until rank 2 comes, but "
            "rank 2 waits in new_group for [0, 2]; rank 2 waits in new_group for [0, 2] until "
            "rank 0 comes, but rank 0 waits in new_group for [0, 1]. With "
            "use_local_synchronization=True the members of a group wait for each other, so all "
            "ranks must follow one order of all groups, for example sorted(groups), and leave out "
            "foreign groups.",
        ),
        (
            [making("a1f", 0, 1), making("b2e", 0, 1)],
            {0: {1}, 1: {0}},
            "Why: ranks 0, 1 wait in new_group for [0, 1], and do not meet: gloo counts the groups "
            "of each process, and only ranks with equal counts meet",
        ),
        (
            [call("send", peer=1, tag=1), call("recv", peer=0, tag=2)],
            {0: {1}, 1: {0}},
            "Why: rank 0 sends with tag 1, rank 1 receives with tag 2. A recv takes only messages "
            "with its own tag",
        ),
        (
            [call("recv", peer=1), call("send", peer=0, tag=3)],
            {0: {1}, 1: {0}},
            "Why: rank 1 sends with tag 3, rank 0 receives with tag 0. A recv",
        ),
        (
            [call("send", peer=1), call("recv", peer=2), call("recv", peer=0, tag=1)],
            {0: {1}, 1: {2}, 2: {0}},
            "Why: rank 0 needs rank 1 to receive, but rank 1 needs rank 2 to send",
        ),
    ],
)
def test_why_a_circle_does_not_fit(calls, needs, words):
    error = deadlock(dict(enumerate(calls)), needs)
    assert error.cause == "cycle"
    assert words in " ".join(str(error).split())


def test_one_number_for_groups_of_different_members():
    calls = {0: call("barrier", group="1", members=(0, 1)), 2: call("barrier", group="1")}
    calls[2] = calls[2]._replace(members=(2, 3))
    assert disagreement.mismatch("members", calls).splitlines() == [
        "Group number 1 has different members on different ranks.",
        "  rank 0 calls barrier(group=[0, 1])",
        "      cell.py, line 3",
        "  rank 2 calls barrier(group=[2, 3])",
        "      cell.py, line 3",
        "Every rank must call new_group for every group, in the same order, even for",
        "  groups without that rank.",
    ]


def test_a_wait_names_where_it_was_posted():
    wait = call("recv", peer=1, via="irecv")
    assert "in irecv(src=1)\n" in phrases.waits([0], Waiting(wait, LINE))
    assert "in wait() for the irecv(src=1) of line 3\n      cell.py, line 9" in phrases.waits(
        [0], Waiting(wait, ("/x/cell.py", 9))
    )
    assert "of cell.py, line 3\n      other.py, line 9" in phrases.waits(
        [0], Waiting(wait, ("/x/other.py", 9))
    )


@pytest.mark.parametrize(
    ("one", "other", "kind", "words"),
    [
        (call("barrier"), call("barrier"), None, ""),
        (call("barrier"), call("all_reduce"), "operation", "same order"),
        (call("broadcast", root=0), call("broadcast", root=1), "root", "same src"),
        (call("reduce", root=0), call("reduce", root=1), "root", "same dst"),
        (call("all_reduce", dtype="a"), call("all_reduce", dtype="b"), "dtype", "same dtype"),
        (call("all_reduce", shape=[2]), call("all_reduce", shape=[3]), "shape", "same shape"),
        (call("all_reduce", shape=[2, 2]), call("all_reduce", shape=[4]), None, ""),
        (call("all_reduce", shape=[1]), call("all_reduce"), None, ""),
        (
            call("all_reduce", reduce="SUM"),
            call("all_reduce", reduce="MAX"),
            "reduction",
            "same reduction",
        ),
        (call("all_to_all", shape=[2]), call("all_to_all", shape=[3]), None, ""),
    ],
)
def test_difference(one, other, kind, words):
    assert causes.difference(one, other) == kind
    if kind is not None:
        assert words in disagreement.mismatch(kind, {0: one, 1: other})


SPLITS = {  # rank -> splits sent to and received from the members of [2, 0, 1], in this order
    2: ((0, 3, 1), (0, 2, 2)),
    0: ((2, 1, 4), (3, 1, 6)),
    1: ((2, 6, 5), (1, 4, 5)),
}


@pytest.mark.parametrize(
    ("sends", "takes", "says"),
    [
        ({}, {}, None),
        (
            {1: (2, 7, 5)},
            {},
            "rank 1 sends 7 numbers to rank 0\n",
        ),
        ({}, {2: (0, 2, 0)}, "rank 1 sends 2 numbers to rank 2\n"),
        ({0: (2, 0, 4)}, {}, "rank 0 sends 0 numbers to itself\n"),
        ({0: ()}, {0: ()}, None),  # unknown splits
    ],
)
def test_splits_of_a_group_in_an_order_of_its_own(sends, takes, says):
    members = (2, 0, 1)
    calls = {
        rank: call(
            "all_to_all_single",
            members=members,
            sends=sends.get(rank, SPLITS[rank][0]),
            takes=takes.get(rank, SPLITS[rank][1]),
        )
        for rank in members
    }
    found = {causes.misfit(calls, rank) for rank in members} - {None}
    assert len(found) == (says is not None)
    if says:
        text = disagreement.mismatch("splits", calls)
        assert says in text
        # the sending line, and the receiving line
        assert text.count("\n      cell.py, line 3\n") == 2


@pytest.mark.parametrize(("tag", "words"), [(0, "to rank 0\n"), (7, "to rank 0 with tag 7\n")])
def test_a_message_that_does_not_fit(tag, words):
    sent = call("send", peer=0, tag=tag, dtype="float32", shape=[2])
    received = call("recv", peer=1, tag=tag, dtype="float32", shape=[3])
    text = disagreement.mismatch("message", {0: received, 1: sent})
    assert f"  rank 1 sends float32[2] {words}" in text
    assert "  rank 0 receives into float32[3]\n" in text


@pytest.mark.parametrize(
    ("code", "death", "text"),
    [
        (-9, Death("signal", signal="SIGKILL"), "rank 1 was killed by SIGKILL\nSIGKILL comes from"),
        (-11, Death("signal", signal="SIGSEGV"), "rank 1 was killed by SIGSEGV"),
        (-99, Death("signal", signal="signal 99"), "rank 1 was killed by signal 99"),
        (3, Death("exit", exit_code=3), "rank 1 left with exit code 3 before"),
        (None, Death("exit"), "rank 1 left with exit code None"),
    ],
)
def test_death(code, death, text):
    assert process_death(code, None) == death
    said = explain.died({1: death}, {})
    assert text in said
    assert ("memory ran out" in said) == (code == -9)


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (LastSeen(LINE), "in cell.py, line 3"),
        (LastSeen(LINE, "status"), "last seen in cell.py, line 3"),
        (LastSeen(LINE, "call", call("barrier")), "last call: barrier(), cell.py, line 3"),
        (LastSeen(LINE, "function", function="train"), "somewhere in train, cell.py, line 3"),
        (LastSeen(("/a/train.py", 1), "function", function="train.py"), "somewhere in train.py"),
    ],
)
def test_last_seen(last, text):
    assert explain.died({2: Death("gone", last=last)}, {}).splitlines()[1] == f"  {text}"


def test_a_rank_is_named_with_its_host():
    assert explain.died({2: Death("left", host="b")}, {}).startswith(
        "rank 2 on host b left the script"
    )


def test_what_ranks_were_doing():
    doing = {0: Doing(), 1: Doing(LINE), 2: Doing(LINE, call("recv", peer=1, tag=3))}
    assert stopped.timeout(1.5, doing, {3, 4}).splitlines() == [
        "The run took longer than its timeout of 1.5 s. When it was stopped,",
        "  rank 0 was still starting",
        "  rank 1 was in cell.py, line 3",
        "  rank 2 waits in recv(src=1, tag=3)",
        "      cell.py, line 3",
        "  ranks 3, 4 had returned",
    ]


def raised(**more):
    return Raised(**{"type": "ValueError", "message": "no", "frames": (Frame(*LINE, "f"),)} | more)


def test_alike_exceptions_share_a_line_and_others_have_their_own():
    reports = {0: raised(), 1: raised(message="other"), 2: raised(type="KeyError")}
    error = blame(reports, {})
    assert str(error).splitlines() == [
        "ranks 0, 1 raised ValueError: no",
        "  cell.py, line 3  (in f)",
        "rank 2 raised KeyError: no",
        "  cell.py, line 3  (in f)",
    ]
    assert (error.ranks, error.raised) == ((0, 1), reports)


def test_what_ranks_raised_beside_a_death_is_said_in_their_order():
    reports = {2: raised(), 0: raised(message="other")}
    assert explain.died({1: Death("gone")}, reports).splitlines()[1:] == [
        "rank 0 raised ValueError: other",
        "rank 2 raised ValueError: no",
    ]


@pytest.mark.parametrize("many", [1, 6])
def test_few_frames_are_shown_whole(many):
    frames = tuple(Frame("/x/cell.py", n, "f") for n in range(many))
    lines = str(blame({0: raised(frames=frames)}, {})).splitlines()
    assert lines[1:] == [f"  cell.py, line {n}  (in f)" for n in range(many)]


def test_many_frames_are_cut_in_the_middle():
    frames = tuple(Frame("/x/cell.py", n, "f") for n in range(1000))
    lines = str(blame({0: raised(frames=frames)}, {})).splitlines()
    assert len(lines) == 7
    assert (lines[1], lines[3], lines[-1]) == (
        "  cell.py, line 0  (in f)",
        "    ...",
        "  cell.py, line 999  (in f)",
    )


def test_an_exception_that_cannot_be_unpickled_is_no_obstacle():
    error = blame({0: raised(pickled=b"not a pickle")}, {})
    assert error.__cause__ is None


@pytest.mark.parametrize(
    ("message", "echo"),
    [
        ("[...pair.cc:534] Connection closed by peer [127.0.0.1]:3", True),
        ("Read error: Connection reset by peer", True),
        ("division by zero", False),
    ],
)
def test_echo(message, echo):
    assert is_echo(raised(message=message)) is echo
