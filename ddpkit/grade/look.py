"""What a teacher may want to look at in a submission: a line, and never points.

Points rest on what answers did. Who reaches for the machinery around them may have come by the
right values in another way, and one of two hundred notebooks is not read without a reason. Each row
names a thing that no answer of the labs needs; there may be good reasons for it all the same.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from ddpkit.grade.cellnames import as_python
from ddpkit.grade.merge import Merged
from ddpkit.grade.quote import cut

MOST = 12  # lines of a submission
LINE = 160  # characters of each: a name has as many as its author likes
OPEN = (  # names of machinery that an answer may use: a checksum holds no code, a plan is data
    *("ddpkit.exercises.check", "ddpkit.exercises.carry", "zlib.crc32", "zlib.adler32"),
    *("ddpkit.simulate.MeshPlan", "ddpkit.simulate.MeshModel", "ddpkit.simulate.MeshMachine"),
)

# what is said of it -> how dotted names begin, after imports are followed
NAMES: Mapping[str, tuple[str, ...]] = {
    "machinery of the kit": (
        *("ddpkit.grade", "ddpkit.rank", "ddpkit.checks", "ddpkit.exercises", "ddpkit.answers"),
        *("ddpkit.protocol", "ddpkit.cluster", "display_pub", "get_ipython"),
    ),
    "the kit's simulator": ("ddpkit.simulate",),
    "frames": (
        *("sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile", "sys.modules"),
        *("inspect.currentframe", "inspect.stack", "gc", "threading.settrace"),
    ),
    "memory": ("ctypes", "cffi", "mmap", "multiprocessing.shared_memory"),
    "encoded code": (
        *("exec", "eval", "compile", "__import__", "importlib", "base64", "marshal", "codecs"),
        *("zlib", "pickle.loads", "cloudpickle", "types.CodeType", "types.FunctionType"),
    ),
    "another way between ranks": (
        *("socket", "subprocess", "torch.distributed.TCPStore", "torch.distributed.FileStore"),
        *("torch.distributed.HashStore", "torch.distributed.distributed_c10d"),
        *("torch._C", "torch.multiprocessing", "multiprocessing", "open", "tempfile", "pathlib"),
        *("os.open", "os.fork", "os.pipe", "os.mkfifo", "os.kill", "os.write", "os.read"),
    ),
}
ATTRIBUTES = {  # of anything
    **dict.fromkeys(("f_back", "f_locals", "f_globals", "tb_frame", "gi_frame"), "frames"),
    **dict.fromkeys(("display_pub", "_default_pg", "fromhex"), "machinery of the kit"),
    **dict.fromkeys(("__globals__", "__code__", "__closure__", "__subclasses__"), "frames"),
}
GROUPS = ("ProcessGroup", "_get_default_store", "_get_default_group", "_world")
TEXTS = {"/proc": "/proc", "/job": "the grader's folder", "DDPKIT_": "machinery of the kit"}
LIBRARIES = ("torch", "json", "pickle", "builtins", "sys", "math", "random", "numpy", "ddpkit")
Functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
OwnNames = (  # what binds names that are not those of the function around it
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def looks(merged: Merged) -> list[str]:
    """Lines that say what stands where in a submission's own cells: "ring, line 3: ...".

    The cells that the lab gives count for their imports alone.
    """
    imports: dict[str, str] = {}
    found: dict[str, None] = {}
    for cell in merged.cells:
        tree = _tree(cell.source)
        imports |= dict(_imports(tree))
        if cell.label != "given":
            label = cell.label if cell.exercises else "a cell of the student's own"
            found |= {
                cut(f"{label}, line {at}: {what}", LINE): None for at, what in _in(tree, imports)
            }
    lines = list(found)
    left = len(lines) - MOST
    return lines if left <= 0 else [*lines[:MOST], f"and {left} more"]


def _tree(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return as_python(source)[1]
    except Exception:  # it does not run either
        return ast.parse("")


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that imports bind, and what they stand for: ("dist", "torch.distributed")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or name, name
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                (each.asname or each.name, f"{node.module}.{each.name}") for each in node.names
            )


def _in(tree: ast.AST, imports: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Lines of one cell, and what stands there."""
    inner: set[int] = set()  # parts of a longer dotted name
    for node, local in _with_own_names(tree):
        match node:
            case ast.Import(names=names):
                for each in names:
                    yield from _named(node.lineno, each.name)
            case ast.ImportFrom(module=str(module), names=names):
                for each in names:
                    yield from _named(node.lineno, f"{module}.{each.name}")
            case ast.Attribute() | ast.Name() if id(node) not in inner:
                chain = list(_chain(node))
                inner |= set(map(id, chain))
                name = _dotted(node, imports, local)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    yield from _assigned(node.lineno, name)
                yield from _named(node.lineno, name)
                for part in chain:
                    if isinstance(part, ast.Attribute) and part.attr in ATTRIBUTES:
                        yield part.lineno, f"{ATTRIBUTES[part.attr]} ({part.attr})"
            case ast.Constant(value=str(text)):
                yield from ((node.lineno, what) for part, what in TEXTS.items() if part in text)


