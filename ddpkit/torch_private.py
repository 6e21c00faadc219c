"""All private names of torch on which the kit depends, each with a probe.

torch promises nothing about a private name: the next version may rename the name, drop it, or
change the behaviour. Therefore the kit uses private names only in this module
(`tests/project/test_private.py` reads the whole package). Beside each name stands a probe: a tiny
case of the kit's use of the name. `ddpkit doctor` runs all probes.

A run calls `require` first, which checks within microseconds that the names for the run exist. If
a name is missing, the reader gets a sentence instead of an assertion inside torch: the version of
torch, the name, and the features of the kit that still work.

Names of operators, such as aten's `_softmax`, are no private names. The names are keys of torch's
registry, and no program calls an operator that the registry lacks.

Only functions of the module import torch, so a launcher can load the module without torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from enum import Enum
from functools import cache
from operator import attrgetter, methodcaller
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpkit.errors import UnsupportedTorch

if TYPE_CHECKING:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

    Parameters = dict[str, torch.nn.Parameter | None]


class Feature(Enum):
    """A part of the kit that uses private names; the value tells the effect of a missing name."""

    RUNS = "no run works"
    EMULATED = "real-time runs work, emulated ones do not"
    COUNTED = "real-time runs and those with link= work, those with machine= do not"
    NO_VALUES = "all works but runs without values"
    ALIKE = "all works but runs in which ranks are alike"
    DEVICES = "all works but runs on a machine with a device"
    NCCL = "runs over gloo work, those over NCCL do not"
    SCRIPTS = "a Cluster's runs work, `ddpkit run` on a machine without a GPU does not"
    FSDP1 = "all works but FullyShardedDataParallel under `ddpkit run` without a GPU"
    CHECKS = "all runs work, checks do not"
    COMPILER = "all works, but each run loads torch's compiler, which takes seconds"
    LISTS = "all works, but an optimizer's step on many DTensors takes seconds of real time"
    WORDS = "all works, but the error of a message to oneself does not name the rank"

    @property
    def harmless(self) -> bool:
        """True if the kit has a substitute for the names."""
        return self in (Feature.COMPILER, Feature.LISTS, Feature.WORDS)


class Private(NamedTuple):
    """A private name of torch, and a probe that fails or raises if the kit cannot use the name."""

    name: str  # dotted name, beginning with "torch", as in torch's source
    feature: Feature
    probe: Callable[[], bool]

    @property
    def short(self) -> str:
        """The name alone, without modules and class."""
        return self.name.rpartition(".")[2]

    def is_there(self, *, load: bool) -> bool:
        """True if the name exists; without `load` also if the name's module is not loaded yet."""
        found: Any = importlib.import_module("torch")
        path = "torch"
        for part in self.name.split(".")[1:]:
            path += f".{part}"
            if isinstance(found, ModuleType) and part not in vars(found) and _is_module(path):
                if path == self.name or not load:
                    return True
                found = importlib.import_module(path)  # torch.optim deletes the names of modules
                continue
            if not hasattr(found, part):  # a class may only annotate a name, to set it later
                return part in getattr(found, "__annotations__", ())
            found = getattr(found, part)
        return True

    def trouble(self) -> str:
        """Return a sentence on the fault of the name; "" without a fault."""
        if not self.is_there(load=True):
            return self.lacking()
        try:
            says = "" if self.probe() else "behaves differently"
        except Exception as error:
            says = f"raises {type(error).__name__} ({str(error).splitlines()[0]})"
        return says and f"{self.short} of torch {_version()} {says}: {self.feature.value}"

    def lacking(self) -> str:
        """Return the sentence on a missing name."""
        return f"torch {_version()} has no {self.short}: {self.feature.value}"


NAMES: list[Private] = []


def require(*features: Feature) -> None:
    """Raise UnsupportedTorch if a name is missing for the given features of the kit."""
    for private in NAMES:
        if private.feature in features and not private.is_there(load=False):
            raise UnsupportedTorch(private.lacking())


def explain(error: Exception, *features: Feature) -> None:
    """Raise UnsupportedTorch from `error` if a probe of the given features fails."""
    for private in NAMES:
        if private.feature in features and (trouble := private.trouble()):
            raise UnsupportedTorch(trouble) from error


def _version() -> str:
    import torch

    return str(torch.__version__)


