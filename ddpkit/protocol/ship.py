"""Pickling of functions and results with cloudpickle, with large tensors outside the pickle.

A function from a notebook cell belongs to `__main__`, which other processes cannot import, so the
function is pickled by value. The large buffers of a result are sent without pickling (pickle
protocol 5, out of band): torch's own pickling would copy a tensor four times.
"""

from __future__ import annotations

import dis
import functools
import importlib
import inspect
import io
import mmap
import operator
import os
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import cloudpickle

from ddpkit import torch_private
from ddpkit.errors import ClusterError
from ddpkit.protocol.not_computed import is_large, on_meta
from ddpkit.source import add_user_code, is_user_file

if TYPE_CHECKING:
    import torch

# attributes that Python makes in a class, and that cloudpickle leaves out
OF_A_CLASS = ("__dict__", "__weakref__", "_abc_impl")
Part: TypeAlias = bytes | bytearray | memoryview  # a pickle or a large buffer
UnpackedCall: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
IN_BAND = 1 << 16  # bytes; smaller buffers stay in the pickle
NAMES_HASH = b"_hashing_"  # in the pickle of a call with code that names the builtin `hash`


def pack_call(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> list[Part]:
    """Return the pickle of a call of `function`, then the large buffers of its arguments.

    Raises ClusterError, which names the variable or argument that cannot be sent.
    """
    add_user_code(function, *args, *kwargs.values())
    try:
        return pack_result((function, args, kwargs))
    except Exception as error:
        raise ClusterError(_why_unpicklable(function, args, kwargs, error)) from None


def unpack_call(parts: Sequence[Part]) -> UnpackedCall:
    """Return the function and the arguments that `pack_call` packed.

    Large buffers are not copied: they are the buffers in `parts`.
    """
    call: UnpackedCall
    function, args, kwargs = call = pickle.loads(parts[0], buffers=parts[1:])
    add_user_code(function, *args, *kwargs.values())
    return call


# Every rank maps a call's file: its buffers are copied once for all ranks. A page is copied again
# only when a rank writes to its own tensor.
_ALIGNED = 64  # bytes: torch and numpy are fastest with aligned buffers


def write_call(path: Path, parts: Sequence[Part]) -> None:
    """Write the parts of `pack_call`: first their sizes, then each part, aligned."""
    sizes = [memoryview(part).nbytes for part in parts]
    with path.open("xb") as file:
        file.write(struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes))
        for part in parts:
            file.seek(-file.tell() % _ALIGNED, os.SEEK_CUR)
            file.write(part)


def read_call(path: Path) -> UnpackedCall:
    """Return the function and the arguments in a file of `write_call`.

    Large buffers are not copied: they are the pages of the mapped file.
    """
    with path.open("rb") as file:
        memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    (count,) = struct.unpack_from("<Q", memory)
    end, parts = 8 + 8 * count, []
    for size in struct.unpack_from(f"<{count}Q", memory, 8):
        start = end + -end % _ALIGNED
        end = start + size
        parts.append(memory[start:end])
    return unpack_call(parts)


def pack_result(value: object) -> list[Part]:
    """Return the pickle of `value`, then its large buffers."""
    buffers: list[pickle.PickleBuffer] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as view:
            if view.nbytes < IN_BAND:
                return True
        buffers.append(buffer)
        return False

    stream = io.BytesIO()
    _TensorPickler(stream, protocol=5, buffer_callback=keep_in_band).dump(value)
    # Bytes, no view: Python 3.13 complains if a stream is freed while a view of it exists.
    return [stream.getvalue(), *(buffer.raw() for buffer in buffers)]


def unpack_result(parts: Sequence[Part]) -> object:
    """Return the value that `pack_result` packed; its large buffers are those in `parts`."""
    return pickle.loads(parts[0], buffers=parts[1:])


class CodePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles code objects with their file names; pickles `torch.ops` and operations by name.

    cloudpickle 3.1.3 drops the name of the file, without which a rank cannot name a cell's line.
    """

    def reducer_override(self, obj: Any) -> object:
        if obj is hash:
            return _hashing_builtin, ()
        if is_module_by_name(obj):
            return importlib.import_module, (obj.__name__,)
        if name := _operation(obj):
            return operator.attrgetter(name), (sys.modules["torch"].ops,)
        if isinstance(obj, types.CodeType):
            make, args = self.dispatch_table[types.CodeType](obj)
            return _hashing_code if _calls_hash(obj) else _code, (obj.co_filename, make, args)
        return super().reducer_override(obj)


def _code(
    file: str, make: Callable[..., types.CodeType], args: tuple[object, ...]
) -> types.CodeType:
    return make(*args).replace(co_filename=file)


def _hashing_code(
    file: str, make: Callable[..., types.CodeType], args: tuple[object, ...]
) -> types.CodeType:
    return _code(file, make, args)


def _hashing_builtin() -> Callable[[object], int]:
    return hash


def _calls_hash(code: types.CodeType) -> bool:
    """True if code names the builtin function `hash`.

    The `__hash__` that a dataclass makes does not count: the class itself hashes nothing.
    """
    if code.co_name == "__hash__" and code.co_filename == "<string>":
        return False
    return "hash" in code.co_names and any(
        each.argval == "hash" and each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        for each in dis.get_instructions(code)
    )


class _TensorPickler(CodePickler):
    """Pickles plain dense tensors as their bytes: detached, contiguous, on the CPU."""

    def reducer_override(self, obj: Any) -> object:
        # torch is looked up, not imported: a process without torch has no tensor, and a
        # notebook's first run should not wait for the import.
        torch: Any = sys.modules.get("torch")
        if torch is not None and obj is type(torch.distributed.Work):
            return type, (torch.distributed.Work,)  # pickle cannot name pybind11's metaclass
        obj = torch_private.awaited(obj)  # the bytes may still be on the way
        if torch is None or type(obj) not in (torch.Tensor, torch.nn.Parameter):
            return super().reducer_override(obj)
        if obj.layout != torch.strided or obj.is_quantized or obj.is_meta or obj.is_conj():
            return NotImplemented  # torch itself pickles these tensors
        if is_large(obj):
            return on_meta(obj).__reduce_ex__(5)
        flat = obj.detach().cpu().contiguous().reshape(-1)
        if flat.stride(0) != 1:  # contiguous() does not copy tensors with at most one element
            flat = flat.clone(memory_format=torch.contiguous_format)
        parameter = type(obj) is torch.nn.Parameter
        details = (obj.dtype, tuple(obj.shape), obj.requires_grad, parameter)
        return _tensor, (pickle.PickleBuffer(flat.view(torch.uint8).numpy()), *details)


def is_module_by_name(value: object) -> bool:
    """True if a value is an imported module with its own class, such as `torch.ops`.

    cloudpickle would pickle such a module as an object. It would also pickle `torch.ops` with every
    function in which `torch` and a name `ops` occur, even if `ops` is a local variable.
    """
    if not isinstance(value, types.ModuleType) or type(value) is types.ModuleType:
        return False
    return sys.modules.get(value.__name__) is value


def _operation(value: object) -> str:
    """Return the name in `torch.ops` of an operation or an overload; "" for other values.

    torch does not pickle overloads, and cloudpickle would make a second object of a higher-order
    operation.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not type(value).__module__.startswith("torch."):
        return ""
    mm = torch.ops.aten.mm
    name = f"higher_order.{getattr(value, '__name__', '')}"
    if isinstance(value, (type(mm), type(mm.default))):
        name = str(value)
    try:
        return name if operator.attrgetter(name)(torch.ops) is value else ""
    except AttributeError:
        return ""


def _tensor(
    buffer: Part, dtype: torch.dtype, shape: tuple[int, ...], requires_grad: bool, parameter: bool
) -> object:
    import torch

    if memoryview(buffer).nbytes == 0:
        flat = torch.empty(0, dtype=torch.uint8)
    elif memoryview(buffer).readonly:  # a small buffer comes as read-only bytes in the pickle
        flat = torch.frombuffer(bytearray(buffer), dtype=torch.uint8)
    else:
        flat = torch.frombuffer(buffer, dtype=torch.uint8)
    tensor = flat.view(dtype).reshape(shape)
    tensor = tensor.to(torch.get_default_device())  # a rank's default device may be a GPU
    if parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


# The name of the unsendable value


def _why_unpicklable(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    error: Exception,
) -> str:
    name = getattr(function, "__name__", repr(function))
    for label, value in (*enumerate(args), *kwargs.items()):
        if not _picklable(value):
            if said := _uses(*_of_user(value)):
                return said
            return (
                f"argument {label!r} of {name} is a {_type(value)}, which cannot be sent to "
                f"another process ({_reason(value)}). "
                f"Send the data that it is made from, and make it inside {name}."
            )
    found = _culprit(function, {id(function)})
    if said := _uses(name, function, found):
        return said
    return f"{name} cannot be sent to the ranks: {type(error).__name__}: {error}"


