"""A release executes changed lessons only, each in a new kernel, and writes all products or
none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddpkit import authoring as release
from ddpkit.authoring import kernel, readme
from ddpkit.errors import LessonError
from ddpkit.view.drawing.shell import RULES

TEXT = "# %% [markdown]\n# # Title\n\n"


def files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def outputs(root: Path, name: str) -> list[dict[str, Any]]:
    notebook = json.loads((root / "solutions" / "00_adding.ipynb").read_text())
    return next(cell["outputs"] for cell in notebook["cells"] if cell["id"] == name)


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the kernel by the given outputs; return a list that grows by each executed lesson."""
    executed: list[str] = []

    def execute(lesson: release.Lesson) -> release.Notebook:
        executed.append(lesson.stem)
        notebook = release.make_solution(lesson)
        for number, cell in enumerate(notebook["cells"]):
            if cell["cell_type"] == "code":
                cell["execution_count"] = number
                if name := cell["metadata"].get("ddpkit", {}).get("check"):
                    text = [f"{name}: passed, 1 of 1 case.\n"]
                    cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": text}]
        return notebook

    monkeypatch.setattr(release.pipeline, "execute", execute)
    return executed


@pytest.mark.processes
def test_a_released_repository_is_right(released: Path) -> None:
    assert release.check(released) == []
    made = {str(path.relative_to(released)) for path in files(released)}
    assert made == {
        "solutions/00_adding.py",
        "solutions/00_adding.ipynb",
        "labs/00_adding.ipynb",
        "ddpkit/answers/lab00.py",
        "ddpkit/answers/__init__.py",
    }
    assert outputs(released, "check-total")[0]["text"] == ["total: passed, 1 of 1 case.\n"]


@pytest.mark.processes
def test_an_executed_notebook_holds_no_versions_and_no_times(released: Path) -> None:
    text = (released / "solutions" / "00_adding.ipynb").read_text()
    assert '"version"' not in text
    assert "iopub" not in text


