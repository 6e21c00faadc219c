"""The lines that say where a submission reaches for machinery: never points."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from ddpkit.grade.look import MOST, looks
from ddpkit.grade.merge import Merged, PlannedCell
from ddpkit.grade.report import report
from ddpkit.grade.store import Result, load, save

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("path", sorted((ROOT / "solutions").glob("*.ipynb")), ids=str)
def test_the_courses_answers_give_no_reason(path: Path) -> None:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    of = [(cell, cell["metadata"].get("ddpkit", {}).get("exercise", "")) for cell in cells]
    code = [("".join(cell["source"]), name) for cell, name in of if cell["cell_type"] == "code"]
    plan = [PlannedCell(text, name or "given", (name,) * bool(name)) for text, name in code]
    assert looks(Merged(plan)) == []


def test_every_report_for_a_teacher_has_the_column(tmp_path: Path) -> None:
    result = Result("amy/<b>.ipynb", "k", "graded", "03", look=("ring, line 2: =exec(\ud800)",))
    save(tmp_path, result)
    assert load(tmp_path) == [result]
    (row,) = csv.DictReader(io.StringIO(report([result], "csv")))
    assert row["look"].startswith("ring, line 2: ")
    assert json.loads(report([result], "json"))[0]["look"] == list(result.look)
    assert "<td>ring, line 2: =exec(" in report([result], "html")
