"""Collectives on different lines that meet by luck: named after a failure and after success."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Deadlock, Mismatch
from ddpkit.cluster.lines import Lines
from ddpkit.protocol.call import Call
from tests.ways import WAYS, run, words

in_every_way = pytest.mark.parametrize("way", WAYS)


def first() -> bool:
    return dist.get_rank() == 0


def swaps() -> None:
    a, b = torch.ones(3), 10 * torch.ones(3)
    if first():
        dist.all_reduce(a)
        dist.all_reduce(b)
    else:
        dist.all_reduce(b)
        dist.all_reduce(a)


def swaps_in_a_loop() -> None:
    a, b = torch.ones(3), 10 * torch.ones(3)
    for name in "ab" * 3 if first() else "ba" * 3:
        if name == "a":
            dist.all_reduce(a)
        else:
            dist.all_reduce(b)


def joins_and_sums_once_more() -> None:
    loss, norm, steps = torch.ones(1), torch.ones(1), torch.ones(1)
    if first():
        dist.all_reduce(steps)
    for _ in range(3):
        dist.all_reduce(loss)
        dist.all_reduce(norm)
    if not first():
        dist.all_reduce(steps)


MET_BY_LUCK = {swaps: (3, 6), swaps_in_a_loop: (4, 6), joins_and_sums_once_more: (3, 5)}


def branches() -> None:
    x = torch.ones(3)
    for _ in range(3):
        if first():
            dist.all_reduce(x)
            dist.all_reduce(x)
        else:
            dist.all_reduce(torch.zeros(3))
            dist.all_reduce(torch.zeros(3))


def has_no_more_data() -> None:
    gradient, loss = torch.ones(3), torch.ones(3)
    for step in range(5):
        if step < 3 + 2 * first():
            dist.all_reduce(gradient)
            dist.all_reduce(loss)
        else:
            dist.all_reduce(torch.zeros(3))
            dist.all_reduce(torch.zeros(3))


def skips_in_turns() -> None:
    gradient, nothing = torch.ones(3), torch.zeros(3)
    for step in range(8):
        if step % 4 == dist.get_rank():
            dist.all_reduce(nothing)
        else:
            dist.all_reduce(gradient)


def loads_first() -> None:
    if not first():
        dist.barrier()
    x = torch.ones(3)
    if first():
        dist.barrier()
    for source in range(dist.get_world_size()):
        if source == dist.get_rank():
            dist.broadcast(x, source)
        else:
            dist.broadcast(torch.zeros(3), source)


def trains() -> None:
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
        if first():
            dist.all_reduce(loss.detach())
        else:
            dist.all_reduce(torch.zeros(()))


def two_models() -> list[DistributedDataParallel]:
    torch.manual_seed(0)
    return [DistributedDataParallel(torch.nn.Linear(4, 4, bias=False)) for _ in range(2)]


def uses_two_models_in_one_order() -> None:
    one, other = two_models()
    for _ in range(3):
        (one(torch.ones(2, 4)).sum() + other(torch.ones(2, 4)).sum()).backward()
        one(torch.ones(2, 4)).sum().backward()


def trains_two_models_in_turn() -> None:
    generator, critic = two_models()
    for step in range(4):
        model = critic if step % 2 else generator
        model(torch.ones(2, 4) * (1 + dist.get_rank())).sum().backward()


def has_a_model_of_its_own() -> None:
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    shared = torch.nn.Linear(4, 4, bias=False)
    if first():
        DistributedDataParallel(torch.nn.Linear(4, 4), process_group=alone[0])
    model = DistributedDataParallel(shared)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()


RIGHT = (
    branches,
    has_no_more_data,
    skips_in_turns,
    loads_first,
    trains,
    uses_two_models_in_one_order,
    trains_two_models_in_turn,
    has_a_model_of_its_own,
)


@pytest.mark.processes
@in_every_way
@pytest.mark.parametrize("function", MET_BY_LUCK, ids=lambda each: each.__name__)
def test_a_meeting_by_luck_is_said(
    way: str, function: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    run(way, 2, function)
    start = function.__code__.co_firstlineno
    one, other = (start + offset for offset in MET_BY_LUCK[function])
    assert (
        "The ranks seem to have made collectives in different orders, from number 1 on: rank 0 "
        f"line {one}, rank 1 line {other}."
    ) in words(capfd, way)


@pytest.mark.processes
@in_every_way
@pytest.mark.parametrize("function", RIGHT, ids=lambda each: each.__name__)
def test_a_right_program_is_not_accused(
    way: str, function: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    run(way, 2, function)
    out, err = capfd.readouterr()
    assert "different orders" not in out + err


def uses_two_models_in_two_orders() -> None:
    models = two_models()
    one, other = models if first() else reversed(models)
    (one(torch.ones(2, 4)).sum() + other(torch.ones(2, 4)).sum()).backward()


@pytest.mark.processes
@in_every_way
def test_gradients_of_two_models_that_met_by_luck(
    way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run(way, 2, uses_two_models_in_two_orders)
    line = f"line {uses_two_models_in_two_orders.__code__.co_firstlineno + 3}"
    said = words(capfd, way)
    assert "The ranks seem to have made collectives in different orders, from number " in said
    assert f": rank 0 {line} (model 2 of those that DDP wrapped), rank 1 {line} (model 1 of" in said


def sums_once_more_under_join() -> None:
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    with model.join():
        for _ in range(3 + dist.get_rank()):
            loss = model(torch.ones(2, 4)).sum()
            loss.backward()
            dist.all_reduce(loss.detach())


@pytest.mark.processes
@in_every_way
def test_a_call_of_the_code_that_met_torchs_own_is_named(way: str) -> None:
    with pytest.raises((Mismatch, Deadlock)) as caught:
        run(way, 2, sums_once_more_under_join)
    start = sums_once_more_under_join.__code__.co_firstlineno
    assert (
        "was the first in which a call of the code met a call of torch's own: rank 0 line "
        f"{start + 2}, rank 1 line {start + 6}."
    ) in " ".join(str(caught.value).split())


def saves_on_rank_0() -> None:
    x, norm = torch.ones(3), torch.ones(3)
    for _ in range(3):
        dist.all_reduce(x)
    if first():
        dist.all_reduce(norm)
    for _ in range(3):
        dist.all_reduce(x)
        dist.all_reduce(norm)
    if first():
        dist.all_reduce(x)


def sums_another_shape() -> None:
    x = torch.ones(3)
    if first():
        dist.all_reduce(torch.ones(3))
    dist.all_reduce(x)
    dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(2))


def returns_early() -> None:
    for _ in range(4 - dist.get_rank()):
        dist.all_reduce(torch.ones(3))


@pytest.mark.processes
@in_every_way
def test_a_deadlock_names_the_first_meeting(way: str) -> None:
    with pytest.raises(Deadlock) as caught:
        run(way, 3, saves_on_rank_0)
    line = saves_on_rank_0.__code__.co_firstlineno + 5
    assert " ".join(str(caught.value).split()).endswith(
        "Collective number 4 was the first that ranks called from different lines: rank 0 line "
        f"{line}, ranks 1, 2 line {line + 2}."
    )
    assert [call.where[1] for call in caught.value.apart.values()] == [line, line + 2, line + 2]


@pytest.mark.processes
@in_every_way
def test_a_mismatch_names_an_earlier_meeting(way: str) -> None:
    with pytest.raises(Mismatch) as caught:
        run(way, 2, sums_another_shape)
    said = " ".join(str(caught.value).split())
    assert "Collective number 1 was the first that ranks called from different lines" in said
    assert caught.value.apart[0].seq == 1


@pytest.mark.processes
def test_a_failure_after_meetings_of_equal_lines() -> None:
    with pytest.raises(Deadlock) as caught:
        run("real", 2, returns_early)
    assert "different lines" not in str(caught.value)
    assert caught.value.apart == {}


# `Lines` without a cluster


def met(*pairs: str, op: str = "all_reduce", group: str = "") -> Lines:
    """Return the `Lines` after calls of two ranks.

    "ab" stands for a call in line a on rank 0 and in line b on rank 1.
    """
    lines = Lines()
    for number, pair in enumerate(pairs, 1):
        calls = {
            rank: Call(op, group, ("train.py", ord(each)), seq=number)
            for rank, each in enumerate(pair)
        }
        for rank, call in calls.items():
            lines.came(rank, call)
        lines.met(calls)
    return lines


def luck(lines: Lines) -> int | None:
    """Return the number of the first call that met by luck."""
    calls = lines.by_luck(lambda where: chr(where[1]))
    return calls[0].seq if calls else None


@pytest.mark.parametrize(
    ("pairs", "number"),
    [
        (["ab", "ba"], 1),
        (["cc", "ab", "ba", "cc"], 2),
        (["ab", "ac", "ba", "ca"], 1),
        (["ea", "ab", "be"], 1),
        (["aa", "ea", "ab", "ba", "bf"], 2),
    ],
)
def test_patterns_of_luck(pairs: list[str], number: int) -> None:
    assert luck(met(*pairs)) == number


@pytest.mark.parametrize(
    "pairs",
    [
        ["aa", "bb"],
        ["ab", "ab", "ab"],
        ["ab", "cd", "ab", "cd"],
        ["aa", "ad", "da", "aa"],
        ["aa", "bb", "ad", "bd", "ad", "bd"],
        ["ab", "cc", "ba"],
        [],
    ],
)
def test_patterns_of_right_programs(pairs: list[str]) -> None:
    assert luck(met(*pairs)) is None


@pytest.mark.parametrize("op", ["barrier", "broadcast", "gather", "scatter", "reduce"])
def test_calls_that_meet_from_two_lines_by_design(op: str) -> None:
    lines = met("ab", "ba", op=op)
    assert luck(lines) is None
    assert lines.first_apart("") == {}


def test_branches_of_an_if_are_not_the_first_meeting() -> None:
    assert met("ab", "cc").first_apart("") == {}
    assert met("ab", "bb").first_apart("")[0].seq == 1
    assert met("ab", "bb").first_apart("another") == {}
