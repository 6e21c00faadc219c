"""The one way to the student: one write to stdout, by one process."""

from __future__ import annotations

import os
import sys

from ddpkit.text import plain


def speaks() -> bool:
    """Whether this process speaks to the reader: under torchrun, rank 0 alone."""
    return "WORLD_SIZE" not in os.environ or os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """Print `text` in one piece, so that a notebook stores one output, whatever the machine."""
    if not speaks():
        return
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # a console of another age
        sys.stdout.write(plain(text))
    sys.stdout.flush()
