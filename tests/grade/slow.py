"""Notebooks of lab 00 that are slow to judge, merge or read: `benchmarks.grading` times a class."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from tests.grade.attacks import SHIFT, TOKEN, Notebook, answer, before, code, solution

CLAIMS = """
from IPython import get_ipython
pub = get_ipython().display_pub
usual = pub.publish
def publish(data, *args, **kwargs):
    for claim in data.values():
        if isinstance(claim, dict) and "key" in claim:
            claim.clear()
            claim.update(key=claim_key(data), seen={seen})
    return usual(data, *args, **kwargs)
def claim_key(data):
    return keys.pop(0)
keys = {keys!r}
pub.publish = publish
"""
KEYS = [f"{TOKEN}.{n}" for n in range(9)] + [f"{SHIFT}.{n}" for n in range(9)]


def _claiming(seen: str) -> Callable[[Notebook], None]:
    """Return an edit: both answers are right, and each claim is replaced by `seen`."""

    def edit(made: Notebook) -> None:
        before(made, TOKEN, CLAIMS.format(seen=seen, keys=KEYS))

    return edit


def chained(made: Notebook) -> None:
    """Put 1,900 cells before the answer; each cell needs the cell before."""
    cells = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "outputs": [], "execution_count": 1,
         "source": f"x{n + 1} = [x{n}]; x{n + 1}.append({n})"}
        for n in range(1900)
    ]  # fmt: skip
    cells[0]["source"] = "x0 = 0\nx1 = 1"
    made["cells"][1:1] = cells
    answer(made, TOKEN, code(made, TOKEN) + "\nx1900\n")


def many_definitions(made: Notebook) -> None:
    """Put definitions of the answer's names into hundreds of cells."""
    for _ in range(300):
        before(made, TOKEN, f"def {TOKEN}(x): return {SHIFT}\ndef {SHIFT}(x): return {TOKEN}\n" * 9)


SLOW: dict[str, Callable[[Notebook], Any]] = {
    "a wide dict": _claiming('["d", [[["i", hex(n)], True] for n in range(100_000)]]'),
    "a long list": _claiming('["d", [[["s", "gave"], ["l", [["l", []]] * 300_000]]]]'),
    "a huge number": _claiming('["d", [[["s", "sent"], ["i", "0x" + "f" * 3_500_000]]]]'),
    "chained cells": chained,
    "many definitions": many_definitions,
}


def slow_notebook(name: str) -> str:
    """Return the text of a slow notebook."""
    made = copy.deepcopy(solution())
    SLOW[name](made)
    return json.dumps(made)
