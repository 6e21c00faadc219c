"""`say`: prints all output for the student, in one write of one process."""

from __future__ import annotations

import os
import sys

from ddpkit.text import plain


def speaks() -> bool:
    """True if this process prints for the reader; under torchrun only rank 0 prints."""
    return "WORLD_SIZE" not in os.environ or os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    """Print `text` in one piece, so that a notebook stores one output on any machine."""
    if not speaks():
        return
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # this console cannot print Unicode
        sys.stdout.write(plain(text))
    sys.stdout.flush()
