"""Refuses code that removes ddpkit's dispatch modes, which would then not count its operations.

torch has two ways to hide operations from a mode: remove the mode from the thread's stack of modes,
or exclude the mode's dispatch key with a guard. `modes_stay_on` refuses the first way for ddpkit's
modes, and the second way for lines of the user's code. torch's compiler may remove modes while it
compiles.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ddpkit.rank.callers import below_the_user, compiles, module_of
from ddpkit.source import is_user_file
from ddpkit.torch_private import POP_MODE, guards_of_keys, modules_of_modes, push_mode

PRINTS = "torch._tensor_str"


class ModesOff(RuntimeError):
    """Raised if code hides operations from the dispatch modes that count operations."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the code hides operations from the kit by {name}: let torch compute as usual"
        )


@contextmanager
def modes_stay_on() -> Iterator[None]:
    """A block in which code that hides operations from ddpkit's modes raises `ModesOff`."""
    before: list[tuple[Any, str, Any]]
    before = [(module, POP_MODE, getattr(module, POP_MODE)) for module in modules_of_modes()]
    before += [(guard, "__init__", guard.__init__) for guard in guards_of_keys()]
    for where, name, own in before:
        setattr(where, name, _popping(own) if name == POP_MODE else _hiding(where, own))
    try:
        yield
    finally:
        for where, name, own in before:
            setattr(where, name, own)


def _popping(pop: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(pop)
    def popped(*arguments: object) -> object:
        mode = pop(*arguments)
        if _is_kits(type(mode).__module__) and _for_the_user(sys._getframe(1)):
            push_mode(mode)
            raise ModesOff(POP_MODE)
        return mode

    return popped


def _is_kits(module: str) -> bool:
    return module.partition(".")[0] == "ddpkit"


def _for_the_user(frame: FrameType | None) -> bool:
    """True if a call comes from the user's code, and not from ddpkit or from torch's own work.

    torch removes all modes while it compiles, and while it prints a tensor.
    """
    below = list(below_the_user(frame))
    modules = list(map(module_of, below))
    return (
        PRINTS not in modules and not any(map(_is_kits, modules)) and not any(map(compiles, below))
    )


def _hiding(guard: type, init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def made(self: object, *arguments: object) -> None:
        if is_user_file(sys._getframe(1).f_code.co_filename):
            raise ModesOff(guard.__name__)
        init(self, *arguments)

    return made
