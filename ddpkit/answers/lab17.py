# mypy: ignore-errors
"""Answers of lab 17 (experts).

Generated from solutions/17_experts.py by `make release`; do not edit.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import one_hot


def route(logits, k, bias=None):
    """Return the weights and the numbers of each token's k experts, both [token, k].

    logits is [token, expert]. The k experts with the largest logits are chosen; `bias`, one number
    for each expert, is added for the choice alone. The weights are the softmax of the logits of
    the chosen experts, so the weights of a token add up to 1. The numbers are int64, in any order.
    """
    chosen = (logits if bias is None else logits + bias).topk(k, dim=-1).indices
    return logits.gather(-1, chosen).softmax(-1), chosen


class Exchanged(torch.autograd.Function):
    """Forward: sends[r] rows go to rank r. Backward: the gradients of the rows come home."""

    @staticmethod
    def forward(ctx, rows, sends, takes, group=None):
        ctx.sends, ctx.takes, ctx.group = sends, takes, group
        coming = rows.new_empty(sum(takes), rows.shape[1])
        dist.all_to_all_single(coming, rows.contiguous(), takes, sends, group=group)
        return coming

    @staticmethod
    def backward(ctx, gradient):
        home = gradient.new_empty(sum(ctx.sends), gradient.shape[1])
        dist.all_to_all_single(home, gradient.contiguous(), ctx.sends, ctx.takes, ctx.group)
        return home, None, None, None


def dispatch(x, chosen, per_rank, group=None):
    """Send each token to the ranks of its experts; return (rows, local, ticket).

    x is [token, feature], and chosen is [token, k]; a choice of -1 goes nowhere. Rank r of the
    group has the experts from r * per_rank on. rows, [row, feature], are the tokens that arrive
    for this rank's experts; local, [row], is the number of each row's expert on this rank, from 0.
    Rows leave by expert, in any order within an expert, and gradients come back to x. The ticket is
    (order, sends, takes, group): the place in chosen.flatten() of each row sent, and lists of ints
    with the number of rows sent to each rank and taken from each rank.
    """
    n, k, flat = dist.get_world_size(group), chosen.shape[1], chosen.flatten()
    order = flat.argsort(stable=True)[int((flat < 0).sum()) :]
    sends = flat[order].bincount(minlength=n * per_rank).view(n, per_rank)
    takes = torch.empty_like(sends)
    dist.all_to_all_single(takes, sends, group=group)
    ticket = order, sends.sum(1).tolist(), takes.sum(1).tolist(), group
    rows = Exchanged.apply(x[order // k], *ticket[1:])
    local = torch.arange(per_rank).repeat(n).repeat_interleave(takes.flatten())
    return rows, local, ticket


def combine(made, weights, ticket):
    """Return [token, feature]: the sum of the outputs of each token's experts, times the weights.

    made is [row, feature], in the order of the rows that `dispatch` returned; weights is
    [token, k]. A choice that went nowhere adds nothing. Gradients reach made and weights.
    """
    order, sends, takes, group = ticket
    back = Exchanged.apply(made, takes, sends, group)
    every = back.new_zeros(weights.numel(), back.shape[1]).index_copy(0, order, back)
    return (every.unflatten(0, weights.shape) * weights[..., None]).sum(1)


def within_capacity(chosen, experts, capacity):
    """Return the choices, with -1 for each choice that its expert has no room for.

    chosen is [token, k]. An expert takes `capacity` choices: first the tokens' first choices in
    the order of the tokens, then the second choices, and further choices in the same way.
    """
    flat = chosen.T.flatten()  # all first choices, then all second choices
    place = one_hot(flat, experts).cumsum(0).gather(1, flat[:, None]).squeeze(1)
    return flat.where(place <= capacity, -1).view_as(chosen.T).T


def balance_loss(probabilities, chosen):
    """Return experts * sum of (share of the choices of an expert) * (its mean probability).

    probabilities, [token, expert], and chosen, [token, k], are this rank's. The shares are shares
    of the choices of all ranks, which have equally many tokens. The mean probability is this rank's
    own: then the average of the ranks' gradients is the gradient of the loss of all tokens. The
    loss is 1 if shares and probabilities are even.
    """
    experts = probabilities.shape[1]
    count = chosen.flatten().bincount(minlength=experts)
    dist.all_reduce(count)
    return experts * (count / count.sum() * probabilities.mean(0)).sum()


def nudged(bias, chosen, rate):
    """Return the bias of the next step: `rate` more for experts with fewer choices than the mean.

    The bias is `rate` less for experts with more choices than the mean, and stays the same for
    experts with exactly the mean. The choices of all ranks count. The old bias stays as it is.
    """
    count = chosen.flatten().bincount(minlength=len(bias))
    dist.all_reduce(count)
    return bias + rate * (count.double().mean() - count).sign().to(bias.dtype)


def average_gradients(shared, experts, same):
    """Make each parameter's .grad the gradient of the mean of all ranks' losses.

    The parameters `shared` are on every rank. The parameters `experts` are on this rank, and on the
    other ranks of the group `same`; their gradients already include the rows of other ranks. A
    parameter without a gradient had no row: its gradient is 0.
    """
    for parameters, group in ((shared, None), (experts, same)):
        for p in parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad, group=group)
            p.grad /= dist.get_world_size()


def place(load, ranks, slots):
    """Return for each rank the experts in its `slots`: a list of lists of numbers.

    load[e] is the number of rows of expert e. Each expert has at least one copy, and its copies
    share its rows equally; a rank may have several copies of an expert. No slot is left empty. The
    busiest rank has at most 3 % more rows than with this method: add one copy, again and again, for
    the expert with the most rows per copy; then give each copy, heaviest first, to the rank with
    the fewest rows that has a free slot.
    """
    copies = [1] * len(load)
    for _ in range(ranks * slots - len(load)):
        copies[max(range(len(load)), key=lambda e: load[e] / copies[e])] += 1
    parts = sorted((load[e] / copies[e], e) for e in range(len(load)) for _ in range(copies[e]))
    places, total = [[] for _ in range(ranks)], [0.0] * ranks
    for part, expert in reversed(parts):
        rank = min((r for r in range(ranks) if len(places[r]) < slots), key=lambda r: total[r])
        places[rank].append(expert)
        total[rank] += part
    return places
