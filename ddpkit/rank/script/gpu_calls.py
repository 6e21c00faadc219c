"""Rare GPU calls of training scripts: each gets a stand-in, or is refused with a clear sentence.

A call gets a stand-in if the CPU can give the same values (random numbers, `sdpa_kernel`,
`capturable=`, `SyncBatchNorm`), or if the call only describes the GPU or its tools (versions,
snapshots of memory, the profiler's switches). All other calls are refused: the error's sentence
names the call and an alternative.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pickle
import sys
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn import attention
from torch.nn import functional as F

from ddpkit import torch_private
from ddpkit.rank.callers import is_torchs
from ddpkit.rank.emulation import capability, machine
from ddpkit.rank.script import sync_batch_norm
from ddpkit.rank.script.cuda import after_import
from ddpkit.rank.script.gpus import Gpus, refusal

if TYPE_CHECKING:
    from types import ModuleType

CUDA_VERSION = "12.8"  # the answer to `torch.version.cuda`, by which scripts choose kernels
NCCL_VERSION = (2, 27, 3)
GHZ = 1.4  # the clock by which `torch.cuda._sleep` counts cycles
CAPTURABLE = "_get_capturable_supported_devices"
# Refused calls, each with a way round.
REFUSED = {
    "cuda.CUDAGraph": "a graph replays kernels, and here no kernels are recorded; run the step "
    "without the graph (torch.cuda.make_graphed_callables works, and returns the callables)",
    "cuda.graph": "a graph replays kernels, and here no kernels are recorded; run the step without "
    "the graph (torch.cuda.make_graphed_callables works, and returns the callables)",
    "cuda.caching_allocator_alloc": "there is no memory of a GPU to hand out; use torch.empty",
    "cuda.caching_allocator_delete": "there is no memory of a GPU to hand out; use torch.empty",
    "cuda.memory.change_current_allocator": "there is no allocator of a GPU; leave the call out",
    "cuda.memory.CUDAPluggableAllocator": "there is no allocator of a GPU; leave the call out",
    "distributed.shrink_group": "only NCCL shrinks its groups; make a group with new_group(ranks)",
}
FLEX = "torch.nn.attention.flex_attention"
STAGING = "torch.distributed.checkpoint.staging"
CONTEXT_PARALLEL = "torch.distributed.tensor.experimental"
NO_SHARED_EVENT = "drivers of GPUs share events; wait for a peer by a collective or a store"
NO_SYMMETRIC = (
    "such memory needs GPUs that write into each other's memory; use a collective instead"
)
NO_RANDOM = (
    "torch draws the numbers of a DTensor by a GPU's generator; take "
    "distribute_tensor(torch.{}(...), mesh, placements)"
)
NO_CONTEXT_PARALLEL = (
    "torch has ring attention for GPUs only; shard the heads instead, or take "
    "torch.distributed.tensor.parallel's SequenceParallel"
)


def stand_in_for_calls(gpus: Gpus, count: int) -> None:
    """Replace torch's functions by the stand-ins and refusals, until the process ends."""
    cuda: Any = torch.cuda
    for name, reason in REFUSED.items():
        home, _, last = f"torch.{name}".rpartition(".")
        found = getattr(sys.modules[home], last, None)
        if isinstance(found, type):  # stays a class: scripts annotate with it, and subclass it
            setattr(sys.modules[home], last, _refused_class(f"torch.{name}", reason, found))
        elif found is not None:
            setattr(sys.modules[home], last, _refuses(f"torch.{name}", reason))
    after_import(STAGING, functools.partial(_stage_in_turn, gpus))
    after_import(torch_private.SYMMETRIC, _refuse_symmetric_memory)
    after_import(
        CONTEXT_PARALLEL,
        lambda module: setattr(
            module, "context_parallel", _refuses("context_parallel", NO_CONTEXT_PARALLEL)
        ),
    )
    _random_numbers(cuda, count)
    _tools(gpus, cuda)
    _attention()
    _streams(gpus, cuda)
    if machine.counted_machine() is not None:
        after_import(FLEX, functools.partial(_flex, gpus))
    _let_devices_include_the_cpu()
    sync_batch_norm.put_in_place()
    after_import("torch.distributed.tensor", _of_dtensors)
    _nccl(cuda)
    _version()


def _refuses(call: str, reason: str) -> Callable[..., object]:
    def refuse(*_: object, **__: object) -> object:
        raise RuntimeError(refusal(call, reason))

    return refuse


def _refused_class(call: str, reason: str, original: type) -> type:
    refuse = _refuses(call, reason)
    return type(original.__name__, (), {"__new__": refuse, "__module__": original.__module__})


def _stage_in_turn(gpus: Gpus, module: ModuleType) -> None:
    """Let a checkpoint's stager copy without a stream of its own, which torch asks a GPU for."""
    original = module.DefaultStager.__init__

    @functools.wraps(original)
    def init(stager: object, config: Any = None) -> None:
        config = module.StagingOptions() if config is None else config
        if config.use_non_blocking_copy:
            gpus.say_once("a checkpoint's copies to the host block: use_non_blocking_copy is off")
            config = dataclasses.replace(config, use_non_blocking_copy=False)
        original(stager, config)

    module.DefaultStager.__init__ = init


