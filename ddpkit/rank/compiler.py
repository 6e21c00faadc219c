"""torch's compiler, which is put off until something is to be compiled.

The problem. `torch._dynamo` takes as long to import as torch itself, and 80 MB. Each optimizer's
constructor and step imports it, and so does the constructor of DistributedDataParallel: only to say
that they themselves are not to be compiled. Where nothing is compiled, that says nothing.

It would be simpler to import it once in the forkserver, which did so (`preload.py`); then a run
waited for it, each rank's fork copied its pages, and the notebook's own process paid once more.

So a stand-in takes its place in `sys.modules`. It gives those callers the answers that the compiler
would give while nothing is compiled. Whoever wants anything else of it, such as `torch.compile` or
the import of a module below it, gets the compiler: it is imported then, in the stand-in's place.

What must hold:

- What was not to be compiled is known to the compiler once it is there: `_excluded`.
- Who still holds the stand-in then gets what the compiler has, by each attribute.

What would break it: a torch whose optimizers or DDP ask more of the compiler. They would load it,
as without the stand-in, and `tests/rank/test_compiler.py` would fail.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from ddpkit import torch_private
from ddpkit.torch_private import COMPILER, DISABLED

# What it is made of: each imports the one before. `y.backward(gradient)` imports the first.
PARTS = ("torch.fx.experimental.symbolic_shapes", "torch.distributed.tensor", COMPILER)
_lock = threading.RLock()
_excluded: WeakKeyDictionary[Callable[..., Any], bool] = WeakKeyDictionary()


def is_loaded() -> bool:
    """Whether something may be compiled: the compiler itself is there, and whole."""
    found = sys.modules.get(COMPILER)
    return found is not None and not isinstance(found, _StandIn) and hasattr(found, "disable")


def loaded_parts() -> set[str]:
    """Which of `PARTS` are there."""
    return {part for part in PARTS if (is_loaded() if part == COMPILER else part in sys.modules)}


def put_off() -> bool:
    """Have the compiler imported only by those who compile; False if it is there already."""
    with _lock:
        if COMPILER in sys.modules:
            return False
        sys.modules[COMPILER] = stand_in = _StandIn()
        torch_private.put_compiler(stand_in)
        sys.meta_path.insert(0, _Below())
        return True


def load(part: str = COMPILER) -> ModuleType:
    """One of `PARTS`, imported if it is not there. Raises ImportError if this torch has none."""
    if part != COMPILER:
        return importlib.import_module(part)
    with _lock:
        excluded = _remove()
    compiler = importlib.import_module(COMPILER)
    for function, recursive in excluded:
        made = compiler.disable(function, recursive, wrapping=False)
        setattr(function, DISABLED, made)
    return compiler


@contextmanager
def absent() -> Iterator[None]:
    """A block in which the compiler is put off: for code of the kit in a user's own process."""
    ours = put_off()
    try:
        yield
    finally:
        if ours:
            with _lock:
                for function, _ in _remove():
                    delattr(function, DISABLED)


def _remove() -> list[tuple[Callable[..., Any], bool]]:
    """Remove the stand-in, if it is there; return what was said to it, to be said again."""
    if not isinstance(sys.modules.get(COMPILER), _StandIn):
        return []
    del sys.modules[COMPILER]
    torch_private.put_compiler(None)
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _Below)]
    said = list(_excluded.items())
    _excluded.clear()
    return said


class _Answers:
    """What a module of the compiler's answers; for anything else it is loaded."""

    def __init__(self, name: str, **answers: Callable[..., Any]) -> None:
        self._name = name
        vars(self).update(answers)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(load(), self._name), name)


class _StandIn(ModuleType):
    """A module that answers as the compiler does while nothing is compiled."""

    def __init__(self) -> None:
        super().__init__(COMPILER, "ddpkit's stand-in: torch's compiler, not yet imported.")
        self.__path__: list[str] = []  # a package, whose modules `_Below` finds
        self.utils = _Answers("utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
        self.trace_rules = _Answers("trace_rules", clear_lru_cache=lambda: None)

    @staticmethod
    def graph_break(msg: str = "") -> None:
        """Nothing: there is no graph."""

    @staticmethod
    def disable(function: Any = None, recursive: bool = True, **named: Any) -> Any:
        """The function itself, if it is torch's own (`torch._compile`)."""
        if function is None or named != {"wrapping": False}:
            return load().disable(function, recursive, **named)
        _excluded[function] = recursive
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # who looks through all modules wants no compiler
            raise AttributeError(name)
        return getattr(load(), name)


class _Below(MetaPathFinder):
    """Finds a module below the compiler: by loading that, which is made to come first."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{COMPILER}."):
            return None
        load()
        there = sys.modules.get(name)
        if there is None:
            return importlib.util.find_spec(name)
        # The compiler's own import has brought it. By its own spec it would be executed again.
        spec = there.__spec__
        vars(there)["__spec__"] = None  # some let nobody set what they do not know
        return ModuleSpec(name, _Brought(there, spec))


class _Brought(Loader):
    """Loads a module that is there already."""

    def __init__(self, module: ModuleType, spec: ModuleSpec | None) -> None:
        self._module, self._spec = module, spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__spec__"] = self._spec
