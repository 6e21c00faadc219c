"""The cost of operations on a modelled machine: rules for FLOPs and bytes, by operation.

FLOPs come from torch's own registry (`torch.utils.flop_counter`). Bytes are those of an operation's
arguments, which are read once, and of its results, which are written once, each tensor at its full
shape. An operation that only makes another view of a tensor costs nothing, and so does an
allocation. A lookup in a table moves only the looked-up rows, and not the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from ddpkit import torch_private
from ddpkit.machine import MachineModel
from ddpkit.machine_numbers import PHASES

if TYPE_CHECKING:
    from torch import Tensor

Function: TypeAlias = Callable[..., object]
Args: TypeAlias = tuple[object, ...]
Kwargs: TypeAlias = dict[str, object]


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# These operations allocate a tensor or describe one. They cost nothing.
_FREE = words(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided _unsafe_view lift "
    "lift_fresh _local_scalar_dense is_same_size set_ resize_ resize_as_ record_stream is_pinned "
    "_reshape_alias _to_sparse_semi_structured"
)
_FREE_ROOMS = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "prim", "profiler")
# These operations write their first argument, and do not read it.
_FILL = words(
    "copy_ _foreach_copy_ fill_ zero_ _foreach_zero_ normal_ uniform_ bernoulli_ random_ "
    "exponential_ geometric_ log_normal_ cauchy_"
)
_COPY = words(
    "copy_ _foreach_copy_ clone _to_copy contiguous cat stack split_with_sizes_copy "
    "all_gather_copy_in chunk_cat"
)
# These operations reduce a tensor or normalize its rows or channels; some are backwards of others.
_REDUCE = words(
    "sum mean prod amax amin max min argmax argmin var std var_mean std_mean logsumexp cumsum norm "
    "linalg_vector_norm _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data "
    "embedding_dense_backward"
)
# These operations read only as many elements of their first argument as they return.
_TAKE = words("embedding index_select index gather take nll_loss_forward")
# These operations change as many elements of their first argument as the named argument has. The
# named argument's bytes count three times: it is read, and the elements are read and written.
_PUT = {"index_put_": "values", "index_add_": "source", "scatter_add_": "src", "scatter_": "src"}


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))  # type: ignore[no-untyped-call]


def _attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object
) -> int:
    shapes = grad.shape, query.shape, key.shape, value.shape
    return int(sdpa_backward_flop_count(*shapes))  # type: ignore[no-untyped-call]


def _lstm(x: Tensor, weight: Tensor, recurrent: Tensor, *_: object, **__: object) -> int:
    """Return the FLOPs of one recurrent layer: two matrix products per element of a sequence."""
    return int(2 * (x.numel() // x.shape[-1]) * (weight.numel() + recurrent.numel()))


# FLOPs of operators that only the CPU has: torch's registry lacks them.
_OWN_FLOPS: dict[str, Callable[..., int]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "mkldnn_rnn_layer": _lstm,
}


_CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward.default


@dataclass(frozen=True, slots=True)
class OperationRule:
    """The rule that counts an operation's FLOPs and bytes; `kind` is one of `machine.KINDS`."""

    kind: str
    flops: Callable[..., int] | None
    weights: tuple[int, ...]  # how many times each argument's bytes count, by position
    names: dict[str, int]  # the same numbers by the argument's name
    outputs: int  # how many times the results' bytes count


def _kind(name: str, flops: object) -> str:
    if "attention" in name:
        return "attention"
    if "conv" in name:
        return "convolution"
    if flops is not None:
        return "matmul"
    if name in _REDUCE or "_norm" in name:
        return "reduction"
    return "copy" if name in _COPY else "elementwise"


def rule_of(func: Any) -> OperationRule | None:
    """Return the rule by which an operation is counted; None if the operation costs nothing."""
    room, _, name = torch_private.schema_of(func).name.rpartition("::")
    if room in _FREE_ROOMS or (room == "aten" and name in _FREE) or func.is_view:
        return None
    if torch.Tag.inplace_view in func.tags:
        return None
    flops = flop_registry.get(torch_private.packet_of(func))
    if flops is None and room == "aten":
        flops = _OWN_FLOPS.get(name)
    weights, names = [], {}
    for place, argument in enumerate(torch_private.schema_of(func).arguments):
        written = argument.alias_info is not None and argument.alias_info.is_write
        weight = 1
        if name in _PUT:
            weight = 0 if place == 0 else 3 if argument.name == _PUT[name] else 1
        elif place == 0 and name in _TAKE:
            weight = 0
        elif written and not argument.is_out and not (place == 0 and name in _FILL):
            weight = 2
        weights.append(weight)
        names[argument.name] = weight
    new = [found for found in torch_private.schema_of(func).returns if found.alias_info is None]
    outputs = (2 if name in _TAKE else 1) if new else 0
    return OperationRule(_kind(name, flops), flops, tuple(weights), names, outputs)


