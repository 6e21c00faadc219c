"""Rounds are counted only from the order of events."""

from dataclasses import replace

import pytest

from ddpkit.simulate import schedule, time_of
from ddpkit.trace import Span, rounds


def send(rank, peer, start, end):
    return Span(rank, "comm", "isend", "comm", start, end, bytes=4, peer=peer)


def recv(rank, peer, start, end):
    return Span(rank, "comm", "recv", "comm", start, end, bytes=4, peer=peer)


def test_nothing_takes_no_round():
    assert rounds([]) == 0


def test_an_exchange_takes_one_round():
    spans = [send(0, 1, 0, 9), recv(0, 1, 1, 9), send(1, 0, 5, 9), recv(1, 0, 6, 9)]
    assert rounds(spans) == 1


def test_who_sends_only_after_having_received_takes_another_round():
    assert rounds([send(0, 1, 0, 5), recv(1, 0, 0, 5), send(1, 0, 6, 9), recv(0, 1, 6, 9)]) == 2


def test_a_chain_is_as_long_as_it_is_however_the_others_hurry():
    chain = [send(0, 1, 0, 5), recv(1, 0, 0, 5), send(1, 2, 6, 9), recv(2, 1, 0, 9)]
    assert rounds([*chain, send(3, 4, 0, 1), recv(4, 3, 0, 1)]) == 2


def test_a_send_in_a_thread_counts_from_the_thread_s_start():
    """The send was posted late by chance, so it did not wait for messages that came meanwhile."""
    late = replace(send(0, 1, 6, 9), args={"since": 1})
    others = [recv(0, 1, 2, 5), send(1, 0, 0, 5), recv(1, 0, 6, 9)]
    assert rounds([late, *others]) == 1
    assert rounds([replace(late, args={}), *others]) == 2


def test_a_hub_receives_one_message_a_round():
    spans = [send(rank, 0, 0, 9) for rank in (1, 2, 3)]
    spans += [recv(0, rank, 0, 3 * rank) for rank in (1, 2, 3)]
    assert rounds(spans) == 3


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("broadcast", lambda n: (n - 1).bit_length()),
        ("reduce", lambda n: (n - 1).bit_length()),
        ("scatter", lambda n: n - 1),
        ("ring", lambda n: 2 * (n - 1)),
        ("round_robin", lambda n: n - 1),
        ("all_to_all", lambda n: n - 1),
        ("master_worker", lambda n: 2 * (n - 1)),
        ("tree", lambda n: 2 * (n - 1).bit_length()),
    ],
)
def test_the_algorithms(name, expected, n):
    trace = time_of(schedule(name, n, 40), "1 Gbit/s, 200 us")
    assert rounds(trace.spans) == expected(n)
