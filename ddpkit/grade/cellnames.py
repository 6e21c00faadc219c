"""The names that a cell binds, changes, calls and needs, read from its syntax tree.

The cell is not run.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Container, Iterable
from dataclasses import dataclass

from ddpkit.exercises.sources import annotation_names, needed_names
from ddpkit.text import BLANK, REASON

STAR = "*"  # stands for any name, as a star import may bind any
FEW = 20  # a cell with more magics than this does not go through IPython's slow transformer
# cell magics with a body that binds names like a usual cell
RUN_THEIR_BODY = {"time", "capture", "prun"}
ONLY_TELL = {
    *("timeit", "prun", "memit", "matplotlib", "pip", "conda", "config", "who", "whos", "pinfo"),
    *("history", "lsmagic", "load_ext", "autoreload"),
}  # magics that change nothing on which an answer can depend
REBIND = {"reset", "reset_selective", "run"}  # line magics after which any name may be bound anew
# matches a magic in a line without its indentation
MAGIC = re.compile(r"(?:[\w.\[\], ]+=\s*)?([%!?]{1,2})\s*(\w*)(.*)$")


@dataclass(frozen=True)
class CellNames:
    """The names in a cell's code: those that it binds, changes, calls and needs."""

    binds: frozenset[str] = frozenset()  # contains STAR if any name may be bound
    changes: frozenset[str] = frozenset()  # objects that the cell stores into or calls by a method
    needs: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()  # called functions as they are written: "cluster.run"
    clusters: frozenset[str] = frozenset()  # names bound to a new Cluster
    checks: frozenset[str] = frozenset()  # the arguments of `check(...)`
    blank: frozenset[str] = frozenset()  # functions and classes that are still stubs of the lab
    acts: bool = False  # True if the cell may change any object, whichever names it calls
    error: str = ""  # the reason why the names are unknown; "" if they are known


@functools.lru_cache(maxsize=4096)
def names_in(source: str) -> CellNames:
    """Return the names that a cell binds, changes and needs, or the `error` in its code.

    This function raises no exception.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text, tree = as_python(source)
            needs = needed_names(text) | annotation_names(text)
            reader = _Reader()
            reader.read(tree.body)
    except SyntaxError as error:
        return CellNames(error=f"line {error.lineno or 1}: {error.msg}")
    except Exception as error:  # caused by a null byte, too deep nesting or the tokenizer
        return CellNames(error=f"line 1: {type(error).__name__}: {str(error)[:REASON]}")
    blank = {node.name for node in tree.body if isinstance(node, Definition) and _is_stub(node)}
    return CellNames(
        frozenset(reader.binds),
        frozenset(reader.changes),
        frozenset(needs),
        frozenset(reader.calls),
        frozenset(reader.clusters),
        frozenset(reader.checks),
        frozenset(blank),
        reader.acts,
    )


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _is_stub(node: ast.AST) -> bool:
    """True if a definition is still the lab's stub, with only a `raise` below its docstring.

    A class is a stub while one of its methods is a stub.
    """
    if isinstance(node, ast.ClassDef):
        return any(map(_is_stub, node.body))
    if not isinstance(node, Definition):
        return False
    body = node.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]  # leave the docstring out
    match body:
        case [ast.Raise(exc=ast.Call(args=[ast.Constant(value=str() as says)]))]:
            return says.startswith(BLANK)
    return False


def without(source: str, names: Container[str]) -> str:
    """Return a cell's code with the definitions of `names` replaced by empty lines."""
    lines = source.splitlines(keepends=True)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return source
    for node in tree.body:
        if isinstance(node, Definition) and node.name in names:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            last = node.end_lineno or first
            lines[first - 1 : last] = ["\n"] * (last - first + 1)
    return "".join(lines)