def _is_module(name: str) -> bool:
    """True if there is a module with the name, loaded or not."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent of `name` is no package
        return False


def _known(feature: Feature, *names: str, probe: Callable[[], bool]) -> None:
    NAMES.extend(Private(name, feature, probe) for name in names)


# Process groups


def _alone() -> Any:
    """Return a gloo process group with a single rank."""
    import torch.distributed as dist

    return dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=20))


def register_backend(group: Any, device: str, inner: Any) -> None:
    """Make `inner` the backend of a group: gloo for the device "cpu", NCCL for "cuda".

    torch 2.15 asks each new group for a default backend; the backend of the CPU is the default.
    """
    import torch
    import torch.distributed as dist

    kinds = dist.ProcessGroup.BackendType
    kind = kinds.GLOO if device == "cpu" else kinds.NCCL
    if device == "cpu":
        group._set_default_backend(kind)
    group._register_backend(torch.device(device), kind, inner)


def _has_its_backend() -> bool:
    import torch
    import torch.distributed as dist

    group: Any = dist.ProcessGroup(0, 1)  # type: ignore[call-arg]  # torch's stub is wrong
    register_backend(group, "cpu", _alone())
    # raises if the group has no default backend
    by_default = group._get_sequence_number_for_group()
    return bool(by_default == 0 and group._get_backend(torch.device("cpu")).size() == 1)


_known(
    Feature.RUNS,
    "torch.distributed.ProcessGroup._set_default_backend",
    "torch.distributed.ProcessGroup._register_backend",
    probe=_has_its_backend,
)

ALL_GATHER = "_allgather_base"  # methods of a group; torch 2.13 added public names
REDUCE_SCATTER = "_reduce_scatter_base"


def _gathers_and_scatters() -> bool:
    import torch

    group, x, gathered, reduced = _alone(), *torch.ones(3, 2).unbind()
    getattr(group, ALL_GATHER)(gathered.zero_(), x).wait()
    getattr(group, REDUCE_SCATTER)(reduced.zero_(), x).wait()
    return bool((gathered == x).all() and (reduced == x).all())


_known(
    Feature.RUNS,
    f"torch.distributed.ProcessGroup.{ALL_GATHER}",
    f"torch.distributed.ProcessGroup.{REDUCE_SCATTER}",
    probe=_gathers_and_scatters,
)


def source_of(work: Any) -> int:
    """Return the sender's rank in the group, for the finished Work of a receive from any rank."""
    return int(work._source_rank())


def _tells_the_source() -> bool:
    import torch
    import torch.distributed as dist

    store, found = dist.HashStore(), list[int]()

    def receive() -> None:
        group: Any = dist.ProcessGroupGloo(store, 0, 2, timedelta(seconds=20))
        work = group.recv_anysource([torch.zeros(1)], 0)
        work.wait()
        found.append(source_of(work))

    receiver = threading.Thread(target=receive)
    receiver.start()
    sender: Any = dist.ProcessGroupGloo(store, 1, 2, timedelta(seconds=20))
    sender.send([torch.ones(1)], 0, 0).wait()
    receiver.join()
    return found == [1]


_known(Feature.RUNS, "torch.distributed.Work._source_rank", probe=_tells_the_source)


@contextmanager
def posted_as_one(nccl: Any) -> Iterator[list[Any]]:
    """Post the calls of the block as one NCCL operation, and add its Work to the yielded list."""
    works: list[Any] = []
    nccl._start_coalescing()
    try:
        yield works
    finally:
        works.append(nccl._end_coalescing())


_known(
    Feature.NCCL,
    "torch.distributed.ProcessGroup._start_coalescing",
    "torch.distributed.ProcessGroup._end_coalescing",
    probe=lambda: True,  # gloo lacks both methods, and NCCL needs a GPU
)


def set_timeout(nccl_options: Any, timeout: timedelta) -> None:
    """Set the timeout in the options of an NCCL process group."""
    nccl_options._timeout = timeout


def _options_have_a_timeout() -> bool:
    import torch.distributed as dist

    if not dist.is_nccl_available():
        return True
    options, wanted = dist.ProcessGroupNCCL.Options(), timedelta(seconds=7)
    set_timeout(options, wanted)
    return bool(options._timeout == wanted)


_known(
    Feature.NCCL,
    "torch._C._distributed_c10d.Backend.Options._timeout",
    probe=_options_have_a_timeout,
)

NOT_ONESELF = "_check_not_self_rank"  # the function in which `dist.send` to the own rank raises


