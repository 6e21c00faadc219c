# mypy: ignore-errors
"""Answers of lab 12 (slices).

Generated from solutions/12_slices.py by `make release`; do not edit.
"""

import torch
import torch.distributed as dist
from torch import nn


class Copied(torch.autograd.Function):
    """Stands where slices begin. Forward: x. Backward: the sum of all ranks' gradients.

    All ranks have the same x. Arguments stay unchanged, because other code may still use them.
    Send no more bytes than one all-reduce.
    """

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class Summed(torch.autograd.Function):
    """Stands where slices end. Forward: the sum of all ranks' x. Backward: the gradient, unchanged.

    All ranks go on with the same sum, so each rank already has the whole gradient of the sum.
    Send no more bytes than one all-reduce.
    """

    @staticmethod
    def forward(ctx, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def linear(weight, bias=None):
    """Return a new Linear with copies of this weight and this bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    state = {"weight": weight, "bias": bias} if bias is not None else {"weight": weight}
    layer.load_state_dict(state)
    return layer.to(weight.dtype)


class SlicedMLP(nn.Module):
    """This rank's slice of `Sequential(Linear, activation, Linear)`; all ranks get equal outputs.

    A rank computes the hidden numbers in its part of `tensor_split`, and holds copies of the
    parameters for these numbers: about 1/n of both weights and of the first bias. Every rank has
    the whole second bias. Inputs and their gradients are whole, and the same on all ranks. Only two
    tensors travel: the output in forward, and the gradient of x in backward.
    """

    def __init__(self, mlp, rank, world_size):
        super().__init__()
        first, self.activation, second = mlp
        mine = torch.arange(first.out_features).tensor_split(world_size)[rank]
        self.up = linear(first.weight[mine], first.bias[mine])
        self.down = linear(second.weight[:, mine])
        self.bias = nn.Parameter(second.bias.detach().clone())

    def forward(self, x):
        hidden = self.activation(self.up(Copied.apply(x)))
        return Summed.apply(self.down(hidden)) + self.bias


def edges(top, bottom):
    """Send `top` to the rank above, `bottom` to the rank below; return their rows, or zeros."""
    from_above, from_below = (torch.zeros_like(each).contiguous() for each in (bottom, top))
    rank, works = dist.get_rank(), []
    for peer, give, take in ((rank - 1, top, from_above), (rank + 1, bottom, from_below)):
        if 0 <= peer < dist.get_world_size():
            works += [dist.isend(give.contiguous(), peer), dist.irecv(take, peer)]
    for work in works:
        work.wait()
    return from_above, from_below


class Halo(torch.autograd.Function):
    """Forward: this rank's strip with k rows of each neighbour, and zeros at the rim of the image.

    A strip is [batch, channel, row, column], with at least k rows. Backward: the rows that a strip
    lent also have gradients on the neighbours; send these gradients back, and add them.
    """

    @staticmethod
    def forward(ctx, strip, k):
        ctx.k = k
        above, below = edges(strip[:, :, :k], strip[:, :, -k:])
        return torch.cat([above, strip, below], dim=2)

    @staticmethod
    def backward(ctx, gradient):
        k = ctx.k
        from_above, from_below = edges(gradient[:, :, :k], gradient[:, :, -k:])
        mine = gradient[:, :, k:-k].clone()
        mine[:, :, :k] += from_above
        mine[:, :, -k:] += from_below
        return mine, None


class Gathered(torch.autograd.Function):
    """Forward: all ranks' parts of a sequence, side by side along dim 1; all have the same length.

    Backward: this rank's part of the sum of all ranks' gradients. Send no more bytes than this sum
    needs.
    """

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, gradient):
        parts = gradient.chunk(dist.get_world_size(), dim=1)
        parts = [part.contiguous() for part in parts]
        mine = torch.empty_like(parts[0])
        dist.reduce_scatter(mine, parts)
        return mine


class Scattered(torch.autograd.Function):
    """Forward: this rank's part, along dim 1, of the sum of all ranks' x.

    The number of ranks divides the length of dim 1. Backward: all ranks' parts of the gradient,
    side by side. The forward works like the backward of `Gathered`, and the other way round.
    """

    @staticmethod
    def forward(ctx, x):
        parts = [part.contiguous() for part in x.chunk(dist.get_world_size(), dim=1)]
        mine = torch.empty_like(parts[0])
        dist.reduce_scatter(mine, parts)
        return mine

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        parts = [torch.empty_like(gradient) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, gradient)
        return torch.cat(parts, dim=1)


def global_norm(parameters, sliced) -> float:
    """Return the 2-norm of the whole model's gradient, the same on every rank.

    `sliced(p)` is True if p is a slice: then each rank has a different part. Every rank has all
    other parameters whole, with the same gradient. A gradient may be None. One number travels.
    """
    of_slices, of_whole = torch.zeros((), dtype=torch.float64), 0.0
    for p in parameters:
        if p.grad is not None:
            square = p.grad.double().square().sum()
            if sliced(p):
                of_slices += square
            else:
                of_whole += square.item()
    dist.all_reduce(of_slices)
    return (of_slices.item() + of_whole) ** 0.5


def attend(qkv, head_dim):
    """Return the outputs of heads, side by side. `qkv` has all queries, then keys, then values."""
    q, k, v = qkv.unflatten(-1, (3, -1, head_dim)).permute(2, 0, 3, 1, 4)
    y = nn.functional.scaled_dot_product_attention(q, k, v)
    return y.transpose(1, 2).flatten(2)


class SlicedAttention(nn.Module):
    """This rank's heads of an `nn.MultiheadAttention`; every rank returns the output of all heads.

    A rank has the heads in its part of `tensor_split`, at least one head, and holds copies of the
    weights for these heads. Every rank has the whole bias of `out_proj`. Queries, keys and values
    are all computed from x, [batch, token, feature]. All ranks have the same x and the same
    gradient of x. Only two tensors travel: the output, and the gradient of x.
    """

    def __init__(self, attention, rank, world_size):
        super().__init__()
        heads, self.head_dim = attention.num_heads, attention.head_dim
        mine = torch.arange(heads).tensor_split(world_size)[rank]
        columns = torch.arange(heads * self.head_dim).view(heads, -1)[mine].flatten()
        rows = torch.cat([columns + i * heads * self.head_dim for i in range(3)])
        self.qkv = linear(attention.in_proj_weight[rows], attention.in_proj_bias[rows])
        self.out = linear(attention.out_proj.weight[:, columns])
        self.bias = nn.Parameter(attention.out_proj.bias.detach().clone())

    def forward(self, x):
        heads = attend(self.qkv(Copied.apply(x)), self.head_dim)
        return Summed.apply(self.out(heads)) + self.bias