def _of_user(value: object) -> tuple[str, object, list[tuple[str, object]] | None]:
    """Find the user's function inside an argument; return its name, the function, and a path.

    A check sends a student's answer inside partials and functions of the kit. The path leads from
    the function to a variable that cannot be pickled, as in `_culprit`.
    """
    chain = _culprit(value, {id(value)}) if _has_code(value) else None
    while chain and not (isinstance(value, types.FunctionType) and _is_users(value)):
        (_, value), *chain = chain
    return getattr(value, "__name__", ""), value, chain


def _is_users(function: types.FunctionType) -> bool:
    return is_user_file(function.__code__.co_filename)


def _uses(name: str, function: object, chain: list[tuple[str, object]] | None) -> str:
    """Return a sentence about the variable that cannot be pickled; "" without such a variable."""
    if not chain:
        return ""
    variable, value = chain[-1]
    said, holder = name, function
    maker = name  # the innermost function on the way
    for step, each in chain[:-1]:
        said += f"{', which ' if holder is not function else ' '}{_leads_to(holder, step, each)}"
        holder = each
        maker = step if _has_code(each) else maker
    which = ", which " if holder is not function else " "
    uses = "has the attribute" if _is_taken_apart(holder) else "uses the variable"
    if isinstance(holder, type):
        maker = f"a method of {holder.__name__}"
    return (
        f"{said}{which}{uses} {variable!r}, a {_type(value)}, which cannot be sent to another "
        f"process. Make it inside {maker} instead."
    )


def _leads_to(holder: object, step: str, value: object) -> str:
    """Return the words of an error for one step of a path: "calls f", "uses the class C"."""
    if _has_code(value):
        return f"{'has' if _is_taken_apart(holder) else 'calls'} {step}"
    if isinstance(value, type):
        return f"uses the class {step}"
    return f"{'has the attribute' if _is_taken_apart(holder) else 'uses the variable'} {step!r}"


def _has_code(value: object) -> bool:
    return isinstance(value, (types.FunctionType, types.MethodType, functools.partial))


def _is_taken_apart(value: object) -> bool:
    """True for a class of the user, and for an object of such a class.

    The search for a culprit looks at the attributes of such values.
    """
    kind = value if isinstance(value, type) else type(value)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    is_own = kind.__module__ == "__main__" or (file is not None and is_user_file(file))
    return is_own and not _has_code(value)


def _culprit(function: object, seen: set[int]) -> list[tuple[str, object]] | None:
    """Return the path from a function to a variable that cannot be pickled, or None.

    The path is a list of (name, value), the last of which is the variable.
    """
    for name, value in _variables(function):
        if id(value) in seen or _picklable(value):
            continue
        seen.add(id(value))
        deeper = _culprit(value, seen)
        return [(name, value), *deeper] if deeper else [(name, value)]
    return None


def _variables(function: object) -> Iterator[tuple[str, object]]:
    """Yield the names and values that a callable uses from outside its body.

    A function uses its defaults, its closure and globals; a method the attributes of its object; a
    partial its function and arguments. A class of the user uses its bases and attributes; an object
    of such a class uses its class and attributes.
    """
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, (type, types.ModuleType)):
        yield from (
            (f"self.{name}", value) for name, value in getattr(owner, "__dict__", {}).items()
        )
    if isinstance(function, functools.partial):
        yield getattr(function.func, "__name__", "function"), function.func
        yield from ((f"argument {i}", value) for i, value in enumerate(function.args))
        yield from function.keywords.items()
    if _is_taken_apart(function):
        bases = function.__bases__ if isinstance(function, type) else (type(function),)
        yield from ((each.__name__, each) for each in bases)
        yield from (
            (name, value)
            for name, value in getattr(function, "__dict__", {}).items()
            if name not in OF_A_CLASS
        )
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return
    yield from ((p.name, p.default) for p in inspect.signature(function).parameters.values())
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable is not assigned yet
            continue
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _global_names(code: types.CodeType) -> set[str]:
    nested = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*map(_global_names, nested))


def _picklable(value: object) -> bool:
    return not _reason(value)


def _reason(value: object) -> str:
    """Return the reason why a value cannot be pickled; "" for a value that can."""
    try:
        pack_result(value)
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


def _type(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
