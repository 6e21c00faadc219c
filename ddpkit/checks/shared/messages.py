"""Hints about messages that were not delivered, for all labs."""

from __future__ import annotations

from ddpkit.exercises.hint import Hint

# fmt: off
MESSAGES = (  # the first hints of a lab's table
    Hint("from anybody", lambda s: s.kind == "empty from anybody",
         "A recv without a rank takes the first message from any rank, and gloo breaks if the "
         "message is empty. Name the rank in recv."),
    Hint("two dtypes", lambda s: s.mismatch == "message" and s.dtypes,
         lambda s: f"A rank sends {s.dtypes[0]}, but the receiver expects {s.dtypes[1]}. Receive "
         "into a tensor of the sender's dtype, for example from torch.empty_like."),
)
# fmt: on
