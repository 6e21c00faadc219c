"""The asking of questions in the sandbox's kernel: `ask` calls the answer, and makes the claim.

The grader has put the questions into the folder `DDPKIT_QUESTIONS`. The grader outside trusts no
result of this code, because it runs beside the student's code.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from ddpkit.grade.inside import MIME
from ddpkit.grade.inside.claims import encode

# a question's pickle has this persistent id in place of the answer
GAP = "ddpkit: the student's answer"
_stopped: set[str] = set()  # exercises of which no further question is asked


def prepare() -> None:
    """Make error messages name the student's cells, and replace `check` by `_unasked`.

    Here the cells have no numbers. From now on the kit refuses to answer any exercise, in this
    process and in the processes that the student's cells start.
    """
    from ddpkit import asked, exercises

    folder = Path(os.environ["DDPKIT_QUESTIONS"])
    labels = json.loads((folder / "labels.json").read_text())
    asked.ask(path.stem for path in folder.iterdir() if path.suffix != ".json")
    os.environ[asked.VARIABLE] = " ".join(asked.now())

    exercises.check = _unasked  # type: ignore[assignment]  # looked up there by `ddpkit.check`
    shell = _shell()
    # Jupyter's own `quit` and `exit` end the kernel only some cells later
    shell.user_ns |= {"quit": _quit, "exit": _quit}
    files = {shell.compile.get_code_name(text, text, 1): name for text, name in labels.items()}
    usual = shell.compile.format_code_name
    shell.compile.format_code_name = lambda file: (
        ("your cell", files[file]) if file in files else usual(file)
    )


def _unasked(answer: object) -> SimpleNamespace:
    """Return a verdict that has passed, in place of `check`, and do not call the answer.

    In the grader, only the grader's questions call an answer.
    """
    return SimpleNamespace(name=getattr(answer, "__name__", ""), passed=True)


def _quit(*_: object, **__: object) -> NoReturn:
    """End the cell, as `quit()` and `exit()` do in plain Python."""
    raise SystemExit


def ask(key: str) -> None:
    """Put question `key` ("token_ring.0") to the answer `token_ring`, and display the claim.

    If an exception stops the exercise, its later questions are not asked, because each of them
    would only take time. The grader outside counts these questions as wrong.
    """
    name = key.partition(".")[0]
    shell = _shell()
    claim: dict[str, Any] = {"key": key}
    if name not in shell.user_ns:
        claim["undefined"] = True
    elif name in _stopped:
        claim["untried"] = True
    else:
        claim |= claimed(partial(_observe, key, shell.user_ns[name]))
        if _stops(key, claim):
            _stopped.add(name)
    shell.display_pub.publish({MIME: claim})


def _stops(key: str, claim: dict[str, Any]) -> bool:
    """True if the claim ends its exercise, as far as can be known without expected values."""
    if "trouble" not in claim:
        return False
    file = Path(os.environ["DDPKIT_QUESTIONS"], "stops.json")
    return bool(claim["trouble"]["hung"]) or key in json.loads(file.read_text())


def _shell() -> Any:
    from IPython.core.getipython import get_ipython

    return get_ipython()


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, answer: object) -> None:
        super().__init__(io.BytesIO(data))
        self.answer = answer

    def persistent_load(self, pid: Any) -> object:
        if pid != GAP:
            raise pickle.UnpicklingError(f"unknown gap {pid!r}")
        return self.answer


def _observe(key: str, answer: object) -> Any:
    from ddpkit.exercises.guard import own

    question = Path(os.environ["DDPKIT_QUESTIONS"], key).read_bytes()
    observe = _Unpickler(question, own(answer)).load()
    if (seconds := os.environ.get("DDPKIT_CASE_S")) is None:
        return observe()
    from ddpkit.exercises.limit import limited

    return limited(observe, float(seconds))


def claimed(observe: Callable[[], Any]) -> dict[str, Any]:
    """Return the claim for the grader as plain JSON: the observed values, or the exception."""
    from ddpkit.exercises.explain import explain, is_unanswered, size_of_blank
    from ddpkit.exercises.raised import trouble_of
    from ddpkit.exercises.tail import Tail, captured

    output = Tail()
    try:
        with captured(output):
            return {"seen": encode(dict(observe())), "printed": list(output.last())}
    except BaseException as error:
        if is_unanswered(error):
            return {"blank": size_of_blank(error) or "not answered"}
        explained = explain(error)
        return {
            "trouble": trouble_of(error).claimed(),
            "kinds": [kind.__name__ for kind in type(error).__mro__],
            "message": str(error)[:4000],
            "summary": explained.summary[:400],
            "lines": [line[:400] for line in explained.lines[:8]],
            "printed": list(output.last()),
        }
