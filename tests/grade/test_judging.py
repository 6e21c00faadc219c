"""Judging has limits: a claim may be of any size, and may be slow to judge."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ddpkit.capstone import TextTask
from ddpkit.capstone.trained import outcome
from ddpkit.errors import LessonError
from ddpkit.exercises import Case, exercises
from ddpkit.exercises.ranks import timed
from ddpkit.grade import apart, judging
from ddpkit.grade.apart import Allowance, TooMuch, each_apart
from ddpkit.grade.inside.claims import encode
from ddpkit.grade.judging import ALLOWED, TOO_MUCH, Judge
from ddpkit.grade.merge import merge
from ddpkit.grade.questions import SealedCase
from ddpkit.grade.reading import _plan
from ddpkit.grade.score import says
from ddpkit.grade.submission import Submission, SubmittedCell
from ddpkit.simulate.engine.claimed import program_ns

pytestmark = pytest.mark.processes

SMALL = Allowance(seconds=1, memory=1 << 28)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "ALLOWED", SMALL)
    monkeypatch.setattr(judging, "WHOLE_S", 1.5)
    torch.set_num_threads(1)


def asked(name: str, read: Callable[[Any], Any] | None, cases: int = 1) -> list[SealedCase]:
    """Return questions with the right claim {"x": 1}."""
    return [
        SealedCase(name, n, Case(f"case {n}", dict, {"x": 1}, read=read), b"", frozenset())
        for n in range(cases)
    ]


def claimed(question: SealedCase, **seen: Any) -> tuple[SealedCase, str]:
    return question, json.dumps({"key": question.key, "seen": encode(seen)})


def spins(seen: Any) -> Any:
    while seen["x"] == 2:
        pass
    return seen


def grows(seen: Any) -> Any:
    held = []
    while seen["x"] == 2:
        held.append(bytearray(1 << 24))
    return seen


def dies(seen: Any) -> Any:
    if seen["x"] == 2:
        os._exit(0)
    return seen


def waits_long(seen: Any) -> Any:
    """Block without computing."""
    if seen["x"] == 2:
        time.sleep(3600)
    return seen


@pytest.mark.parametrize("hostile", [spins, grows, dies, waits_long])
def test_a_judgement_has_limits_and_the_others_lose_nothing(
    hostile: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier points stay; the exercise is not judged further."""
    monkeypatch.setattr(apart, "PATIENCE", 4)
    bad, good = asked("bad", hostile, 4), asked("good", hostile, 2)
    claims = [claimed(each, x=2 if each is bad[1] else 1) for each in (*bad, *good)]
    begun, before = time.process_time(), _children()  # earlier tests may leave a forkserver
    rows = Judge().judged(claims)
    assert [rows[each.key].status for each in (*bad, *good)] == [
        *("pass", "error", "error", "error"),
        *("pass", "pass"),
    ]
    assert [says(rows[each.key]) for each in bad[1:]] == [TOO_MUCH] * 3
    assert time.process_time() - begun < 1
    assert _children() <= before


def _children() -> set[str]:
    """Return the ids of the test's living child processes."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return {each for each in file.read().split() if os.path.exists(f"/proc/{each}/exe")}


def test_all_judgements_of_a_submission_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten slow exercises in two runs."""
    judge = Judge()
    slow = [question for n in range(10) for question in asked(f"e{n}", spins)]
    first = judge.judged([claimed(each, x=2) for each in slow[:1]])
    assert judge.left_s == 0.5
    rows = first | judge.judged([claimed(each, x=2) for each in slow[1:]])
    assert {says(row) for row in rows.values()} == {TOO_MUCH}
    assert judge.left_s <= 0
    (late,) = asked("late", spins)
    assert judge.judged([claimed(late, x=1)])[late.key].status == "error"


def test_work_that_takes_too_much_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def works() -> list[Callable[[], int]]:
        return [lambda: 1, lambda: os._exit(3), lambda: 2]  # type: ignore[func-returns-value]

    found = [result for result, _ in each_apart(works(), SMALL)]
    assert found[0] == 1
    assert isinstance(found[1], TooMuch)
    assert len(found) == 2


# Claims of each slow kind


def questions(name: str, seed: int = 0) -> list[SealedCase]:
    exercise = exercises()[name]
    cases = exercise.asks(SimpleNamespace(__name__=name), random.Random(seed))
    return [SealedCase(name, n, case, b"", frozenset()) for n, case in enumerate(cases)]


def bomb() -> dict[str, Any]:
    """Return sixty kilobytes of zlib: 60 MB of text, and 1 GB of lists."""
    model = TextTask(0).model()
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    programs = zlib.compress(b"[" + b"[]," * (5 << 22) + b"[]]", 9)
    return {"model": flat, "apart": 0.0, "clock": 1.0, "peak": 1, "programs": programs}


def many_stages() -> dict[str, Any]:
    return {"plans": [[("F", 0), ("B", 0)] for _ in range(20_000)]}


