"""A copy of an answer, with sets in a different order on each rank, as under torchrun.

ddpkit forks its ranks from one process, so a dtype has the same address and the same hash on all
ranks. Under torchrun, a dtype has a different hash in each process, so a set of dtypes has a
different order.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpkit.exercises.sources import globals_of, source_of

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer


class Unordered(set[object]):
    """A set that iterates in the order of names on even ranks, and in reverse on odd ranks."""

    def __iter__(self) -> Iterator[object]:
        import torch.distributed as dist

        in_order = sorted(super().__iter__(), key=str)
        return iter(in_order[::-1] if dist.get_rank() % 2 else in_order)


class _Calls(ast.NodeTransformer):
    """A syntax transformer that replaces `{f(x) for x in y}` by `set(f(x) for x in y)`."""

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(
            ast.Name("set", ast.Load()), [ast.GeneratorExp(node.elt, node.generators)], []
        )


def unordered(answer: Answer) -> Answer:
    """Return a copy of the answer that uses `Unordered` in the place of `set`.

    Return the unchanged answer if its source is not available or cannot be compiled.
    """
    try:
        tree = _Calls().visit(ast.parse(source_of(answer) or ""))
        code = compile(ast.fix_missing_locations(tree), "<answer>", "exec")
        enclosed = inspect.getclosurevars(inspect.unwrap(answer)).nonlocals
        namespace = {**globals_of(answer), **enclosed, "set": Unordered}
        exec(code, namespace)
        made: Answer = namespace[answer.__name__]
    except Exception:  # any error: then the answer cannot be examined this way
        return answer
    return made
