"""Call each public function of torch.distributed on two ranks; print the errors by name as JSON.

A public function without an entry in `CALLS` is an error too. `dist_walk.py plain` makes the same
calls on gloo and the CPU, for torchrun. Further arguments are beginnings of names: the script
makes only these calls, or, after the argument `except`, all other calls.
"""

import copy
import datetime
import importlib
import json
import os
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.format_utils as formats
import torch.distributed.checkpoint.state_dict as states
import torch.distributed.fsdp as fsdp
import torch.distributed.fsdp.wrap as wrap
import torch.distributed.nn.functional as differentiable
import torch.distributed.pipelining as pipelining
import torch.distributed.tensor as dtensor
import torch.distributed.tensor.debug as debug
import torch.distributed.tensor.experimental as experimental
import torch.distributed.tensor.parallel as parallel
from torch import nn
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce
from torch.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    default_hooks,
    powerSGD_hook,
    register_ddp_comm_hook,
)
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.algorithms.model_averaging import utils as averaging
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import (
    PostLocalSGDOptimizer,
    ZeroRedundancyOptimizer,
    as_functional_optim,
)
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.parallel.distributed import _MixedPrecision

PLAIN = "plain" in sys.argv
DEVICE = "cpu" if PLAIN else "cuda"
d: Any = dist
MODULES = [
    *("distributed", "distributed.tensor", "distributed.tensor.parallel", "distributed.fsdp"),
    *("distributed.tensor.experimental", "distributed.tensor.debug", "distributed.fsdp.wrap"),
    *("distributed.checkpoint", "distributed.checkpoint.state_dict", "distributed.pipelining"),
    *("distributed.nn", "distributed.nn.functional", "distributed.algorithms.join"),
    *("distributed.algorithms.ddp_comm_hooks.default_hooks", "distributed.device_mesh"),
    *("distributed.algorithms.ddp_comm_hooks.powerSGD_hook", "distributed.optim"),
    *("distributed.algorithms.model_averaging.utils", "distributed.collective_utils"),
]
NOT_CALLED = {"breakpoint", "init_process_group", "not_none"}  # waits, called once, a type's
rank, size, peer, world, mesh, FOLDER = 0, 1, 0, None, None, ""  # type: Any


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*(shape or (4,)), device=DEVICE)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to(DEVICE)


def ddp(**how: Any) -> DDP:
    return DDP(net(), device_ids=None if PLAIN else [rank], **how)


def step(model: nn.Module, optimizer: Any = None) -> None:
    loss: Any = model(ones(2, 4)).sum()
    loss.backward()
    if optimizer is not None:
        optimizer.step()


def hooked(state: Any, hook: Any) -> None:
    model = ddp()
    model.register_comm_hook(state, hook)
    for _ in range(4):
        step(model)


def sharded(**how: Any) -> Any:
    model = net()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fsdp.fully_shard(layer, mesh=mesh, **how)
    return fsdp.fully_shard(model, mesh=mesh, **how)


def flat(**how: Any) -> Any:
    where = torch.device("cpu") if PLAIN else torch.cuda.current_device()
    return fsdp.FullyShardedDataParallel(net(), device_id=where, use_orig_params=True, **how)


def adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), foreach=False)


def passed(send: Callable[[], Any], receive: Callable[[], Any]) -> None:
    work = send() if rank == 0 else receive()
    if work is not None and hasattr(work, "wait"):
        work.wait()


def batch() -> None:
    ops = [dist.P2POp(dist.isend, ones(), peer), dist.P2POp(dist.irecv, ones(), peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def split(**how: Any) -> dtensor.DTensor:
    return dtensor.distribute_tensor(ones(4, 4), mesh, [dtensor.Shard(0)], **how)


def parallelized(plan: Any, **how: Any) -> None:
    model: Any = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4)).to(DEVICE)
    step(parallel.parallelize_module(model, mesh, plan))


def staged(schedule: Any, stages: int = 1, batches: int = 2) -> None:
    parts = [
        pipelining.PipelineStage(
            nn.Linear(4, 4).to(DEVICE), rank + size * k, stages * size, torch.device(DEVICE)
        )
        for k in range(stages)
    ]
    loss = lambda out, target: (out - target).square().mean()  # noqa: E731
    plan = schedule(parts[0] if stages == 1 else parts, batches, loss_fn=loss)
    x = (ones(4, 4),) if rank == 0 else ()
    last = {"target": ones(4, 4), "losses": []}
    plan.step(*x, **(last if rank == size - 1 else {}))


