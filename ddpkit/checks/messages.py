"""What to say of messages that did not come through: the same in every lab."""

from __future__ import annotations

from ddpkit.exercises.hint import Hint

# fmt: off
MESSAGES = (  # a lab's table of hints begins with these
    Hint("from anybody", lambda s: s.kind == "empty from anybody",
         "A recv that names no rank takes what comes first, from anybody, and gloo breaks where "
         "that is empty: name the rank."),
    Hint("two dtypes", lambda s: s.mismatch == "message" and s.dtypes,
         lambda s: f"{s.dtypes[0]} is sent and {s.dtypes[1]} expected: make room in the dtype of "
         "what comes, as torch.empty_like does."),
)
# fmt: on
