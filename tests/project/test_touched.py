"""`make touched` runs the tests of a change: by imports, by rooms, by labs."""

import pytest

from tests import touched
from tests.project.source import ROOT


def arguments(*names: str) -> set[str]:
    return {each.partition("::")[0] for each in touched.touched(names)}


def labs(*names: str) -> set[str]:
    return {each.partition("[")[2][:2] for each in touched.touched(names) if "::" in each}


def test_a_lab_runs_its_own_answers_and_lesson_alone():
    assert labs("ddpkit/checks/lab05/rules.py") == {"05"}
    assert arguments("ddpkit/checks/lab05/rules.py") == {
        *("tests/labs/lab05/test_rules_lab05.py", "solutions/05_bucketing.ipynb"),
        "tests/labs/test_wrong_and_right.py",
    }
    assert labs("solutions/05_bucketing.py", "tests/labs/lab07/wrong_answers.py") == {"05", "07"}


def test_each_argument_is_a_test_of_this_tree():
    found = touched.touched(["ddpkit/checks/lab00/hints.py", "ddpkit/errors.py"])
    assert [each for each in found if not (ROOT / each.partition("::")[0]).is_file()] == []
    assert len(found) == len(set(found)) > 200


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("ddpkit/trace/waiting.py", "tests/trace/test_chrome.py"),  # a test of the module's room
        # imports a module that imports it
        ("ddpkit/exercises/assess.py", "tests/grade/test_score.py"),
        ("ddpkit/link.py", "tests/simulate/test_link.py"),
        ("tests/labs/answers.py", "tests/docs/test_teaching.py"),  # a helper of tests
        ("tests/project/test_tree.py", "tests/project/test_tree.py"),
        ("docs/run.md", "tests/docs/test_commands.py"),
    ],
)
def test_a_change_runs(name, test):
    assert test in arguments(name)


def test_a_name_of_a_package_is_the_module_that_defines_the_name():
    """Otherwise each test that imports from ddpkit.exercises would need all modules there."""
    needed = touched.needs("tests/exercises/test_judge.py")
    assert "ddpkit/exercises/judge.py" in needed
    assert "ddpkit/exercises/__init__.py" not in needed


@pytest.mark.processes
def test_new_and_changed_files_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(touched, "ROOT", tmp_path)
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
    touched._git("init", "-q")
    (tmp_path / "old.py").write_text("")
    (tmp_path / "gone.py").write_text("")
    touched._git("add", ".")
    touched._git(*identity, "commit", "-qm", "Begin")
    assert touched.changed() == []
    (tmp_path / "old.py").write_text("1")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").touch()
    assert touched.changed() == ["gone.py", "new.py", "old.py"]
