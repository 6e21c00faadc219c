"""Right answers to lab 15 of other makes."""

from statistics import median_low

import torch
import torch.distributed as dist

from ddpkit import answers
from tests.labs.answers import right


@right("bottleneck")
def by_spans(trace):
    """Without breakdown(): the rank that waits least, by its own blocked times."""
    steps = {}
    for rank in trace.ranks:
        spans = trace.of(rank)
        waits = [one for one in spans if one.is_comm and one.blocked_ns is not None]
        blocked, free = 0, 0
        for one in sorted(waits, key=lambda one: one.end_ns):
            blocked += one.end_ns - max(one.blocked_ns, free)
            free = one.end_ns
        loads = sum(one.duration_ns for one in spans if one.name == "input")
        steps[rank] = blocked, trace.breakdown()[rank].compute_ns - loads, loads, len(waits)
    last = min(steps, key=steps.get)
    blocked, computes, loads, count = steps[last]
    usual = median_low([each[1] for each in steps.values()])
    tiny = min((one.end_ns - one.ready_ns for one in trace.spans if one.is_comm), default=0)
    start, end = trace.window_of(last)
    found = [
        (usual, "compute"),
        (computes - usual, "straggler"),
        (loads, "input"),
        (count * tiny, "latency"),
        (blocked - count * tiny, "bandwidth"),
        (end - start - computes - loads - blocked, "idle"),
    ]
    return max(found)[1]


DDP = answers.get("DistributedDataParallel")


@right("train_fast")
def by_my_own_ddp(model, text):
    """Lab 06's class, whose buckets move below backward; plain SGD with momentum is too slow."""
    wrapped = DDP(model, bucket_cap_mb=0.2)
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
    for _ in range(20):
        at = torch.randint(len(text) - 32, (4, 1)) + torch.arange(32)
        optimizer.zero_grad()
        wrapped(text[at], text[at + 1]).backward()
        optimizer.step()


@right("train_fast")
def with_a_sharded_optimizer(model, text):
    """ZeRO's first stage: sums are scattered, each rank updates a quarter, all gather it."""
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = list(model.parameters())
    sizes = [p.numel() for p in parameters]
    rest = -sum(sizes) % n
    flat = torch.cat([p.detach().flatten() for p in parameters] + [torch.zeros(rest)])
    mine = torch.nn.Parameter(flat.chunk(n)[rank].clone())
    optimizer = torch.optim.AdamW([mine], lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(20):
        starts = torch.randint(len(text) - 33, (4,), generator=generator).tolist()
        stretches = torch.stack([text[start : start + 33] for start in starts])
        model.zero_grad()
        model(stretches[:, :-1], stretches[:, 1:]).backward()
        gradient = torch.cat([p.grad.flatten() for p in parameters] + [torch.zeros(rest)]) / n
        mine.grad = torch.empty_like(mine)
        dist.reduce_scatter_tensor(mine.grad, gradient)
        optimizer.step()
        dist.all_gather_into_tensor(flat, mine.detach())
        with torch.no_grad():
            for p, new in zip(parameters, flat[: sum(sizes)].split(sizes), strict=True):
                p.copy_(new.view_as(p))
