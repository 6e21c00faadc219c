"""The words that a student sees, and the words of a verdict. test_judge.py tests the decisions."""

import contextlib
import io
import sys

import pytest
import torch

from ddpkit.cluster.torchrun.job import TooFewRanks
from ddpkit.errors import Deadlock, LessonError, RankError, RunTimeout
from ddpkit.exercises import Case, Hint, check, exercise
from ddpkit.exercises.progress import folder

RIGHT = """
def toy_sum(numbers):
    return sum(numbers)
"""
PASSED = """\
✓ 0 numbers
✓ 1 number
✓ 4 numbers
toy_sum: passed, 3 of 3 cases. Your version is kept for later labs.
"""
LAST_LEFT_OUT = """
def toy_sum(numbers):
    print("summing", len(numbers))
    return sum(numbers[:-1])
"""


def check_cell(cell, source):
    return check(cell(source)["toy_sum"])


def test_a_right_answer(toy_sum, cell, capsys):
    verdict = check_cell(cell, RIGHT)
    assert capsys.readouterr() == (PASSED, "")
    assert verdict
    assert (verdict.name, verdict.passed, verdict.earned, verdict.points) == ("toy_sum", True, 3, 3)
    assert [case.title for case in verdict.cases] == ["0 numbers", "1 number", "4 numbers"]


def test_the_text_is_the_same_in_every_run_and_ends_with_what_is_kept(toy_sum, cell, capsys):
    for _ in range(2):
        check_cell(cell, RIGHT)
    assert capsys.readouterr().out == PASSED * 2


def test_a_wrong_answer(toy_sum, cell, capsys):
    verdict = check_cell(cell, LAST_LEFT_OUT)
    assert (
        capsys.readouterr().out
        == """\
✓ 0 numbers
✗ 1 number    total got 0, expected 34
✗ 4 numbers   total got 122, expected 204
  Printed: summing 1
  Hint: The last number counts too.
toy_sum: not yet, 1 of 3 cases. Change your cell, run it, then this one.
"""
    )
    assert not verdict
    assert (verdict.earned, verdict.hint) == (1.0, "The last number counts too.")
    assert not (folder() / "answers").exists()


FEW = """
def toy_sum(numbers):
    if len(numbers) > {most}:
        raise too_few("it needs more ranks")
    return sum(numbers)
"""


@pytest.fixture
def check_with_few_ranks(toy_sum, cell, monkeypatch):
    """Return a check under torchrun, in which a case may need more ranks than torchrun started."""
    # the package's name `judge` is the function, not the module
    module = sys.modules["ddpkit.exercises.judge"]
    monkeypatch.setattr(module, "active", lambda: True)
    monkeypatch.setattr("ddpkit.exercises.tail.checking", contextlib.nullcontext)
    namespace = {"__name__": "__main__", "too_few": TooFewRanks}
    return lambda most: check(cell(FEW.format(most=most), namespace)["toy_sum"])


def test_cases_with_too_many_ranks_are_left_out(check_with_few_ranks, capsys):
    verdict = check_with_few_ranks(1)
    assert capsys.readouterr().out == (
        "✓ 0 numbers\n✓ 1 number\n"
        "toy_sum: passed, 2 of 2 cases. 1 left out: torchrun started too few ranks.\n"
    )
    assert (verdict.passed, verdict.earned, verdict.skipped) == (True, 3, 1)
    assert not (folder() / "answers").exists(), "not kept: not all has been asked"


def test_a_check_of_which_all_is_left_out_has_not_passed(check_with_few_ranks, capsys):
    assert not check_with_few_ranks(-1)
    assert capsys.readouterr().out == (
        "toy_sum: not checked.\n  3 left out: torchrun started too few ranks.\n"
    )


def test_only_torchrun_has_too_few_ranks(toy_sum, cell):
    namespace = {"__name__": "__main__", "too_few": TooFewRanks}
    verdict = check(cell(FEW.format(most=1), namespace)["toy_sum"])
    assert [case.passed for case in verdict.cases] == [True, True, False]


