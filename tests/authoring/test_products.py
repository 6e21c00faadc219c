"""The products of a lesson: the lab, the solution, the answers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from ddpkit.authoring import (
    Lesson,
    make_answers,
    make_index,
    make_lab,
    make_solution,
    parse,
    to_text,
)
from ddpkit.errors import LessonError

OPENING = "# %% [markdown]\n# # Title\n\n"


def cell(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    return next(cell for cell in notebook["cells"] if cell["id"] == name)


def source(notebook: dict[str, Any], name: str) -> str:
    return "".join(cell(notebook, name)["source"])


def exercise(folder: Path, code: str, name: str = "f", before: str = "") -> Lesson:
    """Return a lesson with one exercise."""
    path = folder / "03_case.py"
    path.write_text(
        f'{OPENING}{before}# %% exercise="{name}"\n{code}\n\n# %% check="{name}"\ncheck({name})\n'
    )
    return parse(path)


def test_a_lab_says_how_long_the_answer_is(lesson: Lesson) -> None:
    assert source(make_lab(lesson), "answer-total") == (
        "def total(values):\n"
        '    """The sum of values."""\n'
        '    raise NotImplementedError("your code here: about 4 lines")'
    )


def test_methods_and_nested_functions_keep_their_indentation(lesson: Lesson) -> None:
    assert source(make_lab(lesson), "answer-Adder") == (
        "class Adder(nn.Module if False else object):\n"
        "    def __init__(self, first):\n"
        '        raise NotImplementedError("your code here: about 1 line")\n'
        "\n"
        "    async def add(self, value):\n"
        '        """Adds, and waits."""\n'
        "\n"
        "        def factor():\n"
        '            raise NotImplementedError("your code here: about 1 line")\n'
        "\n"
        "        self.values_so_far.append(value * factor())"
    )


def test_an_async_answer(tmp_path: Path) -> None:
    code = "async def f():\n    # BEGIN SOLUTION\n    return await g()\n    # END SOLUTION"
    lab = make_lab(exercise(tmp_path, code))
    assert source(lab, "answer-f").startswith("async def f():\n    raise NotImplementedError(")


def test_a_lab_is_not_executed_and_a_solution_has_no_markers(lesson: Lesson) -> None:
    lab, solution = make_lab(lesson), make_solution(lesson)
    for made in (lab, solution):
        for each in made["cells"]:
            if each["cell_type"] == "code":
                assert each["outputs"] == []
                assert each["execution_count"] is None
    assert "SOLUTION" not in to_text(solution)
    assert "running = running + value" in source(solution, "answer-total")


def test_lab_and_solution_differ_in_the_exercises_alone(lesson: Lesson) -> None:
    pairs = zip(make_lab(lesson)["cells"], make_solution(lesson)["cells"], strict=True)
    differing = [lab["id"] for lab, solution in pairs if lab != solution]
    assert differing == ["answer-total", "answer-Adder"]


def test_cells_say_what_they_are(lesson: Lesson) -> None:
    lab = make_lab(lesson)
    assert cell(lab, "answer-total")["metadata"] == {
        "ddpkit": {"exercise": "total"},
        "tags": ["exercise"],
    }
    assert cell(lab, "check-total")["metadata"] == {
        "ddpkit": {"check": "total"},
        "tags": ["nbval-check-output"],
    }
    assert lab["metadata"]["language_info"] == {"name": "python"}


def test_notebooks_are_valid_and_laid_out_as_nbformat_does(lesson: Lesson) -> None:
    for made in (make_lab(lesson), make_solution(lesson)):
        nbformat.validate(nbformat.from_dict(made))
        node = nbformat.reads(to_text(made), as_version=4)
        assert nbformat.writes(node) + "\n" == to_text(made)


def test_answers_have_what_they_use(lesson: Lesson) -> None:
    text = make_answers(lesson)
    assert "from math import gcd, prod\n" in text
    assert "import torch.nn as nn" in text
    assert "START = 0" in text
    for unused in ("functools", "asyncio", "SOLUTION", "check(", "print("):
        assert unused not in text
    assert "solutions/00_adding.py" in text
    assert text.startswith("# mypy: ignore-errors\n")


def test_answers_work(lesson: Lesson, tmp_path: Path) -> None:
    path = tmp_path / "lab00.py"
    path.write_text(make_answers(lesson))
    spec = importlib.util.spec_from_file_location("lab00", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.total([1, 2, 3]) == 6
    assert module.Adder(1).values_so_far == [1]


def test_answers_take_carried_names_from_the_kit(tmp_path: Path) -> None:
    code = "def f(x):\n    # BEGIN SOLUTION\n    return all_reduce(x)\n    # END SOLUTION"
    before = '# %%\nall_reduce = carry("ring_all_reduce")\nother = carry("other")\n\n'
    text = make_answers(exercise(tmp_path, code, before=before))
    assert 'from ddpkit.answers import get\n\nall_reduce = get("ring_all_reduce")\n' in text
    assert "other" not in text


def test_an_answer_that_uses_what_the_answers_lack(tmp_path: Path) -> None:
    code = "def f():\n    # BEGIN SOLUTION\n    return SIZE\n    # END SOLUTION"
    lesson = exercise(tmp_path, code, before="# %%\nSIZE = 4\n\n")
    with pytest.raises(LessonError, match=r'an answer uses SIZE.*tags=\["answers"\]'):
        make_answers(lesson)


def test_an_argument_hides_an_import(tmp_path: Path) -> None:
    code = "def f(os):\n    # BEGIN SOLUTION\n    return os.name\n    # END SOLUTION"
    assert "import os" not in make_answers(exercise(tmp_path, code, before="# %%\nimport os\n\n"))


def test_the_index_imports_lazily(
    lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "kit_answers"
    package.mkdir()
    (package / "__init__.py").write_text(make_index([lesson]))
    (package / "lab00.py").write_text(make_answers(lesson))
    monkeypatch.syspath_prepend(tmp_path)
    kit = importlib.import_module("kit_answers")
    assert kit.LABS == {"Adder": "lab00", "total": "lab00"}
    assert "kit_answers.lab00" not in sys.modules
    assert kit.get("total")([2, 3]) == 5
    with pytest.raises(KeyError):
        kit.get("nothing")


def test_the_index_of_no_lesson() -> None:
    assert "LABS: dict[str, str] = {}\n" in make_index([])


def test_two_runs_make_the_same_bytes(lesson: Lesson) -> None:
    again = parse(lesson.path)
    for make in (make_lab, make_solution):
        assert to_text(make(lesson)) == to_text(make(again))
    assert make_answers(lesson) == make_answers(again)
    assert make_index([lesson]) == make_index([again])
