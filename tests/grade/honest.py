"""Right notebooks of unusual form, as students write them in JupyterLab, Colab and VS Code.

A toy lab asks for `double` and `triple`. Each notebook below answers both rightly, if it is run
from the top or in its student's order. A cell is written as "# %%", the cell's id, and `=name` if
the cell's metadata name an exercise.
"""

from __future__ import annotations

import re
from typing import Any

from ddpkit.grade.inside.asking import _unasked as check
from ddpkit.grade.merge import Merged, merge
from ddpkit.grade.submission import Submission, SubmittedCell

NAMES = ["double", "triple"]
LAB_TEXT = """
# %% code-1
import math
from operator import add, mul
# %% code-2
cluster = Cluster(4)
# %% code-3
def shown():
    return double(1)
cluster.run(shown)
# %% answer-double =double
def double(x):
    raise NotImplementedError("your code here: about 2 lines")
# %% check-double
check(double)
# %% code-4
scale = lambda x: -1
print(scale(2))
# %% answer-triple =triple
def triple(x):
    raise NotImplementedError("your code here: about 2 lines")
# %% check-triple
check(triple)
# %% code-5
def step(x):
    return "the lab's"
show(step(1))
"""
TOP, MIDDLE, END = (
    "# %% code-1\nimport math\nfrom operator import add, mul\n# %% code-2\ncluster = Cluster(4)\n"
    "# %% code-3\ndef shown():\n    return double(1)\ncluster.run(shown)\n",
    "# %% code-4\nscale = lambda x: -1\nprint(scale(2))\n",
    '# %% code-5\ndef step(x):\n    return "the lab\'s"\nshow(step(1))\n',
)
DOUBLE = "# %% answer-double =double\ndef double(x):\n    return 2 * x\n"
TRIPLE = "# %% answer-triple =triple\ndef triple(x):\n    return 3 * x\n"
CHECK_2, CHECK_3 = "# %% check-double\ncheck(double)\n", "# %% check-triple\ncheck(triple)\n"
STUB_2 = LAB_TEXT[LAB_TEXT.index("# %% answer-double") : LAB_TEXT.index("# %% check-double")]
STUB_3 = LAB_TEXT[LAB_TEXT.index("# %% answer-triple") : LAB_TEXT.index("# %% check-triple")]


def usual(double: str, triple: str = TRIPLE, end: str = "") -> str:
    """Return a notebook with the lab's cells in order.

    `double` and `triple` hold all cells of each.
    """
    return TOP + double + CHECK_2 + MIDDLE + triple + CHECK_3 + END + end


