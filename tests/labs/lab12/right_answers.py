"""Right answers to lab 12, different from the solution."""

import torch
import torch.distributed as dist
from torch import nn

from tests.labs.answers import right


@right("Copied")
class FromOutside(torch.autograd.Function):
    """A function with a backward that sums in its own memory, without a clone."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.contiguous() + 0
        dist.all_reduce(total, async_op=True).wait()
        return total


@right("Copied")
class Functional(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        from torch.distributed import _functional_collectives as functional

        return functional.wait_tensor(
            functional.all_reduce(gradient.contiguous(), "sum", dist.group.WORLD)
        )


@right("Summed")
class InTwoHalves(torch.autograd.Function):
    """A function that makes an all-reduce of a reduce-scatter and an all-gather."""

    @staticmethod
    def forward(ctx, x):
        n = dist.get_world_size()
        mine = x.new_empty(x.numel() // n)
        dist.reduce_scatter_tensor(mine, x.flatten().contiguous())
        total = x.new_empty(x.numel())
        dist.all_gather_into_tensor(total, mine)
        return total.view(x.shape)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()


class Begin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


class End(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total = x.contiguous().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@right("SlicedMLP")
class ByParameters(nn.Module):
    """A slice made of parameters instead of layers, cut at boundaries instead of an index."""

    def __init__(self, mlp, rank, world_size):
        super().__init__()
        first, self.activation, second = mlp
        sizes = [len(each) for each in range_parts(first.out_features, world_size)]
        start = sum(sizes[:rank])
        mine = slice(start, start + sizes[rank])
        self.first = nn.Parameter(first.weight.detach()[mine].clone())
        self.first_bias = nn.Parameter(first.bias.detach()[mine].clone())
        self.second = nn.Parameter(second.weight.detach()[:, mine].clone())
        self.second_bias = nn.Parameter(second.bias.detach().clone())

    def forward(self, x):
        hidden = self.activation(Begin.apply(x) @ self.first.T + self.first_bias)
        return End.apply(hidden @ self.second.T) + self.second_bias


def range_parts(length, n):
    """Return the parts of a range as tensor_split cuts them."""
    each, rest = divmod(length, n)
    sizes = [each + (rank < rest) for rank in range(n)]
    return [range(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(n)]


@right("SlicedMLP")
def by_hooks(mlp, rank, world_size):
    """Put the bias into rank 0's layer alone, so that the sum adds it once.

    A hook sums x's gradient.
    """
    first, activation, second = mlp
    mine = torch.arange(first.out_features).tensor_split(world_size)[rank]
    up = nn.Linear(first.in_features, len(mine))
    down = nn.Linear(len(mine), second.out_features, bias=rank == 0)
    with torch.no_grad():
        up.weight.copy_(first.weight[mine]), up.bias.copy_(first.bias[mine])
        down.weight.copy_(second.weight[:, mine])
        if rank == 0:
            down.bias.copy_(second.bias)

    class Sliced(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(up, activation, down)

        def forward(self, x):
            if x.requires_grad:
                x = x.view_as(x)
                x.register_hook(summed)
            return End.apply(self.layers(x))

    def summed(gradient):
        total = gradient.clone()
        dist.all_reduce(total)
        return total

    return Sliced()


@right("Halo")
class InOneBatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, strip, k):
        ctx.k, (batch, channels, rows, columns) = k, strip.shape
        output = strip.new_zeros(batch, channels, rows + 2 * k, columns)
        output[:, :, k:-k] = strip
        above, below = swap(strip[:, :, :k], strip[:, :, -k:])
        if above is not None:
            output[:, :, :k] = above
        if below is not None:
            output[:, :, -k:] = below
        return output

    @staticmethod
    def backward(ctx, gradient):
        k = ctx.k
        mine = gradient[:, :, k:-k].contiguous().clone()
        above, below = swap(gradient[:, :, :k], gradient[:, :, -k:])
        if above is not None:
            mine[:, :, :k] += above
        if below is not None:
            mine[:, :, -k:] += below
        return mine, None


def swap(top, bottom):
    """Return the tensors from the ranks above and below, or None; all messages are in one batch."""
    rank, taken, messages = dist.get_rank(), [None, None], []
    for i, (peer, give) in enumerate(((rank - 1, top), (rank + 1, bottom))):
        if 0 <= peer < dist.get_world_size():
            taken[i] = torch.empty(give.shape)
            messages.append(dist.P2POp(dist.irecv, taken[i], peer))
            messages.append(dist.P2POp(dist.isend, give.contiguous(), peer))
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    return taken


def all_parts(x):
    """Return every rank's x."""
    joined = x.new_empty(dist.get_world_size() * len(x), *x.shape[1:])
    dist.all_gather_into_tensor(joined, x.contiguous())
    return joined.chunk(dist.get_world_size())


