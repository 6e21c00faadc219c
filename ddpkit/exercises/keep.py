"""`keep`: saves an answer that passed its check, as a file that runs by itself."""

from __future__ import annotations

import builtins
import inspect
import linecache
import sys
import types
from pathlib import Path
from typing import Any

from ddpkit.exercises.progress import folder, write
from ddpkit.exercises.sources import (
    FUTURE,
    annotation_names,
    defined_name,
    dotted_names,
    globals_of,
    needed_names,
    source_of,
)

# The beginning of the names of modules with carried answers. sys.modules does not contain these
# modules, so cloudpickle ships their code by value, and ranks need no file.
CARRIED = "ddpkit_carried_"

CARRY = "from ddpkit import carry"  # line of a kept file that uses an earlier answer
CARRY_ONCE = "from ddpkit.lessons import carry"  # the same line in files kept before November 2026


class NotKept(Exception):
    """Raised if an answer cannot be saved.

    The message is the reason, as a clause without a full stop.
    """


def keep(name: str, answer: object) -> str:
    """Save `answer` for `carry(name)`; return a sentence about success or failure.

    After a failure, the sentence gives the reason and the remedy.
    """
    path = kept_path(name)
    try:
        text = standalone(name, answer)
        load(name, text, path)
        write(path, text)
    except NotKept as reason:
        return f"Your version is not kept for later labs: {reason}."
    except OSError as error:
        return f"Your version is not kept for later labs: {path}: {error.strerror}."
    except Exception as error:
        reason_text = f"{type(error).__name__}: {error}"
        return f"Your version is not kept for later labs: run by itself, it raises {reason_text}."
    return "Your version is kept for later labs."


def kept_path(name: str) -> Path:
    return folder() / "answers" / f"{name}.py"


