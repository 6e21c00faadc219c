"""Sentences about answers of the wrong kind."""

from __future__ import annotations


def no_list(kind: str) -> str:
    """Return the sentence about a generator, or the like, in the place of a list."""
    return (
        f"A list is asked for, and you return a {kind}, which can be gone over once and has no "
        "[0]: list(...) makes a list of it."
    )
