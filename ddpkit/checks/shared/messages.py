"""Hints about messages that did not come through, for all labs."""

from __future__ import annotations

from ddpkit.exercises.hint import Hint

# fmt: off
MESSAGES = (  # the beginning of a lab's table of hints
    Hint("from anybody", lambda s: s.kind == "empty from anybody",
         "A recv without a rank takes the first message of any rank, and gloo breaks if the "
         "message is empty: name the rank."),
    Hint("two dtypes", lambda s: s.mismatch == "message" and s.dtypes,
         lambda s: f"{s.dtypes[0]} is sent and {s.dtypes[1]} expected: make room in the dtype "
         "that is sent, as torch.empty_like does."),
)
# fmt: on
