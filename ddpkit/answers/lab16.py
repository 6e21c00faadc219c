# mypy: ignore-errors
"""Answers of lab 16 (context).

Generated from solutions/16_context.py by `make release`; do not edit.
"""

import torch
import torch.distributed as dist


def unseen(q):
    """Return the output and the log-sum-exp of queries that have seen no key."""
    return torch.zeros_like(q), q.new_full((*q.shape[:-1], 1), -torch.inf)


def merge(out, lse, more, more_lse):
    """Return attention on two sets of keys together: its output, and its log-sum-exp.

    The outputs on each set alone are out and more, [..., query, feature]. The log-sum-exps of the
    scores on each set are lse and more_lse, [..., query, 1]. A query that has seen no key has an
    output of 0 and a log-sum-exp of -inf. The arguments stay unchanged.
    """
    both = torch.logaddexp(lse, more_lse)
    a, b = ((each - both).exp().nan_to_num() for each in (lse, more_lse))
    return a * out + b * more, both


def pass_on(x, size):
    """Start to pass x to the next rank, and to receive a tensor from the rank before.

    Return a function that waits for both and returns the received tensor, of `size` tokens.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    coming = x.new_empty(*x.shape[:-2], size, x.shape[-1])
    works = [dist.isend(x, (rank + 1) % n), dist.irecv(coming, (rank - 1) % n)]

    def arrive():
        for work in works:
            work.wait()
        return coming

    return arrive


def ring_attention(q, k, v, attend, sizes):
    """Return the output and the log-sum-exp of the rank's queries on the keys of all ranks.

    q, k, v, [head, token, feature], are the rank's own; rank r has sizes[r] tokens.
    `attend(q, k, v, source)` returns output and log-sum-exp for the keys of rank `source` alone.
    Keys and values make n - 1 hops round the ring. While a rank computes, the next keys and values
    are on their way. A rank keeps one share of keys and values, and receives one more.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, (out, lse) = torch.stack([k, v]), unseen(q)
    for hop in range(n):
        source = (rank - hop) % n
        if hop < n - 1:
            coming = pass_on(kv, sizes[(source - 1) % n])
        out, lse = merge(out, lse, *attend(q, *kv, source))
        if hop < n - 1:
            kv = coming()
    return out, lse


def zigzag(length, n):
    """Return the positions of each rank's tokens: n increasing tensors of int64.

    Each position is on one rank, the sizes differ by at most 2, and a rank has at most two
    stretches of the sequence. With a causal mask, all ranks have about the same number of pairs of
    a query and a key. length is 2n or more.
    """
    chunks = torch.arange(length).tensor_split(2 * n)
    return [torch.cat([chunks[rank], chunks[-1 - rank]]) for rank in range(n)]


def ring_gradients(q, k, v, back, sizes):
    """Return the gradients of the rank's q, k and v.

    `back(q, k, v, source)` takes the rank's q and the keys and values of rank `source`, and returns
    the parts of this block in three gradients: of q, k and v. Keys and values make n - 1 hops round
    the ring. Their gradient follows, grows on each rank, and comes home. While a rank computes,
    keys and gradients are on their way. A rank keeps a part of its own share's gradient, and one
    more gradient, which travels.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, of_q, travelling = torch.stack([k, v]), torch.zeros_like(q), None
    for hop in range(n):
        source = (rank - hop) % n
        size = sizes[(source - 1) % n]
        if hop < n - 1:
            coming = pass_on(kv, size)
        part, *theirs = back(q, *kv, source)
        of_q, theirs = of_q + part, torch.stack(theirs)
        if hop == 0:
            own = theirs
        else:
            theirs = theirs if hop == 1 else theirs + travelling()
            travelling = pass_on(theirs, size)
        if hop < n - 1:
            kv = coming()
    return of_q, *(own if n == 1 else own + travelling())


def own_tokens(tokens, places, rank):
    """Return the inputs, the targets and the positions of the rank's tokens.

    `tokens` is the whole sequence, and places[r] has the positions of rank r's tokens. The target
    of a token is the next token of the sequence; the target of the last token is -100.
    """
    targets = torch.cat([tokens[1:], tokens.new_tensor([-100])])
    at = places[rank]
    return tokens[at], targets[at], at


def share_of_loss(losses, counted):
    """Return the number on which the rank calls backward.

    `losses` and `counted`, [token], are the rank's own; only losses of counted tokens matter. The
    ranks average their gradients afterwards. The average has to be the gradient of the mean loss of
    all counted tokens on all ranks; if no token is counted on any rank, the number is 0.
    """
    total = counted.sum()
    dist.all_reduce(total)
    return losses[counted].sum() * dist.get_world_size() / total.clamp(min=1)


class ByHeads(torch.autograd.Function):
    """Forward: from all heads of the rank's tokens to the rank's heads of all tokens.

    x is [head, token, feature]. Rank r has sizes[r] tokens, and gets the r-th of n equal parts of
    the heads. Tokens come in the order of the ranks. Backward: gradients go the way back; use
    nothing of ctx except ctx.sizes.
    """

    @staticmethod
    def forward(ctx, x, sizes):
        ctx.sizes, n = sizes, dist.get_world_size()
        heads, _, width = x.shape
        parts = [heads // n * size * width for size in sizes]
        coming = x.new_empty(sum(parts))
        dist.all_to_all_single(coming, x.contiguous().flatten(), parts)
        return torch.cat([p.view(heads // n, -1, width) for p in coming.split(parts)], dim=1)

    @staticmethod
    def backward(ctx, gradient):
        heads, _, width = gradient.shape
        going = [p.flatten() for p in gradient.split(list(ctx.sizes), dim=1)]
        coming = torch.cat([going[dist.get_rank()]] * len(going))
        dist.all_to_all_single(coming, torch.cat(going), None, [len(p) for p in going])
        return coming.view(heads * len(going), -1, width), None


def bytes_sent(way, tokens, heads, kv_heads, width, n, number=2):
    """Return the bytes that each rank sends for the attention of one layer, forward: an int.

    `way` is "gather" (all keys and values to all ranks), "ring", or "heads" (exchanged queries,
    keys and values, and outputs back). Each of n ranks has tokens / n tokens. A token has `width`
    numbers of `number` bytes in a head. For "heads", fewer than n key heads are repeated until
    there are n. All divisions come out even.
    """
    share = tokens // n * width * number  # bytes of one head of a rank's tokens
    if way == "heads":
        return (n - 1) * share * (2 * heads + 2 * max(kv_heads, n)) // n
    return (n - 1) * share * 2 * kv_heads
