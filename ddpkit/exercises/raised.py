"""An answer's exception as data, made from the messages of torch, gloo and Python.

No other module depends on these messages: a hint tests `s.kind == "not contiguous"`. For a new
kind, add a row to `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from ddpkit.errors import Deadlock, Mismatch, RankDied, RankError, RunFailed, RunTimeout
from ddpkit.exercises.limit import TookTooLong
from ddpkit.protocol.raised import Raised

# kind, and a pattern for the messages of this kind; the first row that fits counts
KINDS: tuple[tuple[str, str], ...] = (
    ("returned None", r"Careless: it returned None"),  # raised by `guard`
    ("number for a tensor", r"of type torch\.Tensor but got <class 'int'>"),
    ("never waited for", r"was never waited for"),
    ("hidden group", r"the messages in such a group are not counted"),
    ("not your own", r"is the kit's own answer to the exercise"),  # raised by `ddpkit.asked`
    ("modes off", r"hides operations from the kit"),
    ("side channel", r"ranks could exchange data past torch\.distributed"),
    ("in flight", r"a tensor in flight: the "),
    ("empty from anybody", r"offset < this->size"),  # gloo: empty message to recv(src=None)
    (
        "to itself",
        r"exchange messages with itself|should not be the same as the rank of the current",
    ),
    ("no bucket", r"KeyError: 'bucket'$"),  # torch's DDP: a hook has wrong parameters
    ("no such rank", r"this group has rank"),
    ("out of range", r"should be within the world_size|[Rr]ank \d+ is out of range"),
    ("not contiguous", r"has to be contiguous"),
    ("shares memory", r"share memory|shares memory"),
    ("no view", r"view size is not compatible"),
    ("no ranks", r"Default process group has not been initialized"),
    ("freed", r"out of bounds for storage of size 0"),
    # the row "freed" comes first, so here the size of the storage is not 0
    ("storage too small", r"out of bounds for storage"),
    ("wrong size", r"invalid for input of size"),
    ("split sizes", r"split_with_sizes expects split_sizes to sum"),
    ("unequal lists", r"invalid tensor size at index"),  # raised by gloo's all_to_all of lists
    ("total of splits", r"[Ss]plit sizes doesn't match total dim 0 size"),
    ("number of splits", r"Number of tensor splits not equal to group size"),
    ("no even chunks", r"outputShape\[0\] \* worldSize|[Oo]utput tensor size times world"),
    ("no parameters", r"optimizer got an empty parameter list"),
    ("no cast", r"can't be cast"),
    ("bytes of a tensor", r"cannot be 0 to view|stride\(-1\) must be 1|unsupported ScalarType"),
    ("leaf in place", r"leaf Variable that requires grad"),
    ("graph freed", r"backward through the graph a second time"),
    ("not in the graph", r"not have been used in the graph"),
    ("not callable", r"is not callable"),
    ("no graph", r"does not require grad"),
    ("no hook", r"cannot register a hook"),
    ("not its gradient", r"assign a gradient|assigned grad"),
    ("gradient count", r"returned an incorrect number of gradients"),
    ("not ready", r"no gradient for"),  # raised by the lessons' Reducer
    ("ready twice", r"ready twice"),
    ("ambiguous", r"Boolean value of Tensor"),
    ("no context manager", r"context manager"),
    ("not a list", r", not a list$"),  # raised by lab 05's check of unflatten
    ("not a tensor", r", not a tensor$"),  # raised by lab 05's check of flatten
    ("None", r"NoneType"),
    ("a list", r"'list' object has no attribute|must be Tensor, not list|operand type.*'list'"),
    ("iterator", r"iterator|generator"),
    ("no floats", r"only Tensors of floating point"),  # requires_grad_ of whole numbers
    ("dtypes", r"dtype|different type|scalar type"),
    ("gradient's shape", r"returned an invalid gradient"),
    ("factors", r"be multiplied|multiply up to"),
    ("state sizes", r"size mismatch for"),  # raised by load_state_dict
    ("shapes", r"[Ss]izes? of tensor|dimension|must match the size"),
)

MOST = 60  # characters kept of each word in a claim
ATTRIBUTE = re.compile(r"has no attribute '(\w+)'")


@dataclass(frozen=True)
class Trouble:
    """The exception of an answer, as data; every field is empty if the answer did not raise."""

    type: str = ""  # class of the exception, raised on a rank or here: "IndexError"
    kind: str = ""  # a word of `KINDS`
    stuck: str = ""  # the reason why ranks wait forever: a `Deadlock.cause`
    mismatch: str = ""  # the kind of a mismatch between ranks: a `Mismatch.kind`
    attribute: str = ""  # the missing name of an AttributeError
    dtypes: tuple[str, ...] = ()  # the dtypes on which the ranks disagree
    hung: bool = False  # a deadlock, a mismatch or a timeout; another try may take as long

    @property
    def words(self) -> str:
        """The class and the cause of the exception in one line, as in "Deadlock: receive"."""
        detail = self.stuck or self.mismatch or self.kind
        return f"{self.type}: {detail}" if detail else self.type

    def claimed(self) -> dict[str, object]:
        """Return the data as plain JSON values, to leave the grader's sandbox."""
        return asdict(self)