@cache
def is_plain(kind: type) -> bool:
    """True if the dispatcher treats a class as plain tensors, as it treats Parameter."""
    return kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]


is_traced = cache(torch_private.is_traced)


def nbytes(value: object) -> int:
    """Return the size of a tensor, or of the tensors in a list, in bytes; 0 for any other value."""
    if isinstance(value, torch.Tensor):
        dense = value.layout is torch.strided  # torch has no `nbytes` of other layouts
        return value.nbytes if dense else value.numel() * value.element_size()
    if isinstance(value, list | tuple):
        return sum(map(nbytes, value))
    return 0


def first_tensor(value: Any) -> Tensor | None:
    """Return the first floating-point tensor among values.

    If no tensor is floating-point, return the first tensor.
    """
    found = None
    for each in value:
        tensor = first_tensor(each) if isinstance(each, list | tuple) else each
        if isinstance(tensor, torch.Tensor):
            if tensor.is_floating_point() or tensor.is_complex():
                return tensor
            found = tensor if found is None else found
    return found


def _shapes(value: object) -> object:
    """Return a value with a shape in place of each tensor, as a key for a cached FLOP count."""
    if isinstance(value, torch.Tensor):
        return value.shape
    return tuple(map(_shapes, value)) if isinstance(value, list | tuple) else value


def uses_tf32(kind: str) -> bool:
    """True if the program allows float32 operations of `kind` to use TF32 on tensor cores.

    cuDNN's convolutions use TF32 unless the program forbids it; matrix products need permission.
    """
    if kind == "convolution":
        if hasattr(torch.backends.cudnn, "conv"):  # torch 2.9 and later
            return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")
        return bool(torch.backends.cudnn.allow_tf32)
    chosen = getattr(torch.backends.cuda.matmul, "fp32_precision", "none")
    if chosen != "none":  # a setting of torch 2.9 and later
        return bool(chosen == "tf32")
    return torch.get_float32_matmul_precision() != "highest"


def _lie_apart(args: Args, out: object) -> bool:
    """True if an argument has the result's shape, but a different order of elements in memory.

    An expanded argument repeats elements, and so counts as having no order.
    """
    if not isinstance(out, torch.Tensor):
        return False
    shape, strides, is_plain_order = out.shape, out.stride(), out.is_contiguous()
    for value in args:
        if isinstance(value, torch.Tensor) and value.shape == shape:
            others = value.stride()
            if others == strides or (is_plain_order and value.is_contiguous()):
                continue
            if 0 not in others:
                return True
    return False


@dataclass(slots=True)
class CountedFlops:
    """The FLOPs of a rank so far, and the time that these FLOPs take at the machine's peak rate.

    Recomputed FLOPs are those of a forward pass inside a backward pass, as in activation
    checkpointing.
    """

    flops: int = 0
    recomputed: int = 0
    peak_ns: float = 0.0
    recomputed_peak_ns: float = 0.0

    def add(self, flops: int, peak_ns: float) -> None:
        """Add the FLOPs of an operation that the thread has just executed."""
        self.flops += flops
        self.peak_ns += peak_ns
        # A backward runs with gradients disabled, and a forward inside it with gradients enabled.
        if torch.is_grad_enabled() and torch_private.running_node() is not None:
            self.recomputed += flops
            self.recomputed_peak_ns += peak_ns

    def facts(self) -> dict[str, int]:
        """Return the counted numbers by name; times are in whole ns."""
        return {
            "flops": self.flops,
            "recomputed_flops": self.recomputed,
            "peak_ns": round(self.peak_ns),
            "recomputed_peak_ns": round(self.recomputed_peak_ns),
        }


def phases_ns(model: MachineModel, speed: float) -> dict[str, int]:
    """Return the ns of a launch on the host, by phase; empty if all phases cost the same."""
    if not model.phases:
        return {}
    costs = {phase: model.phases.get(phase, model.launch_ns) for phase in PHASES}
    return {phase: round(ns / speed) for phase, ns in costs.items()}


def kernels(func: object, args: Args) -> int:
    """Return the number of kernels that a GPU launches for an operation: usually 1.

    A convolution's backward launches one kernel for each requested gradient.
    """
    if func is not _CONVOLUTION_BACKWARD or not isinstance(args[-1], list | tuple):
        return 1
    return max(1, sum(map(bool, args[-1])))


