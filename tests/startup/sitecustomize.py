"""Make the import of torch cheaper, in every Python process of the tests.

Python collects garbage during the import of torch, and later again among all of torch's objects: a
third of the processor time of a process without other work, such as hundreds of the tests'
processes, and a tenth of a lesson's kernel. Torch has no garbage to find. Python still collects
among all other objects.

Torch imports numpy, which starts one thread for each core, and each thread spins for a while before
it sleeps: a sixth of an `import torch`. In these processes numpy's BLAS gets one thread; child
processes do not inherit this setting.

nbformat, through jsonschema, builds a parser of international web addresses, in half a second, for
a format that no notebook uses (see `ddpkit.grade.inside.plugin`).

Python imports a module of this name at its start, from the folder that tests/conftest.py adds to
PYTHONPATH, and the Makefile for pytest's own process. A process whose test sets another PYTHONPATH
is slower, with no other difference.
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
    """A finder of torch that acts once, where Python would look for torch."""

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
