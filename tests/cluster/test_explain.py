"""Words: from calls to sentences, without processes."""

import pytest

from ddpkit.cluster import explain
from ddpkit.cluster.outcome import is_echo, rank_error

LINE = ("/x/cell.py", 3)


def call(op, *, seq=1, **more):
    return {"op": op, "seq": seq, "where": list(LINE), **more}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (call("recv", peer=1), "recv(src=1)"),
        (call("recv"), "recv(src=any)"),
        (call("send", peer=0, dtype="float32", shape=[2]), "send(dst=0)"),
        (call("send", peer=0, via="isend"), "isend(dst=0)"),
        (call("recv", peer=2, via="irecv"), "irecv(src=2)"),
        (call("barrier"), "barrier()"),
        (call("all_reduce", dtype="float32", shape=[4, 2]), "all_reduce(float32[4, 2])"),
        (call("all_reduce", dtype="int64"), "all_reduce(int64[])"),
        (call("all_reduce", dtype="int64", shape=[1], reduce="MAX"), "all_reduce(int64[1], MAX)"),
        (call("all_reduce", dtype="int64", shape=[1], reduce="SUM"), "all_reduce(int64[1])"),
        (call("broadcast", dtype="bool", shape=[1], root=2), "broadcast(bool[1], src=2)"),
        (call("reduce", dtype="bool", shape=[1], root=0), "reduce(bool[1], dst=0)"),
        (call("barrier", group="7", members=[2, 0]), "barrier(group=[0, 2])"),
        (
            call("all_reduce", dtype="float32", shape=[9], via="backward"),
            "all_reduce(float32[9]) inside backward()",
        ),
        (call("new_group", seq=0), "new_group()"),
    ],
)
def test_a_call(given, text):
    assert explain.describe(given) == text


@pytest.mark.parametrize(
    ("numbers", "text"), [([2], "rank 2"), ({1, 0}, "ranks 0, 1"), ((5, 3, 4), "ranks 3, 4, 5")]
)
def test_ranks(numbers, text):
    assert explain.ranks(numbers) == text


def test_a_place():
    assert explain.place(("", 0)) == "outside your code"
    assert explain.place(("/no/such/file.py", 3)) == "file.py, line 3"
    line = explain.place((__file__, 1))
    assert line.startswith('test_explain.py, line 1: """Words')


@pytest.mark.parametrize(
    ("needs", "cycle"),
    [
        ({}, []),
        ({0: {1}}, []),
        ({0: {1}, 1: {2}, 2: set()}, []),
        ({0: {1}, 1: {0}}, [0, 1]),
        ({0: {0}}, [0]),
        ({0: {1}, 1: {2}, 2: {0}}, [0, 1, 2]),
        ({0: {1}, 1: {2}, 2: {1}}, [1, 2]),  # rank 0 only waits for those in the cycle
        ({0: {1, 2}, 1: {3}, 2: {0}, 3: {0}}, [0, 2]),  # the shorter of two
    ],
)
def test_cycles(needs, cycle):
    assert explain._cycle(needs) == cycle


def test_ranks_that_do_the_same_share_a_line():
    wait = call("all_reduce", dtype="float32", shape=[2])
    text = explain.deadlock(
        {rank: (wait, LINE) for rank in range(8) if rank != 3},
        {rank: {3} for rank in range(8) if rank != 3},
        returned={3},
    )
    assert text.splitlines()[1:] == [
        "  ranks 0, 1, 2, 4, 5, 6, 7 wait in all_reduce(float32[2])",
        "      cell.py, line 3",
        "  rank 3 returned already",
        "Why: ranks 0, 1, 2, 4, 5, 6, 7 wait for rank 3, which has returned without",
        "  calling all_reduce.",
    ]


@pytest.mark.parametrize(
    ("calls", "needs", "words"),
    [
        ([call("recv", peer=1), call("recv", peer=0)], {0: {1}, 1: {0}}, "so nobody sends"),
        ([call("send", peer=1), call("send", peer=0)], {0: {1}, 1: {0}}, "so nobody receives"),
        (
            [call("recv", peer=1), call("barrier")],
            {0: {1}, 1: {0}},
            "rank 0 needs rank 1 to send, but rank 1 needs rank 0 to call barrier",
        ),
        ([call("recv", peer=0)], {0: {0}}, "rank 0 waits for itself"),
        ([call("recv", peer=1), call("recv", peer=0)], {0: set(), 1: set()}, "nothing that"),
    ],
)
def test_why(calls, needs, words):
    waiting = {rank: (each, LINE) for rank, each in enumerate(calls)}
    assert words in explain.deadlock(waiting, needs, set())


def test_a_wait_names_where_it_was_posted():
    wait = call("recv", peer=1, via="irecv")
    assert "in irecv(src=1)\n" in explain.waits([0], wait, LINE)
    assert "in wait() for the irecv(src=1) of line 3\n      cell.py, line 9" in explain.waits(
        [0], wait, ("/x/cell.py", 9)
    )


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (call("barrier"), call("barrier"), None),
        (call("barrier"), call("all_reduce"), "same order"),
        (call("broadcast", root=0), call("broadcast", root=1), "same src"),
        (call("reduce", root=0), call("reduce", root=1), "same dst"),
        (call("all_reduce", dtype="a"), call("all_reduce", dtype="b"), "same dtype"),
        (call("all_reduce", shape=[2]), call("all_reduce", shape=[3]), "same shape"),
        (call("all_reduce", shape=[2, 2]), call("all_reduce", shape=[4]), None),
        (call("all_reduce", shape=[1]), call("all_reduce"), None),
        (call("all_reduce", reduce="SUM"), call("all_reduce", reduce="MAX"), "same reduction"),
        (call("all_to_all", shape=[2]), call("all_to_all", shape=[3]), None),
    ],
)
def test_difference(one, other, words):
    said = explain.difference(one, other)
    assert (said is None) if words is None else (words in said)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-9, "was killed by SIGKILL"),
        (-11, "was killed by SIGSEGV"),
        (-99, "was killed by signal 99"),
        (3, "left with exit code 3 before"),
        (None, "left with exit code None"),
    ],
)
def test_death(code, text):
    assert text in explain.death(code)


def report(**more):
    return {
        "type": "ValueError",
        "message": "no",
        "exit": None,
        "unsendable": False,
        "frames": [("/x/cell.py", 3, "f")],
        "traceback": "",
        "pickled": b"",
    } | more


def test_alike_exceptions_share_a_line_and_others_have_their_own():
    error = rank_error({0: report(), 1: report(message="other"), 2: report(type="KeyError")})
    assert str(error).splitlines() == [
        "ranks 0, 1 raised ValueError: no",
        "  cell.py, line 3  (in f)",
        "rank 2 raised KeyError: no",
        "  cell.py, line 3  (in f)",
    ]
    assert error.ranks == (0, 1)


def test_many_frames_are_cut_in_the_middle():
    frames = [("/x/cell.py", n, "f") for n in range(1000)]
    lines = str(rank_error({0: report(frames=frames)})).splitlines()
    assert len(lines) == 7
    assert (lines[1], lines[3], lines[-1]) == (
        "  cell.py, line 0  (in f)",
        "    ...",
        "  cell.py, line 999  (in f)",
    )


def test_an_exception_that_cannot_be_unpickled_is_no_obstacle():
    error = rank_error({0: report(pickled=b"not a pickle")})
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
    assert is_echo(report(message=message)) is echo
