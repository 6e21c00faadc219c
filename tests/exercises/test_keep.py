"""An answer becomes a file that runs alone; otherwise the student reads the reason."""

import math
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional
from torch import nn

from ddpkit.exercises.keep import NotKept, keep, kept_path, load, standalone

NAMES = {"torch": torch, "dist": dist, "math": math, "nn": nn}


def text_of(cell, source, **names):
    return standalone("answer", cell(source, {"__name__": "__main__", **names})["answer"])


def run_alone(text, call):
    """Return the output of a fresh interpreter that runs the file and prints an expression."""
    code = f"exec(compile({text!r}, 'kept.py', 'exec'), globals()); print({call})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.processes
def test_a_file_holds_the_answer_and_all_that_it_needs(cell):
    text = text_of(
        cell,
        """
        SCALE, PAIR = 2.5, (1, (True, None), "two")
        INFINITE = -math.inf
        unused = object()

        def twice(x):
            return half(4 * x)

        def half(x):
            return x / 2 if x > INFINITE else twice(x)

        square = lambda x: x * x

        def answer(x: float, *, least: float = SCALE) -> dist.Work:
            unused = square(x)  # a local of the same name as an object made elsewhere
            return max(least, twice(unused)), PAIR
        """,
        **NAMES,
    )
    assert (
        text
        == """\
# answer: your version, as its check passed. carry("answer") loads it.
from __future__ import annotations

import torch.distributed as dist

PAIR = (1, (True, None), 'two')
SCALE = 2.5
INFINITE = float("-inf")


square = lambda x: x * x


def half(x):
    return x / 2 if x > INFINITE else twice(x)


def twice(x):
    return half(4 * x)


def answer(x: float, *, least: float = SCALE) -> dist.Work:
    unused = square(x)  # a local of the same name as an object made elsewhere
    return max(least, twice(unused)), PAIR
"""
    )
    assert run_alone(text, "answer(3)") == "(18.0, (1, (True, None), 'two'))"


IMPORTS = {
    "import math": ("import math", "math.floor(2.5)"),
    "import numpy as np": ("import numpy as np", "np.int64(2).item()"),
    "import xml.etree.ElementTree": (
        "import xml.etree.ElementTree",
        "xml.etree.ElementTree.Element('a').tag",
    ),
    "import torch, torch.nn.functional": (
        "import torch.nn.functional",
        "torch.nn.functional.relu(torch.tensor(-1)).item()",
    ),
    "import torch, torch.nn as nn": (
        "import torch\nimport torch.nn as nn",
        "len([nn.Linear, torch.ones])",
    ),
    "from math import floor as down": ("from math import floor as down", "down(2.5)"),
    "from torch.distributed import all_reduce, ReduceOp": (
        "from torch.distributed import ReduceOp\nfrom torch.distributed import all_reduce",
        "len([all_reduce, ReduceOp])",
    ),
    "from torch import stack, float32, Tensor": (
        "from torch import Tensor\nfrom torch import float32\nfrom torch import stack",
        "len([stack, float32, Tensor])",
    ),
    "from torch.nn import Linear": ("from torch.nn import Linear", "Linear.__name__"),
    "from itertools import pairwise": ("from itertools import pairwise", "list(pairwise('abc'))"),
    "from collections.abc import Sized": ("from collections.abc import Sized", "Sized.__name__"),
    "from math import pi": ("pi = 3.141592653589793", "pi"),
    "import ddpkit.errors": ("import ddpkit.errors", "ddpkit.errors.LessonError.__name__"),
}  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("statement", IMPORTS)
def test_imports(cell, statement):
    expected, expression = IMPORTS[statement]
    namespace = cell(f"{statement}\ndef answer():\n    return {expression}")
    text = standalone("answer", namespace["answer"])
    assert f"annotations\n\n{expected}\n\n\ndef answer" in text
    assert run_alone(text, "answer()") == str(namespace["answer"]())


