"""The lines that name uses of machinery in a submission; they never change points."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ddpkit.exercises import exercises
from ddpkit.grade.look import MOST, looks, used_in
from ddpkit.grade.merge import Merged, PlannedCell, merge
from ddpkit.grade.report import report
from ddpkit.grade.store import Result, load, save
from ddpkit.grade.submission import Submission, _cell, read
from tests.grade.honest import HONEST, merged
from tests.grade.mutated import of_other_makes

ROOT = Path(__file__).parents[2]
LABS = sorted({one.lab for one in exercises().values()})
GIVEN = """
import torch, torch.distributed as dist
from ddpkit import check, carry
from ddpkit.simulate import held, schedule
import zlib
"""


def seen(answer: str, *helpers: str) -> list[str]:
    cells = [PlannedCell(GIVEN, "given")]
    cells += [PlannedCell(helper, "helper") for helper in helpers]
    return looks(Merged([*cells, PlannedCell(answer, "ring", ("ring",))]))


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import ddpkit.grade.asking as a\na._put = 1", "machinery of the kit (ddpkit.grade"),
        ("from ddpkit.rank.record.recorder import current", "machinery of the kit (ddpkit.rank"),
        ("from ddpkit import answers", "machinery of the kit (ddpkit.answers)"),
        ("def ring(x): return schedule('ring').of(0)", "the kit's simulator (ddpkit.simulate."),
        ("import sys\nsys._getframe(1).f_locals", "frames (sys._getframe"),
        ("import inspect as i\ni.currentframe()", "frames (inspect.currentframe)"),
        ("import gc\ngc.get_objects()", "frames (gc"),
        ("def f(e): return e.tb_frame", "frames (tb_frame)"),
        ("from ctypes import CDLL", "memory (ctypes.CDLL)"),
        ("exec(text)", "encoded code (exec)"),
        ("import base64\nbase64.b64decode(b'eA==')", "encoded code (base64"),
        ("open('/proc/self/fd/3')", "/proc"),
        ("import os\nos.environ['DDPKIT_RECORD']", "machinery of the kit"),
        ("dist.ProcessGroupGloo(s, 0, 2)", "another way between ranks (torch.distributed.Proc"),
        (
            "from torch.distributed.distributed_c10d import _get_default_store",
            "another way between",
        ),
        ("import socket", "another way between ranks (socket)"),
        ("torch.equal = lambda a, b: True", "torch.equal is replaced"),
        ("get_ipython().display_pub.publish({})", "machinery of the kit (get_ipython"),
        ("%time exec(text)", "encoded code (exec)"),
        ("zlib.decompress(x)", "encoded code (zlib.decompress)"),
        ("z = zlib", "encoded code (zlib)"),
        ("def f(s=schedule): return s", "the kit's simulator (ddpkit.simulate.schedule)"),
        (
            "def f():\n  [0 for held in x]\n  return held(y)",
            "the kit's simulator (ddpkit.simulate.held",
        ),
        (
            "def f():\n  class A: held = 1\n  return held(y)",
            "the kit's simulator (ddpkit.simulate.held",
        ),
        (
            "def f():\n  def g(held): 0\n  return held(y)",
            "the kit's simulator (ddpkit.simulate.held",
        ),
        ("def f():\n  from ddpkit.simulate import held\n  held = held", "the kit's simulator"),
        ("def f(g=lambda held: 0): return held(y)", "the kit's simulator (ddpkit.simulate.held"),
        (
            "def f(held):\n  def g():\n    global held\n    return held(y)\n  return g",
            "the kit's simulator (ddpkit.simulate.held",
        ),
        ("def f(dist):\n  torch.equal = dist", "torch.equal is replaced"),
        # names made at run time
        ("import sys\ngetattr(sys, '_get' + 'frame')", "names made at run time (getattr)"),
        ("import sys\ngetattr(sys, '_getframe')", "frames (sys._getframe)"),
        ("import builtins\nvars(builtins)['ex' + 'ec']", "names made at run time (vars)"),
        ("globals()['__buil' + 'tins__']", "names made at run time (globals)"),
        ("x.__dict__['a']", "names made at run time (__dict__)"),
        ("object.__getattribute__(x, name)", "names made at run time (__getattribute__)"),
        ("from operator import attrgetter as a\na(name)(x)", "names made at run time (operator.a"),
        ("import operator\noperator.attrgetter('f_back.f_locals')", "frames (f_back)"),
        ("import operator\noperator.methodcaller('_get' + 'frame')(x)", "names made at run time"),
        ("g = getattr\ng(x, 'a')", "names made at run time (getattr)"),
        ("list(map(getattr, xs, names))", "names made at run time (getattr)"),
        ("setattr(torch, name, f)", "names made at run time (setattr)"),
        ("match f:\n  case object(__globals__=g): pass", "frames (__globals__)"),
        ("'{0.__globals__}'.format(f)", "frames (__globals__)"),
        ("import sys\ns = sys\ns._getframe(1)", "frames (_getframe)"),
        ("import sys\ns = sys\ns.modules", "frames (sys.modules)"),
        ("def f():\n  import sys\n  s = sys\n  return s.modules", "frames (sys.modules)"),
        ("if (d := torch.distributed).TCPStore: pass", "another way between ranks"),
        # files, processes, dispatch modes
        ("torch.save(x, path)", "files (torch.save)"),
        ("t = torch\nt.load(path)", "files (torch.load)"),
        ("import numpy as np\nnp.load(path)", "files (numpy.load)"),
        ("x.numpy().tofile(path)", "files (tofile)"),
        ("from pathlib import Path\nPath('x').write_bytes(b'')", "files (pathlib.Path)"),
        ("import os\nos.makedirs('x')", "files (os.makedirs)"),
        ("import os\nos.fork()", "files (os"),
        ("import signal", "processes (signal)"),
        (
            "from torch.utils._python_dispatch import _disable_current_modes",
            "dispatch modes (torch.utils._python_dispatch",
        ),
        ("torch.utils._python_dispatch._disable_current_modes()", "dispatch modes"),
        ("m._disable_current_modes()", "dispatch modes (_disable_current_modes)"),
        # doors without a row until issue 39
        ("from unittest import mock\nmock.patch('torch.equal', f).start()", "torch.equal is"),
        ("from unittest import mock\nmock.patch.object(torch, 'equal', f)", "torch.equal is"),
        ("setattr(torch, 'equal', f)", "torch.equal is replaced"),
        ("type.__setattr__(torch, 'equal', f)", "torch.equal is replaced"),
        ("import traceback\nnext(traceback.walk_stack(None))", "frames (traceback.walk_stack)"),
        ("import inspect\ninspect.getmembers(x)", "frames (inspect.getmembers)"),
        ("import sys\nsys.meta_path.insert(0, x)", "frames (sys.meta_path"),
        ("print.__self__.exec(text)", "frames (__self__)"),
        ("breakpoint()", "frames (breakpoint)"),
        ("'{0.f_back}'.format(frame)", "frames (f_back)"),
        ("from torch.utils.cpp_extension import load_inline", "memory (torch.utils.cpp_extension"),
        ("class A:\n  __array_interface__ = {'data': (1, True)}", "memory (__array_interface__)"),
        ("class A(torch.Tensor):\n  def __torch_function__(*a): 0", "dispatch modes"),
        ("import _io\n_io.open('x')", "files (_io"),
        ("import _posixsubprocess", "processes (_posixsubprocess)"),
        ("import torch.distributed.rpc as rpc\nrpc.init_rpc('a')", "another way between ranks"),
        ("dist.group.WORLD._get_backend(d)", "another way between ranks"),
        ("import IPython\nIPython.get_ipython()", "machinery of the kit (IPython.get_ipython"),
        ("x = 1\n%run other.py", "processes (%run)"),
        ("%%bash\nls", "processes (%%bash)"),
    ],
)
def test_machinery_is_named(code: str, what: str) -> None:
    assert any(what in line for line in seen(code)), seen(code)


@pytest.mark.parametrize(
    "code",
    [
        "dist.send(x, 1)\nmodel.eval()\nx.data += 1",
        "from ddpkit.exercises import check\nfrom functools import partial\nimport math",
        "reduce = carry('reduce')\ntorch.compile(f)",
        "this is no Python (",
        "zlib.crc32(bytes(x))",
        "def f(x):\n  held = {}\n  held[0] = x\n  def g(): return held.pop(0)\n  return g",
        "def f(held): return [held(x) for x in held]",
        "f = lambda held: held.pop(0)",
        "x = '\\x00'",
        "signal = [1]; glob = 3; code = {}\nprint(signal[0] + glob, code.get(1))",
        "getattr(x, 'grad', None); setattr(x, 'grad', None); hasattr(x, 'weight')",
        "from operator import attrgetter, itemgetter\nsorted(x, key=attrgetter('grad'))",
        "from unittest import mock\nwith mock.patch.object(model, 'sync', False): pass",
        "class A:\n  def __init__(self): object.__setattr__(self, 'x', 1)",
        "'{x.shape} {y.grad!r:>9}'.format(x=x, y=y)\nif x != 3: pass",
        "model.load_state_dict(other.state_dict())\noptimizer.state[p]['step'] += 1",
        "import time, random, itertools, collections, contextlib, dataclasses, typing, copy",
        "def f():\n  'Open the file and save it, by signal.'\n  return 1",
        "",
    ],
)
def test_plain_work_is_not(code: str) -> None:
    assert seen(code) == []


def test_the_cell_and_its_line_are_named_once() -> None:
    assert seen("x = 1\nexec(x); exec(x)", "import ctypes") == [
        "a cell of the student's own, line 1: memory (ctypes)",
        "ring, line 2: encoded code (exec)",
    ]
    many = seen("\n".join("exec(x)" for _ in range(99)))
    assert len(many) == MOST + 1
    assert many[-1] == f"and {99 - MOST} more"


def test_what_the_lab_gives_is_not_the_students() -> None:
    assert looks(Merged([PlannedCell("exec(text)", "given")])) == []


@pytest.mark.parametrize("lab", LABS)
def test_right_answers_give_no_reason(lab: str) -> None:
    """Answers of the course and right answers of the tests use only the lab's usual names."""
    (given,) = (ROOT / "labs").glob(f"{lab}_*.ipynb")
    (solved,) = (ROOT / "solutions").glob(f"{lab}_*.ipynb")
    names = [one.name for one in exercises().values() if one.lab == lab]
    cells = read(given).cells
    usual = used_in(merge(cells, names, read(solved)))
    assert len(usual) < 12
    assert looks(merge(cells, names, read(solved)), usual) == []
    for notebook in of_other_makes(lab):
        submitted = Submission(tuple(map(_cell, _code(notebook))), "")
        found = looks(merge(cells, names, submitted), usual)
        # the tests' own helpers
        assert [line for line in found if "ddpkit.answers" not in line] == []


def _code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


PLAIN = [  # `exec` and IPython are machinery
    name
    for name, text in HONEST.items()
    if not re.search(r"exec|get_ipython|globals|eval|(?<!# )%%", text)  # "# %%" begins a cell
]
assert PLAIN


@pytest.mark.parametrize("name", PLAIN)
def test_honest_notebooks_of_unusual_form_give_no_reason(name: str) -> None:
    assert looks(merged(HONEST[name])) == []


def test_every_report_for_a_teacher_has_the_column(tmp_path: Path) -> None:
    result = Result("amy/<b>.ipynb", "k", "graded", "03", look=("ring, line 2: =exec(\ud800)",))
    save(tmp_path, result)
    assert load(tmp_path) == [result]
    (row,) = csv.DictReader(io.StringIO(report([result], "csv")))
    assert row["look"].startswith("ring, line 2: ")
    assert json.loads(report([result], "json"))[0]["look"] == list(result.look)
    assert "<td>ring, line 2: =exec(" in report([result], "html")
