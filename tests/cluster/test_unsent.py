"""The spans of ranks that could not send them: killed between calls, killed in a call, or stuck."""

import math
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

import ddpkit
from ddpkit import Cluster
from ddpkit.errors import Deadlock, RankDied
from ddpkit.trace import UNENDED, Trace, died_ns
from ddpkit.view import timeline_model

pytestmark = pytest.mark.processes


def dies(where):
    """Run three steps of compute and all_reduce; the last rank is killed in the third step."""
    last = dist.get_rank() == dist.get_world_size() - 1
    layer = torch.nn.Linear(4, 4)
    for step in range(3):
        layer(torch.ones(4))
        fatal = last and step == 2
        if fatal and where == "between":
            os.kill(os.getpid(), signal.SIGKILL)
        if fatal and where == "inside":
            threading.Thread(target=kill_when_it_waits, daemon=True).start()
            peer = (dist.get_rank() + 1) % dist.get_world_size()
            dist.recv(torch.ones(1), src=peer, tag=9)
        dist.all_reduce(torch.ones(2))


def kill_when_it_waits():
    """Kill this process when it waits in a recv: no rank sends this message."""
    from ddpkit.protocol.past import UNKNOWN
    from ddpkit.rank.record.recorder import current

    mine = current()
    while not any(
        call.what.op == "recv" and mine.past.times(call.index).blocked != UNKNOWN
        for call in list(mine.waits.values())
    ):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


def run(size, where, **options):
    done = Cluster(size, **options).run(dies, where, expect_error=True)
    assert isinstance(done.error, RankDied)
    return done


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_rank_killed_between_calls_has_all_spans_until_then(size):
    trace, dead = run(size, "between").trace, size - 1
    own = trace.of(dead)
    assert [span.kind for span in own] == ["forward", "comm", "forward", "comm", "forward"]
    assert [span.seq for span in own if span.is_comm] == [1, 2]
    assert not any(UNENDED in span.args for span in own)
    death = died_ns(trace.facts, dead)
    assert own[-1].end_ns <= death <= trace.end_ns
    assert [died_ns(trace.facts, rank) for rank in range(dead)] == [None] * dead
    for seq in (1, 2):  # the spans of all ranks are still matched
        assert len({s.ready_ns for s in trace.spans if s.is_comm and s.seq == seq}) == 1


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_rank_killed_inside_a_call_has_it_until_its_death(size):
    trace, dead = run(size, "inside").trace, size - 1
    *before, last = trace.of(dead)
    assert [s.seq for s in before if s.is_comm] == [1, 2]
    assert (last.name, last.peer, last.args["tag"], last.args[UNENDED]) == ("recv", 0, 9, 1)
    assert last.end_ns == died_ns(trace.facts, dead)
    assert last.blocked_ns is not None


@pytest.mark.parametrize("where", ["between", "inside"])
def test_so_it_is_in_emulated_time(where):
    trace = run(2, where, link="1 Gbit/s, 1 ms", speed=math.inf).trace
    own = trace.of(1)
    reduces = [span for span in own if span.name == "all_reduce"]
    assert [span.seq for span in reduces] == [1, 2]
    peers = [span for span in trace.of(0) if span.name == "all_reduce"]
    assert [span.end_ns for span in reduces] == [span.end_ns for span in peers[:2]]
    assert (own[-1].name == "recv") == (where == "inside")
    assert died_ns(trace.facts, 1) == max(span.over_ns for span in own)


def test_ranks_that_wait_for_each_other_have_their_spans_and_what_they_wait_for():
    def circle():
        dist.all_reduce(torch.ones(1))
        dist.recv(torch.ones(1), src=1 - dist.get_rank())

    done = Cluster(2).run(circle, expect_error=True)
    assert isinstance(done.error, Deadlock)
    for rank in (0, 1):
        first, last = done.trace.of(rank)
        assert (first.name, last.name, last.peer) == ("all_reduce", "recv", 1 - rank)
        assert last.args[UNENDED] == 1
        assert died_ns(done.trace.facts, rank) is None


def test_the_picture_marks_the_death_and_a_file_keeps_it(tmp_path):
    trace = run(2, "between").trace
    trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json") == trace
    timeline = timeline_model(trace)
    assert "\nRank 1 died at " in timeline.text
    alive, dead = timeline.rows
    assert alive.died is None
    assert dead.died == died_ns(trace.facts, 1) - trace.start_ns
    words = [text.get_text() for text in ddpkit.show(trace).texts]
    assert any(text.startswith("Rank 1 died at ") for text in words), words
