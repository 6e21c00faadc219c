"""Ranks of a long run that have kept different numbers of steps."""

import pytest

from ddpkit.trace import Count, Dropped, Span, Trace, Traffic, join

FACTS = {"backend": "gloo"}


def joined(*ranks: tuple[list[Span], Dropped]) -> tuple[Trace, Traffic]:
    spans = [span for spans, _ in ranks for span in spans]
    return join(spans, dict(enumerate(gone for _, gone in ranks)), len(ranks), FACTS)


def step_of(rank: int, k: int) -> list[Span]:
    at = 100 * k + rank
    return [
        Span(rank, "compute", "f", "forward", at, at + 10),
        Span(rank, "comm", "all_reduce", "comm", at + 5, at + 50, bytes=4, seq=k),
        Span(rank, "compute", "SGD", "optimizer", at + 50, at + 90),
    ]


def steps_of(rank: int, first: int, last: int) -> tuple[list[Span], Dropped]:
    """Return the spans of a rank that has kept the steps from `first` on, and the dropped rest."""
    operations = {("all_reduce", None): Count(first, 4 * first)} if first else {}
    spans = [span for k in range(first, last) for span in step_of(rank, k)]
    return spans, Dropped(3 * first, first, operations)


def test_a_whole_run_is_kept_as_it_is() -> None:
    trace, earlier = joined(steps_of(0, 0, 4), steps_of(1, 0, 4))
    assert trace.steps == 4
    assert trace.facts == FACTS
    assert not earlier.collective
    assert not earlier.p2p


def test_all_ranks_begin_with_the_same_step() -> None:
    trace, earlier = joined(steps_of(0, 5, 9), steps_of(1, 6, 9), steps_of(2, 5, 9))
    assert trace.steps == 3
    for rank in trace.ranks:
        assert [span.seq for span in trace.of(rank) if span.is_comm] == [6, 7, 8]
        everything = (trace.traffic + earlier).collectives(rank)
        assert everything == {"all_reduce": Count(9, 36)}
    first = trace.step(0)
    assert {span.seq for span in first.spans if span.is_comm} == {6}
    assert trace.facts["kept"] == "the last 3 of 9 steps"


def test_messages_are_paired_by_number_when_the_first_are_gone() -> None:
    """The sender has dropped messages that the receiver still has."""

    def message(rank: int, name: str, peer: int, seq: int) -> Span:
        return Span(rank, "comm", name, "comm", 10 * seq, 10 * seq + 9, 8, peer=peer, seq=seq)

    sends = [message(0, "send", 1, seq) for seq in (3, 4)]
    receives = [message(1, "recv", 0, seq) for seq in (1, 2, 3, 4)]
    gone = Dropped(2, 0, {("send", 1): Count(2, 16)})
    trace, earlier = joined((sends, gone), (receives, Dropped()))
    ready = {span.seq: span.ready_ns for span in trace.of(1)}
    assert ready == {1: None, 2: None, 3: 30, 4: 40}
    assert (trace.traffic + earlier).peers(0) == {1: Count(4, 32)}
    assert trace.facts["kept"] == "the last 2 of 4 spans of rank 0"


@pytest.mark.parametrize("steps", [0, 3])
def test_a_rank_that_took_part_in_early_steps_only_has_none_of_the_last(steps: int) -> None:
    lone = Span(1, "compute", "mine", "span", 0, 5)
    trace, _ = joined(steps_of(0, 5, 9), ([lone, *steps_of(1, 0, steps)[0]], Dropped()))
    assert [s.name for s in trace.of(1)] == ([] if steps else ["mine"])
    assert trace.steps == 4
