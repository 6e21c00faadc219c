"""Training loops for three ranks, and mutants of them: one communication mistake each.

Each loop has a function `train`, which returns the numbers that a rank has computed.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

HEAD = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def train():
    rank, size = dist.get_rank(), dist.get_world_size()
    half = dist.new_group([0, 1])
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(rank)
    x, y = torch.randn(5, 12, 6), torch.randn(5, 12, 6)
    loss_of = torch.nn.functional.mse_loss
"""
TAIL = "    return [p.detach().double().sum().item() for p in model.parameters()] + noted\n"
BODIES = {
    "averages gradients": """
    noted = []
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    for step in range(4):
        optimizer.zero_grad()
        loss = loss_of(model(x[step]), y[step])
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        total = loss.detach().clone()
        dist.all_reduce(total)
        noted.append(total.item())
        optimizer.step()
""",
    "overlaps gradients": """
    noted, works = [], []
    def post(parameter):
        parameter.grad /= size
        works.append(dist.all_reduce(parameter.grad, async_op=True))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(post)
    for step in range(4):
        optimizer.zero_grad()
        loss = loss_of(model(x[step]), y[step])
        loss.backward()
        for work in works:
            work.wait()
        works.clear()
        optimizer.step()
        norm = sum(p.detach().pow(2).sum() for p in model.parameters())
        dist.all_reduce(norm, dist.ReduceOp.MAX)
        noted.append(norm.item())
""",
    "uses DDP": """
    noted = []
    model = DistributedDataParallel(model)
    for step in range(4):
        optimizer.zero_grad()
        loss = loss_of(model(x[step]), y[step])
        loss.backward()
        optimizer.step()
        losses = [torch.zeros(()) for _ in range(size)]
        dist.all_gather(losses, loss.detach())
        noted.append(torch.stack(losses).mean().item())
        dist.barrier()
    best = torch.tensor([min(noted)])
    dist.broadcast(best, 0)
    noted.append(best.item())
""",
    "sends around a ring": """
    noted = []
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(4):
        optimizer.zero_grad()
        loss = loss_of(model(x[step]), y[step])
        loss.backward()
        for parameter in model.parameters():
            passing, coming = parameter.grad.clone(), torch.empty_like(parameter.grad)
            for turn in range(size - 1):
                sending = dist.isend(passing, right)
                dist.recv(coming, left)
                sending.wait()
                passing.copy_(coming)
                parameter.grad += passing
            parameter.grad /= size
        optimizer.step()
        noted.append(loss.item())
        dist.barrier()
""",
    "shards a flat gradient": """
    noted = []
    parameters = list(model.parameters())
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model(x[step]), y[step]).backward()
        flat = torch.cat([p.grad.reshape(-1) for p in parameters])
        mine, whole = torch.empty(flat.numel() // size), torch.empty_like(flat)
        dist.reduce_scatter_tensor(mine, flat)
        mine /= size
        dist.all_gather_into_tensor(whole, mine)
        start = 0
        for p in parameters:
            p.grad.copy_(whole[start : start + p.numel()].view_as(p))
            start += p.numel()
        optimizer.step()
        table = torch.arange(12.0).view(3, 4) * (rank + 1)
        columns = table.t().contiguous()
        dist.all_reduce(columns)
        top = columns[:, 0].contiguous()
        dist.reduce(top, 0)
        noted += columns.flatten().tolist()
""",
    "gathers on rank 0": """
    noted = []
    for step in range(4):
        optimizer.zero_grad()
        loss = loss_of(model(x[step]), y[step])
        loss.backward()
        for parameter in model.parameters():
            parts = [torch.empty_like(parameter.grad) for _ in range(size)]
            dist.gather(parameter.grad, parts if rank == 0 else None, dst=0)
            if rank == 0:
                parameter.grad.copy_(torch.stack(parts).mean(0))
            dist.broadcast(parameter.grad, src=0)
        optimizer.step()
        words = [None] * size
        dist.all_gather_object(words, round(loss.item(), 4))
        noted.append(sum(words))
        token = torch.tensor([step])
        if rank == 0:
            dist.send(token, dst=1)
        if rank == 1:
            dist.recv(token, src=0)
""",
}
THIRD = "len(noted) in (2, 24)"


@dataclass(frozen=True)
class Loop:
    """A loop, or a mutant of it: `line` is the number of the mutated line, 0 in a right loop."""

    name: str
    kind: str
    line: int
    source: str


def loops() -> list[Loop]:
    """Return the right loops."""
    found = []
    for name, body in BODIES.items():
        found.append(Loop(name, "", 0, ast.unparse(ast.parse(HEAD + body.lstrip("\n") + TAIL))))
    return found


def mutants(loop: Loop) -> Iterator[Loop]:
    """Yield the mutants of a loop, each with one statement changed."""
    seen = {loop.source}
    tree = ast.parse(loop.source)
    for block, at in _places(tree):
        for kind, make in MAKERS.items():
            made = copy.deepcopy(tree)
            inner, number = _places(made)[_places(tree).index((block, at))]
            changed = make(copy.deepcopy(inner[number]), inner[number + 1 : number + 2])
            if changed is None:
                continue
            took = 2 if kind.startswith("moved") else 1
            inner[number : number + took] = changed
            source = ast.unparse(ast.fix_missing_locations(made))
            if source not in seen and _compiles(source):
                seen.add(source)
                yield Loop(loop.name, kind, _first_difference(loop.source, source), source)


