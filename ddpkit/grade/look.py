"""Places in a submission that a teacher may want to read: lines of a report, without points.

Points depend only on the results of answers. An answer that uses the internal parts of the kit may
have copied the right values, and a teacher of two hundred students reads no notebook without a
reason. Each line of the report names something in the code that no answer of the labs needs. A
student may still have good reasons for such code.

There are three kinds of lines. Lines of the first kind report internal names of the kit or of
Python, even in an assignment or a constant. Lines of the second kind report code that makes a name
at run time, because this could be any name. Lines of the third kind report calls that use files,
processes or dispatch modes. No score depends on the lines, because code can always be disguised.
"""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from ddpkit.grade.cellnames import STAR, as_python
from ddpkit.grade.merge import Merged
from ddpkit.grade.quote import cut

FILES = "files"
OPERATORS = "dispatch modes (torch.ops"
MOST = 12  # lines reported on a submission
LINE = 160  # characters of a line, because a name may have any length
OPEN = (  # harmless names of the kit and of Python, which `look` does not report
    *("ddpkit.exercises.check", "ddpkit.exercises.carry", "zlib.crc32", "zlib.adler32"),
    *("ddpkit.simulate.MeshPlan", "ddpkit.simulate.MeshModel", "ddpkit.simulate.MeshMachine"),
)

