"""Right answers to lab 13, different from the solution."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call

from tests.labs.answers import right

# state_bytes


@right("state_bytes")
def by_table(parameters, ranks, stage):
    shared = [12, 2, 2][:stage]
    return sum(shared) * math.ceil(parameters / ranks) + (16 - sum(shared)) * parameters


# ShardedOptimizer


@right("ShardedOptimizer")
class EachCut(torch.optim.Optimizer):
    """An optimizer that cuts each parameter instead of the flat line, as FSDP2 does."""

    def __init__(self, params, optimizer_class, **options):
        super().__init__(params, options)
        n, rank = dist.get_world_size(), dist.get_rank()
        self.cuts, groups = [], []
        for group in self.param_groups:
            cuts = []
            for p in group["params"]:
                if p.requires_grad:
                    piece = p.data.flatten().tensor_split(n)[rank].clone()
                    cuts.append((p, nn.Parameter(piece)))
            self.cuts += cuts
            groups.append({**group, "params": [piece for _, piece in cuts]})
        self.inner = optimizer_class(groups, **options)

    def step(self, closure=None):
        loss = closure() if closure else None
        n, rank = dist.get_world_size(), dist.get_rank()
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            inner["lr"] = group["lr"]
        for p, piece in self.cuts:
            piece.grad = p.grad.flatten().tensor_split(n)[rank] if p.grad is not None else None
        self.inner.step()
        for p, piece in self.cuts:
            piece.grad = None  # a view of a whole gradient
            sizes = [len(each) for each in p.data.flatten().tensor_split(n)]
            mine = nn.functional.pad(piece.detach(), (0, sizes[0] - len(piece)))
            parts = [torch.empty_like(mine) for _ in range(n)]
            dist.all_gather(parts, mine)
            whole = [part[:size] for part, size in zip(parts, sizes, strict=True)]
            p.data.copy_(torch.cat(whole).view(p.shape))
        return loss


@right("ShardedOptimizer")
class FromOwners(torch.optim.Optimizer):
    """An optimizer that steps a flat copy of the rank's chunk; each owner broadcasts its chunk."""

    def __init__(self, params, optimizer_class, **options):
        super().__init__(params, options)
        self.flats = [nn.Parameter(self.chunks(group)[dist.get_rank()]) for group in self.groups()]
        self.flags = [[] for _ in self.flats]
        self.inner = optimizer_class(
            [{**g, "params": [f]} for g, f in zip(self.param_groups, self.flats, strict=True)],
            **options,
        )

    def groups(self):
        return [[p for p in group["params"] if p.requires_grad] for group in self.param_groups]

    def chunks(self, tensors):
        n = dist.get_world_size()
        flat = torch.cat([each.detach().flatten() for each in tensors])
        return [part.clone() for part in nn.functional.pad(flat, (0, -len(flat) % n)).chunk(n)]

    @torch.no_grad()
    def step(self, closure=None):
        rank, loss = dist.get_rank(), closure() if closure else None
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            inner.update({name: group[name] for name in group if name != "params"})
        before = [flat.clone() for flat in self.flats]
        for flat, group in zip(self.flats, self.groups(), strict=True):
            zeros = [torch.zeros_like(p) if p.grad is None else p.grad for p in group]
            flat.grad = self.chunks(zeros)[rank]
        self.inner.step()
        for flat, old, group in zip(self.flats, before, self.groups(), strict=True):
            used = [torch.full_like(p, float(p.grad is not None)) for p in group]
            flat.copy_(torch.where(self.chunks(used)[rank] > 0, flat, old))
            parts = self.chunks(group)
            parts[rank] = flat.detach().clone()
            for owner, part in enumerate(parts):
                dist.broadcast(part, owner)
            numbers = torch.cat(parts)
            for p in group:
                p.copy_(numbers[: p.numel()].view(p.shape))
                numbers = numbers[p.numel() :]
        return loss


# reduce_to_owner


@right("reduce_to_owner")
def to_each_root(flat):
    """Reduce to each owner in turn: right bytes, but n operations and n latencies."""
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = [part.clone() for part in flat.chunk(n)]
    for owner, part in enumerate(parts):
        dist.reduce(part, owner)
    return parts[rank] / n


