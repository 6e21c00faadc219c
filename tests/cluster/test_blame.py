"""The choice of the rank at fault, from the known facts: one table for all launchers."""

from dataclasses import replace

import pytest

from ddpkit.cluster.blame import ECHO, ROOT_CAUSE, blame, patience, process_death
from ddpkit.errors import Death, LastSeen, Mismatch, RankDied, RankError
from ddpkit.protocol.raised import Frame, Raised

OWN = Raised("ValueError", "no such thing")
ECHOED = Raised("RuntimeError", "[pair.cc:534] Connection closed by peer [127.0.0.1]:3")
LEFT_SCRIPT = Raised("SystemExit", "3", exit_code=3)
KILLED, CRASHED = Death("signal", signal="SIGKILL"), Death("exit", exit_code=1)
GONE, LEFT = Death("gone"), Death("left")


@pytest.mark.parametrize(
    ("raised", "deaths", "kind", "ranks"),
    [
        ({1: OWN}, {}, RankError, (1,)),
        ({0: ECHOED, 1: OWN}, {}, RankError, (1,)),
        ({0: ECHOED, 1: ECHOED}, {}, RankError, (0, 1)),
        ({2: OWN, 1: Raised("KeyError")}, {}, RankError, (1,)),
        ({0: LEFT_SCRIPT, 1: ECHOED}, {}, RankDied, (0,)),
        ({0: OWN}, {1: KILLED}, RankDied, (1,)),  # an ended process is certainly at fault
        ({}, {2: KILLED, 1: CRASHED}, RankDied, (1, 2)),
        ({0: ECHOED}, {1: GONE}, RankDied, (1,)),
        ({0: OWN}, {1: GONE}, RankError, (0,)),  # torchrun may have ended rank 1
        ({}, {3: GONE, 1: GONE}, RankDied, (3,)),  # rank 1 went later, and counts too
        ({}, {1: LEFT}, RankDied, (1,)),
        ({}, {1: LEFT, 0: KILLED}, RankDied, (0,)),
    ],
)
def test_blame(raised, deaths, kind, ranks):
    error = blame(raised, deaths, None, {5})
    assert (type(error), error.ranks, error.returned) == (kind, ranks, {5})
    if kind is RankDied:
        assert set(error.deaths) == set(ranks)
    assert ECHOED not in error.raised.values() or set(raised.values()) == {ECHOED}


def test_a_disagreement_comes_first():
    mismatch = Mismatch("the ranks disagree")
    assert blame({0: OWN}, {1: KILLED}, mismatch) is mismatch


def test_what_others_raised_stands_beside_a_death():
    error = blame({0: OWN, 2: ECHOED}, {1: KILLED})
    assert str(error).splitlines()[-1] == "rank 0 raised ValueError: no such thing"
    assert error.raised == {0: OWN}


def test_a_rank_that_called_sys_exit_has_died():
    error = blame({0: LEFT_SCRIPT, 1: LEFT_SCRIPT}, {})
    assert error.deaths == dict.fromkeys((0, 1), Death("sys.exit", exit_code=3))
    assert str(error) == "ranks 0, 1 called sys.exit(3) instead of returning."
    assert error.ranks == (0, 1)


def test_a_rank_that_called_sys_exit_was_last_seen_in_its_innermost_line():
    frames = Frame("/x/a.py", 2, "train"), Frame("/x/b.py", 7, "leave")
    error = blame({1: replace(LEFT_SCRIPT, frames=frames)}, {})
    last = LastSeen(("/x/b.py", 7))
    assert error.deaths == {1: Death("sys.exit", exit_code=3, last=last)}
    assert "b.py, line 7" in str(error)


@pytest.mark.parametrize(
    ("code", "death"),
    [
        (None, Death("exit")),
        (0, Death("exit", exit_code=0)),
        (1, Death("exit", exit_code=1)),
        (-9, Death("signal", signal="SIGKILL")),
        (-1000, Death("signal", signal="signal 1000")),
    ],
)
def test_the_death_of_a_process_by_its_exit_code(code, death):
    last = LastSeen(("/x/a.py", 1))
    assert process_death(code, last) == replace(death, last=last)


@pytest.mark.parametrize(
    ("raised", "deaths", "seconds"),
    [
        ({0: ECHOED}, {}, ECHO),
        ({0: ECHOED, 1: OWN}, {}, ROOT_CAUSE),
        ({0: ECHOED}, {1: GONE}, ROOT_CAUSE),
        ({}, {1: KILLED}, ROOT_CAUSE),
    ],
)
def test_patience(raised, deaths, seconds):
    assert patience(raised, deaths) == seconds
