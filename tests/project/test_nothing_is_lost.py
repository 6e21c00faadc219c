"""Nothing that was tested before the redesign of 2026-11-22 is untested: each kind, by name.

A fault of another launcher may have become one of the table of all launchers: RENAMED says which.
A name that goes for good is taken out of names_before.json, by a commit that says why.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.cluster.faults import FAULTS, met_by
from tests.ddp.demands import DEMANDS
from tests.grade.attacks import ATTACKS
from tests.labs import answers
from tests.labs.answers import labs

BEFORE = json.loads(Path(__file__).with_name("names_before.json").read_text("utf-8"))
RENAMED = {
    "faults in a notebook": {
        "exception": "in_a_helper",
        "exception in C++ below the cell": "below_python",
        "one rank raises while the other waits for it": "one_raises",
        "syntax error made on the rank": "wrong_syntax",
        "deadlock, both receive": "recv_recv",
        "deadlock, one has returned": "missing_collective",
        "deadlock in a wait for an irecv": "unserved_irecv",
        "mismatched shapes": "uneven_shapes",
        "different collectives": "different_order",
        "timeout": "waits_for_an_endless_loop",
        "os._exit": "both_os_exit",
        "sys.exit": "sys_exit_with_a_word",
        "segmentation fault": "segfault",
        "killed from outside": "killed",
        "a result that cannot be sent": "unpicklable_result",
    },
    "faults under torchrun": {
        "exits": "sys_exit",
        "disagrees": "uneven_shapes",
        "slow": "endless_loop",
        "leaves": "test_a_rank_that_leaves_the_script_is_said_once",  # no function: a script
    },
    "faults on two hosts": {
        "raises": "last_of_four_raises",
        "killed": "last_of_four_is_killed",
        "waits": "two_pairs_receive",
    },
    # By the texts they were wrong: they are among the wrong answers, and these took their places.
    "right answers": {
        "assign_buckets-open_for_ever": "assign_buckets-counts_on_the_way",
        "accumulate-sum_of_losses": "accumulate-keeps_each_graph_for_a_while",
    },
}


def wrong_answers() -> Iterable[object]:
    return (each for lab in labs() for each in answers.wrong_answers(lab))


def right_answers() -> Iterable[str]:
    found = (each for lab in labs() for each in answers.right_answers(lab))
    return [f"{exercise}-{answer.__name__}" for exercise, answer in found]


def under_torchrun() -> Iterable[str]:
    module = importlib.import_module("tests.cluster.test_torchrun")
    return [*met_by("torchrun"), *(name for name in vars(module) if name.startswith("test_"))]


NOW: dict[str, Callable[[], Iterable[object]]] = {
    "faults": lambda: [fault.name for fault in FAULTS],
    "faults in a notebook": lambda: met_by("notebook"),
    "faults under torchrun": under_torchrun,
    "faults on two hosts": lambda: met_by("hosts"),
    "attacks": lambda: ATTACKS,
    "demands": lambda: DEMANDS,
    "wrong answers": wrong_answers,
    "right answers": right_answers,
}


@pytest.mark.parametrize("kind", BEFORE)
def test_all_names_of_before_are_there(kind: str) -> None:
    renamed = RENAMED.get(kind, {})
    wanted = {renamed.get(name, name) for name in BEFORE[kind]}
    assert wanted - set(map(str, NOW[kind]())) == set()


def test_there_were_so_many() -> None:
    assert {kind: len(names) for kind, names in BEFORE.items()} == {
        "faults": 44,
        "faults in a notebook": 15,
        "faults under torchrun": 5,
        "faults on two hosts": 3,
        "attacks": 18,
        "demands": 23,
        "wrong answers": 447,
        "right answers": 83,
    }