@right("reduce_to_owner")
def exchanged(flat):
    theirs = torch.empty_like(flat)
    dist.all_to_all_single(theirs, flat)
    return theirs.view(dist.get_world_size(), -1).mean(0)


@right("reduce_to_owner")
def of_a_list(flat):
    n = dist.get_world_size()
    parts = [part.clone() for part in flat.chunk(n)]
    mine = torch.zeros(len(flat) // n, dtype=flat.dtype)
    dist.reduce_scatter(mine, parts)
    return mine.div_(n)


# FullyShard


def gathered(flat, shard, **how):
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(flat, shard, **how)


class Whole(torch.autograd.Function):
    """A function that returns the whole line; backward returns the mean gradient's own chunk."""

    @staticmethod
    def forward(ctx, shard, unit):
        ctx.unit, ctx.dtype = unit, shard.dtype
        flat = torch.empty(unit.length, dtype=unit.dtype)
        gathered(flat, shard.to(unit.dtype))
        return flat

    @staticmethod
    def backward(ctx, gradient):
        mine = gradient.new_empty(len(gradient) // dist.get_world_size())
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        scatter(mine, gradient / dist.get_world_size())
        ctx.unit.flats.pop().untyped_storage().resize_(0)
        return mine.to(ctx.dtype), None


@right("FullyShard")
class ByFunction(nn.Module):
    """A unit with a function of autograd and torch.func, instead of hooks of parameters."""

    def __init__(self, block, dtype=None):
        super().__init__()
        found = {name: p for name, p in block.named_parameters() if p.requires_grad}
        self.shapes = {name: p.shape for name, p in found.items()}
        joined = torch.cat([torch.zeros(0), *(p.detach().flatten() for p in found.values())])
        n = dist.get_world_size()
        joined = nn.functional.pad(joined, (0, -len(joined) % n))
        self.shard = nn.Parameter(joined.chunk(n)[dist.get_rank()].clone())
        self.length, self.dtype = len(joined), dtype or joined.dtype
        # in a list, so that its parameters are not this module's
        self.blocks, self.flats = [block], []
        for p in found.values():
            p.data = torch.empty(0)

    def forward(self, x):
        if not self.shapes:
            return self.blocks[0](x)
        flat = Whole.apply(self.shard, self)
        sizes = [shape.numel() for shape in self.shapes.values()]
        views = flat[: sum(sizes)].split(sizes)
        pairs = zip(self.shapes.items(), views, strict=True)
        y = functional_call(
            self.blocks[0], {name: view.view(shape) for (name, shape), view in pairs}, (x,)
        )
        memory = flat.untyped_storage()
        nbytes = memory.nbytes()
        memory.resize_(0)
        if y.requires_grad:
            kept = flat.data

            def back(_):
                memory.resize_(nbytes)
                gathered(kept, self.shard.detach().to(self.dtype))
                self.flats.append(kept)

            y.register_hook(back)
        return y


# prefetch


@right("prefetch")
def waits_first(units, k, step):
    """Wait first: on one wire the order of the gathers is the same."""
    units[k].begin()
    units[k].wait()
    for unit in units[max(k + step, 0) : k + step + 1]:
        unit.begin()


@right("prefetch")
def by_a_walk(units, k, step):
    rest = units[k:] if step > 0 else units[k::-1]
    for unit in rest[:2]:
        unit.begin()
    rest[0].wait()


# pieces


@right("pieces")
def number_by_number(length, old, new, rank):
    size, wide = math.ceil(length / old), math.ceil(length / new)
    places = {}
    for number in range(rank * wide, min((rank + 1) * wide, length)):
        places.setdefault(number // size, []).append(number % size)
    return [(owner, min(found), max(found) + 1) for owner, found in places.items()]


@right("pieces")
def by_chunks(length, old, new, rank):
    mine = dict(enumerate(torch.arange(length).chunk(new))).get(rank, torch.arange(0))
    found = []
    for owner, shard in enumerate(torch.arange(length).chunk(old)):
        at = torch.isin(shard, mine).nonzero().flatten().tolist()
        if at:
            found.append((owner, at[0], at[-1] + 1))
    return found
