"""The choice of the strongest sandbox that this machine can make."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.grade.sandbox import bwrap, other_user
from ddpkit.grade.sandbox.base import Limits
from ddpkit.grade.sandbox.bwrap import Bwrap
from ddpkit.grade.sandbox.other_user import OtherUser

BWRAP, USER = "bwrap", "user"


@functools.cache
def level() -> str:
    """Return the kind of sandbox on this machine, BWRAP or USER, which each result stores."""
    return USER if bwrap.trouble() else BWRAP


def require(private: Sequence[Path] = ()) -> None:
    """Raise GradeError if this machine cannot isolate a student's code.

    Also raise GradeError if the code could read the `private` files.
    """
    if level() == USER and (why := other_user.trouble(private)):
        raise GradeError(
            f"Grading runs the students' code in a sandbox, and {bwrap.trouble()}. "
            f"The code cannot run as another user of this machine either: {why}."
        )


def sandbox_for(course: Path, job: Path, limits: Limits) -> Bwrap | OtherUser:
    """Return a sandbox for one run, of the strongest kind. The arguments are those of `Bwrap`."""
    return (Bwrap if level() == BWRAP else OtherUser)(course, job, limits)
