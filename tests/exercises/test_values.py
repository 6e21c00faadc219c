import math
import subprocess
import sys

import numpy
import pytest
import torch

from ddpkit.exercises.values import Close, Opaque, digest, plain, show_value


class Agreeable:
    """An object that equals everything, and has a wanted repr."""

    def __eq__(self, other):
        return True

    def __repr__(self):
        return "18"

    __hash__ = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (18, "18"),
        (-3, "-3"),
        (True, "True"),
        (None, "None"),
        ("ring", "'ring'"),
        (3.0, "3.0"),
        (-0.0, "0.0"),
        (1 / 3, "0.333333"),
        (1e-7, "1e-07"),
        (123456789.0, "1.23457e+08"),
        (math.inf, "inf"),
        (-math.nan, "nan"),
        ([1, [2.5], (3,)], "[1, [2.5], (3,)]"),
        ({"b": 1, "a": 2, 3: 4}, "{3: 4, 'a': 2, 'b': 1}"),
        (torch.tensor(3), "tensor(3)"),
        (torch.tensor([[1.0, -0.0]]), "tensor([[1.0, 0.0]])"),
        (torch.tensor([1.5], dtype=torch.float64), "tensor([1.5], dtype=float64)"),
        (torch.nn.Parameter(torch.ones(2)), "tensor([1.0, 1.0])"),
        (numpy.array([1, 2]), "array([1, 2], dtype=int64)"),
        (torch.Size([2, 3]), "(2, 3)"),
        (Agreeable(), "<Agreeable>"),
        (numpy.float64(3), "3.0"),
        ([numpy.int64(3), numpy.bool_(True)], "[3, True]"),
        ({numpy.int64(1): numpy.float32(0.5)}, "{1: 0.5}"),
        (numpy.datetime64("2026-01-01"), "<datetime64>"),
        (torch.arange(3)[::2][:1], "tensor([0])"),
        (torch.from_numpy(numpy.zeros((3, 0)).sum(0)), "tensor([], dtype=float64)"),
        (torch.float32, "<dtype>"),
        (Close(1 / 3, digits=3), "0.333"),
    ],
)
def test_text(value, text):
    assert show_value(value) == text


def test_long_values_are_shown_by_size_and_digest():
    assert show_value(list(range(100))) == "list of 100, 51f2696d83d6"
    assert show_value("x" * 100) == f"'{'x' * 71}…"  # texts stay readable
    assert show_value(torch.arange(100)).startswith("int64[100] ")
    assert show_value(10**5000).startswith("int, ")  # Python refuses to print such a number
    assert show_value(list(range(100))) != show_value([*range(99), 0])


def test_what_is_shown_of_a_tensor_depends_on_every_bit():
    tensor = torch.arange(100.0)
    nearly = tensor.clone()
    nearly[50] = nearly[50].nextafter(torch.tensor(math.inf))
    assert show_value(tensor) == show_value(tensor.clone())
    assert show_value(tensor) != show_value(nearly)
    assert show_value(tensor) != show_value(tensor.reshape(10, 10))
    assert digest(tensor) != digest(tensor.double())


def test_a_digest_does_not_depend_on_memory_layout():
    tensor = torch.arange(6.0).reshape(2, 3)
    assert digest(tensor.t().contiguous().t()) == digest(tensor)
    assert digest(tensor.requires_grad_()) == digest(tensor)
    assert digest(torch.zeros(3)) == digest(-torch.zeros(3))
    assert len(digest(tensor)) == 12


@pytest.mark.processes
def test_digests_are_the_same_in_every_process():
    code = (
        "import torch; from ddpkit.exercises import digest;"
        "print(digest({'b': [torch.arange(9.0)], 'a': (1, 2.5)}))"
    )
    here = digest({"a": (1, 2.5), "b": [torch.arange(9.0)]})
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(1.0),
        torch.empty(0, 3),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]).conj(),
        torch.ones(2, 3).expand(4, 2, 3),
    ],
)
def test_tensors_of_every_kind_have_a_digest(tensor):
    assert digest(tensor) == digest(tensor.clone())


def test_tensors_without_values_are_opaque():
    assert type(plain(torch.ones(3).to_sparse())) is Opaque
    assert type(plain(torch.ones(3, device="meta"))) is Opaque


def test_a_subclass_is_not_plain():
    class Lying(list):
        pass

    class Number(int):
        pass

    assert type(plain(Lying([1]))) is Opaque
    assert type(plain([Number(1)])[0]) is Opaque
    assert type(plain({(1, 2): 3})) is Opaque  # keys of a dict must be scalars


def test_a_list_that_contains_itself_ends():
    endless = []
    endless.append(endless)
    assert "nested too deep" in show_value(endless, width=200)


def test_values_are_copied():
    inner = [1]
    copy = plain({"a": inner})
    inner.append(2)
    assert copy == {"a": [1]}


def test_close_tensors_print_alike_when_right():
    tensor = torch.linspace(0.1, 1, 50)
    close = Close(tensor, digits=3)
    assert show_value(close) == show_value(tensor * (1 + 1e-7), digits=3)
    assert show_value(close) != show_value(tensor.flip(0), digits=3)


def test_close_has_few_digits():
    with pytest.raises(ValueError, match="digits must be 1 to 5"):
        Close(1.0, digits=6)


@pytest.mark.processes
def test_plain_values_need_no_torch():
    code = (
        "import sys; from ddpkit.exercises import digest, show_value;"
        "show_value([1, 2.5]); digest({}); print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
