"""What to say of messages that did not come through: the same in every lab."""

from __future__ import annotations

import re

from ddpkit.exercises.hint import Hint
from ddpkit.exercises.ranks import NEVER_WAITED

# fmt: off
MESSAGES = (  # a lab's table of hints begins with these
    Hint("never waited for", lambda s: s.kind == "never waited for",
         "isend and irecv only start a message. Keep what they return, and wait() for it before "
         "you return: until then the tensor belongs to the network, and nothing may have come."),
    Hint("from anybody", lambda s: s.kind == "empty from anybody",
         "A recv that names no rank takes what comes first, from anybody, and gloo breaks where "
         "that is empty: name the rank."),
    Hint("two dtypes", lambda s: s.mismatch == "message" and s.dtypes,
         lambda s: f"{s.dtypes[0]} is sent and {s.dtypes[1]} expected: make room in the dtype of "
         "what comes, as torch.empty_like does."),
)
# fmt: on

# For checks that do not have named hints yet
ITSELF = re.compile("to or from itself|not be the same")
EMPTY_FROM_ANYBODY = "offset < this->size"  # gloo's words for an empty one, where any may come
MISFIT = re.compile(r"sends (\w+)\[.* receives into (\w+)\[")


def of_message(text: str) -> str | None:
    """The hint for an error, by its text without line breaks; None if it tells of no message."""
    if NEVER_WAITED in text:
        return (
            "isend and irecv only start a message. Keep what they return, and wait() for it before "
            "you return: until then the tensor belongs to the network, and nothing may have come."
        )
    if EMPTY_FROM_ANYBODY in text:
        return (
            "A recv that names no rank takes what comes first, from anybody, and gloo breaks "
            "where that is empty: name the rank."
        )
    if (found := MISFIT.search(text)) and found[1] != found[2]:
        return (
            f"{found[1]} is sent and {found[2]} expected: make room in the dtype of what comes, as "
            "torch.empty_like does."
        )
    return None