def trouble_of(error: BaseException) -> Trouble:
    """Return the data of the exception that an answer, or the answer's ranks, raised.

    If ranks raised, the data are those of the first rank's exception, and `kind` is the first known
    kind.
    """
    texts = list(_texts(error))
    stuck = _cause(error) if isinstance(error, Deadlock) else ""
    return Trouble(
        type=_type(error),
        kind="to itself" if stuck == "itself" else _kind(texts),
        stuck=stuck,
        mismatch=error.kind if isinstance(error, Mismatch) else "",
        attribute=next((found[1] for each in texts if (found := ATTRIBUTE.search(each))), ""),
        dtypes=_dtypes(error) if isinstance(error, Mismatch) else (),
        hung=isinstance(error, Deadlock | Mismatch | RunTimeout | TookTooLong),
    )


def from_claim(claim: object) -> Trouble:
    """Return the data of an exception from a claim.

    A student's code may have made the claim, so no type or size in it is trusted.
    """
    if not isinstance(claim, dict):
        return Trouble()
    words = {
        name: str(claim.get(name, ""))[:MOST]
        for name in ("type", "kind", "stuck", "mismatch", "attribute")
    }
    dtypes = claim.get("dtypes")
    several = tuple(str(each)[:MOST] for each in dtypes[:8]) if isinstance(dtypes, list) else ()
    return Trouble(**words, dtypes=several, hung=claim.get("hung") is True)


def named(error: BaseException, names: Iterable[str]) -> list[str]:
    """Return those of `names` that occur in an exception's message.

    ``named(error, dict(model.named_parameters()))`` returns the parameters that a message names.
    """
    return [name for name in names if any(name in text for text in _texts(error))]


def listed(error: BaseException) -> list[int] | str:
    """Return the last list in an exception's message, or the text "no list".

    For "ranks [1, 3] are missing", the result is [1, 3].
    """
    lists = re.findall(r"\[([\d, ]*)\]", _flat(error))
    return [int(each) for each in lists[-1].split(",") if each.strip()] if lists else "no list"


def _type(error: BaseException) -> str:
    """Return the class name of the first rank's exception; if no rank raised, that of `error`."""
    return next((each.type for each in _raised(error).values()), type(error).__name__)


def _texts(error: BaseException) -> Iterator[str]:
    """Yield the messages of the ranks' exceptions and of `error` itself, without line breaks.

    The message of a `RunFailed` is left out. ddpkit wrote this message, and its facts are in the
    fields of the error; the message also quotes lines of code, which may contain any words.
    """
    raised = _raised(error).values()
    yield from (" ".join(f"{each.type}: {each.message}".split()) for each in raised)
    if not isinstance(error, RunFailed):
        yield _flat(error)


def _raised(error: BaseException) -> Mapping[int, Raised]:
    """Return the exceptions of ranks, by rank; empty if no rank raised."""
    return error.raised if isinstance(error, RankError | RankDied) else {}


def _flat(error: BaseException) -> str:
    try:
        return " ".join(f"{type(error).__name__}: {error}".split())
    except Exception:  # a student's exception class may be broken too
        return type(error).__name__


def _kind(texts: list[str]) -> str:
    found = (word for text in texts for word, pattern in KINDS if re.search(pattern, text))
    return next(found, "")


def _cause(error: Deadlock) -> str:
    """Return the reason why the ranks wait.

    A check calls a barrier after each call of the answer, so a rank in this barrier has returned
    from the answer.
    """
    in_barrier = any(each.call.op == "barrier" for each in error.waiting.values())
    return "returned" if in_barrier else error.cause


def _dtypes(error: Mismatch) -> tuple[str, ...]:
    """Return the dtypes on which ranks disagree, the sender's dtype first; () if they agree."""
    in_order = sorted(error.calls.values(), key=lambda call: call.op != "send")
    different = tuple(dict.fromkeys(call.dtype for call in in_order if call.dtype))
    return different if len(different) > 1 else ()