# the report's word -> beginnings of dotted names, after imports are resolved
NAMES: Mapping[str, tuple[str, ...]] = {
    "machinery of the kit": (
        *("ddpkit.grade", "ddpkit.rank", "ddpkit.checks", "ddpkit.exercises", "ddpkit.answers"),
        *("ddpkit.protocol", "ddpkit.cluster", "display_pub", "get_ipython"),
        *("IPython.get_ipython", "IPython.core", "ipykernel"),
    ),
    "the kit's simulator": ("ddpkit.simulate",),
    "frames": (
        *("sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile", "sys.modules"),
        *("inspect.currentframe", "inspect.stack", "gc", "threading.settrace", "sys.exc_info"),
        *("inspect.trace", "inspect.getmembers", "inspect.getouterframes", "traceback.walk_stack"),
        *("inspect.getinnerframes", "traceback.walk_tb", "threading.setprofile", "sys.monitoring"),
        *("breakpoint", "pdb", "bdb", "sys.addaudithook", "sys.meta_path", "sys.path_hooks"),
    ),
    "memory": (
        *("ctypes", "cffi", "mmap", "multiprocessing.shared_memory", "numpy.ctypeslib"),
        *("numpy.lib.stride_tricks", "torch.utils.cpp_extension", "torch.classes"),
    ),
    "encoded code": (
        *("exec", "eval", "compile", "__import__", "importlib", "base64", "marshal", "codecs"),
        *("zlib", "pickle", "cloudpickle", "types.CodeType", "types.FunctionType", "binascii"),
        *("builtins", "__builtins__", "__loader__", "__spec__", "runpy", "code", "pkgutil"),
        *("dill", "joblib", "string.Formatter"),
    ),
    "names made at run time": ("vars", "globals", "locals"),
    "dispatch modes": (
        *("torch.utils._python_dispatch", "torch.overrides", "torch.library", "torch._dispatch"),
        *("torch._subclasses", "torch._ops", "torch.ops"),
    ),
    FILES: (
        *("open", "io.open", "io.FileIO", "tempfile", "pathlib", "glob", "shutil", "shelve", "dbm"),
        *("sqlite3", "fileinput", "linecache", "zipfile", "tarfile", "gzip", "bz2", "lzma"),
        *("torch.save", "torch.load", "torch.from_file", "torch.jit.save", "torch.jit.load"),
        *("torch.distributed.checkpoint", "torch.serialization", "torch.UntypedStorage.from_file"),
        *("torch.utils.data.get_worker_info", "torch.package", "torch.hub", "torch.export.save"),
        *("numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.load", "numpy.memmap"),
        *("numpy.fromfile", "numpy.savetxt", "numpy.loadtxt", "numpy.genfromtxt", "fcntl", "os"),
        *("json.dump", "json.load", "pandas.read_", "logging.FileHandler", "posix", "nt"),
        *("_io", "io.open_code"),
    ),
    "processes": (
        *("concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process", "signal", "pty"),
        *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "_posixsubprocess"),
        *("atexit", "faulthandler", "resource", "psutil"),
    ),
    "another way between ranks": (
        *("socket", "subprocess", "torch.distributed.TCPStore", "torch.distributed.FileStore"),
        *("torch.distributed.HashStore", "torch.distributed.distributed_c10d"),
        *("torch._C", "torch.multiprocessing", "multiprocessing", "xmlrpc", "http", "urllib"),
        *("os.fork", "os.pipe", "os.mkfifo", "os.kill", "os.write", "os.read", "ssl", "selectors"),
        *("asyncio.open_connection", "asyncio.start_server", "select", "torch.distributed.rpc"),
    ),
}
ATTRIBUTES = {  # name of an attribute, of any object -> the report's word
    **dict.fromkeys(("f_back", "f_locals", "f_globals", "tb_frame", "gi_frame"), "frames"),
    **dict.fromkeys(("display_pub", "_default_pg", "fromhex"), "machinery of the kit"),
    **dict.fromkeys(("__globals__", "__code__", "__closure__", "__subclasses__"), "frames"),
    **dict.fromkeys(("f_builtins", "gi_code", "cr_frame", "ag_frame", "tb_next"), "frames"),
    **dict.fromkeys(("_getframe", "_current_frames", "currentframe", "settrace"), "frames"),
    **dict.fromkeys(("setprofile", "__mro__", "__bases__", "__base__", "mro"), "frames"),
    **dict.fromkeys(("__builtins__", "__import__", "__loader__"), "encoded code"),
    **dict.fromkeys(("__self__", "__traceback__"), "frames"),
    **dict.fromkeys(("__array_interface__", "__array_struct__"), "memory"),
    **dict.fromkeys(("__getattribute__", "__dict__"), "names made at run time"),
    **dict.fromkeys(("_disable_current_modes", "__torch_dispatch__"), "dispatch modes"),
    **dict.fromkeys(("__torch_function__", "_python_dispatch"), "dispatch modes"),
    **dict.fromkeys(("write_text", "read_text", "write_bytes", "read_bytes"), "files"),
    **dict.fromkeys(("tofile", "fromfile", "from_file", "memmap"), "files"),
    **dict.fromkeys(("share_memory_", "_share_filename_cpu_"), "another way between ranks"),
    **dict.fromkeys(("TCPStore", "FileStore", "HashStore"), "another way between ranks"),
    **dict.fromkeys(("distributed_c10d", "_new_shared"), "another way between ranks"),
}
BY_NAME = (  # functions that take an attribute's name as their second argument
    *("getattr", "setattr", "delattr", "hasattr"),
    *("object.__setattr__", "type.__setattr__", "object.__delattr__", "type.__delattr__"),
    "unittest.mock.patch.object",
)
# functions that take attributes' names as all their arguments
GETTERS = ("operator.attrgetter", "operator.methodcaller")
# names that count anywhere in a text: "{0.__globals__}".format(...)
IN_TEXTS = tuple(name for name in ATTRIBUTES if name[:1] == "_")
OWN = "?"  # stands for a name that the student's code has bound
# names that a cell can use without an import
EVERYWHERE = {*dir(builtins), "__builtins__", "get_ipython", "display_pub"}
GROUPS = ("ProcessGroup", "_get_default_store", "_get_default_group", "_world", "_get_backend")
FIELD = re.compile(r"\{[^{}]*?\.([\w.]+)")  # the attributes in "{0.f_back}".format(...)
TEXTS = {"/proc": "/proc", "/job": "the grader's folder", "DDPKIT_": "machinery of the kit"}
SHELL = re.compile(r"\s*(%%(?:bash|sh|script|writefile|file)\b|%(?:sx|system|run)\b)")
LIBRARIES = ("torch", "json", "pickle", "builtins", "sys", "math", "random", "numpy", "ddpkit")
Functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
OwnNames = (  # nodes that bind names in a scope of their own, not in the surrounding function's
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def looks(merged: Merged, usual: Collection[str] = ()) -> list[str]:
    """Return a line for each suspicious place in the student's own cells: "ring, line 3: ...".

    usual  the findings in the lab's own answers (`used_in`), which are no reason to look

    In the cells that the lab hands out, only imports are read, because the student's cells may use
    these imports.
    """
    found = {
        cut(f"{label}, line {at}: {what}", LINE): None
        for label, at, what in _found(merged)
        if what not in usual and _family(what) not in usual
    }
    lines = list(found)
    left = len(lines) - MOST
    return lines if left <= 0 else [*lines[:MOST], f"and {left} more"]


def used_in(merged: Merged) -> frozenset[str]:
    """Return the findings in the answers of a lab.

    If an answer writes files, all functions for files are usual, since a student may choose any of
    them. If an answer names an operator, as checkpoint policies do, all operators are usual.
    """
    found = {what for _, _, what in _found(merged)}
    return frozenset(found | {_family(what) for what in found} & {FILES, OPERATORS})


def _family(what: str) -> str:
    return OPERATORS if what.startswith(OPERATORS) else what.partition(" (")[0]


def _found(merged: Merged) -> Iterator[tuple[str, int, str]]:
    """Yield each finding: the cell's label, the line in the cell, and the text of the report."""
    trees = [(cell, _tree(cell.source)) for cell in merged.cells]
    imports: dict[str, str] = {}
    for _, tree in trees:  # a function in the first cell may use an import in the last cell
        imports |= dict(_imports(tree))
        imports |= dict(_aliases(tree, imports))
    for cell, tree in trees:
        if cell.label != "given":
            label = cell.label if cell.exercises else "a cell of the student's own"
            found = [*_in(tree, imports), *_shell(cell.source)]
            yield from ((label, at, what) for at, what in sorted(found))


def _tree(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return as_python(source)[1]
    except Exception:  # invalid code cannot run either
        return ast.parse("")


def _shell(source: str) -> Iterator[tuple[int, str]]:
    """Yield magics that run a program or write a file, but not lines such as `!ls`."""
    for line, text in enumerate(source.splitlines(), 1):
        if found := SHELL.match(text):
            yield line, f"processes ({found[1]})"


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, and its full name: ("dist", "torch.distributed")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or name, name
        elif isinstance(node, ast.ImportFrom) and any(each.name == STAR for each in node.names):
            yield STAR, STAR
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                (each.asname or each.name, f"{node.module}.{each.name}") for each in node.names
            )


def _aliases(tree: ast.AST, imports: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield names that assignments such as `s = sys` bind to an import, and the import's name."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ) if _is_dotted(value):
                dotted = _dotted(value, imports, frozenset())
                if dotted.partition(".")[0] != name and _named_at_all(dotted):
                    yield name, dotted


def _is_dotted(node: ast.AST) -> bool:
    return all(isinstance(part, ast.Attribute | ast.Name) for part in _chain(node))


def _named_at_all(dotted: str) -> bool:
    """True for internal names of the kit or of Python, and for modules with such names (`sys`)."""
    return any(
        each.startswith(f"{dotted}.") or _begins(dotted, (each,))
        for names in NAMES.values()
        for each in (*names, *BY_NAME)
    )


def _in(tree: ast.AST, imports: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield the findings in a cell: the line, and the text of the report."""
    inner: set[int] = (
        set()
    )  # ids of nodes read already: parts of a longer dotted name, functions of BY_NAME and GETTERS
    for node, local in _with_own_names(tree):
        match node:
            case ast.Import(names=names):
                for each in names:
                    yield from _named(node.lineno, each.name)
            case ast.ImportFrom(module=str(module), names=names):
                for each in names:
                    yield from _named(node.lineno, f"{module}.{each.name}")
            case ast.Call(func=called) if (by := _dotted(called, imports, local)) in (
                *BY_NAME,
                *GETTERS,
            ):
                inner.add(id(called))
                owner = _dotted(node.args[0], imports, local) if by in BY_NAME and node.args else ""
                for text in node.args[1:2] if by in BY_NAME else node.args:
                    if by in ("getattr", *GETTERS) or not owner.startswith(OWN):
                        yield from _attribute(node.lineno, by, owner, text)
                        if by not in ("getattr", "hasattr", *GETTERS):
                            yield from _assigned(node.lineno, f"{owner}.{_constant(text)}")
            case ast.Call(func=called, args=[ast.Constant(value=str(name)), *_]) if (
                _dotted(called, imports, local) == "unittest.mock.patch"
            ):
                yield from _assigned(node.lineno, name)
            case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()) if (
                name in ATTRIBUTES and name[:2] == "__"
            ):
                yield node.lineno, f"{ATTRIBUTES[name]} ({name})"
            case ast.Subscript(value=ast.Attribute(attr="modules")):
                yield node.lineno, "frames (modules)"
            case ast.MatchClass(cls=kind, kwd_attrs=attributes):
                for attribute in attributes:
                    if attribute in ATTRIBUTES:
                        yield kind.lineno, f"{ATTRIBUTES[attribute]} ({attribute})"
            case ast.Name(id="getattr") if "getattr" not in local and id(node) not in inner:
                yield node.lineno, "names made at run time (getattr)"
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
                fields = {part for field in FIELD.findall(text) for part in field.split(".")}
                hidden = (
                    name
                    for name in ATTRIBUTES
                    if name in fields or (name in IN_TEXTS and name in text)
                )
                yield from ((node.lineno, f"{ATTRIBUTES[name]} ({name})") for name in hidden)


def _attribute(line: int, by: str, owner: str, name: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield a finding for `getattr(x, name)` if the name is internal, or made at run time."""
    match name:
        case ast.Constant(value=str(text)):
            yield from _named(line, f"{owner}.{text}")
            for part in text.split("."):
                if part in ATTRIBUTES:
                    yield line, f"{ATTRIBUTES[part]} ({part})"
        case _:
            yield line, f"names made at run time ({by})"


def _constant(node: ast.AST) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else OWN


def _with_own_names(tree: ast.AST) -> Iterator[tuple[ast.AST, Set[str]]]:
    """Yield all nodes of a tree, each with the names that are local at the node.

    After `held = {}` in a function, `held` is local there, even if a module `held` is imported.
    """
    todo: list[tuple[ast.AST, Set[str]]] = [(tree, frozenset())]
    for node, local in todo:  # the loop appends to the list
        yield node, local
        inside, body = local, list[ast.AST]()
        if isinstance(node, Functions):  # decorators and defaults belong to the surrounding code
            body += node.body if isinstance(node.body, list) else [node.body]
            inside = _own(node, body, local)
        ids = set(map(id, body))
        parts = ast.iter_child_nodes(node)
        todo += [(part, inside if id(part) in ids else local) for part in parts]


def _own(function: Functions, body: Sequence[ast.AST], around: Set[str]) -> Set[str]:
    """Return the names that are local in a function's body; a name in doubt is not local."""
    a = function.args
    given = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    own, outer, todo = {each.arg for each in given}, set[str](), list(body)
    imported = {name for part in body for name, _ in _imports(part)}
    known = dict(pair for part in body for pair in _imports(part))
    imported |= {name for part in body for name, _ in _aliases(part, known)}
    for node in todo:  # the loop appends to the list
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
    """Yield the nodes of `a.b.c`, of `a.b` and of `a`, in this order."""
    yield node
    while isinstance(node, ast.Attribute):
        node = node.value
        yield node


def _dotted(node: ast.AST, imports: Mapping[str, str], local: Set[str]) -> str:
    """Return the full name of an expression: "torch.distributed.send" for `dist.send`."""
    parts = []
    for each in _chain(node):
        if isinstance(each, ast.Attribute):
            parts.append(each.attr)
        elif isinstance(each, ast.Name):
            parts.append(_root(each.id, imports, local))
    return ".".join(reversed(parts))


def _root(name: str, imports: Mapping[str, str], local: Set[str]) -> str:
    """Return the full name of an imported name; for any other variable, return OWN."""
    if name in local:
        return OWN
    if name in imports:
        return imports[name]
    return name if STAR in imports or name in EVERYWHERE else OWN


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
    """Yield a finding for an assignment to a library's attribute: `torch.equal = ...`."""
    if "." in name and name.partition(".")[0] in LIBRARIES:
        yield line, f"{name} is replaced"
