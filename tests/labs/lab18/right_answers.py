"""Right answers to lab 18 that differ from the kit's."""

import torch
import torch.distributed as dist
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.flop_counter import flop_registry

from ddpkit.answers import lab18
from ddpkit.answers.lab18 import all_gather
from tests.labs.answers import right

# kept


@right("kept")
def without_parameters_at_the_end(module, *inputs):
    storages = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        module(*inputs)
    places = {storage.data_ptr(): len(storage) for storage in storages.values()}
    for p in module.parameters():
        places.pop(p.untyped_storage().data_ptr(), None)
    return sum(places.values())


# Again


@right("Again")
class WithTheInputsOnCtx(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *inputs):
        ctx.function, ctx.inputs, ctx.state = function, inputs, torch.get_rng_state()
        return function(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.inputs]
        with torch.enable_grad():
            y = ctx.function(*inputs)
        torch.set_rng_state(now)
        torch.autograd.backward(y, gradient)
        return None, *[x.grad for x in inputs]


@right("Again")
class AddsByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *inputs):
        ctx.function, ctx.state = function, torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        wanted = [x for x in inputs if x.requires_grad]
        parameters = list(ctx.function.parameters())
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.state)
            y = ctx.function(*inputs)
        grads = torch.autograd.grad(y, [*wanted, *parameters], gradient)
        of_inputs = iter(grads[: len(wanted)])
        for p, g in zip(parameters, grads[len(wanted) :], strict=True):
            p.grad = g if p.grad is None else p.grad + g
        return None, *[next(of_inputs) if x.requires_grad else None for x in inputs]


# worth_keeping


@right("worth_keeping")
def by_other_words(ctx, op, *args, **kwargs):
    products = torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default
    if op in products or "all_reduce" in str(op) or "wait_tensor" in str(op):
        return CheckpointPolicy.PREFER_SAVE
    return CheckpointPolicy.MUST_RECOMPUTE


@right("worth_keeping")
def true_and_false(ctx, op, *args, **kwargs):
    names = ("aten.mm.", "aten.addmm.", "aten.bmm.", "all_reduce", "wait_tensor")
    return any(name in str(op) for name in names)


@right("worth_keeping")
def by_the_flops(ctx, op, *args, **kwargs):
    if op.overloadpacket in flop_registry or op.namespace == "_c10d_functional":
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


TRAVELS = (torch.ops._c10d_functional.all_reduce.default,)


@right("worth_keeping")
def without_the_wait(ctx, op, *args, **kwargs):
    aten = torch.ops.aten
    keep = op in (aten.mm.default, aten.addmm.default, aten.bmm.default, *TRAVELS)
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


# memory_plan


@right("memory_plan")
def sorted_by_time(blocks, held, limit):
    n = len(blocks)
    masks = range(2**n)
    every = [[bool(mask >> at & 1) for at in range(n)] for mask in masks]
    every.sort(
        key=lambda plan: sum(block[0] for again, block in zip(plan, blocks, strict=True) if again)
    )
    for plan in every:
        if most_held(plan, blocks, held) <= limit:
            return plan
    return None


def most_held(plan, blocks, held):
    holds = [block[2] if again else block[1] for again, block in zip(plan, blocks, strict=True)]
    level = (held - 1) * sum(holds)
    return max(level + sum(holds[:at]) + block[1] for at, block in enumerate(blocks))


@right("memory_plan")
def depth_first(blocks, held, limit):
    best = [float("inf"), None]

    def go(plan, ms):
        if ms >= best[0]:
            return
        if len(plan) == len(blocks):
            if most_held(plan, blocks, held) <= limit:
                best[:] = [ms, tuple(plan)]
            return
        go([*plan, False], ms)
        go([*plan, True], ms + blocks[len(plan)][0])

    go([], 0)
    return best[1]


# mean_by_halves


