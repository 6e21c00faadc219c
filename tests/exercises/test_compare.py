import math

import numpy
import pytest
import torch

from ddpkit.exercises.compare import difference, same
from ddpkit.exercises.values import Close


class Agreeable:
    def __eq__(self, other):
        return True

    __hash__ = None


def tensor(*values):
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (1, True),
        (1.0, 1),
        ([1], (1,)),
        (None, 0),
        (tensor(3), 3),
        (numpy.float64(3), 3),
        (numpy.int64(1), True),
        (numpy.array(3), 3),
        (Agreeable(), 3),
        ([Agreeable()], [3]),
        (tensor(1.0, 2.0), tensor(1, 2)),
        (tensor(1.0, 2.0), tensor(1.0, 2.0).double()),
        (tensor(1.0, 2.0), tensor(1.0, 2.0)[None]),
        (tensor(1.0, 2.0), tensor(1.0, 2.0).numpy()),
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1, 2], [2, 1]),
        (math.nan, 0.0),
        (0.1 + 0.2, 0.3),
    ],
)
def test_different(got, expected):
    assert not same(got, expected)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (numpy.int64(3), 3),  # numpy's number types count as numbers
        ([numpy.float64(0.5)], [0.5]),
        (True, True),
        (-0.0, 0.0),
        (math.nan, math.nan),
        ([1, (2, None)], [1, (2, None)]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (tensor(1.0, math.nan), tensor(1.0, math.nan)),
        (tensor(-0.0), tensor(0.0)),
        (torch.nn.Parameter(torch.ones(3)), torch.ones(3)),
        (1.00004, Close(1.0)),
        ([100.0, 0.001], Close([100.0, 0.0])),  # digits count from the largest element
        (tensor(1.0, 2.0), Close(tensor(1.0001, 2.0), digits=3)),
        ({"loss": 0.50001, "steps": 3}, {"loss": Close(0.5), "steps": 3}),
        (0.00001, Close(0.0)),
    ],
)
def test_same(got, expected):
    assert same(got, expected)


@pytest.mark.parametrize(
    ("got", "expected", "where", "text"),
    [
        (12, 18, "", "got 12, expected 18"),
        (3.0, 3, "", "got 3.0, expected 3"),
        ([1, 2, 4], [1, 2, 3], "[2]", "got 4, expected 3"),
        ([1], [1, 2], "", "got 1 value, expected 2 values"),
        ({"a": [0]}, {"a": [1]}, "['a'][0]", "got 0, expected 1"),
        ({"b": 0}, {"a": 1}, "", "got the keys ['b'], expected the keys ['a']"),
        (tensor(1.0, 5.0), tensor(1.0, 2.0), "[1]", "got 5.0, expected 2.0"),
        (tensor(7), tensor(8), "[0]", "got 7, expected 8"),
        (torch.tensor(7), torch.tensor(8), "", "got 7, expected 8"),
        (torch.ones(3), torch.ones(4), "", "got float32[3], expected float32[4]"),
        (numpy.ones(2), torch.ones(2), "", "got float64[2] of numpy, expected float32[2] of torch"),
        (0.1 + 0.2, 0.3, "", "got 0.30000000000000004, expected 0.3"),
        (0.51234, Close(0.5, digits=2), "", "got 0.51, expected 0.5"),
        (torch.zeros(2, 2), torch.eye(2), "[0, 0]", "got 0.0, expected 1.0"),
    ],
)  # fmt: skip
def test_the_first_difference(got, expected, where, text):
    found = difference(got, expected)
    assert (found.where, str(found)) == (where, text)