def _refuse_symmetric_memory(module: ModuleType) -> None:
    for name in ("empty", "rendezvous", "enable_symm_mem_for_group"):
        setattr(module, name, _refuses(f"symmetric_memory.{name}", NO_SYMMETRIC))


def _random_numbers(cuda: Any, count: int) -> None:
    """Make the CPU's generator the random generator of every GPU that a script names."""
    cuda.initial_seed = torch.initial_seed
    cuda.default_generators = (torch.default_generator,) * count


def _tools(gpus: Gpus, cuda: Any) -> None:
    """Make tools that measure a GPU, or change its settings, do nothing."""

    def snapshot(*_: object, **__: object) -> dict[str, object]:
        emulated = machine.current()
        if emulated is None or emulated.memory is None:
            gpus.say_once("an empty snapshot of a GPU's memory: `--machine` models the memory")
            return {"segments": [], "device_traces": []}
        return {"segments": emulated.memory.allocator().snapshot(), "device_traces": [[]]}

    def dump_snapshot(filename: str = "dump_snapshot.pickle", *_: object, **__: object) -> None:
        with open(filename, "wb") as file:
            pickle.dump(snapshot(), file)

    def profiles(*_: object, **__: object) -> int:
        return 0

    runtime = SimpleNamespace(
        **dict.fromkeys(("cudaProfilerStart", "cudaProfilerStop", "cudaHostRegister"), profiles),
        **dict.fromkeys(("cudaHostUnregister", "cudaStreamCreate"), profiles),
        cudaMemGetInfo=lambda device=None: cuda.mem_get_info(),
    )
    for home in (cuda, cuda.profiler):
        home.cudart, home.check_error = lambda: runtime, lambda res: None
    cuda.memory_snapshot = lambda *_, **__: snapshot()["segments"]
    for name, stand_in in (("_snapshot", snapshot), ("_dump_snapshot", dump_snapshot)):
        setattr(cuda.memory, name, stand_in)
    cuda.get_allocator_backend = lambda: "native"
    cuda.get_sync_debug_mode = lambda: 0
    cuda.graph_pool_handle = lambda: (0, 0)
    setattr(cuda, torch_private.LAZY_INIT, lambda: None)
    setattr(cuda, torch_private.SLEEP, _sleep)
    cuda.MemPool, cuda.use_mem_pool = SimpleNamespace, lambda *_, **__: contextlib.nullcontext()
    if hasattr(torch.accelerator, "get_memory_info"):
        torch.accelerator.get_memory_info = lambda *_: cuda.mem_get_info()

    def graphed(callables: object, *_: object, **__: object) -> object:
        gpus.say_once("make_graphed_callables returns the callables: each kernel costs a launch")
        return callables

    cuda.make_graphed_callables = graphed
    profiler: Any = torch.autograd.profiler
    profiler.emit_nvtx = lambda *_, **__: contextlib.nullcontext()
    for name in dir(cuda.tunable):
        if name.endswith("is_enabled"):
            setattr(cuda.tunable, name, lambda: False)
        elif name.startswith("set_") or name.endswith("enable"):
            setattr(cuda.tunable, name, lambda *_, **__: None)
    module_of = torch.get_device_module

    @functools.wraps(module_of)
    def get_device_module(device: object = None) -> object:
        named = torch.device(device).type if isinstance(device, str) else device
        if is_torchs(sys._getframe(1)) or getattr(named, "type", named) not in (None, "cuda"):
            return module_of(device)
        return torch.cuda

    setattr(torch, module_of.__name__, get_device_module)


def _sleep(cycles: int) -> None:
    emulated = machine.current()
    if emulated is not None:
        emulated.launch(round(cycles / GHZ))


def _attention() -> None:
    """Make `sdpa_kernel` allow the CPU's kernels: flash attention, or else the plain formula."""
    choose = attention.sdpa_kernel

    @contextlib.contextmanager
    @functools.wraps(choose)
    def sdpa_kernel(backends: Any, *args: Any, **kwargs: Any) -> Any:
        named = list(backends) if isinstance(backends, list | tuple) else [backends]
        capability.asked.append(tuple(each.name for each in named))
        kinds = attention.SDPBackend
        on_gpus = {
            getattr(kinds, name, None) for name in ("CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
        }
        if on_gpus & {*named}:
            named += [each for each in (kinds.FLASH_ATTENTION, kinds.MATH) if each not in named]
        try:
            with choose(named, *args, **kwargs):
                yield
        finally:
            capability.asked.pop()

    attention.sdpa_kernel = sdpa_kernel
    flags: Any = torch.backends.cuda
    usual = flags.enable_math_sdp
    flags.enable_math_sdp = lambda enabled: usual(True)  # stays on for the CPU


def _flex(gpus: Gpus, module: Any) -> None:
    """Replace flex_attention by masked attention.

    No dispatch mode counts flex_attention's kernel.
    """

    @functools.wraps(module.flex_attention)
    def flex_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        score_mod: object = None,
        block_mask: Any = None,
        scale: float | None = None,
        enable_gqa: bool = False,
        return_lse: bool = False,
        **_: object,
    ) -> object:
        if score_mod is not None or return_lse:
            raise RuntimeError(
                refusal(
                    "flex_attention with score_mod= or return_lse= on a modelled machine",
                    "take a block_mask alone, or run without --machine",
                )
            )
        gpus.say_once("flex_attention costs as much as attention to all blocks, masked or not")
        mask = None
        if block_mask is not None:
            sizes = query.shape[0], query.shape[1], query.shape[-2], key.shape[-2]
            mask = module.create_mask(block_mask.mask_mod, *sizes, device="cpu")
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=enable_gqa
        )

    module.flex_attention = flex_attention


