"""Functions of lab 15's lesson, by name: the given script."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle

from ddpkit.authoring import parse
from tests.project.source import ROOT

GIVEN = ("padded", "halves", "one_by_one", "report", "train_slowly", "even")
IMPORTS = "import torch, torch.distributed as dist\nfrom torch.nn.utils.rnn import pad_sequence"


def given() -> Any:
    """Return the functions of the given script, which travel by value."""
    name = "lesson_15"
    if name not in sys.modules:
        module = sys.modules[name] = ModuleType(name)
        exec(IMPORTS, module.__dict__)
        for cell in parse(ROOT / "solutions" / "15_capstone.py").cells:
            if any(f"def {each}(" in cell.source for each in GIVEN):
                exec(cell.source, module.__dict__)
        cloudpickle.register_pickle_by_value(module)
    return SimpleNamespace(**{each: getattr(sys.modules[name], each) for each in GIVEN})