def test_an_answer_that_raises_is_told_its_line(toy_sum, cell, capsys):
    check_cell(
        cell,
        """
        def toy_sum(numbers):
            return mean(numbers) * len(numbers)

        def mean(numbers):
            return sum(numbers) / len(numbers)
        """,
    )
    place = capsys.readouterr().out.splitlines()
    assert place[0] == "✗ 0 numbers   ZeroDivisionError: division by zero"
    assert place[1] == "✗ 1 number    total got 34.0, expected 34"
    assert place[3].endswith(".py, line 5: return sum(numbers) / len(numbers)")


def test_an_exercise_as_shipped(toy_sum, cell, capsys):
    source = """
        def toy_sum(numbers):
            raise NotImplementedError("your code here: about 3 lines")
        """
    verdict = check_cell(cell, source)
    assert capsys.readouterr().out == (
        "toy_sum: not answered yet. Write your code (about 3 lines), run its cell, then this one.\n"
    )
    assert not verdict
    assert (verdict.earned, verdict.blank) == (0, "about 3 lines")
    assert not folder().exists()


def test_not_implemented_by_a_library_is_no_blank(toy_sum, cell, capsys):
    source = 'def toy_sum(numbers):\n    raise NotImplementedError("aten::foo on CPU")'
    assert check_cell(cell, source).blank is None
    assert "✗ 0 numbers   NotImplementedError: aten::foo on CPU" in capsys.readouterr().out


def test_a_blank_on_a_rank_is_a_blank(registry, capsys):
    @exercise("toy_blank", lab="99")
    def cases(answer, rng):
        def observe():
            blank = NotImplementedError("your code here: about 1 line")
            raise RankError("rank 0: NotImplementedError", ranks=(0,)) from blank

        yield Case("2 ranks", observe, {"result": 1})

    def toy_blank():
        pass

    check(toy_blank)
    assert capsys.readouterr().out.startswith("toy_blank: not answered yet. Write your code (about")


DEADLOCK = """The ranks wait for each other and none can go on.
  ranks 0, 1 wait in recv(src=1)  (Cell In[5], line 3: dist.recv(x, 1))
Why: rank 0 waits for itself."""


SEEN = Hint("seen", lambda s: True, lambda s: f"Seen: {type(s.error).__name__}.")


def failing(error, ran):
    """Register an exercise with runs that fail with `error`."""

    @exercise("toy_run", lab="99", points=2)
    def cases(answer, rng):
        for size in (2, 3):

            def observe(size=size):
                ran.append(size)
                raise error

            yield Case(f"{size} ranks", observe, {"result": 1}, hints=[SEEN])

    def toy_run():
        pass

    return toy_run


def test_a_failed_run_is_explained_once(registry, capsys):
    ran = []
    check(failing(Deadlock(DEADLOCK), ran))
    assert (
        capsys.readouterr().out
        == """\
✗ 2 ranks   The ranks wait for each other and none can go on.
  1 more case was not tried.
    ranks 0, 1 wait in recv(src=1)  (Cell In[5], line 3: dist.recv(x, 1))
    Why: rank 0 waits for itself.
  Hint: Seen: Deadlock.
toy_run: not yet, 0 of 2 cases. Change your cell, run it, then this one.
"""
    )
    assert ran == [2]


def test_a_long_explanation_is_cut(registry, capsys):
    check(failing(Deadlock("\n".join(f"line {n}" for n in range(20))), []))
    lines = capsys.readouterr().out.splitlines()
    assert "    … (14 more lines when you run it yourself)" in lines
    assert len(lines) <= 15


def test_why_ranks_wait_is_never_cut(registry, capsys):
    ranks = [f"  rank {n} waits in recv(src=any)\n      Cell In[5], line {n}" for n in range(8)]
    why = ["Why: all wait to receive.", "Let one of them send first."]
    check(failing(Deadlock("\n".join(["All wait.", *ranks, *why])), []))
    lines = capsys.readouterr().out.splitlines()
    assert [f"    {line}" for line in why] == lines[-4:-2]
    assert "    … (13 more lines when you run it yourself)" in lines


