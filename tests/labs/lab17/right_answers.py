"""Right answers to lab 17, different from the solution."""

import bisect
import itertools

import torch
import torch.distributed as dist

from tests.labs.answers import right

# route


@right("route")
def divided_by_the_sum(logits, k, bias=None):
    probabilities = logits.softmax(-1)
    chosen = (logits.detach() + (0 if bias is None else bias)).argsort(-1, descending=True)[:, :k]
    weights = probabilities.gather(-1, chosen)
    return weights / weights.sum(-1, keepdim=True), chosen


@right("route")
def hidden_by_infinity(logits, k, bias=None):
    """Take a softmax over all experts, with -inf for others; the smallest choice comes first."""
    biased = logits if bias is None else logits + bias
    chosen = biased.topk(k, dim=-1).indices.sort(-1).values
    hidden = torch.full_like(logits, -torch.inf).scatter(1, chosen, logits.gather(1, chosen))
    return hidden.softmax(-1).gather(1, chosen), chosen


@right("route")
def token_by_token(logits, k, bias=None):
    weights, numbers = [], []
    for row in logits:
        score = row if bias is None else row + bias
        best = sorted(range(len(row)), key=lambda e: -score[e].item())[:k]
        parts = torch.exp(row[best] - row[best].max())
        weights.append(parts / parts.sum())
        numbers.append(best)
    return torch.stack(weights), torch.tensor(numbers)


# dispatch


class There(torch.autograd.Function):
    """A function that exchanges rows by lists."""

    @staticmethod
    def forward(ctx, rows, sends, takes, group):
        ctx.how = takes, sends, group
        coming = torch.empty(sum(takes), rows.shape[1])
        dist.all_to_all_single(coming, rows.contiguous(), takes, sends, group=group)
        return coming

    @staticmethod
    def backward(ctx, gradient):
        return There.apply(gradient, *ctx.how), None, None, None


@right("dispatch")
def last_token_first(x, chosen, per_rank, group=None):
    """Use another order within an expert, by lists of places."""
    n, k = dist.get_world_size(group), chosen.shape[1]
    flat = chosen.flatten().tolist()
    wanted = [[p for p in reversed(range(len(flat))) if flat[p] == e] for e in range(n * per_rank)]
    order = torch.tensor([p for places in wanted for p in places], dtype=torch.int64)
    counts = torch.tensor([len(places) for places in wanted]).view(n, per_rank)
    all_counts = [torch.empty_like(counts) for _ in range(n)]
    dist.all_gather(all_counts, counts, group=group)
    mine = torch.stack(all_counts)[:, dist.get_rank(group)]
    sends, takes = counts.sum(1).tolist(), mine.sum(1).tolist()
    rows = There.apply(x[torch.div(order, k, rounding_mode="floor")], sends, takes, group)
    local = [e for source in mine.tolist() for e, times in enumerate(source) for _ in range(times)]
    return rows, torch.tensor(local, dtype=torch.int64), (order, sends, takes, group)


@right("dispatch")
def experts_travel_too(x, chosen, per_rank, group=None):
    """Send the numbers of experts beside the rows."""
    n = dist.get_world_size(group)
    flat = chosen.flatten()
    went = (flat >= 0).nonzero().flatten()
    order = went[flat[went].argsort(stable=True)]
    sends = torch.bincount(flat[order] // per_rank, minlength=n)
    takes = torch.empty_like(sends)
    dist.all_to_all_single(takes, sends, group=group)
    sends, takes = sends.tolist(), takes.tolist()
    local = torch.empty(sum(takes), dtype=torch.uint8)
    numbers = (flat[order] % per_rank).to(torch.uint8)
    dist.all_to_all_single(local, numbers, takes, sends, group=group)
    token = torch.arange(len(x)).repeat_interleave(chosen.shape[1])[order]
    rows = There.apply(x.index_select(0, token), sends, takes, group)
    return rows, local, (order, sends, takes, group)


class ByMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, sends, takes, group):
        ctx.how = takes, sends, group
        rank, n = dist.get_rank(group), dist.get_world_size(group)
        coming = [rows.new_empty(count, rows.shape[1]) for count in takes]
        going = [part.contiguous() for part in rows.split(sends)]
        coming[rank] = going[rank].clone()
        works = []
        for peer in range(n):
            there = peer if group is None else dist.get_global_rank(group, peer)
            if peer != rank and sends[peer]:
                works.append(dist.isend(going[peer], there, group=group))
            if peer != rank and takes[peer]:
                works.append(dist.irecv(coming[peer], there, group=group))
        for work in works:
            work.wait()
        return torch.cat(coming)

    @staticmethod
    def backward(ctx, gradient):
        return ByMessages.apply(gradient, *ctx.how), None, None, None


