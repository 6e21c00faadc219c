"""What an answer ended in, as data: the one place that knows the words of torch, gloo and Python.

A check asks `s.kind == "not contiguous"` and never looks into a message. A check that needs another
kind gets a row in `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ddpkit.errors import Deadlock, Mismatch, RankDied, RankError, RunFailed, RunTimeout
from ddpkit.protocol.raised import Raised

# kind -> words that are found in no other message. The first row that fits is taken.
KINDS: tuple[tuple[str, str], ...] = (
    ("never waited for", r"was never waited for"),
    ("empty from anybody", r"offset < this->size"),  # gloo, of an empty message to recv(src=None)
    ("to itself", r"to or from itself|should not be the same as the rank of the current"),
    ("no such rank", r"this group has rank"),
    ("not contiguous", r"has to be contiguous"),
    ("no view", r"view size is not compatible"),
    ("wrong size", r"invalid for input of size"),
    ("no cast", r"can't be cast"),
    ("leaf in place", r"leaf Variable that requires grad"),
    ("no graph", r"does not require grad"),
    ("no hook", r"cannot register a hook"),
    ("not its gradient", r"assign a gradient|assigned grad"),
    ("not ready", r"no gradient for"),  # the lessons' Reducer
    ("ready twice", r"ready twice"),
    ("ambiguous", r"Boolean value of Tensor"),
    ("no context manager", r"context manager"),
    ("None", r"NoneType"),
    ("iterator", r"iterator|generator"),
    ("dtypes", r"dtype|different type|scalar type"),
    ("shapes", r"[Ss]izes? of tensor|dimension|must match the size"),
)

# Where a `Deadlock` does not know its `cause`: words of `ddpkit.cluster.explain`.
CAUSES: tuple[tuple[str, str], ...] = (
    ("returned", r"which ha(s|ve) returned"),
    ("lost", r"the message is lost"),
    ("itself", r"waits for itself"),
    ("receive", r"wait to receive before they send"),
    ("send", r"wait in send until"),
    ("cycle", r"communicate in an order that fits"),
    ("nothing", r"has been posted by the others"),
)
DISAGREE: tuple[tuple[str, str], ...] = (
    ("message", r"does not fit the tensor"),
    ("operation", r"the same collectives in the same order"),
    ("root", r"name the same"),
    ("dtype", r"a tensor of the same dtype"),
    ("shape", r"a tensor of the same shape"),
    ("reduction", r"the same reduction"),
)
DTYPES = re.compile(r"(?:sends|into|calls?) (?:\w+\()?(\w+)\[")
MOST = 60  # characters of a word of a claim
ATTRIBUTE = re.compile(r"has no attribute '(\w+)'")
TYPE = re.compile(r"\b([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Iteration))\b")


@dataclass(frozen=True)
class Trouble:
    """What an answer ended in; every field is empty if it did not raise."""

    type: str = ""  # of what the student's function raised, on a rank or here: "IndexError"
    kind: str = ""  # a word of `KINDS`
    stuck: str = ""  # why the ranks wait for ever: a `Deadlock.cause`
    mismatch: str = ""  # on what the ranks disagree: a `Mismatch.kind`
    attribute: str = ""  # that something did not have
    dtypes: tuple[str, ...] = ()  # of a message or a collective on which the ranks disagree
    hung: bool = False  # a deadlock, a mismatch or a timeout: another try may take its time too

    @property
    def words(self) -> str:
        """For a test, or a page of the teacher's: "stuck: receive", "RuntimeError: no view"."""
        detail = self.stuck or self.mismatch or self.kind
        return f"{self.type}: {detail}" if detail else self.type

    def claimed(self) -> dict[str, Any]:
        """Plain JSON, for the way out of the grader's sandbox."""
        return asdict(self)


def trouble_of(error: BaseException) -> Trouble:
    """What is known of an exception that an answer ended in, its own or a run's."""
    texts = list(_texts(error))
    return Trouble(
        type=_type(error),
        kind=_first(KINDS, texts),
        stuck=_cause(error) if isinstance(error, Deadlock) else "",
        mismatch=_disagree(error) if isinstance(error, Mismatch) else "",
        attribute=next((found[1] for each in texts if (found := ATTRIBUTE.search(each))), ""),
        dtypes=_dtypes(error) if isinstance(error, Mismatch) else (),
        hung=isinstance(error, Deadlock | Mismatch | RunTimeout),
    )


def from_claim(claim: object) -> Trouble:
    """`Trouble.claimed` again, of which nothing is taken for granted: it is a student's claim."""
    if not isinstance(claim, dict):
        return Trouble()
    words = {
        name: str(claim.get(name, ""))[:MOST]
        for name in ("type", "kind", "stuck", "mismatch", "attribute")
    }
    dtypes = claim.get("dtypes")
    several = tuple(str(each)[:MOST] for each in dtypes[:8]) if isinstance(dtypes, list) else ()
    return Trouble(**words, dtypes=several, hung=claim.get("hung") is True)


def _type(error: BaseException) -> str:
    """On a rank, of the exception there; else of this one."""
    if not isinstance(error, RunFailed) or isinstance(error, Deadlock | Mismatch | RunTimeout):
        return type(error).__name__
    raised = [each.type for each in _raised(error).values()]
    if raised:
        return str(raised[0])
    if error.__cause__ is not None:
        return _type(error.__cause__)
    found = TYPE.search(str(error))
    return found[1] if found else type(error).__name__


def _texts(error: BaseException) -> Iterator[str]:
    """Messages without line breaks: what ranks raised, or the exception's own.

    A run's own message tells lines of code too, in which any word may stand.
    """
    if raised := _raised(error):
        yield from (" ".join(f"{each.type}: {each.message}".split()) for each in raised.values())
    elif isinstance(error, RunFailed) and error.__cause__ is not None:
        yield _flat(error.__cause__)
    else:
        yield _flat(error)


def _raised(error: BaseException) -> Mapping[int, Raised]:
    """By rank, what a `RankError` holds."""
    return error.raised if isinstance(error, RankError | RankDied) else {}


def _flat(error: BaseException) -> str:
    try:
        return " ".join(f"{type(error).__name__}: {error}".split())
    except Exception:  # a student's exception class may be broken too
        return type(error).__name__


def _first(table: tuple[tuple[str, str], ...], texts: list[str]) -> str:
    found = (word for text in texts for word, pattern in table if re.search(pattern, text))
    return next(found, "")


def _cause(error: Deadlock) -> str:
    """Why the ranks wait.

    A rank that waits in the barrier of a check, which follows a call, has returned from the call.
    """
    text = _flat(error)
    in_barrier = any(each.call.op == "barrier" for each in error.waiting.values())
    if in_barrier or re.search(r"waits? in barrier", text):
        return "returned"
    return error.cause if error.waiting else _first(CAUSES, [text])


def _disagree(error: Mismatch) -> str:
    return error.kind if error.calls else _first(DISAGREE, [_flat(error)])


def _dtypes(error: Mismatch) -> tuple[str, ...]:
    """The dtypes on which ranks disagree, of a message the sender's first; () if they agree."""
    if error.calls:
        in_order = sorted(error.calls.values(), key=lambda call: call.op != "send")
        found = [call.dtype for call in in_order if call.dtype]
    else:
        found = DTYPES.findall(_flat(error))
    different = tuple(dict.fromkeys(found))
    return different if len(different) > 1 else ()
