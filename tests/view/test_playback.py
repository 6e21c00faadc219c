"""The models of the player: the data of each rank after each step."""

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, PerRank
from ddpkit.errors import TraceError
from ddpkit.simulate import ALGORITHMS, ALL_REDUCE, schedule, time_of
from ddpkit.simulate.messages.schedules import Schedule, Send
from ddpkit.trace import Span, Trace
from ddpkit.view.player.model import MOST_LINES
from ddpkit.view.player.recorded import playback_of_trace, shortened
from ddpkit.view.player.scheduled import playback_of_schedule
from tests.view import examples

LINK = "1 Gbit/s, 200 us"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("name", ALL_REDUCE)
def test_every_all_reduce_ends_with_all_sums_everywhere(name: str, ranks: int) -> None:
    plan = schedule(name, ranks, 100)
    playback = playback_of_schedule(plan)
    last = playback.moments[-1]
    assert playback.full == ranks
    assert {held for holds in last.holds for held in holds} == {ranks}
    assert last.sent == tuple(4 * plan.sent(rank) for rank in range(ranks))
    assert last.messages_sent == plan.messages()
    assert playback.steps == plan.rounds


def test_a_chunk_of_the_ring_grows_by_one_rank_a_step() -> None:
    playback = playback_of_schedule(schedule("ring", 4, 8))
    assert playback.moments[0].holds == ((1, 1, 1, 1),) * 4
    assert playback.moments[1].holds[1] == (1, 1, 1, 2)  # chunk D came from rank 0
    assert playback.moments[3].holds[0] == (4, 3, 2, 1)
    first = playback.moments[1].messages[0]
    assert (first.source, first.target, first.bytes, first.chunks, first.adds) == (
        (0, 1, 8, (3, 4), True)
    )
    assert not playback.moments[4].messages[0].adds


def test_collectives_begin_with_what_each_rank_has() -> None:
    started = {
        name: playback_of_schedule(schedule(name, 3, 6, 1)).moments[0].holds for name in ALGORITHMS
    }
    assert started["broadcast"] == ((0,), (1,), (0,))
    assert started["scatter"] == ((0, 0, 0), (1, 1, 1), (0, 0, 0))
    assert started["gather"] == started["all_gather"] == ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    assert started["barrier"] == ((), (), ())


def test_another_length_is_the_same_schedule_of_that_length() -> None:
    assert playback_of_schedule(schedule("scatter", 4, 8, 2), 4000) == playback_of_schedule(
        schedule("scatter", 4, 4000, 2)
    )
    own = Schedule("mine", "all_reduce", 2, 4, (Send(0, 1, (0, 1), 0),))
    with pytest.raises(ValueError, match="length= can change only the schedules of ddpkit's"):
        playback_of_schedule(own, 8)


def test_too_many_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 16 ranks, not 17"):
        playback_of_schedule(schedule("ring", 17, 17))


# without tree and broadcast: a root that posts all its sends at once sends them in one round
WAITING = ("master_worker", "round_robin", "butterfly", "ring", "all_gather", "reduce", "barrier")


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_log_of_a_run_gives_the_rounds_back(name: str, ranks: int) -> None:
    plan = schedule(name, ranks, 1000)
    planned, seen = playback_of_schedule(plan), playback_of_trace(time_of(plan, LINK))
    assert [moment.sent for moment in seen.moments] == [moment.sent for moment in planned.moments]
    assert [
        {(m.source, m.target, m.bytes) for m in moment.messages} for moment in seen.moments
    ] == [{(m.source, m.target, m.bytes) for m in moment.messages} for moment in planned.moments]
    assert seen.chunks == 0


def test_blocking_sends_come_one_after_the_other() -> None:
    playback = playback_of_trace(examples.token_ring(4, laps=2))
    assert playback.steps == 8
    assert playback.is_ring
    assert [len(moment.messages) for moment in playback.moments] == [0] + [1] * 8


@pytest.mark.processes
def test_short_messages_of_a_run_show_their_numbers() -> None:
    """Rank r begins with 10^r, so a sum shows which ranks contributed."""
    run = Cluster(2).run(_ring, PerRank([torch.full((4,), 10.0**rank) for rank in range(2)]))
    playback = playback_of_trace(run.trace)
    told = [[playback.carried(m) for m in moment.messages] for moment in playback.moments]
    assert [sorted(each) for each in told] == [[], ["1", "10"], ["11", "11"]]
    assert "0→1 11" in playback.table()
    assert [shortened(x) for x in ("", "1, 2, 3", "1.5, 2.25, 3.125")] == [
        "",
        "1, 2, 3",
        "1.5 … 3.125",
    ]


def _ring(x: torch.Tensor) -> None:
    peer = 1 - dist.get_rank()
    chunks = list(x.chunk(2))
    for step, adds in enumerate((True, False)):
        mine, other = (dist.get_rank() - step) % 2, (dist.get_rank() - step - 1) % 2
        received = torch.empty(2)
        sending = dist.isend(chunks[mine], peer)
        dist.recv(received, peer)
        sending.wait()
        chunks[other] = chunks[other] + received if adds else received


def test_a_run_without_messages_is_refused_with_what_it_did() -> None:
    spans = [Span(rank, "comm", "all_reduce", "comm", 0, 5, 4, seq=1) for rank in range(2)]
    with pytest.raises(TraceError, match="the messages of all_reduce"):
        playback_of_trace(Trace(spans, 2))


def test_the_table_says_every_step_up_to_a_limit() -> None:
    table = playback_of_schedule(schedule("ring", 2, 1000)).table().splitlines()
    assert table[1].split()[:4] == ["1", "2", "4", "kB"]
    assert table[1].endswith("0→1 +B, 1→0 +A")
    long = playback_of_trace(examples.token_ring(2, laps=100)).table().splitlines()
    assert len(long) == MOST_LINES + 2
    assert long[-1] == "… and 136 more"


def test_lines_in_words() -> None:
    playback = playback_of_schedule(schedule("tree", 4, 1000))
    assert playback.line(0) == "Before the first step: nothing is sent yet."
    assert playback.line(1) == (
        "Step 1 of 4: 2 messages of 4 kB, which the receiver adds. "
        "Sent so far: 0 B to 4 kB by a rank, 2 messages."
    )