def v_staged(schedule: Any) -> None:
    parts = [
        pipelining.PipelineStage(nn.Linear(4, 4).to(DEVICE), k, 2 * size, torch.device(DEVICE))
        for k in (rank, 2 * size - 1 - rank)
    ]
    loss = lambda out, target: (out - target).square().mean()  # noqa: E731
    plan = schedule(parts, 4, loss_fn=loss)
    if rank == 0:
        plan.step(ones(4, 4), target=ones(4, 4), losses=[])
    else:
        plan.step()


def traced() -> Any:
    model = net()
    spec = {"2": pipelining.SplitPoint.BEGINNING}
    return pipelining.pipeline(model, (ones(2, 4),), split_spec=spec)


def saved(name: str, save: Callable[..., Any] = dcp.save, **how: Any) -> str:
    path = os.path.join(FOLDER, name)
    model = sharded()
    work = save({"model": states.get_model_state_dict(model)}, checkpoint_id=path, **how)
    if work is not None and hasattr(work, "result"):
        work.result()
    dist.barrier()
    return path


def staging() -> None:
    stager = DefaultStager(StagingOptions(use_non_blocking_copy=not PLAIN))
    stager.stage({"a": ones()}).result()
    stager.close()


def loaded(name: str) -> None:
    path = saved(name)
    model = sharded()
    state = {"model": states.get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=path)
    states.set_model_state_dict(model, state["model"])


def converted() -> None:
    path = saved("to_convert")
    if rank == 0:
        formats.dcp_to_torch_save(path, f"{FOLDER}/plain.pt")
        formats.torch_save_to_dcp(f"{FOLDER}/plain.pt", f"{FOLDER}/again")
    dist.barrier()


def joined() -> None:
    model = ddp()
    with Join([model]):
        for _ in range(1 + rank):
            step(model)


def optimized(make: Callable[[Any], Any]) -> None:
    model = ddp()
    optimizer = make(model.parameters())
    for _ in range(2):
        step(model, optimizer)


def zero() -> None:
    model = ddp()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    step(model, optimizer)
    optimizer.consolidate_state_dict(0)
    if rank == 0:
        optimizer.state_dict()


def local_sgd() -> None:
    model = ddp()
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), averagers.PeriodicModelAverager(1)
    )
    step(model, optimizer)


def fsdp_state(kind: Any) -> None:
    model = flat()
    optimizer = adam(model)
    step(model, optimizer)
    with fsdp.FullyShardedDataParallel.state_dict_type(model, kind):
        model.load_state_dict(model.state_dict())
        fsdp.FullyShardedDataParallel.optim_state_dict(model, optimizer)


def state_options(**how: Any) -> None:
    model = sharded()
    optimizer = adam(model)
    step(model, optimizer)
    options = states.StateDictOptions(**how)
    found = states.get_state_dict(model, optimizer, options=options)
    states.set_state_dict(
        model,
        optimizer,
        model_state_dict=found[0],
        optim_state_dict=found[1],
        options=options,
    )


def full_state() -> None:
    model = sharded()
    gathered = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    found = states.get_model_state_dict(model, options=gathered)
    options = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    states.set_model_state_dict(model, found, options=options)
    optimizer = adam(model)
    step(model, optimizer)
    states.set_optimizer_state_dict(
        model, optimizer, states.get_optimizer_state_dict(model, optimizer)
    )


def accumulated() -> None:
    model = sharded()
    for last in (False, True):
        model.set_requires_gradient_sync(last)
        model.set_is_last_backward(last)
        step(model)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    model.reshard()
    handle = model.unshard(async_op=True)
    handle.wait()


def tensor_ops() -> None:
    x = split()
    y = x.redistribute(placements=[dtensor.Replicate()])
    (x @ y).sum().full_tensor().item()
    x.to_local().sum()
    dtensor.DTensor.from_local(ones(2), mesh, [dtensor.Partial()]).full_tensor()


def watched() -> None:
    with debug.CommDebugMode() as mode:
        split().full_tensor()
    assert mode.get_total_counts() == 1