@right("dispatch")
def by_messages(x, chosen, per_rank, group=None):
    n, k, flat = dist.get_world_size(group), chosen.shape[1], chosen.flatten()
    order = flat.argsort(stable=True)
    order = order[flat[order] >= 0]
    sends = flat[order].bincount(minlength=n * per_rank).view(n, per_rank)
    takes = torch.empty_like(sends)
    dist.all_to_all_single(takes, sends, group=group)
    to, come = sends.sum(1).tolist(), takes.sum(1).tolist()
    rows = ByMessages.apply(x[order // k], to, come, group)
    local = torch.cat([torch.arange(per_rank).repeat_interleave(each) for each in takes])
    return rows, local, (order, to, come, group)


# combine


@right("combine")
def added_to_tokens(made, weights, ticket):
    order, sends, takes, group = ticket
    back = There.apply(made, takes, sends, group) * weights.flatten()[order, None]
    return made.new_zeros(len(weights), made.shape[1]).index_add(0, order // weights.shape[1], back)


@right("combine")
def a_matrix_of_weights(made, weights, ticket):
    order, sends, takes, group = ticket
    back = ByMessages.apply(made, takes, sends, group)
    token, row = order // weights.shape[1], torch.arange(len(order))
    wide = weights.new_zeros(len(weights), len(order))
    wide = wide.index_put((token, row), weights.flatten()[order])
    return wide @ back


# within_capacity


@right("within_capacity")
def by_a_loop(chosen, experts, capacity):
    kept, taken = chosen.clone(), [0] * experts
    for at in range(chosen.shape[1]):
        for token in range(len(chosen)):
            expert = chosen[token, at].item()
            if taken[expert] == capacity:
                kept[token, at] = -1
            else:
                taken[expert] += 1
    return kept


@right("within_capacity")
def places_in_sorted_choices(chosen, experts, capacity):
    flat = chosen.t().reshape(-1)
    order = flat.argsort(stable=True)
    starts = flat.bincount(minlength=experts).cumsum(0) - flat.bincount(minlength=experts)
    place = torch.empty_like(flat)
    place[order] = torch.arange(len(flat)) - starts[flat[order]]
    kept = flat.masked_fill(place >= capacity, -1)
    return kept.view(chosen.shape[1], -1).t().contiguous()


# balance_loss


@right("balance_loss")
def by_one_hot(probabilities, chosen):
    tokens, experts = probabilities.shape
    hot = torch.nn.functional.one_hot(chosen, experts).sum((0, 1)).float()
    dist.all_reduce(hot)
    return experts * torch.dot(hot / hot.sum(), probabilities.sum(0) / tokens)


@right("balance_loss")
def gathered_counts(probabilities, chosen):
    experts, n = probabilities.shape[1], dist.get_world_size()
    mine = torch.tensor([(chosen == e).sum().item() for e in range(experts)], dtype=torch.int32)
    every = torch.empty(n * experts, dtype=torch.int32)
    dist.all_gather_into_tensor(every, mine)
    share = every.view(n, experts).sum(0) / every.sum()
    return sum(experts * share[e] * probabilities[:, e].mean() for e in range(experts))


@right("balance_loss")
def total_beside_the_counts(probabilities, chosen):
    experts = probabilities.size(1)
    count = torch.zeros(experts, dtype=torch.float64)
    count.scatter_add_(0, chosen.reshape(-1), torch.ones(chosen.numel(), dtype=torch.float64))
    dist.all_reduce(count, async_op=True).wait()
    total = chosen.numel() * torch.ones(1)
    dist.all_reduce(total)
    share = (count / total).to(probabilities.dtype)
    return (share * probabilities).sum() * experts / len(probabilities)


# nudged


@right("nudged")
def in_whole_numbers(bias, chosen, rate):
    count = torch.zeros_like(bias, dtype=torch.int64)
    count.scatter_add_(0, chosen.flatten(), torch.ones_like(chosen.flatten()))
    dist.all_reduce(count)
    less, more = (sign * len(count) * count < sign * count.sum() for sign in (1, -1))
    return torch.where(less, bias + rate, torch.where(more, bias - rate, bias))


@right("nudged")
def counts_padded(bias, chosen, rate):
    count = chosen.flatten().bincount()
    count = torch.cat([count, count.new_zeros(len(bias) - len(count))])
    every = [torch.empty_like(count) for _ in range(dist.get_world_size())]
    dist.all_gather(every, count)
    count = torch.stack(every).sum(0).tolist()
    mean = sum(count) / len(count)
    new = bias.clone()
    for expert, each in enumerate(count):
        new[expert] += rate * ((each < mean) - (each > mean))
    return new


# average_gradients


@right("average_gradients")
def flat_in_each_group(shared, experts, same):
    n = dist.get_world_size()
    for parameters, group in ((list(shared), dist.group.WORLD), (list(experts), same)):
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([g.flatten() for g in gradients]) / n
        dist.all_reduce(flat, group=group)
        sizes = [p.numel() for p in parameters]
        for p, part in zip(parameters, flat.split(sizes), strict=True):
            p.grad = part.view(p.shape).clone()


@right("average_gradients")
def waited_for_at_the_end(shared, experts, same):
    works = []
    for p in itertools.chain(experts, shared):
        if p.grad is None:
            p.grad = torch.zeros(p.shape)
        p.grad.div_(dist.get_world_size())
    for p in experts:
        works.append(dist.all_reduce(p.grad, group=same, async_op=True))
    for p in shared:
        works.append(dist.all_reduce(p.grad, async_op=True))
    for work in works:
        work.wait()


@right("average_gradients")
def copies_alone(shared, experts, same):
    """Take a mean over `same`, divided by the rest; a group of one rank sends no message."""
    n, copies = dist.get_world_size(), dist.get_world_size(same)
    for p in experts:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        if copies > 1:
            dist.all_reduce(p.grad, group=same)
        p.grad.mul_(1 / copies).div_(n // copies)
    for p in shared:
        dist.all_reduce(p.grad)
        p.grad.div_(n)


# place


@right("place")
def under_a_bound(load, ranks, slots):
    """Find the fewest copies under a bound on the rows of a copy, by bisection of the bound."""

    def copies(bound):
        return [max(1, -int(-each // bound)) for each in load]

    bounds = sorted({each / times for each in load if each for times in range(1, ranks * slots)})
    fits = bisect.bisect_left(bounds, True, key=lambda each: sum(copies(each)) <= ranks * slots)
    found = copies(bounds[fits])
    for _ in range(ranks * slots - sum(found)):
        found[max(range(len(load)), key=lambda e: load[e] / found[e])] += 1
    parts = [(load[e] / found[e], e) for e in range(len(load)) for _ in range(found[e])]
    own, total = [[] for _ in range(ranks)], [0] * ranks
    for part, expert in sorted(parts, key=lambda each: -each[0]):
        rank = min(range(ranks), key=lambda r: (len(own[r]) == slots, total[r]))
        own[rank].append(expert)
        total[rank] += part
    return own


@right("place")
def with_exchanges(load, ranks, slots):
    """Improve the method by exchanges of two copies, with tuples in place of lists."""
    copies = dict.fromkeys(range(len(load)), 1)
    while sum(copies.values()) < ranks * slots:
        copies[max(copies, key=lambda e: load[e] / copies[e])] += 1
    part = {e: load[e] / copies[e] for e in copies}
    every = sorted((e for e in copies for _ in range(copies[e])), key=part.get, reverse=True)
    own = [[] for _ in range(ranks)]
    for expert in every:
        free = (one for one in own if len(one) < slots)
        min(free, key=lambda one: sum(map(part.get, one))).append(expert)
    for _ in range(50):
        own.sort(key=lambda one: sum(map(part.get, one)))
        low, high = own[0], own[-1]
        gap = sum(map(part.get, high)) - sum(map(part.get, low))
        pairs = [(i, j) for i in range(slots) for j in range(slots)
                 if 0 < part[high[i]] - part[low[j]] < gap]  # fmt: skip
        if not pairs:
            break
        i, j = min(pairs, key=lambda ij: abs(2 * (part[high[ij[0]]] - part[low[ij[1]]]) - gap))
        high[i], low[j] = low[j], high[i]
    return [tuple(one) for one in own]
