"""The data in errors and calls: constructed by hand, sent to another process, written as JSON."""

import ast
import json
import pickle

import pytest

from ddpkit.errors import (
    Deadlock,
    Death,
    Doing,
    LastSeen,
    Mismatch,
    RankDied,
    RankError,
    RunFailed,
    RunTimeout,
    Waiting,
)
from ddpkit.protocol.call import Call
from ddpkit.protocol.raised import Frame, Raised
from ddpkit.protocol.status import RankStatus
from tests.project.source import modules

LINE = ("/x/cell.py", 3)
RECV = Call("recv", "7", LINE, "irecv", 1, None, 5, (2, 3), "float32", 24, "", (0, 1), 4, 9)
VALUE_ERROR = Raised("ValueError", "no", (Frame(*LINE, "f"),), "Traceback", pickled=b"x")

ERRORS = [
    RankError("a", ranks=(1,), returned={0}, raised={1: VALUE_ERROR}),
    RankDied(
        "b",
        ranks=(1,),
        deaths={1: Death("signal", signal="SIGKILL", last=LastSeen(LINE, "call", RECV))},
        raised={0: VALUE_ERROR},
    ),
    Deadlock(
        "c",
        ranks=(0,),
        returned=[1],
        waiting={0: Waiting(RECV, LINE)},
        needs={0: {1}},
        cause="returned",
    ),
    Mismatch("d", ranks=(0, 1), kind="shape", calls={0: RECV, 1: RECV}),
    RunTimeout("e", returned={1}, seconds=2.5, doing={0: Doing(LINE, RECV)}),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_can_be_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("kind", [type(error) for error in ERRORS] + [RunFailed])
def test_errors_need_no_data(kind):
    error = kind("text", ranks=(2, 1))
    assert (str(error), error.ranks, error.rank, error.returned) == ("text", (2, 1), 1, frozenset())


def test_a_call_is_the_same_on_both_ends():
    assert Call.from_json(json.loads(json.dumps(RECV.to_json()))) == RECV
    bare = Call("barrier", where=LINE, seq=1)
    assert Call.from_json(json.loads(json.dumps(bare.to_json()))) == bare
    in_default_group = Call("barrier", where=LINE, members=(0, 1), seq=1)
    assert Call.from_json(in_default_group.to_json()) == bare


def test_a_call_knows_its_ends():
    assert (RECV.is_message, RECV.ends(0)) == (True, (1, 0))
    assert Call("send", peer=1).ends(0) == (0, 1)
    assert not Call("barrier").is_message


def test_an_exception_is_the_same_on_both_ends_but_for_its_pickle():
    def sent(raised):
        return Raised.from_json(json.loads(json.dumps(raised.to_json())))

    again = Raised("ValueError", "no", (Frame(*LINE, "f"),), "Traceback")
    assert sent(VALUE_ERROR) == again
    group = Raised(
        "ExceptionGroup", cause=VALUE_ERROR, exceptions=(VALUE_ERROR, Raised("KeyError"))
    )
    assert sent(group) == Raised(
        "ExceptionGroup", cause=again, exceptions=(again, Raised("KeyError"))
    )


@pytest.mark.parametrize("waiting", [RECV, None])
def test_a_status_is_the_same_on_both_ends(waiting):
    status = RankStatus(1, "running", LINE, "irecv", waiting, 2, 1, 3, 4)
    assert RankStatus.from_json(json.loads(json.dumps(status.to_json()))) == status


def test_errors_are_made_where_their_data_is():
    """Other modules that make such errors would need their own version of the words."""
    kinds = {type(error).__name__ for error in ERRORS}
    makers = {
        module
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in kinds
    }
    assert makers == {"ddpkit.cluster.blame", "ddpkit.cluster.monitor"}
