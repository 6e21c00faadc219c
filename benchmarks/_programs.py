"""Training programs in the idioms of public scripts, for `benchmarks.scripts`.

HEAD is the beginning of each of PROGRAMS. The programs need no package but torch.
"""

HEAD = """
import tempfile, torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
net = lambda: nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))).cuda()
batch = lambda: torch.randn(32, 256, device="cuda")

def train(model, *optimizers, loss=lambda model: model(batch()).square().mean(), steps=5):
    for _ in range(steps):
        loss(model).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
"""
PROGRAMS = {
    "DDP, AdamW": "model = DDP(net(), device_ids=[rank])\n"
    "train(model, torch.optim.AdamW(model.parameters()))",
    "FSDP2, mixed precision": """
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
model = net()
half = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for layer in model: fully_shard(layer, mp_policy=half)
fully_shard(model, mp_policy=half)
train(model, torch.optim.AdamW(model.parameters()))""",
    "FSDP": """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(net())
train(model, torch.optim.AdamW(model.parameters()))""",
    "ZeroRedundancyOptimizer": """
from torch.distributed.optim import ZeroRedundancyOptimizer
model = DDP(net(), device_ids=[rank])
train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW))""",
    "tensor parallelism": """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
model = parallelize_module(net(), init_device_mesh("cuda", (size,)),
    {str(k): RowwiseParallel() if k % 2 else ColwiseParallel() for k in range(4)})
train(model, torch.optim.SGD(model.parameters(), lr=0.1))""",
    "pipeline, 1F1B": """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
part = nn.Linear(256, 256).cuda()
stage = PipelineStage(part, rank, size, torch.device("cuda", rank))
schedule = Schedule1F1B(stage, 4, loss_fn=F.mse_loss)
optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
for _ in range(5):
    if rank == 0: schedule.step(batch())
    elif rank == size - 1: schedule.step(target=batch())
    else: schedule.step()
    optimizer.step(); optimizer.zero_grad()""",
    "Join, uneven inputs": """
from torch.distributed.algorithms.join import Join
model = DDP(net(), device_ids=[rank])
with Join([model]):
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=4 + rank)""",
    "a GAN": """
maker, judge = (DDP(net(), device_ids=[rank]) for _ in range(2))
optimizers = [torch.optim.Adam(each.parameters()) for each in (judge, maker)]
for _ in range(5):
    made = maker(batch())
    judge(made.detach()).mean().backward(); optimizers[0].step(); optimizers[0].zero_grad()
    judge(made).mean().backward(); optimizers[1].step(); optimizers[1].zero_grad()""",
    "two optimizers": """
model = DDP(net(), device_ids=[rank])
weights, biases = ([p for p in model.parameters() if (p.ndim > 1) == matrix] for matrix in (1, 0))
train(model, torch.optim.SGD(weights, lr=0.02, momentum=0.95), torch.optim.AdamW(biases))""",
    "DCP, async_save in two queues": """
import torch.distributed.checkpoint as dcp
dist.destroy_process_group()
dist.init_process_group("cpu:gloo,cuda:nccl")
model = DDP(net(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder, 0)
train(model, optimizer, steps=2)
saved = dcp.async_save({"model": model.module.state_dict()}, checkpoint_id=folder[0])
train(model, optimizer, steps=3)
saved.result()""",
    "DiLoCo": """
model = net()
inner = torch.optim.AdamW(model.parameters())
old = [p.detach().clone() for p in model.parameters()]
outer = torch.optim.SGD(old, lr=0.7, momentum=0.9, nesterov=True)
for _ in range(2):
    train(model, inner, steps=4)
    for before, now in zip(old, model.parameters()):
        before.grad = before - now.detach()
        dist.all_reduce(before.grad, dist.ReduceOp.AVG)
    outer.step()
    with torch.no_grad():
        for before, now in zip(old, model.parameters()): now.copy_(before)""",
    "SyncBatchNorm, GradScaler": """
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 4))
model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda(), device_ids=[rank])
optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
for _ in range(5):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(torch.randn(16, 3, 8, 8, device="cuda")).square().mean()
    scaler.scale(loss).backward(); scaler.step(optimizer)
    scaler.update(); optimizer.zero_grad()""",
    "a CUDA graph": "graph = torch.cuda.CUDAGraph()",
    "a GPT, accumulated gradients": """
from contextlib import nullcontext
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)
        self.mlp = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    def forward(self, x):
        parts = (each.unflatten(-1, (4, 16)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(x)
torch.set_float32_matmul_precision("high")
model = nn.Sequential(nn.Embedding(128, 64), Block(), Block(), nn.Linear(64, 128, bias=False)).cuda()
model[0].weight = model[-1].weight
raw, model = model, DDP(torch.compile(model), device_ids=[rank])
decayed = [p for p in raw.parameters() if p.ndim > 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
    {"params": [p for p in raw.parameters() if p.ndim < 2], "weight_decay": 0.0}], fused=True)
for _ in range(3):
    for micro in range(2):
        model.require_backward_grad_sync = micro == 1
        tokens = torch.randint(128, (4, 33)).pin_memory().to("cuda", non_blocking=True)
        with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / 2
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(); optimizer.zero_grad(set_to_none=True)
    dist.all_reduce(loss, dist.ReduceOp.AVG)""",
    "Muon, an owner for each matrix": """
def orthogonal(matrix):
    x = matrix.bfloat16() / (matrix.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x
model = net()
matrices = [p for p in model.parameters() if p.ndim > 1]
biases = torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2])
momenta = [torch.zeros_like(p) for p in matrices]
for _ in range(3):
    model(batch()).square().mean().backward()
    works = [dist.all_reduce(p.grad, dist.ReduceOp.AVG, async_op=True) for p in model.parameters()]
    for work in works: work.wait()
    with torch.no_grad():
        for first in range(0, len(matrices), size):
            mine = first + rank
            momenta[mine].lerp_(matrices[mine].grad, 0.05)
            made = orthogonal(momenta[mine])
            everyone = [torch.empty_like(made) for _ in range(size)]
            dist.all_gather(everyone, made)
            for p, step in zip(matrices[first:first + size], everyone): p.add_(step.float(), alpha=-0.02)
    biases.step(); model.zero_grad()""",
    "sharded optimizer, futures": """
model = net()
params = list(model.parameters())
shards = [p.view(-1)[rank * p.numel() // size : (rank + 1) * p.numel() // size].detach().clone() for p in params]
moments = [torch.zeros_like(each) for each in shards]
for _ in range(3):
    model(batch()).square().mean().backward()
    parts, futures = [torch.empty_like(each) for each in shards], []
    for p, part in zip(params, parts):
        futures.append(dist.reduce_scatter_tensor(part, p.grad.view(-1), dist.ReduceOp.AVG, async_op=True).get_future())
    gathered = []
    for p, part, shard, moment, future in zip(params, parts, shards, moments, futures):
        future.wait()
        moment.lerp_(part, 0.1); shard.sub_(moment, alpha=0.1)
        gathered.append(dist.all_gather_into_tensor(p.data.view(-1), shard, async_op=True).get_future())
    torch.futures.collect_all(gathered).wait(); model.zero_grad()""",
    "a small ImageNet": """
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
torch.backends.cudnn.benchmark = True
data = TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(10, (64,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, 8, sampler=sampler, num_workers=1, pin_memory=True)
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
model = DDP(model.cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
decay = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for images, target in loader:
        output = model(images.cuda(rank, non_blocking=True))
        loss = F.cross_entropy(output, target.cuda(rank, non_blocking=True))
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    total = torch.tensor([loss.item(), 1.0], device="cuda")
    dist.all_reduce(total); decay.step()""",
    "an LSTM on words": """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.out = nn.Embedding(100, 32), nn.LSTM(32, 32, 2), nn.Linear(32, 100)
    def forward(self, tokens, hidden=None):
        found, hidden = self.lstm(self.words(tokens), hidden)
        return self.out(found), hidden
model, hidden = DDP(Words().cuda(), device_ids=[rank]), None
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for _ in range(4):
    tokens = torch.randint(100, (17, 8), device="cuda")
    logits, hidden = model(tokens[:-1], hidden and tuple(each.detach() for each in hidden))
    F.cross_entropy(logits.flatten(0, 1), tokens[1:].flatten()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step(); optimizer.zero_grad()""",
    "EMA, checkpointed activations": """
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = net()
    def forward(self, x):
        for layer in self.layers: x = checkpoint(layer, x, use_reentrant=False)
        return x
model = DDP(Deep().cuda(), device_ids=[rank])
average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    train(model, optimizer, steps=1); average.update_parameters(model.module)""",
    "PowerSGD hook": """
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
model = DDP(net(), device_ids=[rank])
state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
train(model, torch.optim.SGD(model.parameters(), lr=0.1))""",
    "local SGD": """
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
model = net()
averager = PeriodicModelAverager(period=2, warmup_steps=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(batch()).square().mean().backward(); optimizer.step()
    averager.average_parameters(model.parameters()); optimizer.zero_grad()""",
    "2-D mesh, FSDP2 and tensor parallelism": """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cuda", (1, size), mesh_dim_names=("data", "tensor"))
plan = {str(k): RowwiseParallel() if k % 2 else ColwiseParallel() for k in range(4)}
model = fully_shard(parallelize_module(net(), mesh["tensor"], plan), mesh=mesh["data"])
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(3):
    model(batch()).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    optimizer.step(); optimizer.zero_grad()""",
    "experts, all-to-all": """
experts, gate = nn.Linear(256, 256).cuda(), DDP(nn.Linear(256, size).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD([*experts.parameters(), *gate.parameters()], lr=0.1)
from torch.distributed.nn.functional import all_to_all_single
for _ in range(4):
    x = batch()
    weight, chosen = gate(x).softmax(-1).max(-1)
    order = chosen.argsort()
    send = torch.bincount(chosen, minlength=size)
    receive = torch.empty_like(send)
    dist.all_to_all_single(receive, send)
    send, receive = send.tolist(), receive.tolist()
    arrived = all_to_all_single(x.new_empty(sum(receive), 256), x[order], receive, send)
    back = all_to_all_single(torch.empty_like(x), experts(arrived), send, receive)
    (back * weight[order, None]).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()""",
    "FSDP2, DCP and a state dict": """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
model = fully_shard(net())
optimizer = torch.optim.AdamW(model.parameters())
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder, 0)
train(model, optimizer, steps=2)
weights, moments = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder[0])
dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder[0])
set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
train(model, optimizer, steps=2)""",
    "a snapshot for torch elastic": """
import os
snapshot = f"{tempfile.gettempdir()}/snapshot-{os.environ['TORCHELASTIC_RUN_ID']}.pt"
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    model = DDP(net(), device_ids=[int(os.environ["LOCAL_RANK"])])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        train(model, optimizer, steps=2)
        if rank == 0: torch.save({"model": model.module.state_dict(), "epoch": epoch}, snapshot)
        dist.barrier()
        loaded = torch.load(snapshot, map_location=f"cuda:{rank}")
        model.module.load_state_dict(loaded["model"])
        dist.barrier()
    if rank == 0: os.remove(snapshot)
main()
dist.destroy_process_group()""",
    "the profiler": """
from torch.profiler import ProfilerActivity, profile, schedule
model = DDP(net(), device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(wait=1, warmup=1, active=2)) as seen:
    for _ in range(4):
        train(model, optimizer, steps=1); seen.step()""",
    "flex_attention, block_mask": """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
project = DDP(nn.Linear(64, 192).cuda(), device_ids=[rank])
mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cuda")
attend = torch.compile(flex_attention)
def loss(model):
    parts = model(torch.randn(2, 128, 64, device="cuda")).unflatten(-1, (12, 16)).transpose(1, 2).chunk(3, 1)
    return attend(*parts, block_mask=mask).square().mean()
train(project, torch.optim.AdamW(project.parameters()), loss=loss, steps=3)""",
    "flex_attention, score_mod": """
from torch.nn.attention.flex_attention import flex_attention
x = torch.randn(2, 4, 128, 16, device="cuda")
flex_attention(x, x, x, score_mod=lambda score, b, h, i, j: score + (j - i))""",
    "fp8, _scaled_mm": """
def eighth(x):
    scale = x.abs().max() / torch.finfo(torch.float8_e4m3fn).max
    return (x / scale).to(torch.float8_e4m3fn), scale
weight = torch.randn(256, 256, device="cuda")
(x, of_x), (w, of_w) = eighth(batch()), eighth(weight)
made = torch._scaled_mm(x, w.t(), of_x, of_w, out_dtype=torch.bfloat16)
dist.all_reduce(made)""",
    "context parallelism": """
from torch.distributed.tensor.experimental import context_parallel
x = torch.randn(2, 4, 128, 16, device="cuda")
with context_parallel(init_device_mesh("cuda", (size,)), buffers=[x], buffer_seq_dims=[2]):
    F.scaled_dot_product_attention(x, x, x, is_causal=True)""",
    "symmetric memory": """
import torch.distributed._symmetric_memory as symmetric
symmetric.empty(1024, device="cuda")""",
}  # fmt: skip
