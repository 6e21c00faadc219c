"""Sentences about answers of the wrong type."""

from __future__ import annotations


def no_list(kind: str) -> str:
    """Return the sentence for an answer that returns a `kind` (a generator, ...), not a list."""
    return (
        f"Return a list. You return a {kind}, which has no [0] and can be read only once; "
        f"list(...) turns the {kind} into a list."
    )
