"""Right answers to lab 07, different from the solution."""

import time
from itertools import combinations

import torch
import torch.distributed as dist

from ddpkit import answers
from ddpkit.answers import lab07
from tests.labs.answers import right

# fp16_hook


@right("fp16_hook")
def in_a_new_tensor(state, bucket):
    n = len(dist.get_process_group_ranks(state)) if state else dist.get_world_size()
    flat = bucket.buffer()
    small = (flat / n).to(torch.float16)
    future = dist.all_reduce(small, async_op=True, group=state).get_future()
    return future.then(lambda _: small.to(flat.dtype))


@right("fp16_hook")
def halved_and_then_divided(state, bucket):
    half = bucket.buffer().to(torch.float16).div_(dist.get_world_size(state))
    future = dist.all_reduce(half, group=state, async_op=True).get_future()

    def whole(done):
        (mean,) = done.value()
        bucket.buffer().copy_(mean)
        return bucket.buffer()

    return future.then(whole)


# powersgd_hook


@right("powersgd_hook")
def by_gram_schmidt(state, bucket):
    """Sum P, send vectors alone, keep an error for each gradient, and chain futures."""
    n, i = dist.get_world_size(), bucket.index()
    errors = state.error.setdefault(i, [torch.zeros_like(g) for g in bucket.gradients()])
    qs, vectors = state.q.setdefault(i, {}), []
    for k, (g, error) in enumerate(zip(bucket.gradients(), errors, strict=True)):
        if g.dim() < 2:
            vectors.append(g)
            continue
        g += error
        m = g.reshape(g.shape[0], -1).clone()
        if k not in qs:
            torch.manual_seed(31 * i + k)
            qs[k] = torch.randn(m.shape[1], min(state.rank, *m.shape), dtype=m.dtype)
    wide = sorted(qs)
    gradients = bucket.gradients()
    ms = {k: gradients[k].reshape(gradients[k].shape[0], -1).clone() for k in wide}
    ps = {k: ms[k] @ qs[k] for k in wide}
    flat = torch.cat([ps[k].flatten() for k in wide] or [torch.zeros(0)])
    if wide:
        dist.all_reduce(flat)
    at = 0
    for k in wide:
        p = flat[at : at + ps[k].numel()].view_as(ps[k]).clone()
        at += p.numel()
        for column in range(p.shape[1]):
            for before in range(column):
                p[:, column] -= (p[:, before] @ p[:, column]) * p[:, before]
            p[:, column] /= p[:, column].norm()
        ps[k], qs[k] = p, ms[k].T @ p
    flat = torch.cat([qs[k].flatten() for k in wide] or [torch.zeros(0)]) / n
    if wide:
        dist.all_reduce(flat)
    at = 0
    for k in wide:
        qs[k] = flat[at : at + qs[k].numel()].view_as(qs[k]).clone()
        at += qs[k].numel()
        sent = (ps[k] @ qs[k].T).view_as(gradients[k])
        errors[k] = ms[k].view_as(sent) - sent
        gradients[k].copy_(sent)
    if not vectors:
        return lab07.done(bucket.buffer())
    plain = torch.cat([v.flatten() for v in vectors]) / n

    def back(future):
        for v, mean in zip(vectors, plain.split([v.numel() for v in vectors]), strict=True):
            v.copy_(mean.view_as(v))
        return bucket.buffer()

    return dist.all_reduce(plain, async_op=True).get_future().then(back)