HONEST: dict[str, str] = {
    "plain": usual(DOUBLE),
    "split in two, both with the metadata": usual("""
# %% x1 =double
def helper(x):
    return x + x
# %% x2 =double
def double(x):
    return helper(x)
""", """
# %% answer-triple =triple
FACTORS = {}
# %% y2 =triple
FACTORS["triple"] = 3
# %% y3 =triple
def triple(x):
    return FACTORS["triple"] * x
"""),
    "split with the answer above its helper": usual("""
# %% answer-double =double
def double(x):
    return helper(x)
# %% x2 =double
def helper(x):
    return x + x
"""),
    "star imports": usual("""
# %% own
from math import *
from operator import *
# %% answer-double =double
def double(x):
    return int(mul(2, floor(x)))
""", """
# %% answer-triple =triple
from operator import *
def triple(x):
    return add(x, add(x, x))
"""),
    "a star import that hides a name of the lab": """
# %% own
from statistics import *
def mul(a, b):
    return None
""" + usual("# %% answer-double =double\ndef double(x):\n    return mul(2, x)\n"),
    "timed answers": usual("""
# %% answer-double =double
%%time
def double(x):
    return 2 * x
""", """
# %% own
%%capture said
print("noise")
def thrice(x):
    return 3 * x
# %% answer-triple =triple
%%time
factor = 3

def triple(x):
    return thrice(x)
"""),
    "magics among code": usual("""
# %% own
%matplotlib inline
!pip install nothing
%load_ext autoreload
%autoreload 2
files = !ls
%time two = 1 + 1
# %% answer-double =double
def double(x):
    return two * x
double?
""", """
# %% answer-triple =triple
%config InlineBackend.figure_format = "retina"
def triple(x):
    remainder = 7 % 4
    return remainder * x
"""),
    "helpers in the check's cell": TOP + """
# %% answer-double =double
def double(x):
    return twice(x)
# %% check-double
def twice(x):
    return x + x
check(double)
""" + MIDDLE + """
# %% answer-triple =triple
def triple(x):
    return three * x
# %% check-triple
three = 3; check(triple)
""" + END,
    "answers in the checks' cells": TOP + STUB_2 + """
# %% check-double
def double(x):
    return 2 * x
check(double)
""" + MIDDLE + STUB_3 + """
# %% check-triple
def triple(x):
    return 3 * x
verdict = check(triple)
print(verdict.passed)
""",
    "the placeholder left as a comment, an older try elsewhere": usual("""
# %% own
def double(x):
    return x ** 2
# %% answer-double =double
def double(x):
    # raise NotImplementedError("your code here: about 2 lines")
    return 2 * x
""", """
# %% answer-triple =triple
def triple(x):
    return 3 * x
    raise NotImplementedError("your code here: about 2 lines")
""", "# %% old\ndef triple(x):\n    return x ** 3\n"),
    "registered by a decorator": usual("""
# %% own
WAYS = {}
def way(function):
    WAYS[function.__name__] = function
    return function
# %% own2
@way
def by_adding(x):
    return x + x
# %% answer-double =double
def double(x):
    return WAYS["by_adding"](x)
"""),
    "registered by a class": usual("""
# %% own
class Way:
    known = {}
    def __init_subclass__(cls):
        Way.known[cls.__name__] = cls()
# %% own2
class Adding(Way):
    def of(self, x):
        return x + x
# %% answer-double =double
def double(x):
    return Way.known["Adding"].of(x)
"""),
    "setattr, a call at the top, a comprehension that fills": usual("""
# %% own
class Step:
    pass
TABLE, LIST = {}, []
def fill():
    TABLE["two"] = 2
# %% own2
setattr(Step, "two", 2)
# %% own3
fill()
# %% own4
_ = [LIST.append(n) for n in range(3)]
# %% answer-double =double
def double(x):
    return (Step.two + TABLE["two"] - LIST[2]) * x
"""),
    "globals, exec and vars": usual("""
# %% own
globals()["two"] = 2
# %% own2
exec("def thrice(x):\\n    return 3 * x")
# %% answer-double =double
def double(x):
    return two * x
""", """
# %% answer-triple =triple
def triple(x):
    return thrice(x)
"""),
    "an answer that exec makes": usual("""
# %% answer-double =double
exec("def double(x):\\n    return 2 * x")
""", """
# %% answer-triple =triple
globals()["triple"] = lambda x: 3 * x
"""),
    "an early try in the answer's cell, a better one below": usual("""
# %% answer-double =double
def double(x):
    return x ** 2
# %% own
def double(x):
    return 2 * x
""", """
# %% answer-triple =triple
def triple(x):
    return 0
# %% check-triple
check(triple)
# %% own2
def triple(x):
    return 3 * x
# %% own3
check(triple)
"""),
    "an improved answer that wraps the first": usual("""
# %% answer-double =double
def double(x):
    return x
# %% own
first = double
def double(x):
    return 2 * first(x)
"""),
    "answers at the end, the cells left blank": TOP + STUB_2 + CHECK_2 + STUB_3 + CHECK_3 + """
# %% own
def double(x):
    return 2 * x
# %% own2
def triple(x):
    return 3 * x
""",
    "answers above the cells left blank": TOP + """
# %% own
def double(x):
    return 2 * x
def triple(x):
    return 3 * x
""" + STUB_2 + CHECK_2 + STUB_3 + CHECK_3,
    "a helper typed above the blank, the answer below": usual("""
# %% answer-double =double
TWO = 2
def double(x):
    raise NotImplementedError("your code here: about 2 lines")
# %% own
def double(x):
    return TWO * x
"""),
    "one name for two helpers": usual("""
# %% answer-double =double
def step(x):
    return x
def double(x):
    return step(x) + step(x)
""", """
# %% answer-triple =triple
def step(x, y):
    return x + y
def triple(x):
    return step(step(x, x), x)
"""),
    "a constant that changes on the way": usual("""
# %% own
FACTOR = 2
# %% answer-double =double
def double(x):
    return FACTOR * x
""", """
# %% own2
FACTOR += 1
# %% answer-triple =triple
def triple(x):
    return FACTOR * x
""", "# %% own3\nFACTOR = 100\n"),
    "a name of the lab's demonstrations": usual("""
# %% own
def scale(x):
    return 2 * x
def step(x):
    return 3 * x
# %% answer-double =double
def double(x):
    return scale(x)
""", """
# %% own2
def scale(x):
    return step(x)
# %% answer-triple =triple
def triple(x):
    return scale(x)
"""),
    "a helper far below, run before": usual("""
# %% answer-double =double
def double(x):
    return far(x)
""", TRIPLE, """
# %% own
def far(x):
    return near(x)
# %% own2
def near(x):
    return 2 * x
"""),
    "checks above the answers": CHECK_2 + CHECK_3 + TOP + DOUBLE + MIDDLE + TRIPLE + END,
    "upside down": END + CHECK_3 + TRIPLE + MIDDLE + CHECK_2 + DOUBLE + TOP,
    "no checks": TOP + DOUBLE + MIDDLE + TRIPLE + END,
    "checks in a loop": TOP + DOUBLE + MIDDLE + TRIPLE + """
# %% own
for f in (double, triple):
    check(f)
""",
    "checked and asserted": usual(DOUBLE, TRIPLE, """
# %% own
assert check(double).passed
assert double(2) == 4
"""),
    "no ids and no metadata, as Colab saves": re.sub(r"# %% .*", "# %%", usual(DOUBLE)),
    "both answers in one cell": TOP + DOUBLE + """
def triple(x):
    return 3 * x
""" + CHECK_2 + CHECK_3,
    "lambdas and partials": usual("""
# %% answer-double =double
from functools import partial
double = partial(mul, 2)
""", "# %% answer-triple =triple\ntriple = lambda x: 3 * x\n"),
    "a class that can be called": usual("""
# %% answer-double =double
class Times:
    def __init__(self, by):
        self.by = by
    def __call__(self, x):
        return self.by * x
double, triple = Times(2), Times(3)
""", "# %% answer-triple =triple\n# above, with double\n"),
    "imported under the name": usual("""
# %% own
from operator import mul as times
# %% answer-double =double
from operator import mul
def double(x, *, mul=times):
    return mul(2, x)
"""),
    "conditional definitions": usual("""
# %% answer-double =double
if math.pi > 3:
    def double(x):
        return 2 * x
else:
    def double(x):
        return x
""", """
# %% answer-triple =triple
try:
    from nowhere import triple
except ImportError:
    def triple(x):
        return 3 * x
"""),
    "match, walrus, with and global": usual("""
# %% own
match (2, 3):
    case (two, three):
        pass
if (zero := 0) is None:
    pass
# %% own2
from contextlib import suppress
with suppress(ValueError):
    unit = 1
def grow():
    global grown
    grown = 1
grow()
# %% answer-double =double
def double(x):
    return two * x + zero
""", """
# %% answer-triple =triple
def triple(x):
    return three * x * unit * grown
"""),
    "a written module": usual("""
# %% own
%%javascript
console.log("nothing")
# %% answer-double =double
def double(x):
    return 2 * x
"""),
    "scratch that fails": usual("""
# %% own
1 / 0
# %% own2
what is this
# %% own3
undefined(double)
""" + DOUBLE + """
# %% own4
raise SystemExit
# %% own5
assert False, "todo"
"""),
    "a helper in a cell that fails at its end": usual("""
# %% own
def helper(x):
    return 2 * x
print(helper(undefined))
# %% answer-double =double
def double(x):
    return helper(x)
double(nothing)
"""),
    "a demonstration changed, and its cluster used":
        usual(DOUBLE).replace("Cluster(4)", "Cluster(3)").replace("double(1)", "double(5)"),
    "registered in a cell of the lab": usual("""
# %% answer-double =double
def double(x):
    return WAYS["double"](x)
""").replace("cluster = Cluster(4)\n", """cluster = Cluster(4)
WAYS = {}
def way(function):
    WAYS[function.__name__.strip("_")] = function
""").replace("# %% code-3\n", """# %% code-3
@way
def _double(x):
    return 2 * x
"""),
    "a cell of the lab doubled and edited": usual("""
# %% code-4
scale = lambda x: 2 * x
# %% answer-double =double
def double(x):
    return scale(x)
"""),
    "full-width names": usual(DOUBLE.replace("def double", "def \uff44\uff4fuble")),
    "Windows lines": usual(DOUBLE).replace("\n", "\r\n"),
    "indented": usual("""
# %% answer-double =double
    def double(x):
        return 2 * x
"""),
    "awaits": usual("""
# %% own
import asyncio
async def two():
    return 2
# %% answer-double =double
def double(x):
    return asyncio.run(two()) * x
"""),
    "deleted and defined anew": usual("""
# %% own
def double(x):
    return 0
# %% own2
del double
# %% answer-double =double
def double(x):
    return 2 * x
"""),
    "a syntax error above the right answer": usual("""
# %% answer-double =double
def double(x):
    return 2 *
# %% own
def double(x):
    return 2 * x
"""),
}  # fmt: skip


