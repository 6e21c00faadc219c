"""An answer whose sets have another order on each rank, as they may when ranks are not forked.

Ranks of the kit fork from one process, where a dtype has one address and so one hash; under
torchrun it has another in each, and a set of dtypes another order.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from ddpkit.exercises.sources import globals_of, source_of


class Unordered(set[Any]):
    """A set whose order is by name, and on odd ranks the other way round."""

    def __iter__(self) -> Iterator[Any]:
        import torch.distributed as dist

        in_order = sorted(super().__iter__(), key=str)
        return iter(in_order[::-1] if dist.get_rank() % 2 else in_order)


class _Calls(ast.NodeTransformer):
    """Makes `{f(x) for x in y}` into `set(f(x) for x in y)`."""

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(
            ast.Name("set", ast.Load()), [ast.GeneratorExp(node.elt, node.generators)], []
        )


def unordered(answer: Callable[..., Any]) -> Callable[..., Any]:
    """The answer with such sets; the answer itself where its source cannot be had."""
    try:
        tree = _Calls().visit(ast.parse(source_of(answer) or ""))
        code = compile(ast.fix_missing_locations(tree), "<answer>", "exec")
        enclosed = inspect.getclosurevars(inspect.unwrap(answer)).nonlocals
        namespace = {**globals_of(answer), **enclosed, "set": Unordered}
        exec(code, namespace)
        made: Callable[..., Any] = namespace[answer.__name__]
    except Exception:  # of any make: then this cannot be asked
        return answer
    return made
