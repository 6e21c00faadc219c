"""The cells of a submission that run."""

from __future__ import annotations

import pytest

from ddpkit.grade.attempt import ASK, PREPARE
from ddpkit.grade.cellnames import names_in
from ddpkit.grade.merge import Merged, merge
from ddpkit.grade.submission import Submission, SubmittedCell

LAB = [
    SubmittedCell("code-1", "", "", "import torch"),
    SubmittedCell(
        "answer-f", "f", "", 'def f(x):\n    raise NotImplementedError("your code here")'
    ),
    SubmittedCell("check-f", "", "f", "check(f)"),
    SubmittedCell("code-2", "", "", "result = f(torch.ones(1))"),
]


def merged(*cells: tuple[str, str]) -> Merged:
    submitted = tuple(SubmittedCell(name, "", "", source) for name, source in cells)
    return merge(LAB, ["f"], Submission(submitted, ""))


def sources(*cells: tuple[str, str]) -> list[str]:
    return [cell.source for cell in merged(*cells).cells]


def test_demonstrations_do_not_run() -> None:
    answer = "def f(x):\n    return torch.clone(x)"
    assert sources(("code-2", LAB[3].source), ("answer-f", answer)) == ["import torch", answer]


def test_an_annotation_needs_its_import() -> None:
    answer = "def f(x: torch.Tensor):\n    return x"
    assert sources(("answer-f", answer)) == ["import torch", answer]


def test_what_the_answer_needs_runs_and_nothing_else() -> None:
    answer, table = "def f(x):\n    return g(x)", "TABLE = {}"
    fill, helper, scratch = "TABLE[1] = 2", "def g(x):\n    return TABLE[x]", "other = 1 / 0"
    cells = [("", table), ("", fill), ("", helper), ("", scratch), ("answer-f", answer)]
    assert sources(*cells) == [table, fill, helper, answer]


@pytest.mark.parametrize("line", ["%reset -f", "%run other.py"])
def test_what_the_lab_gives_runs_again_below_a_reset(line: str) -> None:
    answer = "def f(x):\n    return torch.clone(x)"
    cells = [("", line), ("code-1", LAB[0].source), ("answer-f", answer)]
    assert sources(*cells) == [LAB[0].source, line, LAB[0].source, answer]


def test_the_graders_own_cells_bind_no_name() -> None:
    """A student's function may have the name `ask`."""
    for cell in (PREPARE, ASK.format(key="f.0")):
        assert names_in(cell).binds == frozenset()


def test_the_answer_is_found_without_ids() -> None:
    answer = "def f(x):\n    return x"
    assert sources(("x", "f(1)"), ("x", answer)) == [answer]


def test_a_blank_cell_gives_way_to_the_answer_below_it() -> None:
    answer = "def f(x):\n    return x"
    assert sources(("answer-f", LAB[1].source), ("", answer)) == [answer]


def test_what_is_as_it_was_handed_out_is_blank() -> None:
    handed_out = LAB[1].source
    assert merged(("answer-f", handed_out + "\n")).blank == {"f"}
    assert merged(("answer-f", handed_out), ("", "g = 1")).blank == {"f"}
    assert merged(("answer-f", handed_out + "  # not yet")).blank == set()
    assert (
        merged(("answer-f", handed_out), ("", "f.__code__ = (lambda x: x).__code__")).blank == set()
    )
    assert merged(("answer-f", handed_out), ("", "def f(x):\n    return x")).blank == set()


def test_the_last_of_doubled_cells_counts() -> None:
    first, last = "def f(x):\n    return 1", "def f(x):\n    return 2"
    assert sources(("answer-f", first), ("answer-f", last))[-1] == last


@pytest.mark.slow
def test_cells_that_take_long_to_look_at_are_not_looked_at_for_long() -> None:
    """IPython tokenizes a cell again for each magic: 100 cells of 490 lines took hours (m05)."""
    answer = ("answer-f", "def f():\n    return 1")
    for line in ("%x", "f?", " " * 40_000 + "a", "a " * 20_000, "= " * 20_000 + "!", "!" * 40_000):
        cell = "\n".join([f"{line}"] * min(490, 90_000 // len(line)))
        plan = merged(*[("", f"{cell}\n# {n}") for n in range(20)], answer)
        assert plan.broken == {}
        assert plan.missing == []


def test_no_answer_and_no_python() -> None:
    assert merged(("code-1", "import torch")).missing == ["f"]
    assert merged(("answer-f", "def f(x):\n    return x +\n")).broken == {
        "f": "line 2: invalid syntax"
    }
    for deep in ("(" * 5000 + ")" * 5000, "1" + "+1" * 5000, "-" * 50_000 + "1", "a" + ".b" * 9000):
        assert "f" in merged(("answer-f", f"def f():\n    return {deep}")).broken
        assert merged(("answer-f", "def f():\n    return 1"), ("", f"{deep}")).broken == {}