def _knows_the_rank() -> bool:
    import torch.distributed as dist

    check = getattr(dist.distributed_c10d, NOT_ONESELF)
    return {"rank", "rank_type"} <= inspect.signature(check).parameters.keys()


_known(Feature.WORDS, f"torch.distributed.distributed_c10d.{NOT_ONESELF}", probe=_knows_the_rank)


MEET = "_store_based_barrier"  # function in which ranks that make a group wait for each other


def meet(number: Callable[[], int]) -> None:
    """Make torch wait, from now on, for `number()` ranks when ranks make a group."""
    import torch.distributed as dist

    home = dist.distributed_c10d
    torchs = getattr(home, MEET)

    def wait(rank: int, store: Any, group_name: str, _: int, *more: Any) -> None:
        torchs(rank, store, group_name, number(), *more)

    setattr(home, MEET, wait)


def _counts_ranks() -> bool:
    import torch.distributed as dist

    wait = getattr(dist.distributed_c10d, MEET)
    names = ("rank", "store", "group_name", "rendezvous_count", "timeout")
    return (*inspect.signature(wait).parameters,)[:5] == names


_known(Feature.ALIKE, f"torch.distributed.distributed_c10d.{MEET}", probe=_counts_ranks)


# Futures


def is_future(value: object) -> bool:
    """True for a torch future, made in Python or in C++, such as the future of a Work."""
    import torch

    return isinstance(value, torch._C.Future)


def _work_has_a_future() -> bool:
    import torch

    return is_future(_alone().allreduce([torch.ones(1)]).get_future())


_known(Feature.CHECKS, "torch._C.Future", probe=_work_has_a_future)


def raise_when_read(future: torch.futures.Future[Any], error: Exception) -> None:
    """Make a future raise `error` when Python reads the future's value."""

    def refuse(_: Any) -> None:
        raise error

    future._set_unwrap_func(refuse)


def _raises_when_read() -> bool:
    import torch

    future = torch.futures.Future[int]()
    raise_when_read(future, KeyError())
    future.set_result(1)
    try:
        future.wait()
    except KeyError:
        return True
    return False


_known(Feature.EMULATED, "torch._C.Future._set_unwrap_func", probe=_raises_when_read)


# Backward, and DistributedDataParallel

IN_BACKWARD = "_engine_run_backward"  # torch's Python function on the stack of a backward


def _in_a_backward(act: Callable[[], Any]) -> None:
    """Run a backward in which C++ calls a hook, and the hook calls `act`."""
    import torch

    x = torch.ones(1, requires_grad=True)
    product = x * 2
    product.register_hook(lambda _: act())  # type: ignore[no-untyped-call]
    torch.autograd.backward(product)


def _is_under_way() -> bool:
    callers = list[str]()
    _in_a_backward(lambda: callers.append(sys._getframe(2).f_code.co_name))
    return callers == [IN_BACKWARD]


_known(Feature.RUNS, f"torch.autograd.graph.{IN_BACKWARD}", probe=_is_under_way)


def after_backward(act: Callable[[], Any]) -> None:
    """Call a function at the end of the current backward."""
    import torch

    torch.autograd.Variable._execution_engine.queue_callback(act)


def _comes_after() -> bool:
    order = list[str]()

    def hook() -> None:
        after_backward(lambda: order.append("after"))
        order.append("inside")

    _in_a_backward(hook)
    return order == ["inside", "after"]


_known(Feature.EMULATED, "torch.autograd.Variable._execution_engine", probe=_comes_after)

BUILTIN_HOOK = "_register_builtin_comm_hook"  # a method of DistributedDataParallel


def _takes_a_kind() -> bool:
    import torch

    register = getattr(torch.nn.parallel.DistributedDataParallel, BUILTIN_HOOK)
    return [*inspect.signature(register).parameters] == ["self", "comm_hook_type"]


_known(
    Feature.EMULATED,
    f"torch.nn.parallel.DistributedDataParallel.{BUILTIN_HOOK}",
    probe=_takes_a_kind,
)


# Modules and tensors

own_parameters: Callable[[torch.nn.Module], Parameters] = attrgetter("_parameters")
own_modules: Callable[[torch.nn.Module], dict[str, Any]] = attrgetter("_modules")


def _has_its_own() -> bool:
    import torch

    inner = torch.nn.Linear(1, 1)
    outer = torch.nn.Sequential(inner)
    names = [[*own(each)] for own in (own_parameters, own_modules) for each in (inner, outer)]
    return names == [["weight", "bias"], [], [], ["0"]]