def my_sum(x):
    """Return this rank's part along dim 1 of the sum of all ranks' x."""
    below_each_other = torch.cat(x.chunk(dist.get_world_size(), dim=1))
    mine = torch.empty_like(below_each_other[: len(x)])
    dist.reduce_scatter_tensor(mine, below_each_other)
    return mine


@right("Gathered")
class Stacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.cat(all_parts(x), dim=1)

    @staticmethod
    def backward(ctx, gradient):
        return my_sum(gradient)


@right("Scattered")
class Unstacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return my_sum(x)

    @staticmethod
    def backward(ctx, gradient):
        return torch.stack(all_parts(gradient), dim=1).flatten(1, 2)


def exchanged(parts):
    """Return every rank's part for this rank: rank r gets part r."""
    theirs = [torch.empty_like(part) for part in parts]
    dist.all_to_all(theirs, parts)
    return theirs


@right("Gathered")
class Exchanged(torch.autograd.Function):
    """A function with a backward that sends a reduce-scatter's parts one by one, and adds here."""

    @staticmethod
    def forward(ctx, x):
        return torch.cat(exchanged([x.contiguous()] * dist.get_world_size()), dim=1)

    @staticmethod
    def backward(ctx, gradient):
        parts = gradient.chunk(dist.get_world_size(), dim=1)
        return sum(exchanged([part.contiguous() for part in parts]))


@right("Scattered")
class ExchangedAtOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mine = torch.stack(x.chunk(dist.get_world_size(), dim=1))
        theirs = torch.empty_like(mine)
        dist.all_to_all_single(theirs, mine)
        return theirs.sum(0)

    @staticmethod
    def backward(ctx, gradient):
        n = dist.get_world_size()
        theirs = gradient.new_empty(n, *gradient.shape)
        dist.all_to_all_single(theirs, gradient.expand(theirs.shape).contiguous())
        return torch.cat([*theirs], dim=1)


@right("Gathered")
class InMessages(torch.autograd.Function):
    """A function that sends each rank's part in a message to each other rank."""

    @staticmethod
    def forward(ctx, x):
        return torch.cat(to_each([x] * dist.get_world_size()), dim=1)

    @staticmethod
    def backward(ctx, gradient):
        return torch.stack(to_each(gradient.chunk(dist.get_world_size(), dim=1))).sum(0)


def to_each(parts):
    """Do the same as `exchanged`, by messages."""
    rank, parts = dist.get_rank(), [part.contiguous() for part in parts]
    theirs, messages = [torch.empty_like(part) for part in parts], []
    theirs[rank] = parts[rank]
    for peer in set(range(len(parts))) - {rank}:
        messages.append(dist.P2POp(dist.irecv, theirs[peer], peer))
        messages.append(dist.P2POp(dist.isend, parts[peer], peer))
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    return theirs


@right("Gathered")
class OneAfterTheOther(torch.autograd.Function):
    """A function that gives each part to all, and sums it for its owner.

    The bytes are equal, but there are n operations.
    """

    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x.contiguous()) for _ in range(dist.get_world_size())]
        parts[dist.get_rank()].copy_(x)
        for owner, part in enumerate(parts):
            dist.broadcast(part, owner)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, gradient):
        parts = [part.clone() for part in gradient.chunk(dist.get_world_size(), dim=1)]
        parts = [part.contiguous() for part in parts]
        for owner, part in enumerate(parts):
            dist.reduce(part, owner)
        return parts[dist.get_rank()]


