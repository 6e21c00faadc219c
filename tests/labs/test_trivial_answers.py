"""Answers without work earn at most 6 % of an exercise's points.

The test asks each exercise of the kit, so the list is complete.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from ddpkit.cluster import Run
from ddpkit.exercises import exercises, judge
from ddpkit.exercises import ranks as on_ranks
from ddpkit.rank.record import recorder
from ddpkit.trace import Trace

MOST = 0.06  # a share of an exercise's points
GROUP_IS_MISSING = "Default process group has not been initialized"


class Nothing:
    """A class with methods that do nothing."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.buckets: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **named: None


def plain_steps(parameters, gradients, lr, momentum=0.0, velocities=None):
    """Take a step of SGD without momentum."""
    with torch.no_grad():
        for p, g in zip(parameters, gradients, strict=True):
            p -= lr * g
    return list(gradients)


def unshuffled(n, batch_size, seed):
    return list(torch.arange(n).split(batch_size))


def given(*arguments, **named):
    return arguments[0] if arguments else 0


TRIVIAL: dict[str, Callable[..., Any]] = {
    "its argument": given,
    "a copy of it": lambda *given, **named: copy.deepcopy(given[0]) if given else 0,
    "its last argument": lambda *given, **named: given[-1] if given else 0,
    "nothing": lambda *given, **named: None,
    "an empty list": lambda *given, **named: [],
    "0.0": lambda *given, **named: 0.0,
    "a class that does nothing": Nothing,
}
OF_ONE = {"sgd_step": plain_steps, "minibatches": unshuffled}


def in_this_process(shared: Any) -> Run[Any]:
    """Call the answer for one rank after the other, without ranks: it sends nothing.

    If the check around the answer communicates, there are ranks as usual. Only one trivial answer
    can go on there: the given module, returned unchanged.
    """
    n, results, spans = len(shared.calls[0]), [], []
    for rank in range(n):
        calls = pickle.loads(pickle.dumps([call[rank] for call in shared.calls]))
        mine = recorder.Recorder(rank)
        recorder.activate(mine)
        try:
            with (
                mock.patch.object(dist, "get_rank", return_value=rank),
                mock.patch.object(dist, "get_world_size", return_value=n),
                mock.patch.object(dist, "barrier"),
            ):
                results.append(on_ranks._call_each(shared.answer, calls))
        except ValueError as error:
            if GROUP_IS_MISSING not in str(error) or not gives_back(shared.answer):
                shared.error = error
                raise
            recorder.activate(None)
            return USUAL(shared)
        except Exception as error:
            shared.error = error
            raise
        finally:
            recorder.activate(None)
        spans += mine.spans()
    return Run(results, "", Trace(tuple(spans), n))


def gives_back(answer: Any) -> bool:
    """True if an answer in a check, alone or inside other functions, is `given`."""
    if isinstance(answer, partial):
        return any(map(gives_back, (answer.func, *answer.args)))
    return answer is given


USUAL = on_ranks._Shared._start


def earned(name: str, answer: Callable[..., Any]) -> float:
    with mock.patch.object(on_ranks._Shared, "_start", in_this_process):
        return judge(exercises()[name], answer).earned


@pytest.mark.slow  # cases of single labs, for all labs
@pytest.mark.processes("some")
@pytest.mark.parametrize("name", sorted(exercises()))
def test_trivial_answers_earn_next_to_nothing(name: str) -> None:
    tried = TRIVIAL | ({"of its own": OF_ONE[name]} if name in OF_ONE else {})
    points = {how: earned(name, answer) for how, answer in tried.items()}
    most = MOST * exercises()[name].points
    assert {how: each for how, each in points.items() if each > most} == {}


def test_a_right_answer_is_known_without_ranks_too() -> None:
    """An answer that sends nothing gets the verdict that it gets on ranks.

    Otherwise the test above would prove nothing.
    """
    passes = mock.Mock(side_effect=in_this_process)
    with mock.patch.object(on_ranks._Shared, "_start", lambda shared: passes(shared)):
        verdict = judge(exercises()["who_waits"], lambda x: x.clone())
    assert passes.called
    assert [case.passed for case in verdict.cases] == [False] * 4 + [True]
