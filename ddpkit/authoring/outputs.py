"""Checks of the outputs of an executed solution: errors, addresses, paths, verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddpkit.authoring.notebook import Notebook, text_of
from ddpkit.text import EXCERPT

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")
_FOLDERS = "home|Users|root|tmp|private|var|opt|usr|work|mnt|srv|proc"
_PATH = re.compile(rf"(?<![\w.])/(?:{_FOLDERS})(?:/[\w.\-]+)+|\b[A-Z]:\\\w+|(?<![\w.])/root\b")


def output_problems(cell: Notebook, root: Path) -> Iterator[str]:
    """Yield the problems of an executed code cell's outputs, to be written after the cell's name.

    `root` is the repository. The outputs must not show the path of the repository or of the home
    directory.
    """
    if cell.get("execution_count") is None:
        yield "has not been executed"
        return
    outputs = cell.get("outputs", [])
    for output in outputs:
        if output.get("output_type") == "error":
            yield f"ends in {output.get('ename')}: {output.get('evalue')}"
        elif output.get("name") == "stderr":
            yield f"writes to stderr: {_quote(text_of(output.get('text', '')))}"
    for text in map(_plain, outputs):
        if found := _ADDRESS.search(text):
            yield f"shows the address {found[0]}, which changes from run to run"
        if path := _machine_path(text, root):
            yield f"shows a path of this machine, {path}"
    name = cell.get("metadata", {}).get("ddpkit", {}).get("check")
    if name and not _passes(name, outputs):
        yield f"does not say that {name} passes"


def _passes(name: str, outputs: list[Notebook]) -> bool:
    """True if the outputs have a verdict such as "token_ring: passed, 5 of 5 cases."."""
    said = "".join(text_of(out["text"]) for out in outputs if out.get("name") == "stdout")
    return re.search(rf"^{re.escape(name)}: pass", said, re.MULTILINE) is not None


def _machine_path(text: str, root: Path) -> str | None:
    own = [re.escape(str(path)) for path in (root.resolve(), Path.home()) if path.parent != path]
    found = re.search(rf"(?<![\w.])(?:{'|'.join(own)})(?!\w)", text) if own else None
    found = found or _PATH.search(text)
    return found[0] if found else None


def _plain(output: Notebook) -> str:
    """Return the whole text of an output. Pictures are skipped, except SVG."""
    data = output.get("data", {})
    texts = [
        text_of(value)
        for kind, value in data.items()
        if kind == "image/svg+xml" or not kind.startswith(("image/", "application/pdf"))
    ]
    texts += [text_of(output[key]) for key in ("text", "evalue", "traceback") if key in output]
    return _COLOUR.sub("", "\n".join(texts))


def _quote(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return repr(lines[0][:EXCERPT])
