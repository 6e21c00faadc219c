"""Whose code a file is, and what a reader calls a line of it."""

import sys
import sysconfig
import threading

import pytest

from ddpkit.exercises.explain import student_line
from ddpkit.rank.record.recorder import Recorder
from ddpkit.source import is_user_file


@pytest.mark.parametrize(
    ("filename", "mine"),
    [
        ("/home/me/train.py", True),
        ("/tmp/ipykernel_1/123.py", True),
        ("<ipython-input-3-abc>", True),
        ("<stdin>", True),
        ("<timed exec>", True),
        ("<timed eval>", True),
        ("<magic-timeit>", True),
        ("<string>", False),
        ("<frozen importlib>", False),
        ("/x/.venv/lib/python3.11/site-packages/torch/nn.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("/home/me/my-packages/train.py", True),
        (threading.__file__, False),
        (sysconfig.__file__, False),
        (sys.modules[Recorder.__module__].__file__, False),
    ],
)
def test_whose_file_it_is(filename, mine):
    assert is_user_file(filename) is mine


@pytest.mark.parametrize(("name", "cell"), [("timed exec", "time"), ("magic-timeit", "timeit")])
def test_an_error_in_a_cell_under_a_magic_is_in_a_line_of_the_students(name, cell):
    """The magic compiles the cell under a name of its own; its first line is the magic's."""
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("x = 1\nx / 0", f"<{name}>", "exec"), {})
    assert student_line(caught.value) == f"%%{cell} cell, line 3"
