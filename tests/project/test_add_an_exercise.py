"""CONTRIBUTING's section on adding an exercise is true: a copy of the tree gets the exercise."""

import re
import shutil
from collections.abc import Iterator

import pytest

from ddpkit import answers
from ddpkit.exercises import exercises
from tests.project.checkout import Checkout, files, section
from tests.project.source import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PAGE = section("… add an exercise to a lab")
BLOCK = r"(at the end of|below the cell `(.+)` of) `([\w/]+\.py)`:\n```python\n(.*?)^```$"
BLOCKS = re.findall(BLOCK, PAGE, re.MULTILINE | re.DOTALL)
IMPORT = r"^`(\w+\.py)` also needs `(.+)` among its imports"
((LESSON, CELLS),) = ((name, text) for place, _, name, text in BLOCKS if place != "at the end of")
(NAME,) = re.findall(r'exercise="(\w+)"', CELLS)
NUMBER = LESSON.split("/")[1][:2]
MADE = {  # files written by the release
    *(LESSON.replace(".py", ".ipynb"), LESSON.replace("solutions", "labs").replace("py", "ipynb")),
    *(f"ddpkit/answers/lab{NUMBER}.py", "ddpkit/answers/__init__.py"),
    "docs/teaching.md",
}


def added(name: str, before: str) -> str:
    """Return the text of a file after a reader has followed the section."""
    for _, cell, where, text in BLOCKS:
        if where == name and cell:
            head, mark, tail = before.partition(f"\n{cell}\n")
            assert mark, f"{name} has no cell {cell}"
            before = head + mark + text + tail
        elif where == name:
            before += text
    for where, line in re.findall(IMPORT, PAGE, re.MULTILINE):
        if name.startswith("ddpkit/") and name.endswith(f"/{where}"):
            first = re.search(r"^import |^from (?!__future__)", before, re.MULTILINE)
            assert first, f"{name} imports nothing"
            before = f"{before[: first.start()]}{line}\n{before[first.start() :]}"
    return before


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Yield a copy with the section's additions, in which the lab is released."""
    folder = tmp_path_factory.mktemp("add_an_exercise")
    try:
        copy = Checkout.of(folder / "checkout", PAGE)
        for name in {name for _, _, name, _ in BLOCKS}:
            path = copy.root / name
            path.write_text(added(name, path.read_text("utf-8")), "utf-8")
        ruff = (".venv/bin/python", "-m", "ruff", "check", "--select", "I", "--fix", "--no-cache")
        copy.run(*ruff, f"ddpkit/checks/lab{NUMBER}")  # in place of an editor with sorted imports
        copy.follow("ddpkit release")
        yield copy
    finally:
        shutil.rmtree(folder)


def test_the_section_has_an_exercise_that_the_kit_does_not_have():
    assert NAME not in exercises()
    assert answers.LABS.get(NAME) is None
    assert len(BLOCKS) == 5
    assert all((ROOT / name).exists() for _, _, name, _ in BLOCKS)


def test_a_release_changes_the_lab_and_the_sums_alone(copy: Checkout):
    after = files(copy.root)
    changed = {name for name in after if after[name] != copy.before.get(name)}
    assert copy.before.keys() - after.keys() == set()
    assert changed == {*(name for _, _, name, _ in BLOCKS), *MADE}


def test_checks_refuse_and_pass_what_they_must(copy: Checkout):
    said = copy.follow("pytest")
    passed = set(re.findall(r"::(\S+) PASSED", said))
    assert not re.search(r"FAILED|ERROR|SKIPPED", said)
    texts = {name.rpartition("/")[2]: text for _, _, name, text in BLOCKS}
    wrong = re.findall(r"^def (\w+)", texts["wrong_answers.py"], re.MULTILINE)
    assert len(wrong) == len(re.findall(r"Hint\(", texts["hints.py"])) == 3
    assert passed > {
        f"test_a_wrong_answer_fails_with_its_hint[{NUMBER}-{NAME}-{label}]" for label in wrong
    }
    (right,) = re.findall(r"^def (\w+)", texts["right_answers.py"], re.MULTILINE)
    assert f"test_a_right_answer_of_another_make_passes[{NUMBER}-{NAME}-{right}]" in passed