@right("powersgd_hook")
def with_the_first_q_of_rank_0(state, bucket):
    """Use three collectives: rank 0's first Q, once; P with the vectors; Q'."""
    i, flat = bucket.index(), bucket.buffer()
    flat += state.error.get(i, 0)
    wanted = flat.clone()
    vectors = [g for g in bucket.gradients() if g.dim() < 2]
    matrices = [g.view(len(g), -1) for g in bucket.gradients() if g.dim() >= 2]
    if i not in state.q:
        sizes = [(m.shape[1], min(state.rank, *m.shape)) for m in matrices]
        qs = [torch.randn(size).to(flat) for size in sizes]
        if qs:
            every = torch.cat([q.flatten() for q in qs])
            dist.broadcast(every, 0)
            qs = [each.view_as(q) for each, q in
                  zip(every.split([q.numel() for q in qs]), qs, strict=True)]  # fmt: skip
        state.q[i] = qs
    p = [m @ lab07.orthonormal(q) for m, q in zip(matrices, state.q[i], strict=True)]
    means = lab07.mean_of(p + vectors)
    p = [lab07.orthonormal(mean) for mean in means[: len(p)]]
    second = [m.T @ each for m, each in zip(matrices, p, strict=True)]
    state.q[i] = lab07.mean_of(second) if p else []
    for m, each, q in zip(matrices, p, state.q[i], strict=True):
        m.copy_(each @ q.T)
    for vector, mean in zip(vectors, means[len(p) :], strict=True):
        vector.copy_(mean)
    state.error[i] = wanted - flat
    return lab07.done(flat)


# pair_groups


@right("pair_groups")
def by_combinations():
    n, rank = dist.get_world_size(), dist.get_rank()
    every = {pair: dist.new_group(pair) for pair in combinations(range(n), 2)}
    rounds = [1 << i for i in range(n) if 1 << i < n]
    return [every[tuple(sorted((rank, rank ^ far)))] for far in rounds]


@right("pair_groups")
def by_a_filter():
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, far = [], 1
    while far < n:
        for pair in [(a, b) for a, b in combinations(range(n), 2) if a ^ b == far]:
            group = dist.new_group(sorted(pair, reverse=True))
            mine += [group] * (rank in pair)
        far *= 2
    return mine


# gossip_hook


@right("gossip_hook")
def all_gathered(state, bucket):
    pair = state.pairs[state.step % len(state.pairs)]
    if bucket.is_last():
        state.step += 1
    flat = bucket.buffer()
    both = [torch.empty_like(flat), torch.empty_like(flat)]
    work = dist.all_gather(both, flat, group=pair, async_op=True)
    return work.get_future().then(lambda _: (both[0] + both[1]) / 2)


@right("gossip_hook")
def halved_afterwards(state, bucket):
    turn = state.step % len(state.pairs)
    state.step = state.step + 1 if bucket.is_last() else state.step
    work = dist.all_reduce(bucket.buffer(), group=state.pairs[turn], async_op=True)
    return work.get_future().then(lambda future: future.value()[0] / 2)


# train_uneven


@right("train_uneven")
def lengths_first(model, optimizer, batches, loss_of):
    batches, lengths = list(batches), [None] * dist.get_world_size()
    dist.all_gather_object(lengths, len(batches))
    counts = [sum(length > k for length in lengths) for k in range(max(lengths))]
    for k, count in enumerate(counts):
        optimizer.zero_grad(set_to_none=False)
        if k < len(batches):
            loss_of(model, batches[k]).backward()
        for p in model.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad /= count
        optimizer.step()
    return counts


@right("train_uneven")
def parameters_at_the_end(model, optimizer, batches, loss_of):
    """Follow torch's join: a rank without batches does not step, and gets the final parameters."""
    counts, batches, rank = [], iter(batches), dist.get_rank()
    while True:
        batch = next(batches, None)
        has = torch.zeros(dist.get_world_size())
        has[rank] = batch is not None
        dist.all_reduce(has)
        if not has.any():
            break
        optimizer.zero_grad()
        if batch is not None:
            loss_of(model, batch).backward()
        gradients = answers.get("gradients_of")(model)
        for g in gradients:
            dist.all_reduce(g)
            g /= has.sum()
        if batch is not None:
            optimizer.step()
        counts.append(int(has.sum()))
        last = int(has.argmax())
    for p in model.parameters():
        if counts:
            dist.broadcast(p.data, last)
    return counts


# monitored_barrier


@right("monitored_barrier")
def looks_now_and_then(store, name, rank, world_size, timeout):
    end = time.monotonic() + timeout
    store.set(f"{name}:{rank}", "1")
    while not all(store.check([f"{name}:{each}"]) for each in range(world_size)):
        if time.monotonic() >= end:
            missing = [r for r in range(world_size) if not store.check([f"{name}:{r}"])]
            raise RuntimeError(f"{name}: still waiting for {missing}")
        time.sleep(0.01)