@right("mean_by_halves")
def in_float64(flat):
    n = dist.get_world_size()
    padded = torch.zeros(-(-len(flat) // n) * n, dtype=torch.bfloat16)
    padded[: len(flat)] = flat
    coming = torch.empty_like(padded)
    dist.all_to_all_single(coming, padded)
    mine = (coming.view(n, -1).double().sum(0) / n).float().bfloat16()
    whole = torch.empty(n * len(mine), dtype=torch.bfloat16)
    all_gather(whole, mine)
    return whole.to(torch.float32)[: len(flat)]


@right("mean_by_halves")
def by_messages(flat):
    rank, n = dist.get_rank(), dist.get_world_size()
    parts = list(flat.bfloat16().tensor_split(n))
    coming = [torch.empty_like(parts[rank]) for _ in range(n)]
    coming[rank] = parts[rank]
    exchanged([(part, there) for there, part in enumerate(parts)], coming)
    mine = (sum(each.float() for each in coming) / n).bfloat16()
    whole = [torch.empty_like(part) for part in parts]
    whole[rank] = mine
    exchanged([(mine, there) for there in range(n)], whole)
    return torch.cat(whole).float()


def exchanged(going, coming):
    """Send tensors to their ranks, and receive one from each other rank."""
    rank, works = dist.get_rank(), []
    for tensor, there in going:
        if there != rank and tensor.numel():
            works.append(dist.isend(tensor.contiguous(), there))
    for there, tensor in enumerate(coming):
        if there != rank and tensor.numel():
            works.append(dist.irecv(tensor, there))
    for work in works:
        work.wait()


# LossScale


@right("LossScale")
class BadNumbersAdded:
    def __init__(self, scale, patience):
        self.scale, self.patience, self.count = scale, patience, 0

    def step(self, optimizer):
        bad = torch.zeros(1, dtype=torch.int64)
        every = [p for group in optimizer.param_groups for p in group["params"]]
        for p in every:
            if p.grad is not None:
                bad += (~torch.isfinite(p.grad)).sum()
        dist.all_reduce(bad)
        if bad.item() > 0:
            self.scale /= 2
            self.count = 0
            return False
        for p in every:
            if p.grad is not None:
                p.grad = p.grad / self.scale
        optimizer.step()
        self.count += 1
        if self.count >= self.patience:
            self.scale *= 2
            self.count = 0
        return True


@right("LossScale")
class FlagsGathered(lab18.LossScale):
    def step(self, optimizer):
        grads = [p.grad for g in optimizer.param_groups for p in g["params"]]
        grads = [g for g in grads if g is not None]
        good = all(bool(torch.isfinite(g).all()) for g in grads)
        flags = torch.zeros(dist.get_world_size(), dtype=torch.uint8)
        all_gather(flags, torch.tensor([good], dtype=torch.uint8))
        if not flags.all():
            self.scale, self.good = self.scale * 0.5, 0
            return False
        for g in grads:
            g.mul_(1 / self.scale)
        optimizer.step()
        self.good = (self.good + 1) % self.patience
        self.scale *= 1 if self.good else 2
        return True


# gather_fp8


@right("gather_fp8")
def scales_behind(shards):
    n = dist.get_world_size()
    most = [x.abs().max() for x in shards]
    scales = torch.tensor([m / 448 if m > 0 else 1.0 for m in most])
    parts = [
        (x / s).to(torch.float8_e4m3fn).reshape(-1) for x, s in zip(shards, scales, strict=True)
    ]
    line = torch.cat([*(p.view(torch.uint8) for p in parts), scales.view(torch.uint8)])
    whole = torch.empty(n, len(line), dtype=torch.uint8)
    all_gather(whole.view(-1), line)
    tensors = [[] for _ in shards]
    for row in whole:
        theirs = row[-4 * len(shards) :].clone().view(torch.float32)
        at = 0
        for into, shard, scale in zip(tensors, shards, theirs, strict=True):
            part = row[at : at + shard.numel()].view(torch.float8_e4m3fn).float()
            into.append(part.view(shard.shape) * scale)
            at += shard.numel()
    return [torch.cat(each) for each in tensors]