def load(name: str, text: str, path: Path) -> Any:
    """Run a saved file in a new namespace, and return its definition of `name`.

    Raises any error that the file raises, and KeyError if the file does not define `name`.
    """
    filename = str(path.absolute())
    text = text.replace(CARRY_ONCE, CARRY)
    code = compile(text, filename, "exec", dont_inherit=True)
    # Tracebacks read this cache. So does `keep`, for an answer that uses this answer. Without an
    # mtime, the entry is never checked against the disk.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module = types.ModuleType(f"{CARRIED}{name}")
    module.__file__ = filename
    # sys.modules has the module only while the file runs, because dataclasses look up their module
    sys.modules[module.__name__] = module
    try:
        exec(code, module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module.__dict__[name]


def standalone(name: str, answer: object) -> str:
    """Return the text of a file that defines `name` as `answer` does, and all that it needs.

    Modules become imports, helpers become their source, and constants become assignments.

    Raises:
        NotKept: the answer uses a value without such a form, for example an object of another cell.
    """
    if str(getattr(answer, "__module__", "")).startswith("ddpkit."):
        raise NotKept("the answer is ddpkit's own")
    collector = _Collector()
    if not _is_definition(answer):
        raise NotKept(f"the answer is a {type(answer).__name__}, not a function or class")
    if collector.define(answer) != name:
        raise NotKept(f"the answer is not defined by a `def {name}` or `class {name}`")
    return collector.text(f'# {name}: your version, as its check passed. carry("{name}") loads it.')


class _Collector:
    """Collects an answer's source and all that it uses; a helper comes before code that uses it."""

    def __init__(self) -> None:
        self.bound: dict[str, object] = {}  # name in the file -> its value
        self.imports: set[str] = set()
        self.assignments: list[str] = []
        self.definitions: list[str] = []
        self.begun: set[str] = set()  # names of definitions that are added or being added

    def text(self, heading: str) -> str:
        head = "\n".join([heading, FUTURE])
        # `import a.b` binds `a` as well
        plain = [each for each in self.imports if " as " not in each]
        spare = {each for each in plain if any(it.startswith(f"{each}.") for it in plain)}
        blocks = ["\n".join(sorted(self.imports - spare)), "\n".join(self.assignments)]
        parts = [head.rstrip(), *(block for block in blocks if block)]
        return (
            "\n\n".join(parts)
            + "".join(f"\n\n\n{each.rstrip()}" for each in self.definitions)
            + "\n"
        )

    def define(self, thing: Any) -> str:
        """Add the source of a function or class after all that it needs; return its name."""
        label = thing.__name__
        source = source_of(thing)
        name = defined_name(source) if source is not None else None
        if source is None or name is None:
            raise NotKept(f"the source of `{label}` cannot be found")
        self._bind(name, thing)
        self.begun.add(name)
        if hidden := _enclosed(thing):
            raise NotKept(
                f"`{label}` uses the variable `{hidden[0]}` of the function around it; "
                f"define `{hidden[0]}` in a cell of its own, and pass it as an argument"
            )
        namespace = globals_of(thing)
        self._import_submodules(source, namespace)
        for each in sorted(needed_names(source)):
            self._add(each, namespace)
        for each in sorted(annotation_names(source)):
            self._add_if_imported(each, namespace)
        self.definitions.append(source)
        return name

    def _bind(self, name: str, value: object) -> bool:
        """Store the value of a name; return True if the name is new."""
        if name in self.bound and self.bound[name] is not value:
            raise NotKept(
                f"the answer uses two different things called `{name}`; rename one of them"
            )
        new = name not in self.bound
        self.bound[name] = value
        return new

    def _add(self, name: str, namespace: dict[str, object]) -> None:
        if name.startswith("__"):  # attributes of the module, such as __name__
            return
        if name not in namespace:
            if not hasattr(builtins, name):
                raise NotKept(f"the answer uses the name `{name}`, which is not defined")
            return
        value = namespace[name]
        if not self._bind(name, value):
            return
        if statement := _import_of(name, value):
            self.imports.add(statement)
        elif _is_constant(value):
            self.assignments.append(f"{name} = {_literal(value)}")
        elif statement := _carry_of(name, value):
            self.imports.add(CARRY)
            self.assignments.append(statement)
        elif _is_definition(value):
            if (own := self._define_once(value)) != name:
                self.definitions.append(f"{name} = {own}")
        else:
            raise NotKept(
                f"the answer uses the variable `{name}` ({type(value).__name__}); "
                f"pass `{name}` as an argument"
            )

    def _define_once(self, value: object) -> str:
        """Define a helper under the name in its source; return this name."""
        source = source_of(value)
        own = defined_name(source) if source is not None else None
        if own in self.begun and self.bound[own] is value:
            return own
        return self.define(value)

    def _add_if_imported(self, name: str, namespace: dict[str, object]) -> None:
        statement = _import_of(name, namespace[name]) if name in namespace else None
        if statement is not None and self._bind(name, namespace[name]):
            self.imports.add(statement)

    def _import_submodules(self, source: str, namespace: dict[str, object]) -> None:
        """Add an import of each submodule that a source uses, such as `xml.etree`.

        `import xml` alone loads no submodule.
        """
        for dotted in dotted_names(source):
            head = dotted.partition(".")[0]
            is_module = isinstance(sys.modules.get(dotted), types.ModuleType)
            if is_module and namespace.get(head) is sys.modules[head]:
                self.imports.add(f"import {dotted}")


def _is_definition(value: Any) -> bool:
    """True for a class, a function, or a function wrapped by functools.cache and the like."""
    if isinstance(value, type):
        return True
    return hasattr(value, "__name__") and isinstance(inspect.unwrap(value), types.FunctionType)


def _enclosed(thing: Any) -> tuple[str, ...]:
    """Return the names of variables that a function uses from an enclosing function."""
    code = getattr(inspect.unwrap(thing), "__code__", None)
    return code.co_freevars if isinstance(code, types.CodeType) else ()


def _import_of(name: str, value: object) -> str | None:
    """Return the import that binds `name` to the value; None if no module has the value."""
    if isinstance(value, types.ModuleType):
        if sys.modules.get(value.__name__) is not value or value.__name__ == "__main__":
            return None
        alias = "" if value.__name__ == name else f" as {name}"
        return f"import {value.__name__}{alias}"
    if _is_constant(value):
        return None
    for module in _modules_with(value):
        for attribute in (getattr(value, "__name__", name), name):
            if isinstance(attribute, str) and vars(module).get(attribute) is value:
                alias = "" if attribute == name else f" as {name}"
                return f"from {module.__name__} import {attribute}{alias}"
    return None


def _modules_with(value: object) -> list[types.ModuleType]:
    """Return the modules in which a value may be found.

    They are the value's own module and its packages, the outermost first.
    """
    home = getattr(value, "__module__", None)
    if isinstance(home, str) and home in sys.modules:
        parts = home.split(".")
        names = [".".join(parts[: length + 1]) for length in range(len(parts))]
    elif home is None or not _is_definition(value):
        names = sorted(sys.modules, key=lambda each: ("._" in f".{each}", each.count("."), each))
    else:
        names = []
    modules = (sys.modules.get(each) for each in names if each not in ("__main__", "__mp_main__"))
    return [each for each in modules if isinstance(each, types.ModuleType)]


def _carry_of(name: str, value: object) -> str | None:
    """Return the `carry` statement for a value that is an earlier lab's answer, else None."""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or not module.startswith(CARRIED):
        return None
    original = module.removeprefix(CARRIED)
    if getattr(value, "__name__", None) != original:  # the value is a helper of the carried answer
        return None
    return f'{name} = carry("{original}", quiet=True)'


def _is_constant(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return type(value) in (int, float, str, bool, type(None))


def _literal(value: object) -> str:
    if type(value) is tuple:
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    if type(value) is float and repr(value).lstrip("-") in ("inf", "nan"):
        return f'float("{value!r}")'
    return repr(value)
