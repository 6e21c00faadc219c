from ddpkit.trace import Span, match_peers, messages


def comm(rank: int, name: str, start: int, end: int, **more: object) -> Span:
    return Span(rank, "comm", name, "comm", start, end, **more)  # type: ignore[arg-type]


def ready(*spans: Span) -> list[int | None]:
    return [span.ready_ns for span in match_peers(spans)]


def test_a_collective_is_ready_when_the_last_rank_has_posted_it() -> None:
    posts = [comm(rank, "all_reduce", start, 50, seq=1) for rank, start in enumerate((5, 30, 7))]
    assert ready(*posts) == [30, 30, 30]


def test_collectives_are_told_apart_by_group_and_number() -> None:
    spans = [
        comm(0, "all_reduce", 0, 50, seq=1),
        comm(1, "all_reduce", 9, 50, seq=1),
        comm(0, "all_reduce", 20, 50, seq=2),
        comm(1, "all_reduce", 25, 50, seq=2),
        comm(2, "all_reduce", 40, 50, seq=2, group="pair"),
    ]
    assert ready(*spans) == [9, 9, 25, 25, 40]


def test_ready_is_unknown_without_a_number_or_without_a_peer() -> None:
    assert ready(comm(0, "all_reduce", 0, 5)) == [None]
    assert ready(comm(0, "all_reduce", 0, 5, seq=1, args={"group_size": 2})) == [None]
    assert ready(comm(0, "recv", 0, 5, peer=1)) == [None]


def test_an_operation_that_ended_before_its_last_peer_came_waited_for_nobody() -> None:
    root = comm(0, "broadcast", 0, 4, seq=1)
    late = comm(1, "broadcast", 9, 12, seq=1)
    assert ready(root, late) == [None, 9]
    assert ready(comm(0, "send", 0, 4, peer=1), comm(1, "recv", 9, 12, peer=0)) == [None, 9]


def test_a_message_is_ready_when_both_sides_are_in() -> None:
    assert ready(comm(0, "send", 8, 20, peer=1), comm(1, "recv", 3, 21, peer=0)) == [8, 8]
    assert ready(comm(0, "isend", 3, 20, peer=1), comm(1, "irecv", 8, 21, peer=0)) == [8, 8]


def test_messages_of_one_channel_pair_in_order_and_channels_are_apart() -> None:
    sends = [comm(0, "send", at, at + 1, peer=1) for at in (10, 0)]
    tagged = comm(0, "send", 5, 6, peer=1, args={"tag": 7})
    receives = [comm(1, "recv", at, at + 5, peer=0) for at in (1, 11)]
    tagged_recv = comm(1, "recv", 0, 9, peer=0, args={"tag": 7})
    reverse = comm(1, "send", 3, 4, peer=0)
    pairs = messages([*sends, tagged, *receives, tagged_recv, reverse])
    assert pairs == [(sends[1], receives[0]), (tagged, tagged_recv), (sends[0], receives[1])]


def test_spans_keep_their_order_and_everything_else() -> None:
    spans = [
        Span(0, "compute", "f", "forward", 0, 9),
        comm(1, "all_reduce", 5, 9, seq=1, bytes=8, args={"bucket": 2}),
        comm(0, "all_reduce", 3, 9, seq=1, bytes=8),
    ]
    matched = match_peers(spans)
    assert [s.ready_ns for s in matched] == [None, 5, 5]
    assert [(s.rank, s.bytes, s.args) for s in matched] == [
        (0, 0, {}),
        (1, 8, {"bucket": 2}),
        (0, 8, {}),
    ]
