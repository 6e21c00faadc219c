"""What every answer is held to, whatever the exercise, and what is said before any other hint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ddpkit.exercises.hint import Hint

RETURNED_NONE = "it returned None"
NEVER_WAITED = "was never waited for"


class Careless(RuntimeError):
    """An answer did what no answer may; its message says so without the name of this class."""


def returning(answer: Callable[..., Any]) -> Callable[..., Any]:
    """The answer, which now raises `Careless` where it returns None."""
    return partial(_return_of, answer)


def _return_of(answer: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    returned = answer(*arguments, **named)
    if returned is None:
        raise Careless(RETURNED_NONE)
    return returned


# fmt: off
FOR_ALL = (
    Hint("returned None", lambda s: s.kind == "returned None",
         "A function that ends without `return` gives None, and so does `return f(x)` where f "
         "works in place and has no result. Return what yours has made, at its very end and "
         "wherever else it ends."),
    Hint("number for a tensor", lambda s: s.kind == "number for a tensor",
         "A number was given where a tensor is needed. Did you assign what recv returns? It writes "
         "into the tensor that it is given, and returns the number of the sender: write "
         "dist.recv(t, src), not t = dist.recv(t, src)."),
    Hint("never waited for", lambda s: s.kind == "never waited for",
         "What starts a message or a collective (isend, irecv, async_op=True) gives a Work. Keep "
         "it, and wait() for it before you return: until then the tensor belongs to the network, "
         "and nothing may have come."),
    Hint("in flight", lambda s: s.kind == "in flight",
         "From isend to wait() the tensor belongs to the network, and from irecv or async_op=True "
         "too: do not change it before wait(), and do not even read what is still to come."),
    Hint("hidden group", lambda s: s.kind == "hidden group",
         "What goes over a group of another backend is neither seen nor counted: send over the "
         "group that is there."),
)
# fmt: on
