import pytest

from ddpkit.trace import Count, Span, Trace, Traffic, size


@pytest.fixture
def ring() -> Trace:
    """Return a trace of three ranks with messages around a ring, and an all_reduce.

    Each rank sends 4 bytes twice to its right neighbour; then all ranks reduce 8 bytes.
    """
    spans = []
    for rank in range(3):
        right, left = (rank + 1) % 3, (rank - 1) % 3
        spans += [Span(rank, "comm", "send", "comm", t, t + 1, 4, right) for t in (0, 5)]
        spans += [Span(rank, "comm", "irecv", "comm", t, t + 2, 4, left) for t in (0, 5)]
        spans.append(Span(rank, "comm", "all_reduce", "comm", 9, 12, 8, seq=1))
    return Trace(spans, 3)


def test_counts_messages_where_they_were_sent(ring: Trace) -> None:
    traffic = ring.traffic
    assert [traffic.messages(rank) for rank in ring.ranks] == [2, 2, 2]
    assert [traffic.sent(rank) for rank in ring.ranks] == [8, 8, 8]
    assert [traffic.received(rank) for rank in ring.ranks] == [8, 8, 8]
    assert (traffic.to(0, 1), traffic.to(1, 0)) == (8, 0)
    assert traffic.peers(2) == {0: Count(2, 8)}
    assert (traffic.messages(), traffic.sent()) == (6, 24)


def test_counts_collectives_per_rank_and_operation(ring: Trace) -> None:
    assert ring.traffic.collectives(1) == {"all_reduce": Count(1, 8)}


def test_reads_well(ring: Trace) -> None:
    assert repr(ring.traffic) == "<Traffic of 3 ranks: 6 messages, 24 B; all_reduce ×1 per rank>"
    assert ring.traffic.table().splitlines()[1] == (
        "rank 1: sent 2 messages, 8 B to rank 2; all_reduce ×1, 8 B"
    )


def test_no_traffic_reads_well() -> None:
    traffic = Trace([], 1).traffic
    assert repr(traffic) == "<Traffic of 1 rank: none>"
    assert traffic.table() == "rank 0: sent nothing"


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_999, "1 MB"), (4_194_304, "4.19 MB")],
)
def test_sizes(n: int, text: str) -> None:
    assert size(n) == text


def test_ranks_that_did_the_same_share_a_line() -> None:
    spans = [Span(rank, "comm", "all_reduce", "comm", 0, 5, 8, seq=1) for rank in range(16)]
    assert Trace(spans, 16).traffic.table() == "every rank: all_reduce ×1, 8 B"


def test_it_names_the_recorded_ranks() -> None:
    spans = [Span(rank, "comm", "all_reduce", "comm", 0, 9, 4) for rank in (1, 3)]
    assert repr(Traffic.of(spans, 64, [1, 3])) == (
        "<Traffic of ranks 1, 3 of 64 ranks: all_reduce ×1 per rank>"
    )
    assert repr(Traffic.of(spans[:1], 64, [1])) == (
        "<Traffic of rank 1 of 64 ranks: all_reduce ×1 per rank>"
    )
    assert repr(Traffic.of(spans, 4)) == "<Traffic of 4 ranks: all_reduce ×1 per rank>"
