"""Right answers to lab 16 that differ from the kit's."""

from fractions import Fraction
from itertools import pairwise

import torch
import torch.distributed as dist

from ddpkit.answers import lab16
from ddpkit.answers.lab16 import pass_on, unseen
from tests.labs.answers import right

# merge


@right("merge")
def by_maximum(out, lse, more, more_lse):
    top = torch.maximum(lse, more_lse).clamp(min=-1e30)
    a, b = (lse - top).exp(), (more_lse - top).exp()
    total = a + b
    divisor = total.clamp(min=1e-30)
    return (a * out + b * more) / divisor, top + total.log()


@right("merge")
def stacked(out, lse, more, more_lse):
    both = torch.stack([lse, more_lse])
    total = both.logsumexp(0)
    weights = torch.where(both.isinf(), torch.zeros_like(both), (both - total).exp())
    return (weights * torch.stack([out, more])).sum(0), total


@right("merge")
def by_softmax(out, lse, more, more_lse):
    both = torch.cat([lse, more_lse], dim=-1)
    weights = both.softmax(-1).nan_to_num()
    joined = weights[..., :1] * out + weights[..., 1:] * more
    return joined, both.logsumexp(-1, keepdim=True)


# ring_attention


def joined(parts):
    (out, lse), *rest = parts
    for each in rest:
        out, lse = lab16.merge(out, lse, *each)
    return out, lse


@right("ring_attention")
def two_messages(q, k, v, attend, sizes):
    """Send two messages a hop, and do not use `unseen`."""
    rank, n = dist.get_rank(), dist.get_world_size()
    result = None
    for hop in range(n):
        source = (rank - hop) % n
        arrivals = []
        if hop != n - 1:
            size = sizes[(source - 1) % n]
            arrivals = [pass_on(k, size), pass_on(v, size)]
        part = attend(q, k, v, source)
        result = part if result is None else lab16.merge(*result, *part)
        if arrivals:
            k, v = (arrive() for arrive in arrivals)
    return result


@right("ring_attention")
def the_other_way_round(q, k, v, attend, sizes):
    """Send keys to the rank before, in batches of torch."""
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, (out, lse) = torch.stack([k, v]), unseen(q)
    for source in [*range(rank, n), *range(rank)]:
        following, works = (source + 1) % n, []
        if following != rank:
            coming = kv.new_empty(2, k.shape[0], sizes[following], k.shape[2])
            ops = [
                dist.P2POp(dist.isend, kv, (rank - 1) % n),
                dist.P2POp(dist.irecv, coming, (rank + 1) % n),
            ]
            works = dist.batch_isend_irecv(ops)
        out, lse = lab16.merge(out, lse, *attend(q, kv[0], kv[1], source))
        for work in works:
            work.wait()
        if works:
            kv = coming
    return out, lse


@right("ring_attention")
def own_keys_while_the_first_hop_travels(q, k, v, attend, sizes):
    """Attend to the last block after the loop."""
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, state = torch.cat([k, v]), unseen(q)
    for hop in range(n - 1):
        arrive = pass_on(kv, sizes[(rank - hop - 1) % n])
        keys, values = kv.chunk(2)
        state = lab16.merge(*state, *attend(q, keys, values, (rank - hop) % n))
        kv = arrive()
    keys, values = kv.chunk(2)
    return lab16.merge(*state, *attend(q, keys, values, (rank + 1) % n))


# zigzag


