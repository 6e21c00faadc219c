"""What every Python process of the tests does first: see to it that importing torch takes less.

Python looks for garbage while it imports torch, and among all of torch later and at its end: a
third of the processor time of a process that does nothing else, as hundreds of the tests' processes
do, and a tenth of a lesson's kernel. In torch there is no garbage to find. Among all else Python
looks as usual.

numpy, which torch imports, starts a thread for each core, which spins for a while before it sleeps:
a sixth of an `import torch`. Here its BLAS gets one, which children are not told.

And nbformat, by jsonschema, makes a parser of international web addresses, half a second long, for
a format that no notebook is checked against (as in `ddpkit.grade.inside.plugin`).

Python imports a module of this name by itself, from the folder that tests/conftest.py puts into
PYTHONPATH, and the Makefile for pytest's own process. A process whose test gives it another
PYTHONPATH is slower, and nothing else.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

BLAS = "OPENBLAS_NUM_THREADS"


class _TorchFinder:
    """Finds torch, once, where Python would."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            spec.loader.exec_module = partial(_import, spec.loader.exec_module)
        return spec


def _import(execute: Callable[[ModuleType], None], torch: ModuleType) -> None:
    looks = gc.isenabled()
    gc.disable()
    given = {} if BLAS in os.environ else {BLAS: "1"}
    os.environ.update(given)
    try:
        execute(torch)
        gc.freeze()
    finally:
        for name in given:
            del os.environ[name]
        if looks:
            gc.enable()
    atexit.register(gc.freeze)


sys.meta_path.insert(0, _TorchFinder())
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
