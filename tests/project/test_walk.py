"""nbval's run of the solved lessons is one walk through the course (tests/walk.py)."""

from ddpkit import carry
from tests import walk
from tests.order import CLASSES, LESSONS, scope_of
from tests.project.source import ROOT


def test_all_lessons_are_for_one_worker_and_the_tests_of_a_file_for_another():
    lessons = sorted((ROOT / "solutions").glob("[0-9][0-9]_*.ipynb"))
    ids = [f"{path.relative_to(ROOT)}::Cell {n}" for path in lessons for n in range(2)]
    assert {scope_of(each) for each in ids} == {LESSONS}
    assert scope_of("tests/grade/test_class.py::test_it[01]") == "tests/grade/test_class.py"


def test_two_classes_are_graded_one_after_the_other():
    assert all((ROOT / path).is_file() for path in CLASSES)
    assert len({scope_of(f"{path}::test_it") for path in CLASSES}) == 1


def test_make_test_gives_a_scope_to_a_worker():
    make = (ROOT / "Makefile").read_text("utf-8")
    assert " --dist loadfile --no-loadscope-reorder --nbval-lax " in make


def test_an_answer_that_was_kept_and_not_carried_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("DDPKIT_PROGRESS", str(tmp_path))
    carry("ring")
    said = capsys.readouterr().out
    assert walk.not_own(said, {"00", "03"}) == ["ring"]
    assert walk.not_own(said, {"04"}) == [], "lab 03 has not been walked"
    assert walk.not_own(said.replace("the kit's", "your own"), {"03"}) == []