def _with_own_names(tree: ast.AST) -> Iterator[tuple[ast.AST, Set[str]]]:
    """All parts of a tree, each with the names that are a function's own there.

    `held = {}` in a function makes `held` its own, whatever the notebook has imported as `held`.
    """
    todo: list[tuple[ast.AST, Set[str]]] = [(tree, frozenset())]
    for node, local in todo:  # it grows
        yield node, local
        inside, body = local, list[ast.AST]()
        if isinstance(node, Functions):  # decorators and defaults belong to what is around it
            body += node.body if isinstance(node.body, list) else [node.body]
            inside = _own(node, body, local)
        ids = set(map(id, body))
        parts = ast.iter_child_nodes(node)
        todo += [(part, inside if id(part) in ids else local) for part in parts]


def _own(function: Functions, body: Sequence[ast.AST], around: Set[str]) -> Set[str]:
    """The names that are local in a function's body; in doubt a name is not."""
    a = function.args
    given = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    own, outer, todo = {each.arg for each in given}, set[str](), list(body)
    imported = {name for part in body for name, _ in _imports(part)}
    for node in todo:  # it grows
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.Global(names=names):
                outer |= set(names)
                around -= set(names)
            case ast.Nonlocal(names=names):
                outer |= set(names)
        if not isinstance(node, OwnNames):
            todo += ast.iter_child_nodes(node)
    return around | (own - outer - imported)


def _chain(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of `a.b.c`, from the last to the first."""
    yield node
    while isinstance(node, ast.Attribute):
        node = node.value
        yield node


def _dotted(node: ast.AST, imports: Mapping[str, str], local: Set[str]) -> str:
    """The name as it was imported: "torch.distributed.send" of `dist.send`."""
    parts = []
    for each in _chain(node):
        if isinstance(each, ast.Attribute):
            parts.append(each.attr)
        elif isinstance(each, ast.Name):
            parts.append(each.id if each.id in local else imports.get(each.id, each.id))
    return ".".join(reversed(parts))


def _named(line: int, name: str) -> Iterator[tuple[int, str]]:
    if _begins(name, OPEN):
        return
    for what, names in NAMES.items():
        if _begins(name, names):
            yield line, f"{what} ({name})"
            return
    if any(part.startswith(GROUPS) for part in name.split(".")):
        yield line, f"another way between ranks ({name})"


def _begins(name: str, beginnings: Iterable[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in beginnings)


def _assigned(line: int, name: str) -> Iterator[tuple[int, str]]:
    """Tell of an assignment into a library: `torch.equal = ...`."""
    if "." in name and name.partition(".")[0] in LIBRARIES:
        yield line, f"{name} is replaced"
