"""`release --check` finds each stale or wrong product, and describes it in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddpkit import authoring as release

pytestmark = pytest.mark.processes

SECRET = "        running = running + value"
LAB, SOLUTION = "labs/00_adding.ipynb", "solutions/00_adding.ipynb"
Notebook = dict[str, Any]


def change(path: Path, how: Callable[[Notebook], object]) -> None:
    """Edit a notebook file like a person: through its JSON."""
    notebook = json.loads(path.read_text())
    how(notebook)
    path.write_text(release.to_text(notebook))


def cell(notebook: Notebook, name: str) -> Notebook:
    return next(cell for cell in notebook["cells"] if cell["id"] == name)


def text_output(text: str, name: str = "stdout") -> Notebook:
    return {"output_type": "stream", "name": name, "text": [text]}


def data_output(kind: str, text: str) -> Notebook:
    return {"output_type": "display_data", "data": {kind: text}, "metadata": {}}


def one_problem(root: Path, *parts: str) -> None:
    """Assert that one problem has all `parts` in its sentence, and that each names `make
    release`."""
    problems = release.check(root)
    assert any(all(part in problem for part in parts) for problem in problems), problems
    assert all("`make release`" in problem for problem in problems)


LAB_EDITS: dict[str, tuple[Callable[[Notebook], object], str]] = {
    "source": (lambda nb: cell(nb, "check-total").update(source=["1"]), "cell check-total"),
    "id": (lambda nb: cell(nb, "check-total").update(id="mine"), "cell mine"),
    "metadata": (lambda nb: cell(nb, "answer-total").update(metadata={}), "in its metadata"),
    "removed": (lambda nb: nb["cells"].pop(), "is missing"),
    "added": (lambda nb: nb["cells"].append(nb["cells"][0] | {"id": "new"}), "cell new"),
    "moved": (lambda nb: nb["cells"].reverse(), "not in its place"),
    "kernel": (lambda nb: nb["metadata"].update(kernelspec={}), "metadata of the notebook"),
    "output": (lambda nb: cell(nb, "check-total").update(outputs=[text_output("x")]), "blank"),
    "executed": (lambda nb: cell(nb, "check-total").update(execution_count=1), "blank"),
}


@pytest.mark.parametrize("name", LAB_EDITS)
def test_a_stale_lab(released: Path, name: str) -> None:
    how, said = LAB_EDITS[name]
    change(released / LAB, how)
    one_problem(released, LAB, said)


def test_a_lab_with_another_layout(released: Path) -> None:
    path = released / LAB
    path.write_text(json.dumps(json.loads(path.read_text())))
    one_problem(released, LAB, "layout")


SOLUTION_EDITS: dict[str, tuple[Callable[[Notebook], object], str]] = {
    "source": (lambda nb: cell(nb, "answer-total").update(source="1"), "cell answer-total differs"),
    "id": (lambda nb: cell(nb, "check-total").update(id="mine"), "cell mine"),
    "metadata": (lambda nb: cell(nb, "check-total").update(metadata={}), "in its metadata"),
    "not executed": (
        lambda nb: cell(nb, "answer-total").update(execution_count=None),
        "cell answer-total has not been executed",
    ),
    "error": (
        lambda nb: cell(nb, "answer-total").update(
            outputs=[{"output_type": "error", "ename": "E", "evalue": "v", "traceback": []}]
        ),
        "cell answer-total ends in E: v",
    ),
    "no verdict": (
        lambda nb: cell(nb, "check-total").update(outputs=[]),
        "does not say that total passes",
    ),
    "another verdict": (
        lambda nb: cell(nb, "check-total").update(outputs=[text_output("total: not yet.\n")]),
        "does not say that total passes",
    ),
    "stderr": (
        lambda nb: cell(nb, "check-total")["outputs"].append(text_output("Warning", "stderr")),
        "cell check-total writes to stderr: 'Warning'",
    ),
}


@pytest.mark.parametrize("name", SOLUTION_EDITS)
def test_a_stale_solution(released: Path, name: str) -> None:
    how, said = SOLUTION_EDITS[name]
    change(released / SOLUTION, how)
    one_problem(released, SOLUTION, said)


MACHINE = {
    "address": ("<object at 0x7f3a12bc9d10>", "shows the address 0x7f3a12bc9d10"),
    "home": ("in /home/ann/course", "path of this machine, /home/ann/course"),
    "mac": ("in /Users/ann/course", "path of this machine"),
    "root": ("\x1b[32m/root/x.py\x1b[0m", "path of this machine, /root"),
    "temporary": ('File "/tmp/ipykernel_7/1.py"', "path of this machine, /tmp/ipykernel_7"),
    "windows": ("C:\\Users\\ann", "path of this machine, C:\\Users"),
}


@pytest.mark.parametrize("name", MACHINE)
@pytest.mark.parametrize("kind", ["stream", "text/html", "image/svg+xml"])
def test_outputs_of_one_machine(released: Path, name: str, kind: str) -> None:
    text, said = MACHINE[name]
    output = text_output(text) if kind == "stream" else data_output(kind, text)
    change(released / SOLUTION, lambda nb: nb["cells"][-1]["outputs"].append(output))
    one_problem(released, SOLUTION, said)


def test_the_repository_and_the_home_directory(
    released: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/elsewhere/ann")
    path = released / SOLUTION
    original = path.read_text()
    for folder in ("/elsewhere/ann", str(released.resolve())):
        path.write_text(original)
        output = text_output(f"see {folder}/x")
        change(path, lambda nb, output=output: nb["cells"][-1]["outputs"].append(output))
        one_problem(released, f"path of this machine, {folder}")


@pytest.mark.parametrize(
    "output",
    [
        data_output("image/png", "/tmp/aaaa/0x7f3a12bc9d10"),
        text_output("2/3 of https://example.org/home/x; a/tmp/b; bytes 0x1f; either/or; /dev/shm"),
    ],
)
def test_outputs_that_are_harmless(released: Path, output: Notebook) -> None:
    change(released / SOLUTION, lambda nb: nb["cells"][-1]["outputs"].append(output))
    assert release.check(released) == []


LEAKS: dict[str, tuple[Callable[[Notebook], object], str]] = {
    "source": (
        lambda nb: cell(nb, "answer-total").update(source=["def total(values):\n", SECRET]),
        "cell answer-total, in its source",
    ),
    "text": (
        lambda nb: nb["cells"][0]["source"].append(f"\n`{SECRET.strip()}`"),
        "in its source",
    ),
    "metadata": (
        lambda nb: cell(nb, "check-total")["metadata"].update(hint=[{"why": SECRET}]),
        "cell check-total, in its metadata",
    ),
    "key": (
        lambda nb: cell(nb, "check-total")["metadata"].update({SECRET: 1}),
        "cell check-total, in its metadata",
    ),
    "output": (
        lambda nb: cell(nb, "check-total").update(outputs=[text_output(SECRET.expandtabs())]),
        "cell check-total, in its outputs",
    ),
    "attachment": (
        lambda nb: nb["cells"][0].update(attachments={"a.txt": {"text/plain": SECRET}}),
        "in its attachments",
    ),
    "notebook": (lambda nb: nb["metadata"].update(note=SECRET), "the metadata of the notebook"),
    "without its comment": (
        lambda nb: cell(nb, "check-Adder").update(source="running  =  START"),
        "`running = START`",
    ),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_leak(released: Path, name: str) -> None:
    how, said = LEAKS[name]
    change(released / LAB, how)
    one_problem(released, LAB, "shows a line of the answer", said)


def test_what_the_lesson_shows_anyway_is_no_leak(root: Path) -> None:
    path = root / "solutions" / "00_adding.py"
    text = path.read_text()
    shown = text.replace("import asyncio\n", f"import asyncio\n{SECRET.strip().join(['# ', ''])}\n")
    mentioned = text.replace("will add.", f"write `{SECRET.strip()}` often.")
    quoted = text.replace("will add.", f"write\n# ~~~\n# {SECRET}\n# ~~~")
    for changed, leaks in ((text, 0), (shown, 0), (mentioned, 0), (quoted, 1)):
        path.write_text(changed)
        lab = release.make_lab(release.parse(path))
        (root / "labs").mkdir(exist_ok=True)
        (root / LAB).write_text(release.to_text(lab))
        assert (
            sum("shows a line of the answer" in problem for problem in release.check(root)) == leaks
        )


@pytest.mark.parametrize(
    "name", [LAB, SOLUTION, "ddpkit/answers/lab00.py", "ddpkit/answers/__init__.py"]
)
def test_a_missing_product(released: Path, name: str) -> None:
    (released / name).unlink()
    (problem,) = release.check(released)
    assert problem.startswith(f"{name} is missing")
    assert "`make release`" in problem


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 1}', '{"cells": [1]}'])
@pytest.mark.parametrize("name", [LAB, SOLUTION])
def test_a_broken_notebook(released: Path, name: str, text: str) -> None:
    (released / name).write_text(text)
    assert len(release.check(released)) == 1
    one_problem(released, name)


@pytest.mark.parametrize("name", ["lab00.py", "__init__.py"])
def test_stale_answers(released: Path, name: str) -> None:
    path = released / "ddpkit" / "answers" / name
    path.write_text(path.read_text() + "more = 1\n")
    one_problem(released, f"answers/{name}", "(its end)")
    path.write_text("# " + path.read_text())
    one_problem(released, f"answers/{name}", "(line 1)")


def test_a_changed_lesson_makes_all_its_products_stale(released: Path) -> None:
    path = released / "solutions" / "00_adding.py"
    path.write_text(path.read_text().replace("START = 0", "START = 1"))
    one_problem(released, LAB)
    one_problem(released, SOLUTION)
    one_problem(released, "answers/lab00.py")


def test_products_without_a_lesson(released: Path) -> None:
    for name in ("labs/09_gone.ipynb", "solutions/09_gone.ipynb", "ddpkit/answers/lab09.py"):
        (released / name).write_text("{}")
        one_problem(released, f"{name} has no lesson")


def test_names_that_two_lessons_have(released: Path, lesson_text: str) -> None:
    (released / "solutions" / "00_other.py").write_text(lesson_text)
    one_problem(released, "solutions/00_other.py: number 00 is also in solutions/00_adding.py")
    one_problem(released, "exercise total is also in")


def test_a_malformed_lesson_does_not_hide_the_others(released: Path) -> None:
    (released / "solutions" / "01_bad.py").write_text("# %%\n(\n")
    (released / LAB).unlink()
    bad, lab = release.check(released)
    assert bad.startswith("solutions/01_bad.py:2: the lesson is not valid Python")
    assert LAB in lab


def test_no_lessons(tmp_path: Path) -> None:
    assert release.check(tmp_path)[0] == "solutions/ holds no lesson, NN_name.py."


TOO_LONG = {
    "text": ("In this notebook we will add.", "word " * 79 + "ends", "82 words of text"),
    "code": ("print(total([1, 2, 3]))", "a = 1\n" * 16, "16 lines of code"),
    "first": ("import torch.nn as nn, functools", "import os\nimport sys", "3 lines, as the"),
    "program": (
        "In this notebook we will add.",
        "```python\n# " + "a = 1\n# " * 21 + "```",
        "21 lines of code in its text",
    ),
    "answer": ("    return running\n", "    values = 1\n" * 24, "27 lines of answer"),
}


def test_a_program_in_a_text_has_no_words(root: Path) -> None:
    path = root / "solutions" / "00_adding.py"
    block = "```python\n# " + "a = b + c + d + e + f\n# " * 20 + "```"
    path.write_text(path.read_text().replace("In this notebook we will add.", block))
    assert not any("at most" in problem for problem in release.check(root))


@pytest.mark.parametrize("name", TOO_LONG)
def test_cells_that_are_too_long(root: Path, name: str) -> None:
    old, new, said = TOO_LONG[name]
    path = root / "solutions" / "00_adding.py"
    text = path.read_text()
    assert old in text
    assert not any("at most" in problem for problem in release.check(root))
    path.write_text(text.replace(old, new))
    (problem,) = (problem for problem in release.check(root) if "at most" in problem)
    assert problem.startswith("solutions/00_adding.py:")
    assert said in problem