class Meter:
    """The cost of operations on a modelled machine; all threads of a rank share the meter."""

    def __init__(self, model: MachineModel, speed: float) -> None:
        self.free = math.isinf(speed)
        self.work = CountedFlops()
        self._peaks = cache(lambda dtype: model.peak(dtype) * speed / 1e9)  # FLOP per ns
        # If a machine has its own measurement of convolutions, the measurement includes TF32,
        # because it was made with cuDNN's defaults.
        kinds = {"matmul", "convolution"} - ({"convolution"} & {*model.kinds})
        self._tf32_kinds = kinds if model.peak("tf32") > model.peak() else set[str]()
        self._transposes = "transposed" in model.kinds
        self.note: Callable[[str, str, int, int], None] | None = None  # called for each operation
        self._rules: dict[object, OperationRule | None] = {}
        self._flops: dict[object, int] = {}
        self._dtypes: dict[torch.dtype, str] = {}
        self.moved = 0  # bytes that all operations have read and written

        def cost_ns(kind: str, flops: int, moved: int, dtype: str) -> int:
            return round(model.cost_ns(kind, flops, moved, dtype) / speed)

        def host_and_device_ns(kind: str, flops: int, moved: int, dtype: str) -> tuple[int, int]:
            host, device = model.host_and_device_ns(kind, flops, moved, dtype)
            return round(host / speed), round(device / speed)

        self.optimizing = 0  # number of optimizers that step now: one may call another
        self._phases = {} if self.free else phases_ns(model, speed)
        self._cost_ns = lru_cache(8192)(cost_ns)
        self._host_and_device_ns = lru_cache(8192)(host_and_device_ns)
        self._launch_ns = 0 if self.free else round(model.launch_ns / speed)

    @property
    def launch_ns(self) -> int:
        """The time in ns that a launch takes on the host in the present phase."""
        return self._phases[self.phase] if self._phases else self._launch_ns

    @property
    def phase(self) -> str:
        """The phase of the running thread: one of `PHASES`.

        A forward pass within a backward pass, as in activation checkpointing, counts as forward.
        """
        if self.optimizing:
            return "optimizer"
        in_engine = torch_private.running_node() is not None and not torch.is_grad_enabled()
        return "backward" if in_engine else "forward"

    def ns(self, func: Function, args: Args, kwargs: Kwargs, out: object) -> int:
        """Return the cost of an operation in ns, launch and work together."""
        rule = self._rule(func)
        if rule is None or self.free:
            return 0
        counted = self._counted(rule, func, args, kwargs, out)
        return 0 if counted is None else self._cost_ns(*counted)

    def host_and_device_ns(
        self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], out: object
    ) -> tuple[int, int] | None:
        """Return the ns of the host's launch and of the device's work; None without a kernel."""
        rule = self._rule(func)
        if rule is None:
            return None
        if self.free:
            return 0, 0
        counted = self._counted(rule, func, args, kwargs, out)
        if counted is None:
            return None
        host, device = self._host_and_device_ns(*counted)
        host = self._phases[self.phase] if self._phases else host
        return host + (kernels(func, args) - 1) * self._launch_ns, device

    def is_work(self, func: Function) -> bool:
        """True if an operation computes or copies; a view or an allocation does neither."""
        return self._rule(func) is not None

    def _rule(self, func: Function) -> OperationRule | None:
        try:
            return self._rules[func]
        except KeyError:
            rule = self._rules[func] = rule_of(func)
            return rule

    def _counted(
        self,
        rule: OperationRule,
        func: Function,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: object,
    ) -> tuple[str, int, int, str] | None:
        """Return an operation's kind, FLOPs, bytes and dtype; None if it has no plain tensor."""
        tensor = first_tensor(args) if args else None
        if tensor is None:
            tensor = first_tensor((out,))
        if tensor is None or tensor.is_meta or not is_plain(type(tensor)):
            return None
        moved = rule.outputs * nbytes(out)
        for weight, value in zip(rule.weights, args, strict=False):
            if weight:
                moved += weight * nbytes(value)
        for name, value in kwargs.items():
            moved += rule.names.get(name, 1) * nbytes(value)
        self.moved += moved
        flops = 0 if rule.flops is None else self._flops_of(func, rule.flops, args, kwargs, out)
        dtype = self._dtypes.get(tensor.dtype)
        if dtype is None:
            dtype = self._dtypes[tensor.dtype] = str(tensor.dtype).removeprefix("torch.")
        if dtype == "float32" and rule.kind in self._tf32_kinds and uses_tf32(rule.kind):
            dtype = "tf32"
        if flops:
            self.work.add(flops, flops / self._peaks(dtype))
        kind = rule.kind
        if self._transposes and kind in ("copy", "elementwise") and _lie_apart(args, out):
            kind = "transposed"
        if self.note is not None:
            self.note(kind, dtype, flops, moved)
        return kind, flops, moved, dtype

    def _flops_of(
        self, func: Function, count: Callable[..., int], args: Args, kwargs: Kwargs, out: object
    ) -> int:
        key = func, _shapes(args), _shapes(tuple(kwargs.items()))
        try:
            return self._flops[key]
        except KeyError:
            if len(self._flops) > 8192:  # a loop may have a new shape each time
                self._flops.clear()
            found = self._flops[key] = int(count(*args, **kwargs, out_val=out))
            return found