_known(Feature.RUNS, "torch.nn.Module._parameters", "torch.nn.Module._modules", probe=_has_its_own)


def applied(module: torch.nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Apply `change` to a module's parameters, gradients and buffers; return the module."""
    return module._apply(change)  # type: ignore[no-untyped-call]


def _changes_all() -> bool:
    import torch

    with torch.no_grad():
        layer = applied(torch.nn.Linear(1, 1), torch.zeros_like)
    return not any(each.any() for each in layer.parameters())


_known(Feature.SCRIPTS, "torch.nn.Module._apply", probe=_changes_all)


def put_first(parameter: torch.nn.Parameter, handle: Any) -> None:
    """Make the hook of a handle the first hook that runs when the parameter's gradient is ready."""
    hooks: Any = parameter._post_accumulate_grad_hooks
    for earlier in [key for key in hooks if key != handle.id]:
        hooks[earlier] = hooks.pop(earlier)  # moves the earlier hook to the end


def _comes_first() -> bool:
    import torch

    parameter, order = torch.nn.Parameter(torch.ones(1)), list[int]()
    for number in range(3):
        handle = parameter.register_post_accumulate_grad_hook(lambda _, n=number: order.append(n))  # type: ignore[no-untyped-call]
    put_first(parameter, handle)
    torch.autograd.backward(parameter * 1)
    return order == [2, 0, 1]


_known(Feature.RUNS, "torch.Tensor._post_accumulate_grad_hooks", probe=_comes_first)


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices and values of a sparse tensor; an index may occur several times."""
    return tensor._indices(), tensor._values()


def _holds_both() -> bool:
    import torch

    twice = torch.sparse_coo_tensor(
        torch.zeros(1, 2, dtype=torch.int64), torch.ones(2), (3,), check_invariants=True
    )
    indices, values = sparse_parts(twice)
    return indices.shape == (1, 2) and values.shape == (2,)


_known(Feature.RUNS, "torch.Tensor._indices", "torch.Tensor._values", probe=_holds_both)

# number of owners, C++ included
use_count: Callable[[torch.Tensor], int] = methodcaller("_use_count")


def _counts_autograds_use() -> bool:
    import torch

    x = torch.ones(1, requires_grad=True)
    before = use_count(x)
    y = x * x  # the graph keeps x for the backward
    return use_count(x) > before and y is not None


_known(Feature.COUNTED, "torch.Tensor._use_count", probe=_counts_autograds_use)

# equal for all views of a storage
storage_id: Callable[[torch.UntypedStorage], int] = attrgetter("_cdata")


def _views_share_it() -> bool:
    import torch

    x, other = torch.ones(2, 2)
    ids = [storage_id(each.untyped_storage()) for each in (x, other, x.clone())]
    return ids[0] == ids[1] != ids[2]


_known(Feature.COUNTED, "torch.UntypedStorage._cdata", probe=_views_share_it)


def local_part(tensor: Any) -> Any:
    """Return the part of a DTensor on the calling rank; return any plain value unchanged."""
    return getattr(tensor, "_local_tensor", tensor)


_known(Feature.COUNTED, "torch.distributed.tensor.DTensor._local_tensor", probe=lambda: True)


# Operations


def __getattr__(name: str) -> Any:
    """Return `TorchDispatchMode`, a base class; torch is loaded when a module imports the name."""
    if name != "TorchDispatchMode":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require(Feature.COUNTED)
    from torch.utils._python_dispatch import TorchDispatchMode

    return TorchDispatchMode


def awaited(value: Any) -> Any:
    """Wait for the unused result of a functional collective; return any plain value unchanged."""
    functional: Any = sys.modules.get("torch.distributed._functional_collectives")
    if functional is not None and isinstance(value, functional.AsyncCollectiveTensor):
        return value.trigger_wait()
    return value


def _waits_for_its_value() -> bool:
    import torch
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    x = torch.ones(1)
    return awaited(AsyncCollectiveTensor(x)) is x and awaited(3) == 3


_known(
    Feature.RUNS,
    "torch.distributed._functional_collectives.AsyncCollectiveTensor.trigger_wait",
    probe=_waits_for_its_value,
)


def unseen_by_modes() -> object:
    """Return a guard that hides the thread's operations from dispatch modes until its deletion."""
    import torch

    return torch._C._DisableTorchDispatch()


schema_of: Callable[[Any], Any] = attrgetter("_schema")  # an operator's signature
# an operator's packet: all overloads together
packet_of: Callable[[Any], Any] = attrgetter("_overloadpacket")


def _modes_hear() -> bool:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    heard = list[tuple[str, Any]]()

    class Hears(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            heard.append((schema_of(func).name, packet_of(func)))
            return func(*args, **(kwargs or {}))

    x = torch.ones(1)
    with Hears():  # type: ignore[no-untyped-call]
        guard = unseen_by_modes()
        x.add_(1)
        del guard
        x.mul_(2)
    return heard == [("aten::mul_", torch.ops.aten.mul_)]


_known(Feature.COUNTED, "torch.utils._python_dispatch.TorchDispatchMode", probe=_modes_hear)
_known(Feature.COUNTED, "torch.ops.aten.mul_.Tensor._schema", probe=_modes_hear)
_known(Feature.COUNTED, "torch.ops.aten.mul_.Tensor._overloadpacket", probe=_modes_hear)
_known(Feature.EMULATED, "torch._C._DisableTorchDispatch", probe=_modes_hear)


POP_MODE = "_pop_torch_dispatch_stack"  # pops the innermost mode of the stack
DISABLE_MODES = "_disable_current_modes"  # removes all modes for a block; in the second module
PRINTS = "torch._tensor_str"  # the module that prints tensors, in such a block


def modules_of_modes() -> list[ModuleType]:
    """Return torch's two modules with the function `POP_MODE`."""
    import torch
    from torch.utils import _python_dispatch

    return [torch._C, _python_dispatch]


def push_mode(mode: Any) -> None:
    """Put a mode on the thread's stack of modes."""
    import torch

    torch._C._push_on_torch_dispatch_stack(mode)


GUARDS = (
    *("_DisableTorchDispatch", "_ForceDispatchKeyGuard"),
    *("ExcludeDispatchKeyGuard", "_ExcludeDispatchKeyGuard"),  # torch has both names
)


def guards_of_keys() -> list[Any]:
    """Return the guards: classes that exclude dispatch keys from the operations of the thread."""
    import torch

    return [getattr(torch._C, name) for name in GUARDS]


def _pops_and_pushes() -> bool:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        pass

    with Mode() as mode:  # type: ignore[no-untyped-call]
        popped = getattr(torch._C, POP_MODE)(None)
        push_mode(popped)
    return popped is mode and all(hasattr(each, POP_MODE) for each in modules_of_modes())


_known(
    Feature.CHECKS,
    "torch._C._push_on_torch_dispatch_stack",
    f"torch._C.{POP_MODE}",
    f"torch.utils._python_dispatch.{POP_MODE}",
    probe=_pops_and_pushes,
)


def _keys_can_be_excluded() -> bool:
    return all(isinstance(each, type) for each in guards_of_keys())


_known(
    Feature.CHECKS,
    *(f"torch._C.{name}" for name in GUARDS),
    probe=_keys_can_be_excluded,
)


def is_traced(kind: type) -> bool:
    """True for a class of fake tensors, which have no values and belong to a torch mode."""
    return hasattr(kind, "_mode_key")


def _fake_ones_are() -> bool:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    return is_traced(FakeTensor) and not is_traced(torch.nn.Parameter)


_known(Feature.COUNTED, "torch._subclasses.fake_tensor.FakeTensor._mode_key", probe=_fake_ones_are)


def fakes() -> bool:
    """True if a torch mode makes each new tensor of this thread a fake tensor."""
    mode_of, key = _fake_key()
    return mode_of(key) is not None


@cache
def _fake_key() -> tuple[Any, Any]:
    import torch

    return torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.FAKE


def _knows_its_mode() -> bool:
    with fake_mode():
        inside = fakes()
    return inside and not fakes()


_known(
    Feature.COUNTED,
    "torch._C._TorchDispatchModeKey.FAKE",
    "torch._C._get_dispatch_mode",
    probe=_knows_its_mode,
)


def fake_mode() -> Any:
    """Return a new mode in which operations give tensors with a shape and without memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def no_modes() -> AbstractContextManager[Any]:
    """Return a context manager: in its block, the thread's dispatch modes see no operation."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def _tells_the_shape() -> bool:
    import torch

    with no_modes(), fake_mode():
        product = torch.empty(2, 3) @ torch.empty(3, 4)
    return product.shape == (2, 4) and product.device.type == "cpu"


_known(
    Feature.NO_VALUES,
    "torch._subclasses.fake_tensor.FakeTensorMode",
    "torch.utils._python_dispatch._disable_current_modes",
    probe=_tells_the_shape,
)


WRAPS_MODES = "torch._compile"  # the module of the function that wraps a dispatch mode's method
_known(
    Feature.NO_VALUES,
    WRAPS_MODES,
    probe=lambda: _is_module(WRAPS_MODES),
)

REBUILD_META = "_rebuild_meta_tensor_no_storage"  # pickle calls this for a "meta" tensor


def rebuilds() -> ModuleType:
    """Return the module with the functions that pickle calls to rebuild tensors."""
    return importlib.import_module("torch._utils")


def _rebuilds_a_shape() -> bool:
    import torch

    make, args, *_ = torch.empty(2, 3, device="meta").__reduce_ex__(5)  # type: ignore[no-untyped-call]
    return make is getattr(rebuilds(), REBUILD_META) and args[1] == (2, 3)


_known(Feature.NO_VALUES, f"torch._utils.{REBUILD_META}", probe=_rebuilds_a_shape)


def tree_map(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a copy of nested containers in which `change` has changed each value."""
    from torch.utils._pytree import tree_map

    return tree_map(change, value)


_known(
    Feature.NO_VALUES,
    "torch.utils._pytree.tree_map",
    probe=lambda: tree_map(abs, {"a": [-1, (2,)]}) == {"a": [1, (2,)]},
)


def tree_leaves(value: Any) -> list[Any]:
    """Return the values in nested lists, tuples, dicts and further containers known to torch."""
    from torch.utils._pytree import tree_leaves

    return tree_leaves(value)


_known(
    Feature.CHECKS,
    "torch.utils._pytree.tree_leaves",
    probe=lambda: tree_leaves({"a": [1, (2,)], "b": 3}) == [1, 2, 3],
)


def file_writer() -> Any:
    """Return the C++ class with which torch.save writes a file."""
    import torch

    return torch._C.PyTorchFileWriter


_known(
    Feature.CHECKS,
    "torch._C.PyTorchFileWriter",
    probe=lambda: callable(file_writer().__init__),
)

GET_DATA = "_get_data"  # the method in which a DataLoader waits for a worker's batch


def batches_of_workers() -> Any:
    """Return the class of a DataLoader's iterator with worker processes."""
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    return _MultiProcessingDataLoaderIter


_known(
    Feature.COUNTED,
    f"torch.utils.data.dataloader._MultiProcessingDataLoaderIter.{GET_DATA}",
    probe=lambda: (
        [*inspect.signature(getattr(batches_of_workers(), GET_DATA)).parameters] == ["self"]
    ),
)


# The device of a modelled machine


def next_node() -> int:
    """Return the number that autograd will give its next node."""
    import torch

    return int(torch._C._autograd._get_sequence_nr())


def running_node() -> int | None:
    """Return the number of the node that runs backward in this thread; None outside a backward."""
    import torch

    node: Any = torch._C._current_autograd_node()
    return None if node is None else int(node._sequence_nr())


def _numbers_its_nodes() -> bool:
    import torch

    x, heard = torch.ones(1, requires_grad=True), list[int | None]()
    before = next_node()
    y = x * 2
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda _: heard.append(running_node()))
    torch.autograd.backward(y)
    return before in heard and next_node() > before and running_node() is None


_known(Feature.DEVICES, "torch._C._autograd._get_sequence_nr", probe=_numbers_its_nodes)
_known(Feature.DEVICES, "torch._C._current_autograd_node", probe=_numbers_its_nodes)

# returns the devices on which optimizers handle a list of tensors in one operation
TAKE_LISTS = "_get_foreach_kernels_supported_devices"


def optimizers() -> Any:
    """Return torch's module of the optimizers' base class; torch.optim hides the module's name."""
    import torch

    return sys.modules[torch.optim.Optimizer.__module__]


def _take_lists() -> bool:
    import torch

    original = getattr(optimizers(), TAKE_LISTS)
    setattr(optimizers(), TAKE_LISTS, lambda: [*original(), "cpu"])
    try:
        parameter = torch.nn.Parameter(torch.ones(1))
        decide: Any = optimizers()._default_to_fused_or_foreach
        return bool(decide([parameter], differentiable=False, use_fused=False)[1])
    finally:
        setattr(optimizers(), TAKE_LISTS, original)


_known(Feature.DEVICES, f"torch.optim.optimizer.{TAKE_LISTS}", probe=_take_lists)


SHARDING = "torch.distributed.tensor._sharding_prop"
STRIDED = "_propagate_use_strided_shard_flag"


def strided_shards() -> tuple[Any, Any] | None:
    """Return DTensor's module with the function STRIDED, and the class of strided shards.

    Return None if the module is not loaded, or has no such function.
    """
    module = sys.modules.get(SHARDING)
    kind = getattr(module, "_StridedShard", None)
    return (module, kind) if kind is not None and hasattr(module, STRIDED) else None


def _leaves_plain_shards() -> bool:
    from torch.distributed.tensor import _op_schema

    schema = _op_schema.OpSchema(_alone, (), {})  # type: ignore[arg-type]
    found = strided_shards()
    return found is not None and getattr(found[0], STRIDED)(None, schema) is None


_known(Feature.LISTS, f"{SHARDING}.{STRIDED}", probe=_leaves_plain_shards)


def batches() -> Any:
    """Return the base class of a DataLoader's iterators."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return _BaseDataLoaderIter


_known(
    Feature.DEVICES,
    "torch.utils.data.dataloader._BaseDataLoaderIter",
    probe=lambda: [*inspect.signature(batches().__init__).parameters] == ["self", "loader"],
)


def pinned(batch: Any) -> Any:
    """Return a batch with its tensors in pinned memory, as a DataLoader pins a batch."""
    from torch.utils.data._utils.pin_memory import pin_memory

    return pin_memory(batch)  # type: ignore[no-untyped-call]


_known(Feature.DEVICES, "torch.utils.data._utils", probe=lambda: pinned("text") == "text")

# The function by which FSDP2 moves parameters to the device, and the two modules that may call it:
# torch 2.7 calls the function from another module than newer versions.
MOVE_STATES = "_move_states_to_device"
FSDP2 = "torch.distributed.fsdp._fully_shard"
FSDP2_MOVES = (f"{FSDP2}._fsdp_init", f"{FSDP2}._fully_shard")
# module -> the function in which torch moves a tensor between host and device by `.to(device)`.
# Other functions of torch call `.to(device)` for tensors that are on the device already.
_MOVES_UP = {f"{FSDP2}._fsdp_param": "all_gather_inputs"}
_MOVES_DOWN = {
    f"{FSDP2}._fsdp_collectives": "foreach_reduce",
    "torch.distributed._state_dict_utils": "_iterate_state_dict",
    "torch.distributed.fsdp._state_dict_utils": "_common_unshard_post_state_dict_hook",
}


def moves_up(frame: FrameType) -> bool:
    """True for the frame of a torch function that moves a tensor from host to device."""
    return _MOVES_UP.get(frame.f_globals.get("__name__", "")) == frame.f_code.co_name


def moves_down(frame: FrameType) -> bool:
    """True for the frame of a torch function that moves a tensor from device to host."""
    return _MOVES_DOWN.get(frame.f_globals.get("__name__", "")) == frame.f_code.co_name


def _moves_states() -> bool:
    from torch.distributed.fsdp._fully_shard import _fsdp_init, _fsdp_param

    moved = [*inspect.signature(getattr(_fsdp_init, MOVE_STATES)).parameters]
    return moved == ["params", "buffers", "device"] and isinstance(
        _fsdp_param.FSDPParam.all_gather_inputs, property
    )


_known(Feature.DEVICES, f"{FSDP2_MOVES[0]}.{MOVE_STATES}", probe=_moves_states)
_known(Feature.DEVICES, f"{FSDP2}._fsdp_param.FSDPParam.all_gather_inputs", probe=_moves_states)


# The stand-in for a GPU


def device_module() -> Any:
    """Return torch's module with the list of constructors and the device contexts."""
    from torch.utils import _device

    return _device


def constructors() -> Any:
    """Return torch's constructors of tensors, such as `torch.ones`; torch caches the set."""
    return device_module()._device_constructors()


def _ones_makes() -> bool:
    import torch

    context = device_module().DeviceContext(torch.device("meta"))
    with context:
        made = torch.ones(1)
    return torch.ones in constructors() and made.is_meta


_known(
    Feature.SCRIPTS,
    "torch.utils._device._device_constructors",
    "torch.utils._device.DeviceContext",
    probe=_ones_makes,
)


def builtin_table() -> dict[int, Any] | None:
    """Return TorchScript's operations by the ids of the functions; None before their first use."""
    import torch

    table: dict[int, Any] | None = torch.jit._builtins._builtin_table
    return table


_known(
    Feature.SCRIPTS,
    "torch.jit._builtins._builtin_table",
    probe=lambda: builtin_table() is None or isinstance(builtin_table(), dict),
)

COALESCING = "_coalescing_manager"  # context manager that joins the calls in its block


def coalescing_manager() -> Any:
    """Return torch's context manager that joins calls."""
    import torch.distributed as dist

    return getattr(dist.distributed_c10d, COALESCING)


def set_coalescing_manager(block: Any) -> None:
    """Replace torch's context manager that joins calls."""
    import torch.distributed as dist

    for home in (dist, dist.distributed_c10d):
        setattr(home, COALESCING, block)


def _joins_calls() -> bool:
    return [*inspect.signature(coalescing_manager()).parameters][:2] == ["group", "device"]


_known(Feature.SCRIPTS, f"torch.distributed.distributed_c10d.{COALESCING}", probe=_joins_calls)

# module for memory of GPUs into which peers write
SYMMETRIC = "torch.distributed._symmetric_memory"
_known(Feature.SCRIPTS, SYMMETRIC, probe=lambda: _is_module(SYMMETRIC))
SHARDED_OPS = "torch.distributed._shard.sharded_tensor.api._SHARDED_OPS"


def sharded_ops() -> dict[Any, Any]:
    """Return the table in which ShardedTensor keeps functions of torch.Tensor."""
    module, _, name = SHARDED_OPS.rpartition(".")
    found: dict[Any, Any] = getattr(importlib.import_module(module), name)
    return found


_known(Feature.SCRIPTS, SHARDED_OPS, probe=lambda: isinstance(sharded_ops(), dict))
LAZY_INIT, SLEEP = "_lazy_init", "_sleep"  # functions of torch.cuda
_known(Feature.SCRIPTS, f"torch.cuda.{LAZY_INIT}", probe=lambda: True)
_known(Feature.SCRIPTS, f"torch.cuda.{SLEEP}", probe=lambda: True)

MEMORY_HISTORY = "_record_memory_history"  # a function of torch.cuda.memory
_known(Feature.SCRIPTS, f"torch.cuda.memory.{MEMORY_HISTORY}", probe=lambda: True)


def flat_parameters() -> Any:
    """Return the class of FullyShardedDataParallel's flat parameters."""
    from torch.distributed.fsdp._flat_param import FlatParamHandle

    return FlatParamHandle


_known(
    Feature.FSDP1,
    "torch.distributed.fsdp._flat_param.FlatParamHandle.to_cpu",
    probe=lambda: [*inspect.signature(flat_parameters().to_cpu).parameters] == ["self"],
)


# The compiler

COMPILER = "torch._dynamo"
COMPILED = ("torch._inductor", COMPILER)  # the modules of the compiler
# Modules and a function that are on the stack while torch compiles.
COMPILES = ("torch._dynamo.convert_frame", "torch._inductor.compile_fx", "torch.compile")
# attribute in which torch keeps the result of the compiler's `disable`
DISABLED = "__dynamo_disable"


def put_compiler(module: ModuleType | None) -> None:
    """Set the module of `torch`'s compiler, or remove the module with None."""
    import torch

    if module is None:
        del torch._dynamo
    else:
        torch._dynamo = module


def _asks_the_compiler() -> bool:
    """True if torch excludes a function from compilation by `disable(function, recursive)`."""
    import torch
    from torch._compile import _disable_dynamo

    asked = list[Any]()

    def disable(function: Any, recursive: bool = True, **named: Any) -> Any:
        asked.append((recursive, named))
        return function

    def function() -> None:
        """Do nothing."""

    module: Any = ModuleType(COMPILER)
    module.disable = disable
    before, had = sys.modules.get(COMPILER), vars(torch).get("_dynamo")
    sys.modules[COMPILER] = module
    put_compiler(module)
    try:
        _disable_dynamo(function)()
    finally:
        del sys.modules[COMPILER]
        if before is not None:
            sys.modules[COMPILER] = before
        put_compiler(had)
    return asked == [(True, {"wrapping": False})] and hasattr(function, DISABLED)


_known(Feature.COMPILER, *COMPILED, probe=lambda: True)
_known(Feature.CHECKS, *COMPILES, probe=lambda: True)
_known(Feature.COMPILER, "torch._compile._disable_dynamo", probe=_asks_the_compiler)
