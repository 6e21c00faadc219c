"""Rules for all answers, and hints about these rules, which precede an exercise's hints."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from ddpkit.asked import NotYourOwn
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Between

Answer = Callable[..., Any]  # a function or a class with any parameters

RETURNED_NONE = "it returned None"
NEVER_WAITED = "was never waited for"
# observed values of these names are counts of bytes
SENT = ("bytes", "handed in", "bytes of the hook")


class Careless(RuntimeError):
    """Raised if an answer breaks a rule for all answers.

    The message is shown without the name of this class.
    """


def own(answer: Any) -> Any:
    """Return the answer; if it is code of the kit, return a function that raises `NotYourOwn`.

    A class that is derived from a class of the kit counts as code of the kit.
    """
    made = answer
    while isinstance(made, partial):
        made = made.func
    kinds = made.__mro__ if isinstance(made, type) else (inspect.unwrap(made),)
    kits = [kind for kind in kinds if _is_the_kits(kind)]
    return partial(_refuse, kits[0]) if kits else answer


def _is_the_kits(made: Any) -> bool:
    """True for a function or class of the kit, except those of the course's answers."""
    module = str(getattr(made, "__module__", ""))
    return module.startswith("ddpkit.") and not module.startswith("ddpkit.answers.")


def _refuse(made: Any, *_: object, **__: object) -> NoReturn:
    raise NotYourOwn(f"{made.__module__}.{made.__qualname__}")


def returning(answer: Answer) -> Answer:
    """Return the answer, wrapped so that it raises `Careless` if it returns None."""
    return partial(_return_of, answer)


def values(returned: Any, count: int) -> Any:
    """Return the values that an answer returned; raise `Careless` if there are not `count`."""
    found = len(returned) if hasattr(returned, "__len__") else 1
    if found != count:
        raise Careless(f"it returned {found} values in place of {count}")
    return returned


def signature(answer: Answer) -> inspect.Signature:
    """Return the signature of the answer, even if `returning` has wrapped the answer."""
    if isinstance(answer, partial) and answer.func is _return_of:
        return inspect.signature(answer.args[0])
    return inspect.signature(answer)


def _return_of(answer: Answer, *arguments: object, **named: object) -> Any:
    returned = answer(*arguments, **named)
    if returned is None:
        raise Careless(RETURNED_NONE)
    return returned


def sent_too_little(s: Seen) -> tuple[int | None, int, int] | None:
    """Return the first rank that sent too few bytes, the bytes sent, and the bytes needed.

    The rank is None if the count is the sum over all ranks. The function returns None if all ranks
    sent enough bytes. It also returns None if any other value is wrong, because the hints for other
    values take precedence.
    """
    found: list[tuple[int | None, int, int]] = []
    for name, due in s.expect.items():
        if not s.wrong(name):
            continue
        if name not in SENT and not name.startswith("sent"):
            return None
        pairs = enumerate(zip(s[name], due, strict=True)) if isinstance(due, list) else ()
        found += [(rank, got, each.least) for rank, (got, each) in pairs if got not in each]
        if isinstance(due, Between):
            found.append((None, s[name], due.least))
    return found[0] if found and all(got < least for _, got, least in found) else None


def _too_little(s: Seen) -> str | None:
    if (found := sent_too_little(s)) is None:
        return None
    rank, got, least = found
    sender = "all ranks together give" if rank is None else f"rank {rank} gives"
    return (
        f"The values are right, but {sender} {got:,} bytes to torch.distributed, and the other "
        f"ranks need {least:,}. Where does an answer get these bytes from? In a real job a rank "
        "gets other ranks' numbers by messages alone."
    )


# fmt: off
FOR_ALL = (
    Hint("returned None", lambda s: s.kind == "returned None",
         "A function that ends without `return` gives None, and so does `return f(x)` where f "
         "works in place and has no result. Return the result, at the very end of your function "
         "and wherever else the function ends."),
    Hint("number for a tensor", lambda s: s.kind == "number for a tensor",
         "A number was given where a tensor is needed. Did you assign the result of recv? recv "
         "writes into its tensor, and returns the number of the sender: write dist.recv(t, src), "
         "not t = dist.recv(t, src)."),
    Hint("never waited for", lambda s: s.kind == "never waited for",
         "A call that starts a message or a collective (isend, irecv, async_op=True) gives a Work. "
         "Keep the Work, and wait() for it before you return: until then the tensor belongs to "
         "the network, and nothing may have come."),
    Hint("in flight", lambda s: s.kind == "in flight",
         "From isend to wait() the tensor belongs to the network, and from irecv or async_op=True "
         "too: do not change the tensor before wait(), and do not even read a tensor that is "
         "still to come."),
    Hint("not your own", lambda s: s.kind == "not your own",
         "The kit's functions predict, and an exercise asks for code of your own. So during a "
         "check, a function of the kit that gives the answer refuses to run."),
    Hint("modes off", lambda s: s.kind == "modes off",
         "The check counts the operations of your answer with a mode of torch's dispatcher. Leave "
         "torch's modes and dispatch keys as they are: their functions begin with an underscore."),
    Hint("side channel", lambda s: s.kind == "side channel",
         "Ranks of a job often have no disk in common, and only the network of torch.distributed: "
         "send through the group. No files, sockets, processes or stores."),
    Hint("hidden group", lambda s: s.kind == "hidden group",
         "Messages over a group of another backend are neither seen nor counted: send over the "
        "group that the run has made."),
    Hint("sent too little", sent_too_little, _too_little),
)
# fmt: on
