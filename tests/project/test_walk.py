"""nbval's run of the solved lessons is one walk through the course (tests/walk.py)."""

from ddpkit import carry
from ddpkit.cluster.afterwards.by_luck import paired_by_luck
from ddpkit.cluster.afterwards.in_flight import changed_in_flight
from ddpkit.cluster.afterwards.limits import over_the_limit
from ddpkit.cluster.afterwards.replicas import differing
from ddpkit.cluster.afterwards.unwaited import unwaited
from ddpkit.protocol.call import Call
from ddpkit.protocol.replica import Fingerprints, Replica
from ddpkit.trace import CHANGED, UNWAITED, Span, Trace
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


def test_each_accusation_is_known() -> None:
    """Each module of `afterwards` makes its text; a cell prints further lines before the text."""
    hour = 3600 * 10**9
    call = Call("all_reduce", where=("train.py", 3), seq=2)
    changed, late = (
        Span(
            *(rank, "comm", "all_reduce", "comm", rank * hour, 2 * hour, 8),
            seq=1,
            blocked_ns=rank * hour,
            args=args,
        )
        for rank, args in enumerate(({"line": 3, CHANGED: 1, UNWAITED: 1}, {"line": 3}))
    )
    trace = Trace([changed, late], 2)
    models = {
        rank: [Replica("DDP", ("weight",), members=(0, 1), end=Fingerprints(0, (rank,), True))]
        for rank in (0, 1)
    }
    texts = [
        paired_by_luck({0: call, 1: call._replace(where=("train.py", 5))}),
        changed_in_flight(trace),
        unwaited(trace),
        over_the_limit(trace, {0: 1800.0, 1: 1800.0}),
        differing(models, alone=False),
    ]
    assert [text[:20] for text in texts if not walk.accusation(f"step 1\n{text}")] == []
    assert walk.accusation("Deadlock: The ranks wait for each other") == ""
