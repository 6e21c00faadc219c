"""What a rank's code meets where it asks the keyboard: one sentence, instead of an end of file."""

from __future__ import annotations

import builtins
import sys
from typing import NoReturn

NO_DEBUGGER = (
    "A rank has no keyboard, so no debugger either. Print or return what you want to see, or call "
    "the function without a cluster."
)


def take_away() -> None:
    """Let `input` and `breakpoint` say that there is no keyboard."""

    def input(prompt: object = "", /) -> NoReturn:
        raise EOFError(
            "A rank has no keyboard: ask in the notebook, and give the function the answer as an "
            "argument, as in cluster.run(f, answer)."
        )

    def breakpointhook(*_: object, **__: object) -> NoReturn:
        raise RuntimeError(NO_DEBUGGER)

    builtins.input = input
    sys.breakpointhook = breakpointhook
