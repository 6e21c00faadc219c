"""CONTRIBUTING's page on adding a lab is true: its blocks make a lab, in a copy of the tree.

This test knows nothing of the page's content: it reads files, commands and names from the page.
"""

import importlib.util
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpkit.authoring.readme import HEAD
from tests.grade.conftest import needs_sandbox
from tests.project.checkout import Checkout, files, section
from tests.project.source import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PAGE = section("… add a lab")
BLOCK = r"`([\w/]+\.(?:py|md))`:\n```(?:python|markdown)\n(.*?)^```$"
FILES = dict(re.findall(BLOCK, PAGE, re.MULTILINE | re.DOTALL))
LESSON = next(Path(name) for name in FILES if name.startswith("solutions/"))
NUMBER, (NAME,) = LESSON.stem[:2], re.findall(r'exercise="(\w+)"', FILES[str(LESSON)])
CODE = [name for name in FILES if name.endswith(".py")]
OWN = (
    *(f"ddpkit/checks/lab{NUMBER}/", f"tests/labs/lab{NUMBER}/", f"solutions/{LESSON.stem}."),
    f"docs/teaching/{NUMBER}.",
)
MADE = {
    *(f"labs/{LESSON.stem}.ipynb", f"solutions/{LESSON.stem}.ipynb"),
    f"ddpkit/answers/lab{NUMBER}.py",
}
# generated file of all lessons -> (lines added by a lab, sums changed by a lab)
SHARED = {
    "ddpkit/answers/__init__.py": (2, 0),
    "README.md": (1, 0),
    "docs/teaching.md": (1, 2),
    "docs/course.md": (1, 0),
    "labs/start.ipynb": (1, 1),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Yield a copy in which the page's files are written and its lab is released."""
    folder = tmp_path_factory.mktemp("add_a_lab")
    try:
        yield _released(folder / "checkout")
    finally:
        shutil.rmtree(folder)


def _released(root: Path) -> Checkout:
    copy = Checkout.of(root, PAGE)
    for name, text in FILES.items():
        assert name not in copy.before
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    copy.follow(f"ddpkit release {NUMBER}")
    return copy


def test_the_page_is_of_one_exercise_with_right_and_wrong_answers():
    assert len(FILES) == 6
    assert all(name.startswith(OWN) for name in FILES)
    sources = {Path(name).name: text for name, text in FILES.items()}
    assert sources["right_answers.py"].count("@right(") == 1
    wrong = sources["wrong_answers.py"]
    assert wrong.count(f'    ("{NAME}", ') == 2, "two rows"
    assert wrong.count("@wrong(") == 1, "one written out"


def test_a_release_of_the_lab_touches_no_file_of_another(copy: Checkout):
    after = files(copy.root)
    changed = {name for name in after if after[name] != copy.before.get(name)}
    assert copy.before.keys() - after.keys() == set()
    assert changed == {*FILES, *MADE, *SHARED}


def test_what_all_lessons_share_gets_its_lines(copy: Checkout):
    for name, (lines, sums) in SHARED.items():
        before = copy.before[name].decode().splitlines()
        after = (copy.root / name).read_text("utf-8").splitlines()
        added, gone = set(after) - set(before), set(before) - set(after)
        assert (len(added), len(gone)) == (lines + sums, sums)
        assert [line for line in after if line not in added] == [
            line for line in before if line not in gone
        ]
    table = (copy.root / "README.md").read_text("utf-8").partition(HEAD)[2].partition("\n\n")[0]
    assert f"({next(name for name in MADE if name.startswith('labs/'))})" in table.splitlines()[-1]


def test_the_page_has_four_commands(copy: Checkout):
    assert len(copy.commands) == 4


def test_its_checks_refuse_and_pass_what_they_must(copy: Checkout):
    said = copy.follow("pytest")
    passed = set(re.findall(r"::(\S+) PASSED", said))
    assert not re.search(r"FAILED|ERROR|SKIPPED", said)
    wrong = re.findall(rf'\("{NAME}", "(\w+)"|^def (\w+)', FILES[f"{OWN[1]}wrong_answers.py"], re.M)
    (right,) = re.findall(r"^def (\w+)", FILES[f"{OWN[1]}right_answers.py"], re.M)
    labels = ["".join(label) for label in wrong]
    assert len(labels) == 3
    assert passed == {
        *(f"test_a_wrong_answer_fails_with_its_hint[{NUMBER}-{NAME}-{label}]" for label in labels),
        f"test_every_hint_has_a_wrong_answer[{NUMBER}]",
        f"test_a_right_answer_of_another_make_passes[{NUMBER}-{NAME}-{right}]",
        f"test_an_exercise_has_wrong_answers_with_hints_of_their_own[{NAME}]",
        f"test_the_kits_answer_passes_whatever_the_seed[{NAME}]",
        f"test_what_the_kits_answer_prints_is_the_same_again[{NAME}]",
        f"test_an_exercise_fails_as_shipped_with_a_friendly_word[{NAME}]",
        f"test_an_exercise_says_what_it_is[{NAME}]",
    }


def test_its_solved_notebook_gets_all_points(copy: Checkout):
    needs_sandbox()
    said = copy.follow("ddpkit grade")
    assert re.search(r"^graded +(\d+) of \1 ", said, re.MULTILINE), said
    (result,) = (copy.root.parent / "grades" / "results").iterdir()
    (exercise,) = json.loads(result.read_text("utf-8"))["exercises"]
    assert (exercise["name"], exercise["status"]) == (NAME, "pass")


def test_it_is_fresh_and_the_tests_of_the_tree_know_it(copy: Checkout):
    assert "fresh" in copy.follow("ddpkit release --check")
    tests = ["folders.py", "tree.py", "readme.py::test_table_of_labs_is_the_labs"]
    tree = [f"tests/project/test_{name}" for name in tests] + ["tests/docs/test_teaching.py"]
    in_no_week = f"{tree[-1]}::test_a_long_term_has_every_lab_and_a_shorter_one_tells_the_length"
    done = copy.run(".venv/bin/python", "-m", "pytest", "--deselect", in_no_week, *tree)
    assert done.returncode == 0, done.stdout
    counted = copy.run(".venv/bin/python", "-m", "benchmarks.statements").stdout
    assert re.search(rf"^ *{NUMBER} +1 ", counted, re.MULTILINE)


def test_it_is_written_as_the_linter_wants(copy: Checkout):
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed here")
    for words in (["check"], ["format", "--check"]):
        done = copy.run(".venv/bin/python", "-m", "ruff", *words, "--no-cache", *CODE)
        assert done.returncode == 0, done.stdout


def test_nothing_is_left_behind(copy: Checkout):
    """Not by the copy's tests, not by the grader, and not in the checkout that was copied."""
    after = files(copy.root)
    assert after.keys() - copy.before.keys() == {*FILES, *MADE}
    assert {name for name in copy.before if after[name] != copy.before[name]} == set(SHARED)
    assert [name for name in {*FILES, *MADE} if (ROOT / name).exists()] == []
