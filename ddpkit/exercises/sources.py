"""The source code of functions and classes, even from cells, and the names that code needs."""

from __future__ import annotations

import ast
import inspect
import linecache
import symtable
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

# first line of every kept answer: names in annotations need not exist
FUTURE = "from __future__ import annotations\n"

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def source_of(thing: Any) -> str | None:
    """Return the source of a function or class with its decorators, unindented; None if not found.

    The source of a lambda is its whole statement.
    """
    if isinstance(thing, type):
        return _class_source(thing)
    try:
        return textwrap.dedent(inspect.getsource(inspect.unwrap(thing))).rstrip() + "\n"
    except (OSError, TypeError):
        return None


def _class_source(cls: type) -> str | None:
    """Return the source of a class; None if no source, or more than one, is found.

    `inspect.getsource` does not find a class of a notebook's cell, but the code of a method names
    the file of its cell. For a class without methods, this function searches all cells.
    """
    found = {_cut_class(name, cls) for name in _files_of(cls)} - {None}
    if not found:
        cells = [name for name, entry in linecache.cache.items() if entry[1:2] == (None,)]
        found = {_cut_class(name, cls) for name in cells} - {None}
    return found.pop() if len(found) == 1 else None


def _files_of(cls: type) -> set[str]:
    members = (inspect.unwrap(getattr(each, "__func__", each)) for each in vars(cls).values())
    codes = (each.__code__ for each in members if isinstance(each, types.FunctionType))
    files = {code.co_filename for code in codes if code.co_qualname.startswith(cls.__qualname__)}
    files = {name for name in files if linecache.getlines(name)}  # skips generated code
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return files or ({file} if file else set())


def _cut_class(filename: str, cls: type) -> str | None:
    """Return the source of the last class of this name in a file; None if the file has none."""
    lines = linecache.getlines(filename)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    nodes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in reversed(nodes):
        if node.name == cls.__qualname__:
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            return "".join(lines[start - 1 : node.end_lineno]).rstrip() + "\n"
    return None


def defined_name(source: str) -> str | None:
    """Return the name that a source defines or assigns; None if it has other statements."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return None
    match statements:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() as definition]:
            return definition.name
        case [ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda())]:
            return name
        case _:
            return None


def globals_of(thing: Any) -> dict[str, Any]:
    """Return the global namespace of a function, or of a class's methods."""
    if isinstance(thing, type):
        for each in vars(thing).values():
            member = inspect.unwrap(getattr(each, "__func__", each))
            if isinstance(member, types.FunctionType) and member.__module__ == thing.__module__:
                return member.__globals__
        return vars(sys.modules.get(thing.__module__, types.ModuleType("none")))
    function = inspect.unwrap(thing)
    return function.__globals__ if isinstance(function, types.FunctionType) else {}


def needed_names(source: str) -> set[str]:
    """Return the names that code uses but does not define itself.

    Names in annotations are left out.
    """
    table = symtable.symtable(FUTURE + source, "answer", "exec")
    defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    return set(_global_names(table)) - defined - {"annotations"}


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_global() and (symbol.is_referenced() or symbol.is_declared_global()):
            yield symbol.get_name()
    for child in table.get_children():
        # skip the tables of annotations in Python 3.14
        if "annotation" not in str(child.get_type()).lower():
            yield from _global_names(child)


def annotation_names(source: str) -> set[str]:
    """Return the names in annotations, which the code does not need to run."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for part in filter(None, parts):
            found |= {each.id for each in ast.walk(part) if isinstance(each, ast.Name)}
    return found


def dotted_names(source: str) -> set[str]:
    """Return each dotted name `a.b.c` in a source, and `a.b`, which may be modules to import."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        parts: list[str] = []
        each: ast.AST = node
        while isinstance(each, ast.Attribute):
            parts.append(each.attr)
            each = each.value
        if parts and isinstance(each, ast.Name):
            found.add(".".join([each.id, *reversed(parts)]))
    return found
