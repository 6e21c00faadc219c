"""Mutants of a source: each mutant has one small mistake of a kind that people make."""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any

Instead = ast.AST | list[ast.stmt] | None
Made = Iterator[tuple[str, Instead]]  # kind of the mistake, and the replacement of a node

ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitXor: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARED: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


@dataclass(frozen=True)
class Mutant:
    """A source with one mistake: the kind, and the changed lines before and after the change.

    Lines are as `ast.unparse` writes them, without indentation; several lines are joined by " ⏎ ".
    """

    kind: str  # "constant", "dropped call" ...
    before: str
    after: str
    source: str  # the whole source with the mistake

    @property
    def change(self) -> str:
        return f"{self.before}  →  {self.after}"


def mutants(source: str, asked: Container[int] | None = None) -> list[Mutant]:
    """Return all mutants that `MAKERS` make of a source, in the order of the source, each once.

    `asked` has the numbers of the lines that may change (the first is 1); by default all lines may
    change. Default values of parameters may change on any line. Docstrings, annotations and
    decorators never change.
    """
    tree = ast.parse(source)
    whole = ast.unparse(tree)
    # the unchanged source is no mutant
    found: dict[str, Mutant] = {whole: Mutant("", "", "", whole)}
    left_alone = _left_alone(tree)
    defaults = set(_defaults(tree))
    for at, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", None)
        may = node in defaults or asked is None or line in asked
        if line is None or not may or node in left_alone:
            continue
        for make in MAKERS:
            for kind, instead in make(copy.deepcopy(node)):
                changed = _with(tree, at, instead)
                if changed is not None and changed not in found:
                    found[changed] = Mutant(kind, *_lines(whole, changed), changed)
    del found[whole]
    return list(found.values())


def _left_alone(tree: ast.AST) -> set[ast.AST]:
    """Return all nodes of docstrings, annotations and decorators."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        roots += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        roots += getattr(node, "decorator_list", [])
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                roots.append(node)
    return {each for root in roots if root is not None for each in ast.walk(root)}


def _defaults(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            for default in (*node.defaults, *node.kw_defaults):
                if default is not None:
                    yield from ast.walk(default)


def _with(tree: ast.AST, at: int, instead: Instead) -> str | None:
    """Return the source with node number `at` replaced; None if the result is not valid code."""
    made = copy.deepcopy(tree)
    target = next(node for number, node in enumerate(ast.walk(made)) if number == at)
    Replacing(target, instead).visit(made)
    try:
        text = ast.unparse(ast.fix_missing_locations(made))
        compile(text, "mutant", "exec")
    except (ValueError, SyntaxError, TypeError):
        return None
    return text


class Replacing(ast.NodeTransformer):
    """Replaces `target` by `instead`; None removes an expression, and makes a statement `pass`."""

    def __init__(self, target: ast.AST, instead: Instead) -> None:
        self.target, self.instead = target, instead

    def visit(self, node: ast.AST) -> Any:
        if node is not self.target:
            return self.generic_visit(node)
        if self.instead is None and isinstance(node, ast.stmt):
            return ast.Pass()
        return self.instead


def _lines(before: str, after: str) -> tuple[str, str]:
    old, new = ([line.strip() for line in text.splitlines()] for text in (before, after))
    changes = [
        each
        for each in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if each[0] != "equal"
    ]
    first, last = changes[0], changes[-1]
    context = first[1] == last[2] > 0  # a new line is shown with the line before it
    old, new = old[first[1] - context : last[2]], new[first[3] - context : last[4]]
    return " ⏎ ".join(old), " ⏎ ".join(new)


# The makers of mistakes. Each maker gets a copy of a node, and may change the copy.


def _constants(node: ast.AST) -> Made:
    match node:
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            for other in dict.fromkeys((value + 1, value - 1, 0)):
                if other != value:
                    yield "constant", ast.Constant(other)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(value + 1.0)


def _operators(node: ast.AST) -> Made:
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            node.op = ARITHMETIC[type(op)]()
            yield "operator", node
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "operator", operand
        case ast.BoolOp(op=op):
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "operator", node
            yield from (("operator", part) for part in node.values)


def _operands(node: ast.AST) -> Made:
    match node:
        case ast.BinOp(left=left, right=right):
            yield "operand left out", left
            yield "operand left out", right
        case ast.AugAssign(target=target, value=value):
            yield "assigned, not added", ast.Assign([target], value, lineno=node.lineno)


def _comparisons(node: ast.AST) -> Made:
    match node:
        case ast.Compare(ops=[op]):
            for other in COMPARED.get(type(op), ()):
                node.ops = [other()]
                yield "comparison", copy.deepcopy(node)


def _conditions(node: ast.AST) -> Made:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            for other in (ast.Constant(True), ast.Constant(False), ast.UnaryOp(ast.Not(), test)):
                node.test = other
                yield "condition", copy.deepcopy(node)
        case ast.comprehension(ifs=[_, *_]):
            node.ifs = []
            yield "condition", node


def _calls(node: ast.AST) -> Made:
    match node:
        case ast.Call(func=func, args=args, keywords=keywords):
            if args:
                yield "dropped call", args[0]
            if isinstance(func, ast.Attribute):
                yield "dropped call", func.value
            for at in range(len(args) - 1):
                swapped = [*args[:at], args[at + 1], args[at], *args[at + 2 :]]
                yield "swapped arguments", ast.Call(func, swapped, keywords)
            for left_out in range(len(keywords)):
                others = [each for at, each in enumerate(keywords) if at != left_out]
                yield "dropped argument", ast.Call(func, args, others)
            if len(args) > 1:
                yield "dropped argument", ast.Call(func, args[:-1], keywords)


def _statements(node: ast.AST) -> Made:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "dropped call", None
        case ast.Return(value=ast.AST() as value):
            yield "dropped return", ast.Expr(value)
        case ast.Assign() | ast.AugAssign() | ast.Raise() | ast.Break() | ast.Continue():
            yield "dropped statement", None
        case ast.Assign(targets=[ast.Tuple(elts=[one, other, *more])]):
            swapped = ast.Tuple([other, one, *more], ast.Store())
            yield "swapped targets", ast.Assign([swapped], node.value, lineno=node.lineno)
        case ast.For(body=body):
            node.body = [*body, ast.Break()]
            yield "first round only", node
        case ast.Try(body=body, finalbody=finalbody):
            yield "dropped try", [*body, *finalbody]


def _subscripts(node: ast.AST) -> Made:
    match node:
        case ast.Subscript(value=value, slice=ast.Slice()) if isinstance(node.ctx, ast.Load):
            yield "dropped slice", value


MAKERS: tuple[Callable[[ast.AST], Made], ...] = (
    *(_constants, _operators, _operands, _comparisons, _conditions),
    *(_calls, _statements, _subscripts),
)