def _compiles(source: str) -> bool:
    try:
        compile(source, "<mutant>", "exec")
    except SyntaxError:
        return False
    return True


def _first_difference(before: str, after: str) -> int:
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    return next((n for n, (one, other) in enumerate(pairs, 1) if one != other), 0)


def _places(tree: ast.AST) -> list[tuple[list[ast.stmt], int]]:
    """Return (block, position) for each statement with communication."""
    found = []
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                for at, each in enumerate(block):
                    if isinstance(each, ast.Expr | ast.Assign | ast.AugAssign) and _talks(each):
                        found.append((block, at))
    return found


def _talks(node: ast.AST) -> bool:
    text = ast.unparse(node)
    return any(word in text for word in ("dist.", ".wait()", ".contiguous()")) and not any(
        word in text for word in ("new_group", "get_rank")
    )


Next = list[ast.stmt]


def _dropped(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    return [ast.Pass()] if isinstance(node, ast.Expr) else None


def _on(condition: str, node: ast.stmt, orelse: list[ast.stmt] | None = None) -> ast.stmt:
    test = ast.parse(condition, mode="eval").body
    return ast.If(test, [node], orelse or [])


def _dropped_on_rank_1(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    return [_on("rank != 1", node)] if isinstance(node, ast.Expr) else None


def _dropped_once(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    """Drop a statement in the third step."""
    return [_on(f"not ({THIRD})", node)] if isinstance(node, ast.Expr) else None


def _doubled_once_on_rank_0(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    """Double a statement on rank 0, in the third step."""
    if not isinstance(node, ast.Expr):
        return None
    return [node, _on(f"rank == 0 and {THIRD}", copy.deepcopy(node))]


def _doubled(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    return [node, copy.deepcopy(node)] if isinstance(node, ast.Expr) else None


def _doubled_on_rank_0(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    return [node, _on("rank == 0", copy.deepcopy(node))] if isinstance(node, ast.Expr) else None


def _moved(node: ast.stmt, following: Next) -> list[ast.stmt] | None:
    return [*copy.deepcopy(following), node] if following else None


def _moved_on_rank_1(node: ast.stmt, following: Next) -> list[ast.stmt] | None:
    if not following:
        return None
    one, other = copy.deepcopy(following[0]), copy.deepcopy(node)
    test = ast.parse("rank == 1", mode="eval").body
    return [ast.If(test, [one, other], [node, *copy.deepcopy(following)])]


def _wrong_group(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    found = False
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and ast.unparse(each.func).startswith("dist."):
            if ast.unparse(each.func).partition(".")[2][:6] in ("isend", "recv", "send"):
                continue
            each.keywords.append(ast.keyword("group", ast.Name("half")))
            found = True
    return [node] if found else None


def _wrong_rank(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and ast.unparse(each.func).startswith("dist."):
            for keyword in each.keywords:
                if keyword.arg in ("src", "dst"):
                    keyword.value = ast.parse(
                        f"({ast.unparse(keyword.value)} + 1) % size", mode="eval"
                    ).body
                    return [node]
            name = ast.unparse(each.func)
            if name in ("dist.broadcast", "dist.reduce", "dist.isend", "dist.recv"):
                each.args[1] = ast.parse(
                    f"({ast.unparse(each.args[1])} + 1) % size", mode="eval"
                ).body
                return [node]
    return None


def _own_root(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    """Put each rank in the place of the root."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and ast.unparse(each.func) in (
            "dist.broadcast",
            "dist.reduce",
        ):
            if len(each.args) > 1:
                each.args[1] = ast.Name("rank")
            else:
                each.keywords[0].value = ast.Name("rank")
            return [node]
    return None


class _NoContiguous(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:  # name in ast
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "contiguous":
            return node.func.value
        return node


def _not_contiguous(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    if ".contiguous()" not in ast.unparse(node):
        return None
    return [_NoContiguous().visit(node)]


class _Asynchronous(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:  # name in ast
        self.generic_visit(node)
        text = ast.unparse(node.func)
        if text in ("dist.all_reduce", "dist.broadcast", "dist.all_gather", "dist.reduce"):
            node.keywords.append(ast.keyword("async_op", ast.Constant(True)))
        elif text == "dist.recv":
            node.func = ast.parse("dist.irecv", mode="eval").body
        return node


def _without_wait(node: ast.stmt, _: Next) -> list[ast.stmt] | None:
    if not isinstance(node, ast.Expr):
        return None
    if ast.unparse(node).endswith(".wait()"):
        return [ast.Pass()]
    before = ast.unparse(node)
    changed = _Asynchronous().visit(node)
    return [changed] if ast.unparse(changed) != before else None


MAKERS: dict[str, Callable[[ast.stmt, Next], list[ast.stmt] | None]] = {
    "missing wait": _without_wait,
    "missing contiguous": _not_contiguous,
    "dropped": _dropped,
    "dropped on rank 1": _dropped_on_rank_1,
    "dropped in one step": _dropped_once,
    "doubled": _doubled,
    "doubled on rank 0 in one step": _doubled_once_on_rank_0,
    "doubled on rank 0": _doubled_on_rank_0,
    "moved": _moved,
    "moved on rank 1": _moved_on_rank_1,
    "wrong group": _wrong_group,
    "wrong rank": _wrong_rank,
    "own root": _own_root,
}
