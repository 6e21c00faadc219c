"""Right answers to lab 12 that strangers gave."""

import torch
import torch.distributed as dist

from tests.labs.answers import right


@right("global_norm")
def gathered_numbers(parameters, sliced):
    """Gather every rank's number; parameters that all ranks have count on rank 0."""
    mine = torch.zeros((), dtype=torch.float64)
    for p in parameters:
        if p.grad is not None and (sliced(p) or dist.get_rank() == 0):
            mine += torch.linalg.vector_norm(p.grad.double()) ** 2
    found = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(found, mine)
    return float(sum(found).sqrt())


@right("Halo")
class IntoRoom(torch.autograd.Function):
    """A function with room for strip and halo, zeros at first, into which messages are copied."""

    @staticmethod
    def forward(ctx, strip, k):
        ctx.k = k
        whole = torch.nn.functional.pad(strip, (0, 0, k, k))
        for rows, at in came({-1: strip[:, :, :k], 1: strip[:, :, -k:]}):
            whole[:, :, :k].copy_(rows) if at < 0 else whole[:, :, -k:].copy_(rows)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        k = ctx.k
        inner = gradient[:, :, k : gradient.shape[2] - k].clone()
        for rows, at in came({-1: gradient[:, :, :k], 1: gradient[:, :, -k:]}):
            inner[:, :, :k].add_(rows) if at < 0 else inner[:, :, -k:].add_(rows)
        return inner, None


def came(rows):
    """Return (rows, -1 or 1) from the existing neighbours above and below."""
    started, found = [], []
    for at, mine in rows.items():
        peer = dist.get_rank() + at
        if 0 <= peer < dist.get_world_size():
            give, take = mine.contiguous(), torch.empty_like(mine).contiguous()
            started += [dist.P2POp(dist.isend, give, peer), dist.P2POp(dist.irecv, take, peer)]
            found.append((take, at))
    for work in dist.batch_isend_irecv(started) if started else []:
        work.wait()
    return found