def test_a_long_message_is_cut(registry, capsys):
    check(
        failing(RankError("rank 0 raised RuntimeError: " + "long " * 99 + "\nline", ranks=(0,)), [])
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line[:12] for line in lines[:4]] == [
        "✗ 2 ranks   ",
        " " * 12,
        "✗ 3 ranks   ",
        "    line",
    ]
    assert lines[1].endswith("…")
    assert lines[2].endswith("…")
    assert max(map(len, lines)) <= 88


def test_nothing_is_tried_after_a_timeout(registry, capsys):
    ran = []
    check(failing(RunTimeout("The run took longer than 5 s."), ran))
    assert ran == [2]
    assert "  1 more case was not tried.\n" in capsys.readouterr().out


def test_with_a_secret_seed_nothing_expected_shows(toy_sum, cell, capsys, monkeypatch):
    monkeypatch.setenv("DDPKIT_SEED", "secret")
    check_cell(cell, RIGHT)
    right = capsys.readouterr().out.splitlines()
    # the same line, even if the answer cannot be kept
    assert right[-1] == "toy_sum: passed, 3 of 3 cases."
    check_cell(cell, "def toy_sum(numbers):\n    return 7")
    wrong = capsys.readouterr().out
    assert wrong.splitlines()[:3] == [
        "✗ 0 numbers   total 7",
        "✗ 1 number    total 7",
        "✗ 4 numbers   total 7",
    ]
    assert "expected" not in wrong


def test_several_wrong_values_and_one_that_is_only_shown(registry, capsys):
    @exercise("toy_many", lab="99")
    def cases(answer, rng):
        yield Case(
            "once",
            lambda: {"a": [1, 2], "b": 2.0, "c": None, "d": 4, "steps": 7},
            {"a": [1, 3], "b": 2, "c": 0, "d": 5, "e": 6},
        )
        yield Case("again", lambda: {"steps": 7, "a": 1}, {"a": 1})

    def toy_many():
        pass

    check(toy_many)
    assert (
        capsys.readouterr().out
        == """\
✗ once    a[1] got 2, expected 3; b got 2.0, expected 2; c got None, expected 0; and 2
          more
✓ again
toy_many: not yet, 1 of 2 cases. Change your cell, run it, then this one.
"""
    )


def test_what_was_sent_is_told_in_words(registry, capsys):
    @exercise("toy_sends", lab="99")
    def cases(answer, rng):
        seen = {"x": torch.ones(9), "bytes": [4, 4], "messages": 1, "rounds": 2, "latencies": 1}
        yield Case("right", lambda: seen, seen)
        yield Case("by rank", lambda: {"bytes": [1200, 0]}, {"bytes": [1200, 0]})
        yield Case("wrong", lambda: {**seen, "bytes": [4, 8], "rounds": 3}, seen)
        one = {"latencies": {"with 2 ranks": 1}, "messages": [1, 0], "tensors": 1.5}
        due = {"latencies": {"with 2 ranks": 2}, "messages": [2, 0], "tensors": 1}
        yield Case("one", lambda: one, due)
        yield Case("changed", lambda: {"kept": False}, {"kept": True})

    def toy_sends():
        pass

    check(toy_sends)
    assert capsys.readouterr().out.splitlines()[:6] == [
        "✓ right     4 bytes from each rank, 1 message, 2 rounds, 1 latency",
        "✓ by rank   bytes by rank 1,200, 0",
        "✗ wrong     rank 1 sent 8 bytes, expected 4; 3 rounds, expected 2",
        "✗ one       with 2 ranks: 1 latency, expected 2; rank 0 sent 1 message, expected 2; 1.5",
        "            tensors, expected 1",
        "✗ changed   the answer has changed its input",
    ]


RETURNS = """
def toy_sum(numbers):
    total = sum(numbers)
"""