ANSWERS = {
    "a class": """
        class Base:
            def base(self):
                return 1
        class answer(Base, metaclass=type):
            step = len("ab")
            def __call__(self):
                return super().base() + self.step
        """,
    "a module": """
        class answer(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 3)
            def forward(self):
                return self.layer(torch.ones(2)).shape
        """,
    "decorators": """
        import functools
        def as_it_is(function):
            @functools.wraps(function)
            def call(*args):
                return function(*args)
            return call
        @functools.cache
        def one():
            return 1
        @as_it_is
        @torch.no_grad()
        def answer():
            return one
        """,
    "closures and comprehensions inside": """
        WIDTH = 3
        def answer():
            rows = [w for w in range(WIDTH)]
            def inner():
                nonlocal rows
                rows = rows + [WIDTH]
                return rows
            return inner
        """,
    "a counter": """
        count = 0
        def bump():
            global count
            count += 1
            return count
        def answer():
            return bump
        """,
    "a helper under two names": """
        def helper():
            return 4
        other = helper
        def answer():
            return lambda: other() + helper()
        """,
    "itself": """
        def answer(n=3):
            return (lambda: n) if n < 2 else answer(n - 1)
        """,
    "text in several lines": '''
        def answer():
            return lambda: """
        at the margin
            indented"""
        ''',
}


@pytest.mark.processes
@pytest.mark.parametrize("kind", ANSWERS)
def test_kinds_of_answers(cell, kind):
    text = text_of(cell, ANSWERS[kind], **NAMES)
    assert run_alone(text, "answer()()") != ""
    loaded = load("answer", text, kept_path("answer"))
    assert loaded()() is not None


@pytest.mark.processes
def test_a_nested_import_of_a_submodule_is_enough(cell):
    text = text_of(cell, "def answer():\n    import os.path\n    return os.path.sep")
    assert run_alone(text, "answer()") == os.path.sep


REFUSED = {
    "an object": (
        """
        model = object()
        def answer(): return model
        """,
        "the answer uses the variable `model` (object); pass `model` as an argument",
    ),
    "a list": (
        """
        sizes = [1, 2]
        def answer(): return sizes
        """,
        "the answer uses the variable `sizes` (list); pass `sizes` as an argument",
    ),
    "an object of a helper": (
        """
        import torch
        w = torch.ones(2)
        def helper(): return w
        def answer(): return helper()
        """,
        "the answer uses the variable `w` (Tensor); pass `w` as an argument",
    ),
    "a partial": (
        """
        import functools
        answer = functools.partial(max, 1)
        """,
        "the answer is a partial, not a function or class",
    ),
    "a closure": (
        """
        def make(n):
            def answer(): return n
            return answer
        answer = make(3)
        """,
        "`answer` uses the variable `n` of the function around it; "
        "define `n` in a cell of its own, and pass it as an argument",
    ),
    "another name": (
        """
        def other(): return 1
        other.__name__ = "answer"
        answer = other
        """,
        "the answer is not defined by a `def answer` or `class answer`",
    ),
    "no source": (
        "answer = eval('lambda: 1')",
        "the source of `<lambda>` cannot be found",
    ),
    "a missing name": (
        "def answer(): return nowhere",
        "the answer uses the name `nowhere`, which is not defined",
    ),
    "an old version of itself": (
        """
        def answer(): return 1
        old = answer
        def answer(): return old()
        """,
        "the answer uses two different things called `answer`; rename one of them",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_kept_is_told_why(cell, kind):
    source, reason = REFUSED[kind]
    answer = cell(source)["answer"]
    with pytest.raises(NotKept) as caught:
        standalone("answer", answer)
    assert str(caught.value) == reason
    assert keep("answer", answer) == f"Your version is not kept for later labs: {reason}."
    assert not kept_path("answer").exists()


def test_what_does_not_load_alone_is_not_kept(cell):
    source = """
        def first():
            return 1
        @(lambda f: f if READY else 1 / 0)
        def answer():
            return first()
        """
    namespace = cell(source, {"__name__": "__main__", "READY": True})
    namespace["READY"] = False
    sentence = keep("answer", namespace["answer"])
    assert sentence.startswith(
        "Your version is not kept for later labs: run by itself, it raises Zero"
    )
    assert not kept_path("answer").exists()


def test_a_folder_in_the_way_is_said(cell, tmp_path):
    (tmp_path / ".ddpkit").write_text("")
    sentence = keep("answer", cell("def answer(): return 1")["answer"])
    assert sentence.startswith("Your version is not kept for later labs: .ddpkit/answers/answer.py")


def test_the_kits_own_is_not_the_students():
    def answer():
        return 1

    answer.__module__ = "ddpkit.answers.lab00"
    assert "the answer is ddpkit's own" in keep("answer", answer)