def cells_of(text: str) -> tuple[SubmittedCell, ...]:
    found = []
    for part in text.replace("\r\n", "\n").strip().removeprefix("# %%").split("\n# %%"):
        head, _, source = part.partition("\n")
        words = head.split()
        exercise = next((word[1:] for word in words if word.startswith("=")), "")
        name = next((word for word in words if not word.startswith("=")), "")
        check_of = name.removeprefix("check-") if name.startswith("check-") else ""
        lines = "\r\n" if "\r\n" in text else "\n"
        found.append(
            SubmittedCell(name, exercise, check_of, source.strip("\n").replace("\n", lines))
        )
    return tuple(found)


def merged(text: str) -> Merged:
    lab = cells_of(LAB_TEXT)
    return merge(lab, NAMES, Submission(cells_of(text), ""))


class Kernel:
    """A kernel without a process: magics run their body, and errors of cells are shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []  # errors that cells raised
        self.space: dict[str, Any] = {
            "get_ipython": lambda: self, "check": check, "show": print, "Cluster": _Cluster
        }  # fmt: skip

    def run(self, source: str) -> None:
        from IPython.core.inputtransformer2 import TransformerManager

        try:
            code = TransformerManager().transform_cell(source)  # type: ignore[no-untyped-call]
            exec(compile(code, "cell", "exec"), self.space)
        except BaseException as error:
            self.shown.append(f"{type(error).__name__}: {error}")

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        if name in ("time", "capture"):
            exec(compile(body, "cell", "exec"), self.space)

    def run_line_magic(self, name: str, line: str, **_: Any) -> None:
        if name == "time":
            exec(compile(line, "cell", "exec"), self.space)

    def getoutput(self, command: str) -> list[str]:
        return [command]

    def system(self, command: str) -> None:
        pass


class _Cluster:
    def __init__(self, size: int) -> None:
        self.size = size

    def run(self, function: Any) -> None:
        raise AssertionError("a demonstration ran")


def answered(plan: Merged) -> dict[str, Any]:
    """Return the answers' results for 7 at the place of their questions, or the errors."""
    kernel = Kernel()
    gave: dict[str, Any] = {}
    for place in range(len(plan.cells) + 1):
        for name in (name for name, at in plan.asked_after.items() if at == place):
            try:
                gave[name] = kernel.space[name](7)
            except Exception as error:
                gave[name] = f"{type(error).__name__}: {error}; {kernel.shown}"
        if place < len(plan.cells):
            kernel.run(plan.cells[place].source)
    return gave
