"""Refuses code that removes ddpkit's dispatch modes, which would then not count its operations.

torch has two ways to hide operations from a mode: remove the mode from the thread's stack of modes,
or exclude the mode's dispatch key with a guard. `modes_stay_on` refuses the first way for ddpkit's
modes, and the second way for lines of the user's code. torch's compiler may remove modes while it
compiles. torch also removes all modes to print a tensor; here the modes stay, because code that
printing calls may be the user's.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

from ddpkit.rank.callers import below_the_user, compiles, module_of
from ddpkit.source import is_user_file
from ddpkit.torch_private import (
    DISABLE_MODES,
    POP_MODE,
    PRINTS,
    guards_of_keys,
    modules_of_modes,
    push_mode,
)


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
    home = modules_of_modes()[-1]
    disable = getattr(home, DISABLE_MODES)
    before.append((home, DISABLE_MODES, disable))
    setattr(home, DISABLE_MODES, _printing(disable))
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
    """True if a call comes from the user's code, and not from ddpkit or torch's compiler."""
    below = below_the_user(frame)
    return not any(compiles(each) or _is_kits(module_of(each)) for each in below)


def _printing(
    disable: Callable[[], AbstractContextManager[None]],
) -> Callable[[], AbstractContextManager[None]]:
    @functools.wraps(disable)
    def disabled() -> AbstractContextManager[None]:
        return nullcontext() if module_of(sys._getframe(1)) == PRINTS else disable()

    return disabled


def _hiding(guard: type, init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def made(self: object, *arguments: object) -> None:
        if is_user_file(sys._getframe(1).f_code.co_filename):
            raise ModesOff(guard.__name__)
        init(self, *arguments)

    return made