def mapped() -> None:
    add = experimental.local_map(
        lambda a, b: a + b, out_placements=[dtensor.Shard(0)], device_mesh=mesh
    )
    add(split(), split())


def sliced() -> None:
    both = init_device_mesh(DEVICE, (1, size), mesh_dim_names=("a", "b"))
    both["b"].get_group()
    both["a", "b"]._flatten("ab")
    both.get_local_rank("b")
    both.get_coordinate()
    both.get_all_groups()


def synced() -> None:
    model = ddp()
    with model.no_sync():
        step(model)
    step(model)


def sharing() -> None:
    models = [sharded(), sharded()]
    fsdp.share_comm_ctx(models)
    for model in models:
        step(model)


def implicit() -> None:
    with experimental.implicit_replication():
        (split() + ones(4, 4)).full_tensor()


def with_loss() -> None:
    logits = dtensor.distribute_tensor(ones(4, 4).requires_grad_(), mesh, [dtensor.Shard(1)])
    with parallel.loss_parallel():
        target = torch.zeros(4, dtype=torch.long, device=DEVICE)
        nn.functional.cross_entropy(logits, target).backward()


def trained() -> Any:
    model = ddp()
    step(model)
    return model.parameters()


def average() -> None:
    model = ddp()
    averaging.average_parameters(model.parameters(), world)