@right("Scattered")
class OneRootAfterTheOther(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [part.contiguous() for part in x.chunk(dist.get_world_size(), dim=1)]
        total = torch.zeros_like(parts[0])
        for root in range(len(parts)):
            part = torch.empty_like(total)
            dist.scatter(part, parts if root == dist.get_rank() else None, root)
            total += part
        return total

    @staticmethod
    def backward(ctx, gradient):
        n, rank, gradient = dist.get_world_size(), dist.get_rank(), gradient.contiguous()
        parts = [torch.empty_like(gradient) for _ in range(n)]
        for root in range(n):
            dist.gather(gradient, parts if root == rank else None, root)
        return torch.cat(parts, dim=1)


@right("global_norm")
def replicas_divided(parameters, sliced):
    total = torch.zeros(1)
    for p in parameters:
        if p.grad is not None:
            total += p.grad.norm() ** 2 / (1 if sliced(p) else dist.get_world_size())
    dist.all_reduce(total)
    return total.sqrt().item()


@right("global_norm")
def by_foreach(parameters, sliced):
    own, whole = [torch.zeros(1)], [torch.zeros(1)]
    for p in parameters:
        if p.grad is not None:
            (own if sliced(p) else whole).append(p.grad)
    mine = torch.stack(torch._foreach_norm(own)).square().sum()
    dist.all_reduce(mine)
    return float((mine + torch.stack(torch._foreach_norm(whole)).square().sum()).sqrt())


@right("SlicedAttention")
class InThreeLayers(nn.Module):
    """A module with separate layers for queries, keys and values, and attention written out."""

    def __init__(self, attention, rank, world_size):
        super().__init__()
        d, heads = attention.head_dim, range_parts(attention.num_heads, world_size)[rank]
        mine, self.heads = slice(heads[0] * d, (heads[-1] + 1) * d), len(heads)
        made = zip(attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True)
        self.three = nn.ParameterList()
        for weight, bias in made:
            self.three += [weight.detach()[mine].clone(), bias.detach()[mine].clone()]
        self.out = nn.Parameter(attention.out_proj.weight.detach()[:, mine].clone())
        self.last = nn.Parameter(attention.out_proj.bias.detach().clone())

    def forward(self, x):
        x, three = Begin.apply(x), iter(self.three)
        q, k, v = (
            nn.functional.linear(x, weight, next(three)).unflatten(-1, (self.heads, -1))
            for weight in three
        )
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        return End.apply(y.flatten(2) @ self.out.T) + self.last


@right("SlicedAttention")
def of_torchs_own(attention, rank, world_size):
    """Use torch's attention function with cut parameters: no smaller module can be made."""
    d, n = attention.head_dim, attention.num_heads
    heads = range_parts(n, world_size)[rank]
    mine = torch.arange(n * d).view(n, d)[list(heads)].flatten()

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            rows = attention.in_proj_weight.detach().view(3, n * d, -1)[:, mine]
            self.made = nn.Linear(n * d, 3 * len(mine))
            self.used = nn.Linear(len(mine), n * d, bias=False)
            self.bias = nn.Parameter(torch.empty(n * d))
            with torch.no_grad():
                self.made.weight.copy_(rows.flatten(0, 1))
                self.made.bias.copy_(attention.in_proj_bias.view(3, -1)[:, mine].flatten())
                self.used.weight.copy_(attention.out_proj.weight[:, mine])
                self.bias.copy_(attention.out_proj.bias)

        def forward(self, x):
            parts = self.made(Begin.apply(x)).chunk(3, dim=-1)
            each = zip(*(part.split(d, dim=-1) for part in parts), strict=True)
            y = [nn.functional.scaled_dot_product_attention(q, k, v) for q, k, v in each]
            return End.apply(self.used(torch.cat(y, dim=-1))) + self.bias

    return Heads()
