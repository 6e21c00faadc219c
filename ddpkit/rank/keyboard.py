"""Makes `input` and `breakpoint` raise clear errors on a rank, because a rank has no keyboard."""

from __future__ import annotations

import builtins
import sys
from typing import NoReturn

NO_DEBUGGER = (
    "A rank has no keyboard and therefore no debugger. Print or return the values that you want to "
    "see, or call the function without a cluster."
)


def take_away() -> None:
    """Make `input` and `breakpoint` raise clear errors, because a rank has no keyboard."""

    def input(prompt: object = "", /) -> NoReturn:
        raise EOFError(
            "A rank has no keyboard: call input() in the notebook, and pass the answer to the "
            "function, as in cluster.run(f, answer)."
        )

    def breakpointhook(*_: object, **__: object) -> NoReturn:
        raise RuntimeError(NO_DEBUGGER)

    builtins.input = input
    sys.breakpointhook = breakpointhook
