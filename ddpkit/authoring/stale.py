"""Problems of a lesson's products: a sentence for each problem, with the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddpkit.authoring.answers import make_answers
from ddpkit.authoring.leaks import leaks
from ddpkit.authoring.lesson import Lesson, label
from ddpkit.authoring.notebook import Notebook, difference, load, make_lab, make_solution, to_text
from ddpkit.authoring.outputs import output_problems
from ddpkit.errors import LessonError

MEND = "run `make release`."


def lab_path(root: Path, lesson: Lesson) -> Path:
    """Return the path labs/NN_name.ipynb of a lesson."""
    return root / "labs" / f"{lesson.stem}.ipynb"


def solution_path(root: Path, lesson: Lesson) -> Path:
    """Return the path solutions/NN_name.ipynb of a lesson."""
    return root / "solutions" / f"{lesson.stem}.ipynb"


def answers_path(root: Path, lesson: Lesson) -> Path:
    """Return the path ddpkit/answers/labNN.py of a lesson."""
    return root / "ddpkit" / "answers" / f"lab{lesson.number}.py"


def lab_problems(root: Path, lesson: Lesson) -> Iterator[str]:
    """Yield the problems of a lab: a difference from the lesson, an executed cell, or a leak."""
    path, expected = lab_path(root, lesson), make_lab(lesson)
    try:
        lab = load(path)
    except LessonError as error:
        yield f"{error} To mend it, {MEND}"
        return
    if path.read_bytes() != to_text(expected).encode():
        what = difference(lab, expected) or "its outputs or its layout differ"
        yield f"{label(path)} differs from the file that {lesson.label} makes ({what}): {MEND}"
    for cell in lab["cells"]:
        if cell.get("outputs") or cell.get("execution_count") is not None:
            yield f"{label(path)}: cell {cell.get('id')} was executed; a lab must be blank: {MEND}"
    for leak in leaks(lesson, lab):
        yield f"{label(path)} shows a line of the answer, in {leak}: change the text, or {MEND}"


def solution_problems(root: Path, lesson: Lesson) -> Iterator[str]:
    """Yield the problems of a solution notebook: a difference from the lesson, or bad outputs."""
    path = solution_path(root, lesson)
    try:
        executed = load(path)
    except LessonError as error:
        yield f"{error} To mend it, {MEND}"
        return
    if what := difference(executed, make_solution(lesson)):
        yield f"{label(path)} differs from the file that {lesson.label} makes ({what}): {MEND}"
    for problem in executed_problems(root, executed):
        yield f"{label(path)}: {problem}: correct the lesson, or {MEND}"


def executed_problems(root: Path, executed: Notebook) -> Iterator[str]:
    """Yield the problems of a notebook's outputs, each as "cell X …"."""
    for cell in executed["cells"]:
        if cell.get("cell_type") == "code":
            for problem in output_problems(cell, root):
                yield f"cell {cell.get('id')} {problem}"


def answers_problems(root: Path, lesson: Lesson) -> Iterator[str]:
    """Yield the problems of a module of answers: a difference from the generated text."""
    try:
        answers = make_answers(lesson)
    except LessonError as error:
        yield str(error)
    else:
        yield from text_problems(root, answers_path(root, lesson), answers, f"{lesson.label} makes")


def text_problems(root: Path, path: Path, expected: str, source: str) -> Iterator[str]:
    """Yield the problems of a file that must have the text `expected`.

    `source` is a phrase for the messages, the origin of the text: "the lessons make".
    """
    name = path.relative_to(root).as_posix()
    if not path.exists():
        yield f"{name} is missing: {MEND}"
    elif (found := path.read_bytes()) != expected.encode():
        pairs = zip(found.splitlines(), expected.encode().splitlines(), strict=False)
        line = next((number for number, (a, b) in enumerate(pairs, 1) if a != b), None)
        where = f"line {line}" if line else "its end"
        yield f"{name} differs from the one that {source} ({where}): {MEND}"
