"""Every schedule, run on numbers, and its messages counted."""

import random
from dataclasses import replace

import numpy as np
import pytest

from ddpkit.simulate import ALGORITHMS, ALL_REDUCE, Recv, Schedule, Send, execute, schedule
from ddpkit.simulate.messages.schedules import Part, chunk, elements

RANKS = range(1, 10)
ROOTED = ("broadcast", "scatter", "gather", "reduce")


def lengths(n: int) -> list[int]:
    return sorted({0, 1, n - 1, n, n + 1, 3 * n + 2})


def inputs(n: int, length: int) -> list[list[int]]:
    rng = random.Random(1000 * n + length)
    return [[rng.randrange(-(10**9), 10**9) for _ in range(length)] for _ in range(n)]


def log2(n: int) -> int:
    """Return ⌈log2 n⌉, by counting."""
    return next(k for k in range(20) if 2**k >= n)


def run(algorithm: str, n: int, length: int, root: int = 0) -> tuple[list, list[list[int]]]:
    """Return the inputs, and each rank's vector after the schedule."""
    vectors = inputs(n, length)
    before = [list(vector) for vector in vectors]
    after = execute(schedule(algorithm, n, length, root), vectors)
    assert vectors == before, "inputs are left unchanged"
    return vectors, after


@pytest.mark.parametrize("n", RANKS)
def test_chunks_are_those_of_tensor_split(n: int) -> None:
    for length in lengths(n):
        parts = [list(range(*chunk(length, n, rank))) for rank in range(n)]
        assert parts == [list(part) for part in np.array_split(np.arange(length), n)]


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("algorithm", ALL_REDUCE)
def test_all_reduce_sums(algorithm: str, n: int) -> None:
    for length in lengths(n):
        vectors, after = run(algorithm, n, length, root=n // 2)
        assert after == [[sum(column) for column in zip(*vectors, strict=True)]] * n


@pytest.mark.parametrize("n", RANKS)
def test_collectives_do_what_torch_says_they_do(n: int) -> None:
    for length in lengths(n):
        total = [sum(column) for column in zip(*inputs(n, length), strict=True)]
        parts = [slice(*chunk(length, n, rank)) for rank in range(n)]
        joined = [x for r in range(n) for x in inputs(n, length)[r][parts[r]]]
        _, gathered = run("all_gather", n, length)
        assert gathered == [joined] * n
        _, scattered = run("reduce_scatter", n, length)
        assert [scattered[r][parts[r]] for r in range(n)] == [total[part] for part in parts]
        vectors, after = run("barrier", n, length)
        assert after == vectors
        for root in range(n):
            vectors, after = run("broadcast", n, length, root)
            assert after == [vectors[root]] * n
            vectors, after = run("scatter", n, length, root)
            assert [after[r][parts[r]] for r in range(n)] == [vectors[root][p] for p in parts]
            assert run("gather", n, length, root)[1][root] == joined
            assert run("reduce", n, length, root)[1][root] == total


# compared with theory: (rounds, messages of all ranks, bytes of all ranks in vectors)

THEORY = {
    "broadcast": lambda n: (log2(n), n - 1, n - 1),
    "reduce": lambda n: (log2(n), n - 1, n - 1),
    "scatter": lambda n: (n - 1, n - 1, (n - 1) / n),
    "gather": lambda n: (n - 1, n - 1, (n - 1) / n),
    "all_gather": lambda n: (n - 1, n * (n - 1), n - 1),
    "reduce_scatter": lambda n: (n - 1, n * (n - 1), n - 1),
    "barrier": lambda n: (log2(n), n * log2(n), 0),
    "all_to_all": lambda n: (min(1, n - 1), n * (n - 1), n * (n - 1)),
    "round_robin": lambda n: (n - 1, n * (n - 1), n * (n - 1)),
    "master_worker": lambda n: (2 * min(1, n - 1), 2 * (n - 1), 2 * (n - 1)),
    "tree": lambda n: (2 * log2(n), 2 * (n - 1), 2 * (n - 1)),
    "ring": lambda n: (2 * (n - 1), 2 * n * (n - 1), 2 * (n - 1)),
}


@pytest.mark.parametrize("n", RANKS)
@pytest.mark.parametrize("algorithm", THEORY)
def test_rounds_messages_and_bytes(algorithm: str, n: int) -> None:
    plan = schedule(algorithm, n, 60 * n)
    assert (plan.rounds, plan.messages(), plan.sent() / (60 * n)) == THEORY[algorithm](n)


@pytest.mark.parametrize("n", RANKS)
def test_butterfly_counts(n: int) -> None:
    plan, doubled = schedule("butterfly", n, 7), 2 ** (n.bit_length() - 1)
    beyond = n - doubled
    assert plan.rounds == log2(doubled) + (2 if beyond else 0)
    assert plan.messages() == doubled * log2(doubled) + 2 * beyond
    assert plan.sent() == 7 * plan.messages()


@pytest.mark.parametrize("n", RANKS)
def test_each_rank_of_a_ring_sends_its_share_and_no_more(n: int) -> None:
    for length in lengths(n):
        plan = schedule("ring", n, length)
        least, most = 2 * (n - 1) * (length // n), 2 * (n - 1) * -(-length // n)
        for rank in range(n):
            assert least <= plan.sent(rank) <= most
            assert plan.messages(rank) == 2 * (n - 1)
        assert plan.sent() == 2 * (n - 1) * length


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_sent_is_received(algorithm: str) -> None:
    for n in RANKS:
        plan = schedule(algorithm, n, 2 * n + 1)
        assert sum(plan.received(rank) for rank in range(n)) == plan.sent()
        assert plan.sent() == sum(plan.sent(rank) for rank in range(n))


@pytest.mark.parametrize(
    "algorithm", sorted(set(ALGORITHMS) - {"master_worker", "scatter", "gather"})
)
def test_in_a_round_no_rank_sends_or_receives_twice(algorithm: str) -> None:
    """all_to_all is an exception: it has only one round."""
    for n in RANKS:
        for kind in (Send, Recv):
            steps = [step for step in schedule(algorithm, n, n).steps if isinstance(step, kind)]
            busy = [(step.round, step.rank) for step in steps]
            assert len(set(busy)) == len(busy) or algorithm == "all_to_all"


# a schedule that does not work is detected


@pytest.mark.parametrize("algorithm", sorted(set(ALGORITHMS) - {"barrier"}))
def test_a_schedule_without_one_of_its_steps_fails(algorithm: str) -> None:
    plan = schedule(algorithm, 4, 8)
    for i in range(len(plan.steps)):
        with pytest.raises(ValueError, match="blocks forever"):
            execute(replace(plan, steps=plan.steps[:i] + plan.steps[i + 1 :]), inputs(4, 8))


def test_a_message_of_the_wrong_size_is_refused() -> None:
    steps = (Send(0, 1, (0, 2), 0), Recv(1, 0, (0, 3), 0))
    with pytest.raises(ValueError, match="got a message of 2 elements"):
        execute(Schedule("wrong", "broadcast", 2, 3, steps), inputs(2, 3))


def test_both_receive_first_is_a_deadlock() -> None:
    whole: Part = (0, 1)
    steps = (Recv(0, 1, whole, 0), Send(0, 1, whole, 0), Recv(1, 0, whole, 0), Send(1, 0, whole, 0))
    with pytest.raises(ValueError, match="blocks forever"):
        execute(Schedule("wrong", "exchange", 2, 1, steps), inputs(2, 1))


def test_vectors_must_fit() -> None:
    with pytest.raises(ValueError, match="needs 2 vectors"):
        execute(schedule("ring", 2, 3), [[1, 2, 3], [4, 5]])


@pytest.mark.parametrize("bad", [("rings", 2, 1, 0), ("ring", 0, 1, 0), ("ring", 2, -1, 0)])
def test_there_is_no_such_schedule(bad: tuple[str, int, int, int]) -> None:
    with pytest.raises(ValueError, match="no algorithm|a schedule needs"):
        schedule(*bad)


def test_the_root_is_a_rank() -> None:
    for algorithm in ROOTED:
        with pytest.raises(ValueError, match="root 2"):
            schedule(algorithm, 2, 1, 2)


def test_repr_says_what_it_is() -> None:
    assert repr(schedule("ring", 4, 10)) == (
        "<Schedule ring (all_reduce) of 4 ranks, 10 elements: 6 rounds, 24 messages>"
    )
    assert elements((2, 5)) == 3