@right("monitored_barrier")
def counts_up(store, name, rank, world_size, timeout):
    from datetime import timedelta

    store.set(f"{name} {rank}", "")
    if store.add(f"{name} count", 1) == world_size:
        store.set(f"{name} all", "")
    try:
        store.wait([f"{name} all"], timedelta(seconds=timeout))
    except Exception:
        others = set(range(world_size)) - {rank}
        missing = sorted(r for r in others if not store.check([f"{name} {r}"]))
        raise RuntimeError(f"missing: {missing}") from None


@right("monitored_barrier")
def with_a_prefix(store, name, rank, world_size, timeout):
    from datetime import timedelta

    mine = dist.PrefixStore(name, store)
    keys = [str(each) for each in range(world_size)]
    mine.multi_set([keys[rank]], ["here"])
    mine.set_timeout(timedelta(seconds=timeout))
    try:
        mine.wait(keys)
    except dist.DistStoreError:
        missing = [each for each in range(world_size) if not mine.check([keys[each]])]
        raise RuntimeError(f"ranks {missing}") from None


@right("monitored_barrier")
def with_the_stores_timeout(store, name, rank, world_size, timeout):
    from datetime import timedelta

    before = store.timeout
    store.append(f"{name}{rank}!", "1")
    store.set_timeout(timedelta(seconds=timeout))
    try:
        store.multi_get([f"{name}{each}!" for each in range(world_size)])
    except RuntimeError as error:
        missing = [each for each in range(world_size) if not store.check([f"{name}{each}!"])]
        raise RuntimeError(f"ranks {missing}") from error
    finally:
        store.set_timeout(before)


@right("monitored_barrier")
def in_two_prefixes(store, name, rank, world_size, timeout):
    from datetime import timedelta

    mine = dist.PrefixStore("barriers", dist.PrefixStore(name, store))
    keys, end = [f"came {each}" for each in range(world_size)], time.time() + timeout
    mine.add(keys[rank], 1)
    try:
        for key in keys:
            mine.wait([key], timedelta(seconds=end - time.time()))
    except RuntimeError:
        missing = [each for each, key in enumerate(keys) if not mine.check([key])]
        raise RuntimeError(f"ranks {missing}") from None


@right("monitored_barrier")
def names_the_last_one_first(store, name, rank, world_size, timeout):
    from datetime import timedelta

    keys = [f"{name}/{each}" for each in range(world_size)]
    store.set(keys[rank], "here")
    try:
        store.wait(keys, timedelta(seconds=timeout))
    except RuntimeError:
        missing = [r for r in reversed(range(world_size)) if not store.check([keys[r]])]
        raise RuntimeError(f"ranks {missing} did not come") from None


# ring_all_reduce


@right("ring_all_reduce")
def all_in_one_ring(tensors, options):
    if options.reduceOp != dist.ReduceOp.SUM:
        raise NotImplementedError
    ring = answers.get("ring")
    total = ring(torch.cat([each.reshape(-1) for each in tensors]))
    for each in tensors:
        each.copy_(total[: each.numel()].view(each.shape))
        total = total[each.numel() :]


@right("ring_all_reduce")
def chunks_by_hand(tensors, options):
    if options.reduceOp == dist.ReduceOp.SUM:
        rank, n = dist.get_rank(), dist.get_world_size()
        for tensor in tensors:
            chunks = list(tensor.flatten().chunk(n)) if tensor.numel() >= n else None
            if chunks is None or len(chunks) != n:
                chunks = list(tensor.flatten().tensor_split(n))
            chunks = [each.clone() for each in chunks]
            for turn in range(2 * n - 2):
                out, here = chunks[(rank - turn) % n], (rank - turn - 1) % n
                got = torch.empty_like(chunks[here])
                work = dist.isend(out, (rank + 1) % n)
                dist.recv(got, (rank - 1) % n)
                work.wait()
                chunks[here] = chunks[here] + got if turn < n - 1 else got
            tensor[...] = torch.cat(chunks).view_as(tensor)
    else:
        raise NotImplementedError("sums only")