CALLS: dict[str, Callable[[], Any]] = {
    "is_available": lambda: dist.is_available(),
    "get_debug_level": lambda: dist.get_debug_level(),
    "set_debug_level": lambda: dist.set_debug_level(dist.DebugLevel.OFF),
    "set_debug_level_from_env": lambda: dist.set_debug_level_from_env(),
    "rendezvous": lambda: next(d.rendezvous(f"file://{FOLDER}/meet", rank, size)),
    "init_device_mesh": sliced,
    "all_gather": lambda: dist.all_gather([ones(), ones()], ones()),
    "all_gather_coalesced": lambda: d.all_gather_coalesced([[ones()], [ones()]], [ones()]),
    "all_gather_object": lambda: dist.all_gather_object([None] * size, rank),
    "all_reduce": lambda: dist.all_reduce(ones(), dist.ReduceOp.AVG),
    "all_reduce_coalesced": lambda: d.all_reduce_coalesced([ones(), ones()]),
    "all_to_all": lambda: dist.all_to_all([ones(), ones()], [ones(), ones()]),
    "all_to_all_single": lambda: dist.all_to_all_single(
        ones(), ones(), [1 + 2 * rank, 3 - 2 * rank][::1], [1, 3] if rank == 0 else [3, 1]
    ),
    "barrier": lambda: dist.barrier(device_ids=None if PLAIN else [rank]),
    "batch_isend_irecv": batch,
    "broadcast": lambda: dist.broadcast(ones(), group_src=0),
    "send_object_list": lambda: passed(
        lambda: dist.send_object_list(["a", 1], 1), lambda: dist.recv_object_list([None, None], 0)
    ),
    "recv_object_list": lambda: passed(
        lambda: dist.send_object_list(["a", 1], 1, device=torch.device(DEVICE)),
        lambda: dist.recv_object_list([None, None], 0, device=torch.device(DEVICE)),
    ),
    "broadcast_object_list": lambda: dist.broadcast_object_list([rank], 0),
    "gather": lambda: dist.gather(ones(), [ones(), ones()] if rank == 0 else None, 0),
    "gather_object": lambda: dist.gather_object(rank, [None, None] if rank == 0 else None, 0),
    "get_backend_config": lambda: dist.get_backend_config(),
    "get_backend": lambda: dist.get_backend(),
    "get_default_backend_for_device": lambda: dist.get_default_backend_for_device(DEVICE),
    "get_rank": lambda: dist.get_rank(world),
    "get_world_size": lambda: dist.get_world_size(world),
    "get_pg_count": lambda: d.get_pg_count(),
    "isend": lambda: passed(lambda: dist.isend(ones(), 1), lambda: dist.irecv(ones(), 0)),
    "irecv": lambda: passed(
        lambda: dist.isend(ones(), 1, tag=3), lambda: dist.irecv(ones(), tag=3)
    ),
    "send": lambda: passed(lambda: dist.send(ones(), 1), lambda: dist.recv(ones(), 0)),
    "recv": lambda: passed(lambda: dist.send(ones(), 1), lambda: dist.recv(ones())),
    "is_gloo_available": lambda: dist.is_gloo_available(),
    "is_initialized": lambda: dist.is_initialized(),
    "is_mpi_available": lambda: dist.is_mpi_available(),
    "is_backend_available": lambda: dist.is_backend_available("gloo" if PLAIN else "nccl"),
    "is_nccl_available": lambda: dist.is_nccl_available(),
    "is_torchelastic_launched": lambda: dist.is_torchelastic_launched(),
    "is_ucc_available": lambda: dist.is_ucc_available(),
    "is_xccl_available": lambda: dist.is_xccl_available(),
    "monitored_barrier": lambda: dist.monitored_barrier(
        dist.new_group(backend="gloo"), datetime.timedelta(seconds=60), True
    ),
    "new_group": lambda: dist.barrier(dist.new_group([0, 1], group_desc="mine")),
    "new_subgroups": lambda: dist.new_subgroups(1),
    "new_subgroups_by_enumeration": lambda: dist.new_subgroups_by_enumeration([[0], [1]]),
    "reduce": lambda: dist.reduce(ones(), 0),
    "reduce_scatter": lambda: dist.reduce_scatter(ones(), [ones(), ones()]),
    "scatter": lambda: dist.scatter(ones(), [ones(), ones()] if rank == 0 else None, 0),
    "scatter_object_list": lambda: dist.scatter_object_list([None], ["a", "b"], 0),
    "supports_complex": lambda: d.supports_complex(dist.ReduceOp.SUM),
    "GroupName": lambda: d.GroupName("a"),
    "get_group_rank": lambda: dist.get_group_rank(world, 1),
    "get_global_rank": lambda: dist.get_global_rank(world, 1),
    "get_process_group_ranks": lambda: dist.get_process_group_ranks(world),
    "all_gather_single": lambda: d.all_gather_single(ones(8), ones()),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(ones(8), ones()),
    "reduce_scatter_single": lambda: d.reduce_scatter_single(ones(2), ones()),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(ones(2), ones()),
    "get_node_local_rank": lambda: dist.get_node_local_rank(),
    "split_group": lambda: dist.split_group(world, [[0], [1]]),
    "shrink_group": lambda: d.shrink_group([1]),
    "record_comm": lambda: d.record_comm("mine").__enter__(),
    "register_rendezvous_handler": lambda: d.register_rendezvous_handler("mine", print),
    # groups
    "group.size": lambda: (world.size(), world.rank(), world.name(), world.group_name),
    "group.bound_device_id": lambda: world.bound_device_id,
    "group.allreduce": lambda: world.allreduce([ones()]).wait(),
    "group.broadcast": lambda: world.broadcast(ones(), 0).wait(),
    "group.barrier": lambda: world.barrier().wait(),
    "group.abort": lambda: dist.new_group().abort(),
    "group.shutdown": lambda: dist.new_group().shutdown(),
    "group.merge": lambda: world._get_backend(torch.device("cpu")),
    "work": lambda: _asked(dist.all_reduce(ones(), async_op=True)),
    "coalescing": lambda: _coalesced(),
    "destroy_process_group": lambda: dist.destroy_process_group(dist.new_group()),
    "TCPStore": lambda: dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False),
    "FileStore": lambda: dist.FileStore(f"{FOLDER}/store{rank}", 1).set("a", "b"),
    "HashStore": lambda: dist.HashStore().set("a", "b"),
    "premul": lambda: dist.all_reduce(ones(), d._make_nccl_premul_sum(2.0)),
    "complex": lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64, device=DEVICE)),
    "bool": lambda: dist.all_reduce(
        torch.ones(2, dtype=torch.bool, device=DEVICE), dist.ReduceOp.MAX
    ),
    "sparse": lambda: dist.all_reduce(torch.eye(4).to(DEVICE).to_sparse()),
    # DTensors
    "tensor.distribute_tensor": lambda: split(),
    "tensor.distribute_module": lambda: dtensor.distribute_module(net(), mesh),
    "tensor.empty": lambda: dtensor.empty(4, device_mesh=mesh),
    "tensor.full": lambda: dtensor.full((4,), 1.0, device_mesh=mesh),
    "tensor.ones": lambda: dtensor.ones(4, device_mesh=mesh, placements=[dtensor.Shard(0)]),
    "tensor.zeros": lambda: dtensor.zeros(4, device_mesh=mesh),
    "tensor.rand": lambda: dtensor.rand(4, device_mesh=mesh),
    "tensor.randn": lambda: dtensor.randn(4, device_mesh=mesh),
    "tensor.init_device_mesh": tensor_ops,
    "tensor.dropout": lambda: nn.functional.dropout(split()),
    "tensor.uniform": lambda: nn.init.uniform_(split()),
    "tensor.rand_like": lambda: torch.rand_like(split()),
    "tensor.random.manual_seed": lambda: dtensor_random().manual_seed(1, mesh),
    "tensor.parallel.parallelize_module": lambda: parallelized(
        {"1": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    ),
    "tensor.parallel.loss_parallel": with_loss,
    "tensor.parallel.SequenceParallel": lambda: parallelized(
        {"0": parallel.SequenceParallel(sequence_dim=0, use_local_output=True)}
    ),
    "tensor.parallel.PrepareModuleInputOutput": lambda: parallelized(
        {
            "1": parallel.PrepareModuleInputOutput(
                input_layouts=(dtensor.Replicate(),),
                desired_input_layouts=(dtensor.Replicate(),),
                use_local_input=True,
                output_layouts=(dtensor.Replicate(),),
                desired_output_layouts=(dtensor.Replicate(),),
            )
        }
    ),
    "tensor.experimental.context_parallel": lambda: experimental.context_parallel(
        mesh, buffers=[ones(4)], buffer_seq_dims=[0]
    ).__enter__(),
    "tensor.experimental.local_map": mapped,
    "tensor.experimental.register_sharding": lambda: experimental.register_sharding(
        torch.ops.aten.atan.default
    ),
    "tensor.experimental.implicit_replication": implicit,
    "tensor.debug.visualize_sharding": lambda: debug.visualize_sharding(split()),
    "tensor.debug.CommDebugMode": watched,
    # FSDP
    "fsdp.fully_shard": lambda: step(sharded(), None),
    "fsdp.accumulated": accumulated,
    "fsdp.register_fsdp_forward_method": lambda: fsdp.register_fsdp_forward_method(
        sharded(), "extra_repr"
    ),
    "fsdp.share_comm_ctx": sharing,
    "fsdp.MixedPrecisionPolicy": lambda: step(
        sharded(mp_policy=fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    ),
    "fsdp.CPUOffloadPolicy": lambda: step(sharded(offload_policy=fsdp.CPUOffloadPolicy())),
    "fsdp.FullyShardedDataParallel": lambda: step(flat()),
    "fsdp.clip": lambda: (lambda m: (step(m), m.clip_grad_norm_(1.0)))(flat()),
    "fsdp.no_sync": lambda: (lambda m: m.no_sync().__enter__())(flat()),
    "fsdp.MixedPrecision": lambda: step(
        flat(
            mixed_precision=fsdp.MixedPrecision(
                torch.bfloat16, torch.bfloat16, torch.bfloat16, cast_forward_inputs=True
            )
        )
    ),
    "fsdp.CPUOffload": lambda: step(flat(cpu_offload=fsdp.CPUOffload(offload_params=True))),
    "fsdp.ShardingStrategy": lambda: [
        step(flat(sharding_strategy=each))
        for each in (fsdp.ShardingStrategy.SHARD_GRAD_OP, fsdp.ShardingStrategy.NO_SHARD)
    ],
    "fsdp.hybrid": lambda: step(
        fsdp.FullyShardedDataParallel(
            net(),
            device_mesh=init_device_mesh(DEVICE, (1, 2)),
            device_id=torch.device(DEVICE),
            sharding_strategy=fsdp.ShardingStrategy.HYBRID_SHARD,
        )
    ),
    "fsdp.FullStateDictConfig": lambda: fsdp_state(fsdp.StateDictType.FULL_STATE_DICT),
    "fsdp.ShardedStateDictConfig": lambda: fsdp_state(fsdp.StateDictType.SHARDED_STATE_DICT),
    "fsdp.LocalStateDictConfig": lambda: fsdp_state(fsdp.StateDictType.LOCAL_STATE_DICT),
    "fsdp.summon": lambda: fsdp.FullyShardedDataParallel.summon_full_params(flat()).__enter__(),
    "fsdp.wrap.always_wrap_policy": lambda: step(flat(auto_wrap_policy=wrap.always_wrap_policy)),
    "fsdp.wrap.lambda_auto_wrap_policy": lambda: step(
        flat(auto_wrap_policy=wrap.ModuleWrapPolicy({nn.Linear}))
    ),
    "fsdp.wrap.transformer_auto_wrap_policy": lambda: wrap.transformer_auto_wrap_policy(
        net(), True, 1, {nn.Linear}
    ),
    "fsdp.wrap.size_based_auto_wrap_policy": lambda: step(
        flat(auto_wrap_policy=wrap.size_based_auto_wrap_policy)
    ),
    "fsdp.wrap.enable_wrap": lambda: wrap.enable_wrap(wrapper_cls=fsdp.FullyShardedDataParallel),
    "fsdp.wrap.wrap": lambda: wrap.wrap(net()),
    # checkpoints
    "checkpoint.save": lambda: saved("save"),
    "checkpoint.async_save": lambda: saved(
        "async", dcp.async_save, process_group=dist.new_group(backend="gloo")
    ),
    "checkpoint.async_save to nccl": lambda: saved("async2", dcp.async_save),
    "checkpoint.async_save by a process": lambda: saved(
        "async3",
        dcp.async_save,
        process_group=dist.new_group(backend="gloo"),
        async_checkpointer_type=dcp.state_dict_saver.AsyncCheckpointerType.PROCESS,
    ),
    "checkpoint.staging.DefaultStager": lambda: staging(),
    "checkpoint.load": lambda: loaded("load"),
    "checkpoint.save_state_dict": lambda: dcp.save_state_dict(
        {"a": ones()}, dcp.FileSystemWriter(f"{FOLDER}/old")
    ),
    "checkpoint.load_state_dict": lambda: dcp.load_state_dict(
        {"a": ones()}, dcp.FileSystemReader(f"{FOLDER}/old")
    ),
    "checkpoint.load_sharded_optimizer_state_dict": lambda: dcp.load_sharded_optimizer_state_dict(
        {}, "optim", dcp.FileSystemReader(f"{FOLDER}/old")
    ),
    "checkpoint.HuggingFaceStorageWriter": lambda: dcp.save(
        {"a": ones()}, storage_writer=dcp.HuggingFaceStorageWriter(f"{FOLDER}/hf")
    ),
    "checkpoint.state_dict.get_state_dict": lambda: state_options(),
    "checkpoint.state_dict.set_state_dict": lambda: state_options(strict=False),
    "checkpoint.state_dict.get_model_state_dict": full_state,
    "checkpoint.state_dict.set_model_state_dict": full_state,
    "checkpoint.state_dict.get_optimizer_state_dict": full_state,
    "checkpoint.state_dict.set_optimizer_state_dict": full_state,
    "checkpoint.format_utils.dcp_to_torch_save": converted,
    # pipelines
    "pipelining.pipeline": lambda: traced(),
    "pipelining.build_stage": lambda: traced().build_stage(rank, torch.device(DEVICE)),
    "pipelining.pipe_split": lambda: pipelining.pipe_split(),
    "pipelining.Schedule1F1B": lambda: staged(pipelining.Schedule1F1B),
    "pipelining.ScheduleGPipe": lambda: staged(pipelining.ScheduleGPipe),
    "pipelining.ScheduleInterleaved1F1B": lambda: staged(pipelining.ScheduleInterleaved1F1B, 2),
    "pipelining.ScheduleLoopedBFS": lambda: staged(pipelining.ScheduleLoopedBFS, 2),
    "pipelining.ScheduleInterleavedZeroBubble": lambda: staged(
        pipelining.ScheduleInterleavedZeroBubble, 2
    ),
    "pipelining.ScheduleZBVZeroBubble": lambda: v_staged(pipelining.ScheduleZBVZeroBubble),
    "pipelining.ScheduleDualPipeV": lambda: v_staged(pipelining.ScheduleDualPipeV),
    # differentiable collectives
    "nn.broadcast": lambda: (
        differentiable.broadcast(ones().requires_grad_(), 0).square().sum().backward()
    ),
    "nn.gather": lambda: sum(
        each.square().sum() for each in differentiable.gather(ones().requires_grad_(), 0)
    ).backward(),
    "nn.scatter": lambda: (
        differentiable.scatter([ones().requires_grad_() for _ in range(2)], 0)
        .square()
        .sum()
        .backward()
    ),
    "nn.reduce": lambda: (
        differentiable.reduce(ones().requires_grad_(), 0).square().sum().backward()
    ),
    "nn.reduce_scatter": lambda: (
        differentiable.reduce_scatter(ones(), [ones().requires_grad_() for _ in range(2)])
        .square()
        .sum()
        .backward()
    ),
    "nn.all_gather": lambda: (
        differentiable.all_gather(ones().requires_grad_())[0].square().sum().backward()
    ),
    "nn.all_gather twice": lambda: (
        torch.cat(differentiable.all_gather(ones().requires_grad_())).square().sum().backward()
    ),
    "nn.all_gather_base": lambda: (
        differentiable._all_gather_base(ones(8), ones().requires_grad_()).square().sum().backward()
    ),
    "nn.all_to_all": lambda: (
        differentiable.all_to_all([ones(), ones()], [ones().requires_grad_() for _ in range(2)])[0]
        .square()
        .sum()
        .backward()
    ),
    "nn.all_to_all_single": lambda: (
        differentiable.all_to_all_single(ones(), ones().requires_grad_()).square().sum().backward()
    ),
    "nn.all_reduce": lambda: (
        differentiable.all_reduce(ones().requires_grad_()).square().sum().backward()
    ),
    "functional.all_reduce": lambda: all_reduce(ones(), "sum", world) + 1,
    "functional.all_gather_tensor": lambda: all_gather_tensor(ones(), 0, mesh) + 1,
    # algorithms
    "algorithms.Join": joined,
    "algorithms.ddp_comm_hooks.register_ddp_comm_hook": lambda: (
        lambda m: (register_ddp_comm_hook(DDPCommHookType.FP16_COMPRESS, m, None), step(m))
    )(ddp()),
    "algorithms.ddp_comm_hooks.default_hooks.allreduce_hook": lambda: hooked(
        None, default_hooks.allreduce_hook
    ),
    "algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook": lambda: hooked(
        None, default_hooks.fp16_compress_hook
    ),
    "algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook": lambda: hooked(
        None, default_hooks.bf16_compress_hook
    ),
    "algorithms.ddp_comm_hooks.default_hooks.fp16_compress_wrapper": lambda: hooked(
        None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    ),
    "algorithms.ddp_comm_hooks.default_hooks.bf16_compress_wrapper": lambda: hooked(
        None, default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)
    ),
    "algorithms.ddp_comm_hooks.powerSGD_hook.powerSGD_hook": lambda: hooked(
        powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook
    ),
    "algorithms.ddp_comm_hooks.powerSGD_hook.batched_powerSGD_hook": lambda: hooked(
        powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2),
        powerSGD_hook.batched_powerSGD_hook,
    ),
    "algorithms.ddp_comm_hooks.quantization": lambda: _quantized(),
    "algorithms.ddp_comm_hooks.builtin": lambda: (
        lambda m: (m._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS), step(m))
    )(ddp()),
    "algorithms.ddp_comm_hooks.optimizer_overlap": lambda: (
        lambda m: (m._register_fused_optim(torch.optim.SGD, 0.1), step(m))
    )(ddp()),
    "algorithms.model_averaging.utils.average_parameters": average,
    "algorithms.model_averaging.utils.get_params_to_average": lambda: (
        averaging.get_params_to_average(ddp().parameters())
    ),
    "algorithms.model_averaging.utils.average_parameters_or_parameter_groups": lambda: (
        averaging.average_parameters_or_parameter_groups(trained(), world)
    ),
    "algorithms.model_averaging.averagers.PeriodicModelAverager": lambda: (
        averagers.PeriodicModelAverager(1).average_parameters(trained())
    ),
    "algorithms.model_averaging.hierarchical_model_averager.HierarchicalModelAverager": lambda: (
        HierarchicalModelAverager(OrderedDict({1: 2}))
    ),
    # optimizers
    "optim.as_functional_optim": lambda: as_functional_optim(torch.optim.SGD, lr=0.1),
    "optim.ZeroRedundancyOptimizer": zero,
    "optim.PostLocalSGDOptimizer": local_sgd,
    "ddp.static": lambda: [
        step(m) for m in [ddp(static_graph=True, gradient_as_bucket_view=True)] for _ in range(3)
    ],
    "ddp.unused": lambda: step(ddp(find_unused_parameters=True)),
    "ddp.no_sync": synced,
    "ddp.mixed": lambda: step(ddp(mixed_precision=_MixedPrecision(torch.bfloat16))),
    "ddp.delay": lambda: step(ddp(delay_all_reduce_named_params=None, bucket_cap_mb=1)),
    "ddp.logging": lambda: ddp()._get_ddp_logging_data(),
    "ddp.copy": lambda: copy.deepcopy(net()),
    "ddp.deepcopy": lambda: copy.deepcopy(ddp()),
    "ddp.mesh": lambda: step(DDP(net(), device_mesh=mesh)),
    "ddp.replicate": lambda: step(
        importlib.import_module("torch.distributed._composable").replicate(net())
    ),
    # tools
    "collective_utils.broadcast": lambda: utils().broadcast(rank, rank=0, pg=world),
    "collective_utils.all_gather": lambda: utils().all_gather(rank, pg=world),
    "collective_utils.all_gather_object_enforce_type": lambda: (
        utils().all_gather_object_enforce_type(world, [None] * 2, rank)
    ),
    "autograd.is_available": lambda: importlib.import_module(
        "torch.distributed.autograd"
    ).is_available(),
    "rpc.is_available": lambda: importlib.import_module("torch.distributed.rpc").is_available(),
}