def test_a_forgotten_return_is_told_before_any_hint(toy_sum, cell, capsys):
    verdict = check_cell(cell, RETURNS)
    assert verdict.hint_name == "returned None"
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        f"✗ {size}   it returned None" for size in ("0 numbers", "1 number ", "4 numbers")
    ]
    assert lines[-4].startswith("  Hint: A function that ends without `return` gives None, and so")


def test_a_hint_has_two_steps(registry, capsys):
    nudge = Hint("steps", say="Count the steps.", more=lambda s: f"There are {s.expect['x']}.")

    @exercise("toy_steps", lab="99")
    def cases(answer, rng):
        yield Case("x", lambda: {"x": 1}, {"x": 2}, hints=[nudge])

    def toy_steps():
        pass

    check(toy_steps)
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "  Hint: Count the steps.",
        "        More: check(toy_steps, hint=2)",
    ]
    check(toy_steps, hint=2)
    assert "  Hint: Count the steps. There are 2.\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hints", "said"),
    [
        ([Hint("one", say="Count.")], "  Hint: Count. (This mistake has one hint only.)\n"),
        ([], "  Hint: this mistake has no hint.\n"),
    ],
)
def test_a_second_step_that_is_not_there_is_said(registry, capsys, hints, said):
    @exercise("toy_steps", lab="99")
    def cases(answer, rng):
        yield Case("x", lambda: {"x": answer()}, {"x": 2}, hints=hints)

    def toy_steps():
        return 1

    check(toy_steps)
    assert said not in capsys.readouterr().out
    check(toy_steps, hint=2)
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("hint", [99, 0, "a", None])
def test_a_step_that_no_hint_has_is_refused(toy_sum, cell, hint, capsys):
    answer = cell("def toy_sum(numbers): return 7")["toy_sum"]
    with pytest.raises(LessonError, match=rf"^check\(toy_sum, hint={hint!r}\): hint= takes 1, "):
        check(answer, hint=hint)
    assert capsys.readouterr().out == ""


def test_an_answer_called_while_the_cases_are_made_fails_too(registry, cell, capsys):
    @exercise("toy_early", lab="99", points=2)
    def cases(answer, rng):
        made = answer()
        yield Case("x", lambda: {"x": made}, {"x": 1})

    verdict = check(cell("def toy_early():\n    return 1 / 0")["toy_early"])
    assert verdict.earned == 0
    assert "✗ before the cases   ZeroDivisionError" in capsys.readouterr().out
    blank = 'def toy_early():\n    raise NotImplementedError("your code here: about 1 line")'
    assert check(cell(blank)["toy_early"]).blank == "about 1 line"


def test_under_torchrun_rank_0_speaks_for_all(toy_sum, cell, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert check_cell(cell, RIGHT)
    assert capsys.readouterr().out == ""
    assert not folder().exists()
    monkeypatch.setenv("RANK", "0")
    check_cell(cell, RIGHT)
    assert capsys.readouterr().out == PASSED


def test_a_console_without_the_signs(toy_sum, cell):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with contextlib.redirect_stdout(stream):
        check_cell(cell, RIGHT)
    assert stream.buffer.getvalue().startswith(b"+ 0 numbers\n")


def test_the_report_is_one_write(toy_sum, cell):
    class Counting(io.StringIO):
        writes = 0

        def write(self, text):
            self.writes += 1
            return super().write(text)

    stream = Counting()
    with contextlib.redirect_stdout(stream):
        check_cell(cell, RIGHT)
    assert (stream.writes, stream.getvalue()) == (1, PASSED)


def test_long_text_wraps_under_its_beginning(registry, capsys):
    @exercise("toy_long", lab="99")
    def cases(answer, rng):
        yield Case("x", lambda: {"x": 1}, {"x": 2}, hints=[Hint("long", say="word " * 40)])

    def toy_long():
        pass

    check(toy_long)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("  Hint: word")
    assert lines[2].startswith("        word")
    assert max(map(len, lines)) <= 100
