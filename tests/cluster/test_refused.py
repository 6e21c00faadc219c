"""Calls that torch refuses: under ddpkit the errors are the same, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster
from ddpkit.cluster.afterwards.unwaited import unwaited

pytestmark = pytest.mark.processes

REFUSED: dict[str, Callable[[], Any]] = {
    "an average of integers": lambda: dist.all_reduce(torch.arange(3), dist.ReduceOp.AVG),
    "parts of two sizes": lambda: dist.all_to_all(
        [torch.zeros(1), torch.zeros(2)], [torch.zeros(1), torch.zeros(2)]
    ),
    "a root that is not there": lambda: dist.broadcast(torch.ones(1), 2),
    "a root below zero": lambda: dist.reduce(torch.ones(1), -1),
    "a tag below zero": lambda: dist.isend(torch.ones(1), 1 - dist.get_rank(), tag=-1),
}


def ended() -> dict[str, str]:
    """Return the error of each call, and the sum of an all_reduce after all calls."""
    said = {}
    for name, call in REFUSED.items():
        try:
            call()
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    total = torch.ones(2)
    dist.all_reduce(total, dist.ReduceOp.AVG)
    return said | {"then": str(total.tolist())}


@pytest.mark.parametrize(
    "how",
    [{}, {"link": "1 Gbit/s, 10 us"}, {"machine": "A100"}, {"link": "10 us", "machine": "A100"}],
    ids=["real", "link", "machine", "both"],
)
def test_what_is_refused_is_as_torch_says_and_was_not_sent(how: dict[str, str]) -> None:
    run = Cluster(2, **how).run(ended)
    for said in run.results:
        assert said.keys() == {*REFUSED, "then"}
        assert {text.partition(":")[0] for name, text in said.items() if name != "then"} == {
            "RuntimeError"
        }
        assert "can't be cast to the desired output type Long" in said["an average of integers"]
        assert "invalid root rank" in said["a root that is not there"]
        assert said["then"] == "[1.0, 1.0]"
    names = [span.name for span in run.trace.spans if span.kind == "comm" and span.rank == 0]
    # the all_reduce of integers was sent, and failed later
    assert names == ["all_reduce", "all_reduce"]
    assert unwaited(run.trace) == ""


SPLITS: dict[str, tuple[int, list[int], list[int]]] = {  # numbers, and wrong splits
    "one part": (2, [2], [2]),
    "three parts": (2, [1, 1, 0], [1, 1, 0]),
    "too few": (3, [1, 1], [1, 1]),
}


def split_wrongly() -> list[str]:
    """Return the error of each call; only rank 1 has rows of two numbers."""
    said = []
    shape = (2,) if dist.get_rank() else ()
    for numbers, takes, sends in SPLITS.values():
        try:
            dist.all_to_all_single(
                torch.zeros(numbers, *shape), torch.ones(numbers, *shape), takes, sends
            )
        except Exception as error:
            said.append(type(error).__name__)
    dist.all_to_all_single(torch.zeros(0, 2), torch.zeros(0, 2))
    return said


def test_splits_that_torch_refuses_are_torchs_to_explain() -> None:
    assert Cluster(2).run(split_wrongly).results == [["RuntimeError"] * len(SPLITS)] * 2
