"""The base class of ddpkit's dispatch modes, which do not load torch's compiler.

torch wraps a mode's `__torch_dispatch__` so that `torch.compile` does not compile the method. At
its first call the wrapper imports the compiler, although nothing can be compiled before this import
(`compiler.py`), and afterwards the wrapper costs as much as a simple operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpkit.rank import compiler
from ddpkit.torch_private import TorchDispatchMode


class PlainMode(TorchDispatchMode):
    """A dispatch mode with an unwrapped `__torch_dispatch__`, until the compiler is imported."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls, **named: object) -> None:
        plain = cls.__dict__["__torch_dispatch__"]
        super().__init_subclass__(**named)  # type: ignore[no-untyped-call]
        wrapped = cls.__dict__["__torch_dispatch__"]
        if wrapped is not plain:
            cls.__torch_dispatch__ = _plain_at_first(cls, plain, wrapped)  # type: ignore[method-assign]


def _plain_at_first(
    cls: Any, plain: Callable[..., object], wrapped: Callable[..., object]
) -> Callable[..., object]:
    def dispatch(
        self: object,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        if not compiler.is_loaded():
            return plain(self, func, types, args, kwargs)
        cls.__torch_dispatch__ = wrapped
        return wrapped(self, func, types, args, kwargs)

    return dispatch
