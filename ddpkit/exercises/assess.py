"""`assess`: judges a case. The notebook's check and the grader print the judgement differently.

assess(case, {"sum": 3}).wrong            # (Wrong("sum", Difference("", "3", "4")),)
assess_raised(case, error, ...).status    # Status.DEADLOCK
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ddpkit.exercises.compare import Difference, difference
from ddpkit.exercises.exercise import Case, Observed
from ddpkit.exercises.hint import Advice
from ddpkit.exercises.raised import Trouble


class Status(StrEnum):
    """The outcome of a case, as a word."""

    PASS = "pass"
    FAIL = "fail"  # a value is wrong
    ERROR = "error"  # the answer raised, or gave no values
    DEADLOCK = "deadlock"
    TIMEOUT = "timeout"
    EXITED = "exited"
    BLANK = "blank"  # the exercise is as shipped, without an answer
    NOT_TRIED = "not tried"  # an earlier case ended the exercise
    NOT_RUN = "not_run"  # the grader never came to the case

    @property
    def of_exercise(self) -> str:
        """The status of an exercise if its first failed case has this status."""
        return Status.FAIL if self in (Status.BLANK, Status.NOT_TRIED) else self


ENDS = {  # the class of an exception -> the outcome of the case
    "Deadlock": Status.DEADLOCK,
    "RunTimeout": Status.TIMEOUT,
    "TookTooLong": Status.TIMEOUT,
    "RankDied": Status.EXITED,
}


@dataclass(frozen=True)
class Wrong:
    """A wrong value: its name, and its difference from the expected value."""

    name: str
    found: Difference | None  # None: the answer's values lack the name


@dataclass(frozen=True)
class Assessment:
    """The judgement of a case, with all data for the check's text and the grader's feedback."""

    case: Case
    status: Status
    wrong: tuple[Wrong, ...] = ()
    got: str = ""  # all observed values, an exception's headline, or the reason for no values
    details: tuple[str, ...] = ()  # lines about an exception
    printed: tuple[str, ...] = ()  # the answer's last printed lines
    advice: Advice | None = None
    trouble: Trouble | None = None  # the answer's exception as data; None if there are values
    measured: tuple[tuple[str, float], ...] = ()  # (name, value) for `Case.measures`, if passed

    @property
    def title(self) -> str:
        """The case's title."""
        return str(self.case.title)

    @property
    def passed(self) -> bool:
        """True if the answer was right."""
        return self.status is Status.PASS

    @property
    def tried(self) -> bool:
        """False for a case that did not run, because an earlier case ended the exercise."""
        return self.status is not Status.NOT_TRIED

    @property
    def hint(self) -> str:
        """The sentence of the hint; "" without a hint."""
        return self.advice.says if self.advice else ""

    @property
    def hint_name(self) -> str:
        """The name of the hint; "" without a hint."""
        return self.advice.name if self.advice else ""

    @property
    def ends_exercise(self) -> bool:
        """True if no later case runs after this case; see `Case.stop_if`."""
        if self.status is Status.BLANK:
            return False
        if self.trouble is None:
            return self.case.stop_if == "wrong" and not self.passed
        return self.trouble.hung or self.case.stop_if != ""


def assess(case: Case, seen: Observed) -> Assessment:
    """Return the assessment of a case from `seen`, the values that `case.reading` has returned."""
    wrong = tuple(_wrong(case, seen))
    if wrong:
        return Assessment(case, Status.FAIL, wrong, advice=case.advice(seen))
    measured = tuple((name, float(seen[name])) for name in case.measures)
    return Assessment(case, Status.PASS, measured=measured)


def _wrong(case: Case, seen: Observed) -> Iterator[Wrong]:
    for name, expected in case.expect.items():
        found = difference(seen[name], expected) if name in seen else None
        if found is not None or name not in seen:
            yield Wrong(name, found)


def assess_raised(
    case: Case,
    error: BaseException,
    trouble: Trouble,
    *,
    kinds: Iterable[str],
    headline: str,
    lines: Sequence[str],
) -> Assessment:
    """Return the assessment of a case in which the answer raised an exception.

    `kinds` are the names of the exception's class and base classes; `lines` are details below
    `headline`.
    """
    status = next((ENDS[kind] for kind in kinds if kind in ENDS), Status.ERROR)
    advice = case.advice({}, error, trouble)
    return Assessment(
        case, status, got=headline, details=tuple(lines), advice=advice, trouble=trouble
    )


def until_one_ends(assessments: Iterable[Assessment]) -> list[Assessment]:
    """Return the assessments; if a case ends the exercise, all later cases become NOT_TRIED."""
    kept: list[Assessment] = []
    ended = False
    for each in assessments:
        kept.append(Assessment(each.case, Status.NOT_TRIED) if ended else each)
        ended |= each.ends_exercise
    return kept
