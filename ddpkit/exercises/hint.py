"""Hints: a table of names, of when each fits, and of what it says.

    HINTS = (
        Hint("x changed", lambda s: not s.kept, "x has changed: work on x.clone()."),
        Hint("all receive", lambda s: s.stuck == "receive", "One of them has to send first."),
        Hint("backwards", lambda s: s.sent == "1→0 0→1", "It goes the wrong way round."),
        Hint("lacks one", say=lambda s: f"The sum lacks what rank {missing(s)} gave.",
             more="Receive from each of the others, and add."),
    )

The first that fits is shown. A case takes such a table as `hints=`.
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
    """`s` of a hint: all that is known of a case whose answer is wrong.

    `s.NAME` is what was observed under that name ("on rank" is `s.on_rank` or `s["on rank"]`), or
    else what the author gave to the case. After an exception nothing is observed, so a hint that
    asks for it does not fit. Always there are:

    A name that is given and also expected is refused, for a hint would show the author's value as
    the answer's: `s["steps"]` is the observed one, `s.given.steps` the author's.

    - `error`: the exception, or None. Outside the grader's sandbox it is one of that class with
      that message; so ask `kind`, `stuck`, `raised` … rather than its fields.
    - `kind`, `stuck`, `mismatch`, `attribute`, `dtypes`: see `Trouble`; empty without an exception.
    - `raised`: the name of the exception's class, on a rank that of the rank's; "" without one.
    - `expect`: what was expected, by name.
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
        if name in ("observed", "given"):  # not yet there, in a copy
            raise AttributeError(name)
        # What is given comes first: what is observed may be a stranger's claim, with more names in
        # it than were asked for, and a hint takes sizes from what is given.
        names = name, name.replace("_", " ")
        by_name = isinstance(self.given, Mapping)
        if name in self.given if by_name else hasattr(self.given, name):
            if any(each in self.expect for each in names):
                raise AttributeError(
                    f"{name} is given and also observed: ask for s[{name!r}], or for s.given"
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
        """Whether one of these was observed to be other than expected; by default any.

        KeyError: it was not observed, or nothing is expected of it.
        """
        return any(
            not same(self.observed[name], self.expect[name]) for name in names or self.expect
        )


def values_are_wrong(s: Seen) -> bool:
    """Whether the answer gave values, and did not raise."""
    return s.error is None


@dataclass(frozen=True)
class Hint:
    """One mistake: its name, when an answer has made it, and the sentence for the student.

    Without `when` a hint fits every answer that did not raise. A hint that raises an error itself,
    or has nothing to say, does not fit: so `when` need not guard against other mistakes.

    `say` is a nudge, which leaves the thinking to the student; `more`, what `check(f, hint=2)` says
    besides, may give it away.
    """

    name: str
    when: Callable[[Seen], object] = values_are_wrong
    say: str | Callable[[Seen], str | None] = ""
    more: str | Callable[[Seen], str] = ""

    def __post_init__(self) -> None:
        if not self.name or not self.say:
            raise ValueError(f"a hint needs a name and a text: {self}")

    def advice(self, s: Seen) -> Advice | None:
        """What to say of this answer; None if the hint does not fit."""
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
    """The hint that is shown: its name, its sentence, and what is said on request."""

    name: str
    says: str
    more: str = ""


def first_that_fits(hints: Sequence[Hint], s: Seen) -> Advice | None:
    return next((advice for hint in hints if (advice := hint.advice(s))), None)
