"""More training programs for `benchmarks.scripts`, in idioms of public scripts of 2024 to 2026."""

NEWER = {
    "DataLoader, workers and pinned memory": """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
data = TensorDataset(torch.randn(256, 256), torch.randn(256))
sampler = DistributedSampler(data, shuffle=True, drop_last=True)
loader = DataLoader(data, 16, sampler=sampler, num_workers=2, pin_memory=True,
                    persistent_workers=True, prefetch_factor=2)
model = DDP(net(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.to("cuda", non_blocking=True)
        F.mse_loss(model(x).mean(1), y).backward()
        optimizer.step(); optimizer.zero_grad(set_to_none=True)""",
    "EMA by swa_utils, FSDP2": """
from torch.distributed.fsdp import fully_shard
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
model = net()
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
for each in (model, average.module):
    for layer in each: fully_shard(layer)
    fully_shard(each)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    train(model, optimizer, steps=1)
    average.update_parameters(model)
with torch.no_grad(): print(average(batch()).square().mean().item())""",
    "checkpointed activations, static graph": """
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(4))
    def forward(self, x):
        for layer in self.layers: x = checkpoint(layer, x, use_reentrant=False)
        return x
model = DDP(Net().cuda(), device_ids=[rank], static_graph=True, gradient_as_bucket_view=True)
train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True))""",
    "torch.compile, FSDP2": """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
model = net()
for layer in model:
    layer.compile(fullgraph=True)
    fully_shard(layer, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
fully_shard(model)
model = torch.compile(model, mode="max-autotune-no-cudagraphs", dynamic=False)
train(model, torch.optim.AdamW(model.parameters(), foreach=True))""",
    "DCP, async_save in a loop": """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
dist.destroy_process_group(); dist.init_process_group("cpu:gloo,cuda:nccl")
model = fully_shard(net())
optimizer = torch.optim.AdamW(model.parameters())
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder, 0)
saving = dist.new_group(backend="gloo")
futures = []
for step in range(3):
    train(model, optimizer, steps=2)
    weights, moments = get_state_dict(model, optimizer)
    if futures: futures[-1].result()
    futures.append(dcp.async_save({"model": weights, "optimizer": moments},
        checkpoint_id=f"{folder[0]}/{step}", process_group=saving))
for future in futures: future.result()
dist.barrier()""",
    "experts in groups, grouped_mm": """
experts = nn.Parameter(torch.randn(4, 256, 256, device="cuda", dtype=torch.bfloat16) / 16)
router = nn.Linear(256, 4 * size, bias=False).cuda()
optimizer = torch.optim.AdamW([experts, *router.parameters()])
from torch.distributed._functional_collectives import all_to_all_single_autograd
for _ in range(3):
    x = batch()
    weight, chosen = router(x).sigmoid().topk(2, dim=-1)
    flat = chosen.flatten().argsort(stable=True)
    counts = torch.bincount(chosen.flatten(), minlength=4 * size)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    send = counts.view(size, 4).sum(1).tolist(); receive = theirs.view(size, 4).sum(1).tolist()
    routed = x.repeat_interleave(2, 0)[flat].bfloat16()
    arrived = all_to_all_single_autograd(routed, receive, send, dist.group.WORLD)
    expert = torch.arange(4, device="cuda").repeat(size).repeat_interleave(theirs)
    place = expert.argsort(stable=True)
    ends = theirs.view(size, 4).sum(0).cumsum(0).to(torch.int32)
    out = torch._grouped_mm(arrived[place], experts.transpose(-2, -1), offs=ends)
    back = torch.empty_like(out).index_copy(0, place, out)
    home = all_to_all_single_autograd(back, send, receive, dist.group.WORLD)
    (home.float() * weight.flatten()[flat, None]).square().mean().backward()
    for p in router.parameters(): dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    optimizer.step(); optimizer.zero_grad()""",
    "sequence parallelism, DTensor": """
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
    RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.RMSNorm(256), nn.Linear(256, 512), nn.Linear(512, 256)
    def forward(self, x): return x + self.down(F.silu(self.up(self.norm(x))))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.block = nn.Embedding(128, 256), Block()
        self.norm, self.out = nn.RMSNorm(256), nn.Linear(256, 128, bias=False)
    def forward(self, words): return self.out(self.norm(self.block(self.words(words))))
mesh = init_device_mesh("cuda", (size,), mesh_dim_names=("tp",))
model = parallelize_module(Net().cuda(), mesh, {
    "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "block.norm": SequenceParallel(), "norm": SequenceParallel(),
    "block.up": ColwiseParallel(input_layouts=Shard(1)),
    "block.down": RowwiseParallel(output_layouts=Shard(1)),
    "out": ColwiseParallel(input_layouts=Shard(1), use_local_output=False)})
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    words = torch.randint(128, (4, 32), device="cuda")
    with loss_parallel():
        loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(); optimizer.zero_grad()""",
    "ZeRO-1 by hand": """
model = net()
for p in model.parameters(): dist.broadcast(p.data, 0)
count = sum(p.numel() for p in model.parameters())
padded = lambda parts: F.pad(torch.cat([*map(torch.flatten, parts)]), (0, -count % size))
flat = padded(p.detach() for p in model.parameters())
shard = flat.chunk(size)[rank].clone()
shard.grad = torch.zeros_like(shard)
optimizer = torch.optim.AdamW([shard], fused=True)
for _ in range(4):
    for micro in range(2): model(batch()).square().mean().backward()
    grads = padded(p.grad for p in model.parameters())
    dist.reduce_scatter_tensor(shard.grad, grads, dist.ReduceOp.AVG, async_op=True).wait()
    norm = shard.grad.norm() ** 2
    dist.all_reduce(norm)
    shard.grad.mul_((1.0 / (norm.sqrt() + 1e-6)).clamp(max=1.0))
    optimizer.step()
    dist.all_gather_into_tensor(flat, shard.detach())
    nn.utils.vector_to_parameters(flat[:count], model.parameters())
    model.zero_grad()""",
    "pipeline by hand, two streams": """
stage = nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
talk = torch.cuda.Stream()
for _ in range(3):
    kept, sends = [], []
    for micro in range(4):
        x = batch() if rank == 0 else torch.empty(32, 256, device="cuda")
        if rank:
            with torch.cuda.stream(talk): work = dist.irecv(x, rank - 1); work.wait()
            torch.cuda.current_stream().wait_stream(talk)
            x.record_stream(torch.cuda.current_stream()); x.requires_grad_()
        y = stage(x)
        if rank < size - 1:
            talk.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(talk): sends.append(dist.isend(y.detach(), rank + 1))
        kept.append((x, y))
    for x, y in kept:
        if rank == size - 1: y.square().mean().backward()
        else:
            grad = torch.empty_like(y)
            dist.irecv(grad, rank + 1).wait()
            y.backward(grad)
        if rank: sends.append(dist.isend(x.grad, rank - 1))
    for work in sends: work.wait()
    optimizer.step(); optimizer.zero_grad()
torch.cuda.synchronize()""",
    "RL, a learner and actors": """
learners, actors = dist.new_group([0]), dist.new_group([*range(1, size)])
pairs = [dist.new_group([0, actor]) for actor in range(1, size)]
policy = net()
optimizer = torch.optim.AdamW(policy.parameters())
for step in range(3):
    for p in policy.parameters(): dist.broadcast(p.data, 0)
    seen = [None] * size if rank == 0 else None
    with torch.no_grad(): mine = {"rank": rank, "reward": policy(batch()).mean().item()}
    dist.gather_object(mine, seen, 0)
    states = torch.randn(64, 256, device="cuda")
    parts = [torch.empty_like(states) for _ in range(size)] if rank == 0 else None
    dist.gather(states, parts, 0)
    if rank == 0:
        for part in parts[1:]:
            policy(part).square().mean().backward()
        optimizer.step(); optimizer.zero_grad()
    else: dist.all_reduce(states, group=actors)
    if rank in (0, 1): dist.broadcast(torch.ones(4, device="cuda"), 1, group=pairs[0])
dist.barrier(device_ids=[rank])""",
    "LoRA, a frozen base": """
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
class LoRA(nn.Module):
    def __init__(self, base, r=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(r, base.in_features, device="cuda") / r)
        self.b = nn.Parameter(torch.zeros(base.out_features, r, device="cuda"))
    def forward(self, x):
        with torch.autocast("cuda", torch.bfloat16):
            return self.base(x) + x @ self.a.T @ self.b.T
adapters = lambda model: [p for p in model.parameters() if p.requires_grad]
loss = lambda model: model(batch()).float().square().mean()
model = nn.Sequential(*map(LoRA, net()))
for layer in model: fully_shard(layer)
fully_shard(model)
train(model, torch.optim.AdamW(adapters(model), weight_decay=0.0), loss=loss)
options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
saved = get_model_state_dict(model, options=options)
if rank == 0: torch.save(saved, tempfile.mktemp())
ddp = DDP(nn.Sequential(*map(LoRA, net())), device_ids=[rank])
train(ddp, torch.optim.AdamW(adapters(ddp)), loss=loss)""",
    "elastic, events and metrics": """
import os
from torch.distributed.elastic import events, metrics
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    metrics.configure(metrics.NullMetricHandler())
    worker = events.EventSource.WORKER
    events.record(events.Event("begin", source=worker, metadata={"rank": rank}), "null")
    model = DDP(net(), device_ids=[dist.get_node_local_rank()])
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=int(os.environ["WORLD_SIZE"]))
    metrics.put_metric("steps", 2)
    events.record(events.Event("end", source=worker), "null")
main()""",
    "split_group": """
dist.destroy_process_group()
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
halves = [[*range(size // 2)], [*range(size // 2, size)]]
half = dist.split_group(split_ranks=halves, group_desc="half")
x = torch.ones(1024, device="cuda") * (rank + 1)
dist.all_reduce(x, group=half)
print(dist.get_world_size(half), x[0].item(), dist.get_process_group_ranks(half))
dist.all_reduce(x)
for group in halves:
    if rank in group: dist.broadcast(x, group[0], group=half)
dist.destroy_process_group(half)""",
    "3-D mesh": """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cuda", (1, size // 2, 2), mesh_dim_names=("pp", "dp", "tp"))
world = mesh["pp", "dp"]._flatten("pp_dp")
print(mesh.get_coordinate(), mesh["dp"].get_local_rank(), mesh.get_group("tp").size(), world.size())
model = net()
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
fully_shard(model, mesh=mesh["dp"])
train(model, torch.optim.AdamW(model.parameters(), foreach=False))
loss = torch.ones(1, device="cuda")
dist.all_reduce(loss, group=mesh["dp"].get_group())
dist.all_reduce(loss, group=world.get_group())""",
    "HSDP, prefetch by hand": """
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
mesh = init_device_mesh("cuda", (size // 2, 2), mesh_dim_names=("replicas", "shards"))
model = net()
for layer in model: fully_shard(layer, mesh=mesh, reshard_after_forward=2 if size > 2 else True)
fully_shard(model, mesh=mesh)
for here, there in zip(model, [*model][1:]): here.set_modules_to_forward_prefetch([there])
for here, there in zip([*model][1:], model): here.set_modules_to_backward_prefetch([there])
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=4)
for _ in range(3):
    model.unshard(async_op=True)
    for micro in range(2):
        model.set_requires_gradient_sync(micro == 1)
        model.set_is_last_backward(micro == 1)
        (model(batch()).square().mean() / 2).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    optimizer.step(); optimizer.zero_grad(); plan.step()
print(norm.item())""",
    "activations offloaded to pinned memory": """
from torch.autograd.graph import save_on_cpu
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers
model = DDP(net(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    with save_on_cpu(pin_memory=True): loss = model(batch()).square().mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
other = net()
wrappers.apply_activation_checkpointing(other, check_fn=lambda m: isinstance(m, nn.Linear))
train(DDP(other, device_ids=[rank]), torch.optim.SGD(other.parameters(), lr=0.1), steps=2)""",
    "GRPO, weights to a generator": """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
policy, generator = net(), net()
for layer in policy: fully_shard(layer)
fully_shard(policy)
optimizer = torch.optim.AdamW(policy.parameters())
for _ in range(2):
    for name, p in policy.state_dict().items():
        full = p.full_tensor() if isinstance(p, DTensor) else p
        generator.get_parameter(name).data.copy_(full, non_blocking=True)
    with torch.inference_mode(): answers = generator(batch())
    everyones = [None] * size
    dist.all_gather_object(everyones, answers.mean(1).tolist())
    rewards = torch.tensor(everyones, device="cuda")
    gain = (rewards[rank] - rewards.mean()) / (rewards.std() + 1e-6)
    ratio = policy(answers.clone()).mean(1)
    (-(ratio * gain)).mean().backward()
    optimizer.step(); optimizer.zero_grad()""",
    "a bfloat16 step, gradients compressed": """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
model = DDP(net().to(torch.bfloat16), device_ids=[rank], bucket_cap_mb=1)
model.register_comm_hook(None, hooks.bf16_compress_wrapper(hooks.allreduce_hook))
master = [p.detach().float().requires_grad_() for p in model.parameters()]
optimizer = torch.optim.AdamW(master)
for _ in range(3):
    with model.no_sync(): model(batch().bfloat16()).square().mean().backward()
    model(batch().bfloat16()).square().mean().backward()
    for w, p in zip(master, model.parameters()): w.grad = p.grad.float(); p.grad = None
    torch._foreach_mul_([w.grad for w in master], 0.5)
    optimizer.step()
    with torch.no_grad(): torch._foreach_copy_([*model.parameters()], master)
found = torch.tensor([float(any(w.grad.isnan().any() for w in master))], device="cuda")
dist.all_reduce(found, dist.ReduceOp.MAX)
if found.item(): raise SystemExit("nan")""",
}