class _Reader(ast.NodeVisitor):
    """Collects names from the code that runs when the cell runs.

    The bodies of functions are left out.
    """

    def __init__(self) -> None:
        self.binds: set[str] = set()
        self.changes: set[str] = set()
        self.calls: set[str] = set()
        self.clusters: set[str] = set()
        self.checks: set[str] = set()
        self.acts = False
        self._inner = 0  # depth in classes and comprehensions, where names are local

    def read(self, body: Iterable[ast.AST]) -> None:
        for node in body:
            self.visit(node)

    def _bind(self, name: str | None) -> None:
        if name and not self._inner:
            self.binds.add(name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name)
        self.acts |= bool(node.decorator_list)
        defaults = (each for each in node.args.kw_defaults if each is not None)
        self.read([*node.decorator_list, *node.args.defaults, *defaults])

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.read([*node.args.defaults, *(each for each in node.args.kw_defaults if each)])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name)
        self.acts |= bool(node.decorator_list or node.bases or node.keywords)
        self.read([*node.decorator_list, *node.bases, *node.keywords])
        self._inside(node.body)

    def _inside(self, nodes: Iterable[ast.AST]) -> None:
        self._inner += 1
        self.read(nodes)
        self._inner -= 1

    def visit_ListComp(self, node: ast.AST) -> None:
        self._inside(ast.iter_child_nodes(node))

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.binds.add(node.target.id)  # even in a comprehension, := binds a name of the cell
        self.visit(node.value)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for each in node.names:
            self._bind(each.asname or each.name.partition(".")[0])
            self.acts |= each.name == STAR

    visit_ImportFrom = visit_Import

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id)
        self.acts |= isinstance(node.ctx, ast.Del)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self._bind(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_Attribute(self, node: ast.Attribute | ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.changes |= _base(node)
            self.acts = True
        self.generic_visit(node)

    visit_Subscript = visit_Attribute

    def visit_With(self, node: ast.AST) -> None:
        self.acts = True
        self.generic_visit(node)

    visit_AsyncWith = visit_AsyncFor = visit_Await = visit_With

    def visit_Assign(self, node: ast.Assign) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=called)):
                if _dotted(called).rpartition(".")[2] == "Cluster":
                    self.clusters.add(name)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        match node.value:
            case ast.Call(func=ast.Attribute() as function):
                self.changes |= _base(function)
            case ast.BinOp():  # an operator of a student's own class, called for its effect
                self.acts = True
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _dotted(node.func)
        self.calls.add(name)
        if name in ("check", "ddpkit.check"):
            self.checks |= {each.id for each in node.args if isinstance(each, ast.Name)}
        self.generic_visit(node)


def _dotted(node: ast.AST) -> str:
    """Return the called function as written: "cluster.run", "Cluster().run", or else "?"."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value)}.{name}"
        case ast.Call(func=called):
            return f"{_dotted(called)}()"
    return "?"


def _base(node: ast.AST) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


# Magics


def as_python(source: str) -> tuple[str, ast.Module]:
    """Return a cell's code as plain Python without magics, and its syntax tree.

    The plain code binds and calls the same names. Raises SyntaxError and every other error of
    `ast.parse`.
    """
    try:
        return source, ast.parse(source)
    except SyntaxError:
        if not any(mark in source for mark in "%!?") and not source[:1].isspace():
            raise
    text = _without_magics(source)
    try:
        return text, ast.parse(text)
    except SyntaxError:
        if sum(bool(MAGIC.match(line.lstrip())) for line in source.splitlines()) > FEW:
            raise
        from IPython.core.inputtransformer2 import TransformerManager

        text = str(TransformerManager().transform_cell(source))  # type: ignore[no-untyped-call]
        return text, ast.parse(text)


def _without_magics(source: str) -> str:
    """Return the code with each magic replaced by a plain statement on the same line.

    IPython's own transformer would tokenize the whole cell for each magic, which may take hours.
    """
    first, newline, body = source.lstrip("\n").partition("\n")
    if first.startswith("%%"):
        name, *words = first[2:].split() or [""]
        if name not in RUN_THEIR_BODY:  # the effect of other cell magics is unknown
            return "pass" if name in ONLY_TELL else "get_ipython()"
        named = [word for word in words if name == "capture" and word.isidentifier()]
        return f"{' = '.join([*named, 'None'])}{newline}{_without_magics(body)}"
    return "\n".join(map(_without_magic, source.split("\n")))


def _without_magic(line: str) -> str:
    code = line.lstrip()
    indent = line[: len(line) - len(code)]
    if code.rstrip().endswith("?") and "#" not in code:
        return f"{indent}pass"
    found = MAGIC.match(code)
    if found is None:
        return line
    sign, name, rest = found.groups()
    if assigned := code[: found.start(1)].strip():  # a magic may assign: `x = !ls`
        return f"{indent}{assigned} None"
    if sign == "%" and name == "time":
        return indent + (rest.strip() or "pass")
    if sign == "%" and name in REBIND:
        return f"{indent}from IPython import *"  # a star import binds STAR
    harmless = sign != "%" or name in ONLY_TELL
    return indent + ("pass" if harmless else "get_ipython()")
