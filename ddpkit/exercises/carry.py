"""`carry`: returns an earlier lab's answer, the student's own if the check of it has passed."""

from __future__ import annotations

from typing import Any

from ddpkit.errors import LessonError
from ddpkit.exercises.exercise import find
from ddpkit.exercises.explain import explain
from ddpkit.exercises.keep import kept_path, load
from ddpkit.exercises.progress import folder, is_new, of_a_parent
from ddpkit.exercises.say import say


def carry(name: str, *, quiet: bool = False) -> Any:
    """Return the function or class `name` of an earlier lab: your version, or else the kit's.

    carry() returns your version if the check of your version has passed. Unless `quiet`, carry()
    prints which version it returns. The function works in every notebook of the folder, and the
    result can be sent to ranks.

    Raises:
        LessonError: no exercise has that name, or neither you nor the kit has an answer.
    """
    exercise = find(name)
    path = kept_path(name)
    trouble = ""
    if path.exists():
        try:
            own = load(name, path.read_text("utf-8"), path)
        except Exception as error:  # the file may have been edited or copied
            trouble = f"yours ({path}) does not load: {explain(error).summary}"
        else:
            _tell(f"{name}: your own version, from {path}", quiet)
            return own
    ours = _from_kit(name)
    if ours is None:
        raise LessonError(
            f"There is no `{name}` to carry over. Answer `{name}` in lab {exercise.lab}; once its "
            f"check passes, carry() returns your version."
            + (f" ({trouble}.)" if trouble else f" carry() looked in {folder().absolute()}.")
        )
    why = trouble or _not_here(name, exercise.lab)
    _tell(f"{name}: the kit's version; {why}", quiet)
    return ours


def _not_here(name: str, lab: str) -> str:
    """Return the reason why the kit's version is used, with the folder that was searched."""
    here = folder().absolute()
    if above := of_a_parent(f"answers/{name}.py"):
        return f"yours is in {above}, and this notebook looks in {here}"
    new = f" (there is no {here} yet)" if is_new() else ""
    return f"yours takes over once its check in lab {lab} passes{new}"


def _from_kit(name: str) -> Any | None:
    """Return the kit's answer; None if the kit has none, as in the grader's sandbox."""
    try:
        from ddpkit import answers

        return answers.get(name)
    except (ImportError, LookupError):
        return None


def _tell(sentence: str, quiet: bool) -> None:
    if not quiet:
        say(f"{sentence}.\n")