@pytest.mark.processes
def test_a_second_release_does_nothing(released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed = count_runs(monkeypatch)
    before = files(released)
    assert release.release(released) == release.Released((), ())
    assert executed == []
    assert files(released) == before


@pytest.mark.processes
def test_two_executions_make_the_same_bytes(released: Path) -> None:
    before = files(released)
    release.release(released, force=True)
    assert files(released) == before


def test_only_what_changed_is_executed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed = count_runs(monkeypatch)
    other = root / "solutions" / "01_other.py"
    other.write_text(TEXT + "# %%\na = 1\n")
    assert len(release.release(root).written) == 7
    assert executed == ["00_adding", "01_other"]
    edit(other, "a = 1", "a = 2")
    assert [str(path) for path in release.release(root).written] == [
        "labs/01_other.ipynb",
        "solutions/01_other.ipynb",
    ]
    assert executed == ["00_adding", "01_other", "01_other"]
    # a changed text needs no execution
    edit(root / "solutions" / "00_adding.py", "we will add", "we add")
    before = outputs(root, "check-total")
    assert len(release.release(root).written) == 2
    assert outputs(root, "check-total") == before != []
    assert release.check(root) == []
    assert len(executed) == 3
    release.release(root, force=True)
    assert len(executed) == 5


@pytest.mark.parametrize("name", ["01", "other", "01_other", "solutions/01_other.py"])
def test_a_lesson_can_be_named(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executed = count_runs(monkeypatch)
    (root / "solutions" / "01_other.py").write_text(TEXT)
    release.release(root, [name])
    assert executed == ["01_other"]


HEADER = "# ---\n# jupyter:\n#   ddpkit: {builds: a sum, minutes: 5, needs: nothing}\n# ---\n\n"


def test_readme_gets_a_row_for_each_lesson(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_runs(monkeypatch)
    lesson, page = root / "solutions" / "00_adding.py", root / "README.md"
    around = "# A kit\n\n" + readme.HEAD + "{}\n| no | lab |\n"
    page.write_text(around.format("| an old row |\n"))
    with pytest.raises(LessonError, match="the header lacks the facts for README's table of labs"):
        release.release(root)
    assert any("README's table of labs" in problem for problem in release.check(root))
    lesson.write_text(HEADER + lesson.read_text())
    release.release(root)
    row = "| [00 adding](labs/00_adding.ipynb) | a sum | 5 | nothing |\n"
    assert page.read_text() == around.format(row)
    assert release.check(root) == []
    edit(page, "a sum", "sums")
    (problem,) = release.check(root)
    assert problem.startswith("README.md differs from the one that the lessons make")


def test_a_readme_without_the_table_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count_runs(monkeypatch)
    (root / "README.md").write_text("# A kit\n")
    release.release(root)
    assert (root / "README.md").read_text() == "# A kit\n"


@pytest.mark.processes
def test_an_unknown_lesson(released: Path) -> None:
    with pytest.raises(LessonError, match=r"There is no lesson 09; the lessons are: 00_adding\."):
        release.release(released, ["09"])


def test_no_lessons(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match="holds no lesson"):
        release.release(tmp_path)


@pytest.mark.processes
def test_products_without_a_lesson_are_removed(released: Path) -> None:
    (released / "labs" / "09_gone.ipynb").write_text("{}")
    (released / "labs" / "Untitled.ipynb").write_text("{}")
    (released / "ddpkit" / "answers" / "lab09.py").write_text("")
    removed = release.release(released).removed
    assert [str(path) for path in removed] == ["labs/09_gone.ipynb", "ddpkit/answers/lab09.py"]
    assert (released / "labs" / "Untitled.ipynb").exists()
    assert release.check(released) == []


@pytest.mark.processes
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", r"cell code-\w+ raised ZeroDivisionError: division by zero"),
        ("import os; os._exit(3)", r"cell code-\w+ ended the kernel"),
        ("import sys; print('oh', file=sys.stderr)", r"cell code-\w+ writes to stderr: 'oh'"),
        ("print(object())", "shows the address"),
    ],
)
def test_a_failed_lesson_keeps_its_products(released: Path, code: str, message: str) -> None:
    path = released / "solutions" / "00_adding.py"
    edit(path, "print(total([1, 2, 3]))", code)
    before = files(released)
    with pytest.raises(LessonError, match=message) as caught:
        release.release(released)
    assert str(caught.value).startswith("solutions/00_adding.py")
    assert files(released) == before


@pytest.mark.processes
def test_a_cell_that_takes_too_long(lesson: release.Lesson, released: Path) -> None:
    path = released / "solutions" / "00_adding.py"
    edit(path, "print(total([1, 2, 3]))", "import time; time.sleep(60)")
    with pytest.raises(LessonError, match=r"cell code-\w+ took longer than 1 s"):
        release.execute(release.parse(path), cell_limit_s=1)


def test_a_failed_lesson_does_not_stop_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_runs(monkeypatch)
    path = root / "solutions" / "00_adding.py"
    edit(path, "START = 0", "START = NOWHERE")
    (root / "solutions" / "01_other.py").write_text(TEXT)
    with pytest.raises(LessonError, match="uses NOWHERE"):
        release.release(root)
    assert (root / "labs" / "01_other.ipynb").exists()
    assert not (root / "labs" / "00_adding.ipynb").exists()


@pytest.mark.processes
def test_a_malformed_lesson_stops_the_release(released: Path) -> None:
    (released / "solutions" / "01_bad.py").write_text(TEXT + "# %%\n(\n")
    before = files(released)
    with pytest.raises(LessonError, match=r"solutions/01_bad.py:5: "):
        release.release(released)
    assert files(released) == before


@pytest.mark.processes
def test_a_lab_that_would_leak_is_not_released(released: Path) -> None:
    path = released / "solutions" / "00_adding.py"
    edit(path, "In this notebook we will add.", "~~~\n#     running = running + value\n# ~~~")
    with pytest.raises(LessonError, match="would show an answer, in cell md-"):
        release.release(released)


@pytest.mark.processes
def test_a_lesson_runs_outside_the_repository(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPKIT_SEED", "7")
    monkeypatch.setenv("DDPKIT_PROGRESS", str(root / "progress.json"))
    code = (
        "import os, pathlib\n"
        "pathlib.Path('left').write_text('here')\n"
        "pathlib.Path(os.environ['DDPKIT_PROGRESS']).write_text('{}')\n"
        "print('DDPKIT_SEED' in os.environ)"
    )
    path = root / "solutions" / "00_adding.py"
    edit(path, "print(total([1, 2, 3]))", code)
    notebook = release.execute(release.parse(path))
    assert notebook["cells"][-1]["outputs"][0]["text"] == ["False\n"]
    assert set(files(root)) == {path}


@pytest.mark.processes
def test_a_lesson_runs_with_the_ddpkit_of_its_repository(root: Path) -> None:
    package = root / "ddpkit"
    package.mkdir()
    (package / "__init__.py").write_text("HERE = 'this clone'\n")
    path = root / "solutions" / "00_adding.py"
    edit(path, "print(total([1, 2, 3]))", "import ddpkit; print(ddpkit.HERE)")
    notebook = release.execute(release.parse(path))
    assert notebook["cells"][-1]["outputs"][0]["text"] == ["this clone\n"]


def test_streams_are_joined_and_widgets_left_out() -> None:
    def stream(name: str, text: str) -> dict[str, Any]:
        return {"output_type": "stream", "name": name, "text": text}

    picture = {"output_type": "display_data", "data": {"image/png": "aaaa"}, "metadata": {}}
    widget = {"output_type": "display_data", "data": {kernel._WIDGET: {}}, "metadata": {}}
    rules = {"output_type": "display_data", "data": {"text/html": RULES}, "metadata": {}}
    given = [stream("stdout", "a\nb"), stream("stdout", "c\n"), picture, rules, widget]
    given += [stream("stdout", "d"), stream("stderr", "e")]
    assert kernel.tidy(given) == [
        stream("stdout", "") | {"text": ["a\n", "bc\n"]},
        picture,
        stream("stdout", "d"),
        stream("stderr", "e"),
    ]
