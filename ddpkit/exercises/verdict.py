"""The result of a check, and its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpkit.exercises.assess import Assessment, Wrong
from ddpkit.exercises.counts import differs
from ddpkit.exercises.raised import Trouble
from ddpkit.text import LINE, count, cut, sign, under

NO_MORE = "(This mistake has one hint only.)"
WRONG = 3  # a case's row names at most this many wrong values
WHOLE = 120  # characters that the first exception's text may have, even beside long titles


@dataclass(frozen=True)
class Verdict:
    """The result of a check; true if passed.

    A notebook shows no Verdict as a cell's value, because `check` prints the report.
    """

    name: str
    passed: bool
    points: float
    earned: float
    cases: tuple[Assessment, ...] = ()
    # the size of an unanswered exercise, "about 8 lines" or ""; None for an answer
    blank: str | None = None
    why_skipped: tuple[str, ...] = ()  # the reason for each case that was not asked, under torchrun

    @property
    def skipped(self) -> int:
        """The number of cases that did not run under torchrun."""
        return len(self.why_skipped)

    def __bool__(self) -> bool:
        return self.passed

    def _ipython_display_(self) -> None:
        """Show nothing in a notebook, in place of the repr."""

    @property
    def first_wrong(self) -> Assessment | None:
        """The first case that failed; None if all cases passed."""
        return next((case for case in self.cases if not case.passed), None)

    @property
    def hint(self) -> str:
        """The hint for the first failed case; "" without a hint."""
        return self.first_wrong.hint if self.first_wrong else ""

    @property
    def hint_name(self) -> str:
        """The name of the first failed case's hint; "" without a hint or a name."""
        return self.first_wrong.hint_name if self.first_wrong else ""

    @property
    def trouble(self) -> Trouble | None:
        """The exception of the first case in which the answer raised; None if no case did."""
        return next((case.trouble for case in self.cases if case.trouble), None)


def verdict_text(
    verdict: Verdict, notes: Sequence[str] = (), *, secret: bool = False, hint: int = 1
) -> str:
    """Return the report as text: a row for each case, help for the first failed case, a next step.

    `notes` are sentences that follow the verdict. Under a secret seed no expected value is shown.
    `hint` is 1 for a short hint, 2 for a longer one.
    """
    lines = list(_rows(verdict, secret))
    lines += _help(verdict, hint)
    return "\n".join([*lines, *_closing(verdict, notes)]) + "\n"


def _rows(verdict: Verdict, secret: bool) -> Iterator[str]:
    cases = [case for case in verdict.cases if case.tried]
    width = max((len(case.title) for case in cases), default=0)
    raised = 0
    for case in cases:
        lead = f"{sign(case.passed)} {case.title:<{width}}   "
        text = case.got if secret or not case.wrong else _differences(case.wrong)
        # An exception's text may be long. Only the first exception gets more than one line.
        if case.details:
            raised += 1
            room = LINE - len(lead)
            text = cut(text, (max(2 * room, WHOLE) if raised == 1 else room) - 8)
        yield under(lead, text) if text else lead.rstrip()
    if left := len(verdict.cases) - len(cases):
        yield f"  {count(left, 'more case')} {'was' if left == 1 else 'were'} not tried."


def _differences(wrong: Sequence[Wrong]) -> str:
    """Return the first few wrong values as text: "token got 12, expected 18"."""
    texts = [
        differs(each.name, each.found) if each.found else f"{each.name} is missing"
        for each in wrong[:WRONG]
    ]
    more = [f"and {len(wrong) - WRONG} more"] if len(wrong) > WRONG else []
    return "; ".join([*texts, *more])


def _help(verdict: Verdict, step: int) -> Iterator[str]:
    """Yield lines about failed cases: an exception's details, printed lines, and the hint.

    Details and printed lines come from the first failed case that has them.
    """
    failed = [case for case in verdict.cases if not case.passed]
    details = next((case.details for case in failed if case.details), ())
    yield from (under("    ", line) for line in details)
    printed = next((case.printed for case in failed if case.printed), ())
    leads = ["  Printed: ", *["           "] * len(printed)]
    yield from (under(lead, line) for lead, line in zip(leads, printed, strict=False))
    if verdict.first_wrong is None:
        return
    if not verdict.hint:
        if step > 1:
            yield "  Hint: this mistake has no hint."
        return
    more = verdict.first_wrong.advice.more if verdict.first_wrong.advice else ""
    if step > 1:
        yield under("  Hint: ", f"{verdict.hint} {more or NO_MORE}")
        return
    yield under("  Hint: ", verdict.hint)
    if more:
        yield f"        More: check({verdict.name}, hint=2)"


def _closing(verdict: Verdict, notes: Sequence[str]) -> Iterator[str]:
    if verdict.blank is not None:
        size = f" ({verdict.blank})" if verdict.blank else ""
        yield (
            f"{verdict.name}: not answered yet. Write your code{size}, run its cell, then this one."
        )
        return
    right = sum(case.passed for case in verdict.cases)
    of = f"{right} of {count(len(verdict.cases), 'case')}"
    if verdict.skipped:
        reasons = Counter(verdict.why_skipped).items()
        notes = [*(f"{cases} left out: {reason}." for reason, cases in reasons), *notes]
    if not verdict.cases:
        last = f"{verdict.name}: not checked."
    elif not verdict.passed:
        last = f"{verdict.name}: not yet, {of}. Change your cell, run it, then this one."
    else:
        last = f"{verdict.name}: passed, {of}."
        if notes and len(last) + len(notes[0]) < LINE:
            last, notes = f"{last} {notes[0]}", notes[1:]
    yield last
    yield from (under("  ", note) for note in notes)