def _let_devices_include_the_cpu() -> None:
    """Allow optimizers with `capturable=True` to step on the CPU."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.optim") and hasattr(module, CAPTURABLE):
            setattr(module, CAPTURABLE, capturable_devices)


def capturable_devices(supports_xla: bool = True) -> list[str]:
    """Return the device types for which optimizers allow `capturable=True`.

    TorchScript compiles this function.
    """
    return ["cuda", "xpu", "hpu", "xla", "cpu"]


def _of_dtensors(module: ModuleType) -> None:
    """Allow attention on DTensors to shard heads.

    Refuse random DTensors, because they need a GPU's generator.
    """
    _shard_heads()
    for name in ("rand", "randn"):
        call = f"torch.distributed.tensor.{name}"
        setattr(module, name, _refuses(call, NO_RANDOM.format(name)))


def _shard_heads() -> None:
    """Allow attention on DTensors to shard batch and heads on the CPU, as torch does on GPUs."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    aten, places = torch.ops.aten, (Replicate(), Shard(0), Shard(1))
    of_forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    of_backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default

    def forward(*args: object, **kwargs: object) -> list[object]:
        return [([each] * 2, [each] * 3 + [None] * (len(args) - 3)) for each in places]

    def backward(*args: object, **kwargs: object) -> list[object]:
        return [([each] * 3, [each] * 6 + [None] * (len(args) - 6)) for each in places]

    register_sharding(of_forward)(forward)
    register_sharding(of_backward)(backward)


def _streams(gpus: Gpus, cuda: Any) -> None:
    """Make `torch.Stream` and `torch.Event`, for a GPU, create the stand-ins of torch.cuda."""
    for name in ("ipc_handle", "from_ipc_handle"):
        setattr(cuda.Event, name, _refuses(f"torch.cuda.Event.{name}", NO_SHARED_EVENT))
    for name in ("Stream", "Event"):
        setattr(torch, name, _of_gpus(gpus, getattr(torch, name), getattr(cuda, name)))


def _of_gpus(gpus: Gpus, original: Any, stand_in: Callable[..., object]) -> object:
    class OfGpus(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original | stand_in)

    class Made(metaclass=OfGpus):
        def __new__(cls, device: object = "cuda", *args: object, **kwargs: object) -> Any:
            if not gpus.means(device):
                return original(device, *args, **kwargs)
            return stand_in(*args, **kwargs)

    return Made


def _nccl(cuda: Any) -> None:
    """Replace NCCL's version, NCCL's options, and functions of NCCL that need a GPU."""
    cuda.nccl.version, cuda.nccl.is_available = lambda: NCCL_VERSION, lambda tensors: True
    if not hasattr(dist, "ProcessGroupNCCL"):
        home: Any = dist
        home.ProcessGroupNCCL = NCCL
        home = dist.distributed_c10d
        home.ProcessGroupNCCL = NCCL
    by_host: Any = dist.new_subgroups

    @functools.wraps(by_host)
    def new_subgroups(group_size: int | None = None, *args: object, **kwargs: object) -> object:
        return by_host(group_size or cuda.device_count(), *args, **kwargs)

    home = dist
    home.new_subgroups = dist.distributed_c10d.new_subgroups = new_subgroups
    coalesce = torch_private.coalescing_manager()

    @functools.wraps(coalesce)
    def coalescing_manager(
        group: dist.ProcessGroup | None = None, device: object = None, *args: object, **kw: object
    ) -> object:
        return coalesce(group, None, *args, **kw)

    torch_private.set_coalescing_manager(coalescing_manager)


class NCCL:
    """The stand-in for `ProcessGroupNCCL`, with the class `Options` that scripts use."""

    class Options:
        """The options of a group: settings of NCCL, which are stored but not used."""

        def __init__(self, **settings: object) -> None:
            self.config = SimpleNamespace()
            self.is_high_priority_stream = False
            vars(self).update(settings)

    NCCLConfig = SimpleNamespace


class _Version(types.ModuleType):
    """The module `torch.version`, which names a version of CUDA to the script."""

    @property
    def cuda(self) -> str | None:
        return None if is_torchs(sys._getframe(1)) else CUDA_VERSION


def _version() -> None:
    version = sys.modules["torch.version"]
    if version.__dict__.get("cuda", "") is None:
        del version.__dict__["cuda"]
        version.__class__ = _Version
