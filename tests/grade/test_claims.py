"""Values leave the sandbox as they are, and nothing else comes in."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from ddpkit.errors import LessonError
from ddpkit.exercises.compare import same
from ddpkit.grade.decode import decode
from ddpkit.grade.inside.claims import encode

VALUES = [
    None, True, 3, -(2**200), 1.5, float("inf"), "ä\n", b"\x00\xff", [1, (2.0, [])],
    {"a": [1], 2: None},
    torch.tensor(3.5), torch.arange(6).reshape(2, 3), torch.empty(0, 2), torch.ones(3).bfloat16(),
    torch.tensor([True, False]), np.arange(3.0), {"t": [torch.full((2,), math.nan)]},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_there_and_back(value: object) -> None:
    assert same(decode(json.loads(json.dumps(encode(value)))), value)


@pytest.mark.parametrize(
    "claim",
    [
        ["i", 3], ["f", "1.5; import os"], ["x", 1], {"a": 1}, 3, "text", ["l", "abc"],
        ["d", [[1]]],
        ["T", "torch", "float32", [2], "AAAA"], ["T", "torch", "save", [1], "AAAA"],
        ["T", "torch", "float32", [10**12], ""], ["T", "torch", "float32", [-1], ""],
        ["d", [[["l", []], True]]], ["b", "no base64"],
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_value(claim: object) -> None:
    with pytest.raises(LessonError):
        decode(claim)


def test_a_claim_nested_without_end() -> None:
    claim: object = True
    for _ in range(900):
        claim = ["l", [claim]]
    with pytest.raises(LessonError):
        decode(claim)


def test_an_object_equal_to_everything_is_only_its_name() -> None:
    class Equal:
        __eq__ = lambda self, other: True  # noqa: E731
        __hash__ = None

    assert encode(Equal()) == ["o", "Equal"]
    assert not same(decode(encode(Equal())), 3)
