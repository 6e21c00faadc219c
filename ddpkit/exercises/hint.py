"""Hints for wrong answers. Each hint has the name of a mistake, a condition, and a sentence.

    HINTS = (
        Hint("x changed", lambda s: not s.kept, "x has changed: work on x.clone()."),
        Hint("all receive", lambda s: s.stuck == "receive", "One of them has to send first."),
        Hint("backwards", lambda s: s.sent == "1→0 0→1", "It goes the wrong way round."),
        Hint("lacks one", say=lambda s: f"The sum lacks rank {missing(s)}.",
             more="Receive from each of the others, and add."),
    )

A case gets such a table as `hints=`. The first hint with a true condition is shown.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.raised import Trouble


class Seen:
    """The argument `s` of a hint's functions: all data about a case with a wrong answer.

    `s.NAME` is the value that the case's author gave under this name in `given`, or else the
    observed value ("on rank" is `s.on_rank` or `s["on rank"]`). After an exception there are no
    observed values, so a hint that uses an observed value does not fit.

    If a name is both given and expected, `s.NAME` is refused, because a hint could show the
    author's value as that of the answer. Use `s["steps"]` for the observed value and
    `s.given.steps` for the author's value.

    These names always exist:

    - `error`: the exception, or None. The grader knows only its class and
      message, so use `kind`, `stuck`, `raised` … rather than its fields.
    - `kind`, `stuck`, `mismatch`, `attribute`, `dtypes`: see `Trouble`; empty without an exception.
    - `raised`: the name of the exception's class, on a rank if a rank raised; else "".
    - `expect`: the expected values, by name.
    """

    def __init__(
        self,
        observed: Mapping[str, Any],
        expect: Mapping[str, Any],
        given: Any = None,
        error: BaseException | None = None,
        trouble: Trouble | None = None,
    ) -> None:
        trouble = trouble or Trouble()
        self.observed, self.expect, self.given, self.error = observed, expect, given, error
        self.kind, self.stuck, self.mismatch = trouble.kind, trouble.stuck, trouble.mismatch
        self.raised, self.attribute, self.dtypes = trouble.type, trouble.attribute, trouble.dtypes

    def __getattr__(self, name: str) -> Any:
        if name in ("observed", "given"):  # a copy in the making has neither attribute
            raise AttributeError(name)
        # The given value comes first: an observed value may be a stranger's claim, with additional
        # names, and a hint takes sizes from the given values.
        names = name, name.replace("_", " ")
        by_name = isinstance(self.given, Mapping)
        if name in self.given if by_name else hasattr(self.given, name):
            if any(each in self.expect for each in names):
                raise AttributeError(
                    f"{name} is both given and observed: s[{name!r}] is the observed value, and "
                    "s.given has the given value"
                )
            return self.given[name] if by_name else getattr(self.given, name)
        for known in names:
            if known in self.observed:
                return self.observed[known]
        raise AttributeError(
            f"a hint asks for {name}, but the case neither observes nor gives {name}"
        )

    def __getitem__(self, name: str) -> Any:
        return self.observed[name]

    def wrong(self, *names: str) -> bool:
        """True if the observed value of one of `names`, by default of any name, is wrong.

        Raises KeyError if a name was not observed, or if no value is expected under a name.
        """
        return any(
            not same(self.observed[name], self.expect[name]) for name in names or self.expect
        )


def values_are_wrong(s: Seen) -> bool:
    """True if the answer returned values and did not raise."""
    return s.error is None


@dataclass(frozen=True)
class Hint:
    """A hint for one mistake: the mistake's name, a condition, and a sentence for the student.

    Without `when`, the condition is true for every answer that did not raise. A hint does not fit
    if its functions raise an error or return an empty sentence, so `when` need not work for answers
    with other mistakes.

    `say` is a short hint, which leaves the thinking to the student. `more`, shown by ``check(f,
    hint=2)``, may contain the solution.
    """

    name: str
    when: Callable[[Seen], object] = values_are_wrong
    say: str | Callable[[Seen], str | None] = ""
    more: str | Callable[[Seen], str] = ""

    def __post_init__(self) -> None:
        if not self.name or not self.say:
            raise ValueError(f"a hint needs a name and a text: {self}")

    def advice(self, s: Seen) -> Advice | None:
        """Return the advice for this answer; None if this hint does not fit."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                if not self.when(s):
                    return None
                says = self.say if isinstance(self.say, str) else self.say(s)
                more = self.more if isinstance(self.more, str) else self.more(s)
        except Exception:
            return None
        return Advice(self.name, says, more) if says else None


@dataclass(frozen=True)
class Advice:
    """The hint that is shown to a student: its name, its sentence, and a longer text."""

    name: str
    says: str
    more: str = ""


def first_that_fits(hints: Sequence[Hint], s: Seen) -> Advice | None:
    return next((advice for hint in hints if (advice := hint.advice(s))), None)
