"""A stand-in for torch's compiler, which delays the compiler's import until code is to be compiled.

The problem. The import of `torch._dynamo` takes as long as the import of torch itself, and needs 80
MB. Each optimizer's constructor and step imports the compiler, and so does the constructor of
DistributedDataParallel, only to declare that these functions are not to be compiled. If nothing is
compiled, the declaration has no effect.

It would be simpler to import the compiler once in the forkserver, as `preload.py` did before. Then
a run waited for the import, each rank's fork copied the compiler's pages, and the notebook's own
process had to import the compiler a second time.

So a stand-in takes the compiler's place in `sys.modules`. The stand-in gives optimizers and DDP the
answers that the compiler gives while nothing is compiled. For any other use, such as
`torch.compile` or the import of one of the compiler's modules, the compiler is imported in the
stand-in's place.

What must hold:

- When the compiler is imported, it learns the functions that were excluded before (`_excluded`).
- Code that still holds the stand-in then gets the compiler's attributes through the stand-in.

What would break it: a torch whose optimizers or DDP use more functions of the compiler. These uses
would load the compiler, as without the stand-in, and `tests/rank/test_compiler.py` would fail.
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
from weakref import WeakKeyDictionary

from ddpkit import torch_private
from ddpkit.torch_private import COMPILER, DISABLED

# Parts of the compiler: each part imports the one before. `y.backward(gradient)` imports the first.
PARTS = ("torch.fx.experimental.symbolic_shapes", "torch.distributed.tensor", COMPILER)
_lock = threading.RLock()
_excluded: WeakKeyDictionary[Callable[..., object], bool] = WeakKeyDictionary()


def is_loaded() -> bool:
    """True if the compiler itself is imported, and not the stand-in: then code can be compiled."""
    found = sys.modules.get(COMPILER)
    return found is not None and not isinstance(found, _StandIn) and hasattr(found, "disable")


def loaded_parts() -> set[str]:
    """Return the modules of `PARTS` that are loaded."""
    return {part for part in PARTS if (is_loaded() if part == COMPILER else part in sys.modules)}


def put_off() -> bool:
    """Delay the compiler's import until code is compiled.

    Return False if the compiler is already imported.
    """
    with _lock:
        if COMPILER in sys.modules:
            return False
        sys.modules[COMPILER] = stand_in = _StandIn()
        torch_private.put_compiler(stand_in)
        sys.meta_path.insert(0, _Below())
        return True


def load(part: str = COMPILER) -> ModuleType:
    """Return a module of `PARTS`, imported if necessary.

    Raises ImportError if torch lacks the module.
    """
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
    """A block that delays the compiler's import, for ddpkit's code in the notebook's process."""
    ours = put_off()
    try:
        yield
    finally:
        if ours:
            with _lock:
                for function, _ in _remove():
                    delattr(function, DISABLED)


def _remove() -> list[tuple[Callable[..., object], bool]]:
    """Remove the stand-in, if present.

    Return each function that the stand-in has excluded from compilation, with the `recursive` flag
    of the exclusion.
    """
    if not isinstance(sys.modules.get(COMPILER), _StandIn):
        return []
    del sys.modules[COMPILER]
    torch_private.put_compiler(None)
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _Below)]
    said = list(_excluded.items())
    _excluded.clear()
    return said


class _Answers:
    """A stand-in for a module of the compiler; any attribute it lacks loads the compiler."""

    def __init__(self, name: str, **answers: Callable[..., object]) -> None:
        self._name = name
        vars(self).update(answers)

    def __getattr__(self, name: str) -> object:
        return getattr(getattr(load(), self._name), name)


class _StandIn(ModuleType):
    """A module in place of the compiler: it answers as the compiler does if no code is compiled."""

    def __init__(self) -> None:
        super().__init__(COMPILER, "ddpkit's stand-in: torch's compiler, not yet imported.")
        self.__path__: list[str] = []  # marks a package; `_Below` finds its modules
        self.utils = _Answers("utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
        self.trace_rules = _Answers("trace_rules", clear_lru_cache=lambda: None)

    @staticmethod
    def graph_break(msg: str = "") -> None:
        """Do nothing, because there is no graph."""

    @staticmethod
    def disable(
        function: Callable[..., object] | None = None, recursive: bool = True, **named: object
    ) -> object:
        """Return `function` unchanged if torch's own code excludes it from compilation.

        For a call by other code, load the compiler and call its `disable`.
        """
        if function is None or named != {"wrapping": False}:
            return load().disable(function, recursive, **named)
        _excluded[function] = recursive
        return function

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # code that looks through all modules needs no compiler
            raise AttributeError(name)
        return getattr(load(), name)


class _Below(MetaPathFinder):
    """Finds a submodule of the compiler's package, and loads the compiler itself first."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{COMPILER}."):
            return None
        load()
        there = sys.modules.get(name)
        if there is None:
            return importlib.util.find_spec(name)
        # The compiler's import has imported this module, and the module's own spec would execute
        # the module a second time.
        spec = there.__spec__
        vars(there)["__spec__"] = None  # some modules forbid setting unknown attributes
        return ModuleSpec(name, _Brought(there, spec))


class _Brought(Loader):
    """A loader for an imported module. The module's code does not run a second time."""

    def __init__(self, module: ModuleType, spec: ModuleSpec | None) -> None:
        self._module, self._spec = module, spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__spec__"] = self._spec