def a_long_plan() -> dict[str, Any]:
    return {"plans": [[("F", n) for n in range(100_000)]] * 2}


def one_huge_number() -> dict[str, Any]:
    return {"plans": 1 << 8_000_000}


def a_wide_dict() -> dict[str, Any]:
    return {f"key {n}": n for n in range(200_000)}


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("train_fast", bomb),
        ("gpipe", many_stages),
        ("one_f_one_b", many_stages),
        ("gpipe", a_long_plan),
        ("gpipe", one_huge_number),
        ("token_ring", a_wide_dict),
    ],
)
def test_no_claim_is_slow_to_judge(name: str, claim: Callable[[], dict[str, Any]]) -> None:
    """The judgement ends within the limits, and gives no points."""
    question = questions(name)[0]
    text = claimed(question, **claim())
    begun = os.times()
    row = Judge().judged([text])[question.key]
    ended = os.times()
    assert row.status in ("error", "fail")
    assert ended.children_user - begun.children_user < 3
    assert len(says(row)) < 1000


def test_large_tensors_are_judged_after_the_grader_has_used_all_of_its_threads() -> None:
    """A right answer of lab 16 was judged for 150 s and refused: OpenMP's threads were not there.

    A process of its own: another test may have changed the number of threads in this one.
    """
    asks = """
import torch
from ddpkit.grade.apart import Allowance, apart
torch.set_num_threads(2)
numbers = torch.ones(1 << 22)
assert numbers.sum() == apart(lambda: float(numbers.sum()), Allowance(seconds=1, memory=1 << 28))
"""
    subprocess.run([sys.executable, "-c", asks], check=True, timeout=100)


def test_programs_are_unpacked_no_further_than_any_training_goes() -> None:
    task = TextTask(0)
    with pytest.raises(LessonError, match="far too long"):
        outcome(task, bomb())


# Time grows no faster than the claim


def calls_of(work: Callable[[], object]) -> int:
    """Count the Python calls of work, as a measure of time that is right on a busy machine too."""
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made


SIZES: dict[str, Callable[[int, int], int]] = {
    "alike": lambda i, n: 4096,
    "each larger": lambda i, n: 8 * i,
    "each smaller": lambda i, n: 8 * (n - i),
    "in disorder": lambda i, n: 8 * (i * 7919 % n),
}


@pytest.mark.parametrize("size", SIZES)
def test_messages_under_way_are_played_in_linear_time(size: str) -> None:
    def programs(n: int) -> list[list[Any]]:
        nbytes = [SIZES[size](i, n) for i in range(n)]
        ranks = (("send", 1), ("recv", 0))
        return [
            [
                *(["post", i, op, nbytes[i], "g", [0, 1], i, None, peer, 0] for i in range(n)),
                *(["wait", i] for i in range(n)),
            ]
            for op, peer in ranks
        ]

    few, many = (
        calls_of(partial(program_ns, programs(n), "laptop core", "1 GB/s, 50 us"))
        for n in (200, 800)
    )
    assert many < 4.8 * few


@pytest.mark.parametrize("order", ["down", "up", "all at once"])
def test_chained_cells_are_merged_in_linear_time(order: str) -> None:
    """Each cell needs the cell before; the answers need the last cell."""

    def cells(n: int) -> Iterator[SubmittedCell]:
        numbers = range(n) if order == "up" else range(n - 1, -1, -1)
        for i in numbers:
            yield SubmittedCell(f"own{i}", "", "", f"x{i + 1} = [x{i}]; x{i + 1}.append({i})")
        everything = ", ".join(f"x{i}" for i in range(n)) if order == "all at once" else f"x{n}"
        for name in names:
            yield SubmittedCell("", name, "", f"def {name}(a):\n    return a, {everything}")

    names = [f"answer_{i}" for i in range(8)]
    given = tuple(SubmittedCell("", name, "", f"def {name}(a): pass") for name in names)

    def calls(n: int) -> int:
        submission = Submission(tuple(cells(n)), "")
        course: Any = SimpleNamespace(
            merged=lambda submission: merge(given, names, submission), texts=(), usual=()
        )
        plan = _plan(course, submission)
        assert len(plan.merged.cells) == n + len(names)
        return calls_of(lambda: _plan(course, submission))

    assert calls(400) < 4.8 * calls(100)


def test_time_that_is_claimed_is_recomputed_from_no_more_than_it_takes() -> None:
    """Twenty thousand messages in flight are judged within the limits, or refused."""
    question = asked("timed", partial(timed, machine="laptop core", link="1 GB/s, 50 us"))[0]
    programs = [
        [["post", i, op, 8 * i, "g", [0, 1], i, None, peer, 0] for i in range(20_000)]
        for op, peer in (("send", 1), ("recv", 0))
    ]
    begun = os.times()
    row = Judge().judged([claimed(question, programs=programs)])[question.key]
    judged = says(row) == "x is missing"  # a fast machine finishes in time
    assert judged or says(row) == TOO_MUCH
    assert os.times().children_user - begun.children_user < ALLOWED.seconds + 2