def utils() -> Any:
    return importlib.import_module("torch.distributed.collective_utils")


def dtensor_random() -> Any:
    return importlib.import_module("torch.distributed.tensor._random")


def _asked(work: Any) -> None:
    work.get_future().wait()
    work.wait(datetime.timedelta(seconds=60))
    assert work.is_completed()
    assert work.is_success()
    work.exception()
    work.result()
    work.synchronize()
    work.boxed()
    work.get_future_result()


def _coalesced() -> None:
    with d._coalescing_manager(device=torch.device(DEVICE), async_ops=True) as manager:
        dist.all_reduce(ones())
        dist.all_reduce(ones())
    manager.wait()


def _quantized() -> None:
    hooks = importlib.import_module(
        "torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks"
    )
    hooked(world, hooks.quantization_pertensor_hook)


def missing() -> Iterator[str]:
    """Yield the public functions of torch.distributed without an entry in `CALLS`."""
    called = {each.rpartition(".")[2] for each in CALLS} | NOT_CALLED
    for home in MODULES:
        module = importlib.import_module(f"torch.{home}")
        for name, found in vars(module).items():
            here = str(getattr(found, "__module__", "")).startswith("torch.distributed")
            public = name[0] != "_" and name not in called
            if here and public and callable(found) and not isinstance(found, type):
                yield f"{home}.{name}"


def joined_run() -> None:
    """Join the run; the functions above read the names."""
    global rank, size, peer, world, mesh, FOLDER
    if not PLAIN:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo" if PLAIN else "nccl")
    rank, size, world = dist.get_rank(), dist.get_world_size(), dist.group.WORLD
    peer, mesh = 1 - rank, init_device_mesh(DEVICE, (size,), mesh_dim_names=("d",))
    shared = [tempfile.mkdtemp()]
    dist.broadcast_object_list(shared, 0)
    FOLDER = shared[0]


if __name__ == "__main__":
    joined_run()
    chosen = tuple(each for each in sys.argv[1:] if each not in ("plain", "except"))
    all_but = "except" in sys.argv or not chosen
    lacking = missing() if all_but else ()
    errors = dict.fromkeys(lacking, "dist_walk.py does not call this function")
    for name, call in CALLS.items():
        if name.startswith(chosen) == all_but:
            continue
        try:
            call()
        except Exception as error:
            if "`ddpkit run` has no replacement for" not in str(error):
                errors[name] = f"{type(error).__name__}: {error}"
        dist.barrier()
    if rank == 0:
        print("errors", json.dumps(errors))
        sys.stdout.flush()