@right("zigzag")
def by_borders(length, n):
    borders = [length * i // (2 * n) for i in range(2 * n + 1)]
    parts = [list(range(a, b)) for a, b in pairwise(borders)]
    return [torch.tensor(parts[r] + parts[2 * n - 1 - r]) for r in range(n)]


@right("zigzag")
def folded(length, n):
    """Find the rank by the number of a token's chunk."""
    at = torch.arange(length)
    chunk = at * 2 * n // length
    return [at[(chunk == r) | (chunk == 2 * n - 1 - r)] for r in range(n)]


# ring_gradients


@right("ring_gradients")
def from_the_first_block(q, k, v, back, sizes):
    """Let the gradient travel n hops, with the part of the first block."""
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, of_q, arrive = torch.stack([k, v]), torch.zeros_like(q), None
    if n == 1:
        return tuple(back(q, k, v, 0))
    for hop in range(n):
        source = (rank - hop) % n
        size = sizes[(source - 1) % n]
        coming = pass_on(kv, size) if hop < n - 1 else None
        part, *theirs = back(q, *kv, source)
        of_q += part
        total = torch.stack(theirs)
        if arrive is not None:
            total = total + arrive()
        arrive = pass_on(total, size)
        if coming is not None:
            kv = coming()
    return of_q, *arrive()


@right("ring_gradients")
def two_by_two(q, k, v, back, sizes):
    """Send four kinds of messages: keys, values and both gradients."""
    rank, n = dist.get_rank(), dist.get_world_size()
    of_q, of_k, of_v = back(q, k, v, rank) if n == 1 else (0, 0, 0)
    travelling = []
    for hop in range(n if n > 1 else 0):
        source = (rank - hop) % n
        size = sizes[(source - 1) % n]
        coming = [pass_on(x, size) for x in (k, v)] if hop < n - 1 else []
        part, for_k, for_v = back(q, k, v, source)
        of_q = of_q + part
        if hop == 0:
            of_k, of_v = for_k, for_v
        else:
            if travelling:
                for_k, for_v = for_k + travelling[0](), for_v + travelling[1]()
            travelling = [pass_on(x, size) for x in (for_k, for_v)]
        if coming:
            k, v = (arrive() for arrive in coming)
    if travelling:
        of_k, of_v = of_k + travelling[0](), of_v + travelling[1]()
    return of_q, of_k, of_v


# own_tokens


@right("own_tokens")
def padded(tokens, places, rank):
    at = places[rank]
    longer = torch.nn.functional.pad(tokens, (0, 1), value=-100)
    return tokens[at], longer[at + 1], at


@right("own_tokens")
def by_where(tokens, places, rank):
    at = places[rank].clone()
    last = at == len(tokens) - 1
    following = tokens[(at + 1) % len(tokens)]
    return tokens[at], torch.where(last, torch.full_like(following, -100), following), at


# share_of_loss


@right("share_of_loss")
def by_mean_count(losses, counted):
    mean = counted.sum().double()
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    if mean == 0:
        return losses[counted].sum()
    return losses[counted].sum() / mean.float()


@right("share_of_loss")
def by_where_and_a_pair(losses, counted):
    """Send the sum of the losses too."""
    kept = torch.where(counted, losses, torch.zeros_like(losses)).sum()
    pair = torch.tensor([kept.item(), counted.sum().item()], dtype=torch.float64)
    dist.all_reduce(pair)
    return kept * (dist.get_world_size() / max(1.0, pair[1].item()))


@right("share_of_loss")
def counts_gathered(losses, counted):
    mine = counted.sum().to(torch.int32)
    counts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, mine)
    return losses.masked_select(counted).sum() * len(counts) / max(1, int(sum(counts)))


# ByHeads


@right("ByHeads")
class ByMessages(torch.autograd.Function):
    """A function that sends a message for each part."""

    @staticmethod
    def forward(ctx, x, sizes):
        ctx.sizes, rank, n = sizes, dist.get_rank(), dist.get_world_size()
        going = [part.contiguous() for part in x.chunk(n)]
        coming = [x.new_empty(x.shape[0] // n, size, x.shape[2]) for size in sizes]
        coming[rank] = going[rank]
        exchanged(going, coming)
        return torch.cat(coming, dim=1)

    @staticmethod
    def backward(ctx, gradient):
        rank = dist.get_rank()
        going = [part.contiguous() for part in gradient.split(ctx.sizes, dim=1)]
        coming = [torch.empty_like(going[rank]) for _ in going]
        coming[rank] = going[rank]
        exchanged(going, coming)
        return torch.cat(coming), None


def exchanged(going, coming):
    rank, works = dist.get_rank(), []
    for peer in range(len(going)):
        if peer != rank:
            works += [dist.isend(going[peer], peer), dist.irecv(coming[peer], peer)]
    for work in works:
        work.wait()


@right("ByHeads")
class Transposed(torch.autograd.Function):
    """A function with tokens first in memory, so that parts lie as they travel."""

    @staticmethod
    def forward(ctx, x, sizes):
        rank, n = dist.get_rank(), dist.get_world_size()
        ctx.sizes, per = list(sizes), x.shape[0] // n
        rows = torch.cat([part.transpose(0, 1).flatten() for part in x.chunk(n)])
        own, width = sizes[rank], x.shape[2]
        coming = x.new_empty(sum(sizes) * per * width)
        takes, gives = [size * per * width for size in sizes], [own * per * width] * n
        dist.all_to_all_single(coming, rows, takes, gives)
        return coming.view(-1, per, width).transpose(0, 1).contiguous()

    @staticmethod
    def backward(ctx, gradient):
        per, _, width = gradient.shape
        own, n = ctx.sizes[dist.get_rank()], len(ctx.sizes)
        rows = gradient.transpose(0, 1).flatten()
        coming = gradient.new_empty(n * own * per * width)
        gives, takes = [size * per * width for size in ctx.sizes], [own * per * width] * n
        dist.all_to_all_single(coming, rows, takes, gives)
        return coming.view(n, own, per, width).transpose(1, 2).flatten(0, 1), None


# bytes_sent


@right("bytes_sent")
def by_tensors(way, tokens, heads, kv_heads, width, n, number=2):
    row = tokens // n * width * number
    if way != "heads":
        return sum(kv_heads * row for _ in range(n - 1) for _ in "kv")
    repeated = kv_heads if kv_heads >= n else n
    tensors = [heads * row, repeated * row, repeated * row, heads * row]
    return sum(each // n * (n - 1) for each in tensors)


@right("bytes_sent")
def by_fractions(way, tokens, heads, kv_heads, width, n, number=2):
    numbers = Fraction(tokens, n) * width * number
    shares = 2 * kv_heads * (n - 1)
    if way == "heads":
        shares = Fraction(n - 1, n) * 2 * (heads + max(kv_heads, n))
    return int(numbers * shares)
