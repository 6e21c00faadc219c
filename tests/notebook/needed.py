"""The cells of a lesson that given cells need, so that a test need not run the whole lesson."""

from __future__ import annotations

import symtable
from collections.abc import Iterator
from pathlib import Path

import nbformat


def needed(path: Path, *wanted: str) -> list[str]:
    """Return the sources of the wanted cells of a notebook, and of all cells that they need.

    A wanted cell has a line that begins with an item of `wanted`. A needed cell comes before, and
    defines a name for a later cell. The sources are in the notebook's order.
    """
    sources = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    kept: list[str] = []
    lacking: set[str] = set()
    for source in reversed(sources):
        makes, uses = _names(source)
        if makes & lacking or any(line.startswith(wanted) for line in source.splitlines()):
            kept.append(source)
            lacking = lacking - makes | uses
    return kept[::-1]


def _names(source: str) -> tuple[set[str], set[str]]:
    """Return the global names that a cell defines, and the names that the cell uses."""
    top = symtable.symtable(source, "cell", "exec")
    makes = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    used = (s for table in _tables(top) for s in table.get_symbols() if s.is_referenced())
    return makes, {symbol.get_name() for symbol in used if symbol.is_global()}


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)
