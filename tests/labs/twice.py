"""Execute a lesson, and repeat each run on a modelled machine without values.

python -m tests.labs.twice solutions/06_overlap.py

The command prints a line of JSON for each `Cluster.run`: the function, the cell's line, the first
unequal spans, and True or False for equal spans and equal levels of memory. It leaves checks out.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import jupytext
import matplotlib

import ddpkit
from ddpkit import RunFailed
from ddpkit.cluster import Cluster
from ddpkit.protocol import not_computed

# values of short messages, and lines: calls by the kit's code get the line of `with_few`
UNCOMPARED = ("holds", "line")
FEW = 64  # elements up to which a rank computes: the lessons' models are small


def with_few(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function on a rank that computes few elements only."""
    not_computed.SMALL = FEW
    return function(*args, **kwargs)


class Twice(Cluster):
    """A cluster of modelled machines; the second run of each function has no values."""

    def __init__(self, world_size: int, **given: Any) -> None:
        given.pop("device", None)
        given.setdefault("machine", "laptop core")
        super().__init__(world_size, **given)
        self._without = Cluster(world_size, **{**given, "values": False})

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function twice, from equal folders; print the comparison."""
        before = _copy()
        known = super().run(function, *args, **kwargs)
        if kwargs.get("expect_error"):
            return known
        after = _copy()
        _put(before)
        found: dict[str, Any] = {
            "function": getattr(function, "__name__", repr(function)),
            "line": sys._getframe(1).f_lineno,
        }
        try:
            unknown = self._without.run(with_few, function, *args, **kwargs)
            pairs = zip_longest(_spans(known), _spans(unknown))
            found["first"] = next((pair for pair in pairs if pair[0] != pair[1]), None)
            found["spans"] = found["first"] is None
            levels = zip_longest(known.trace.memory, unknown.trace.memory)
            found["levels"] = [repr(pair) for pair in levels if pair[0] != pair[1]][:1]
            found["memory"] = not found["levels"]
        except RunFailed as error:
            found["failed"] = str(error)
        _put(after)
        print(json.dumps(found), flush=True)
        return known


def _spans(run: Any) -> list[str]:
    """Return the spans of a run as texts, without `UNCOMPARED`."""
    return sorted(
        repr(replace(span, args={k: v for k, v in span.args.items() if k not in UNCOMPARED}))
        for span in run.trace.spans
    )


def _copy() -> Path:
    """Return a copy of a lesson's folders: its own folder, and those that it made: "lab10-..."."""
    copy, here = Path(tempfile.mkdtemp()), Path(tempfile.gettempdir())
    for each in here.glob("lab*"):
        shutil.copytree(each, copy / each.name)
    return copy


def _put(copy: Path) -> None:
    """Restore the content of a lesson's folders from a copy."""
    here = Path(tempfile.gettempdir())
    for folder in here.glob("lab*"):
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    shutil.copytree(copy, here, dirs_exist_ok=True)


def main(lesson: Path) -> None:
    """Execute the cells of a lesson in a new folder."""
    matplotlib.use("Agg")
    ddpkit.Cluster = Twice  # type: ignore[misc]
    ddpkit.check = lambda *_, **__: None  # type: ignore[assignment]
    cells = [cell for cell in jupytext.read(lesson).cells if cell.cell_type == "code"]
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        os.mkdir(f"{folder}/lab")
        os.chdir(f"{folder}/lab")
        for number, cell in enumerate(cells):
            if cell.source.startswith(("%", "!")):
                continue
            try:
                exec(compile(cell.source, f"cell {number}", "exec"), names)
            except Exception as error:
                print(json.dumps({"cell": number, "raised": repr(error)}), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
