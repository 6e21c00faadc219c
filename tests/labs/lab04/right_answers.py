"""Right answers to lab 04, different from the solution."""

from collections import defaultdict

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ddpkit import answers
from tests.labs.answers import right

# broadcast_parameters


@right("broadcast_parameters")
def by_your_own_broadcast(module, src=0):
    """Call lab 02's broadcast on the tensors themselves."""
    with torch.no_grad():
        for tensor in [*module.buffers(), *module.parameters()]:
            answers.get("broadcast")(tensor, src)


@right("broadcast_parameters")
def flat_by_dtype(module, src=0):
    kinds = defaultdict(list)
    for _, tensor in [*module.named_parameters(), *module.named_buffers()]:
        kinds[tensor.dtype].append(tensor.data)
    for tensors in kinds.values():
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.broadcast(flat, src=src)
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))


@right("broadcast_parameters")
def as_an_object(module, src=0):
    mine = [t.detach() for t in (*module.parameters(), *module.buffers())]
    box = [mine if dist.get_rank() == src else None]
    dist.broadcast_object_list(box, src)
    for tensor, new in zip(mine, box[0], strict=True):
        tensor.copy_(new)


# shard


@right("shard")
def every_nth(n, batch_size, epoch, rank, world_size):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))
    starts = range(0, n, batch_size)
    return [order[at : at + batch_size][rank::world_size] for at in starts]


@right("shard")
def by_numpy(n, batch_size, epoch, rank, world_size):
    order = np.random.default_rng(epoch).permutation(n)
    batches = np.split(order, range(batch_size, n, batch_size))
    return tuple(torch.from_numpy(np.array_split(b, world_size)[rank]) for b in batches)


@right("shard")
def the_last_rank_has_more(n, batch_size, epoch, rank, world_size):
    parts = []
    for batch in answers.get("minibatches")(n, batch_size, epoch):
        cut = [len(batch) * r // world_size for r in (rank, rank + 1)]
        parts.append(batch[slice(*cut)])
    return parts


# gradients_of


@right("gradients_of")
def in_a_loop(module):
    found = []
    for _, p in module.named_parameters():
        if not p.requires_grad:
            continue
        if p.grad is None:
            p.grad = torch.zeros(p.shape, dtype=p.dtype, device=p.device)
        found.append(p.grad)
    return tuple(found)


@right("gradients_of")
def their_data(module):
    """Return other tensors on the same memory: changes to them change the gradients."""
    trained = [p for p in module.parameters() if p.requires_grad]
    for p in trained:
        p.grad = p.new_zeros(p.shape) if p.grad is None else p.grad
    return [p.grad.data for p in trained]


# The three averages


def trained(module):
    parameters = list(filter(lambda p: p.requires_grad, module.parameters()))
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    return parameters


@right("average_by_gather")
def rank_0_first(module):
    n = dist.get_world_size()
    for p in trained(module):
        if dist.get_rank():
            dist.gather(p.grad)
            dist.scatter(p.grad)
            continue
        stacked = torch.empty(n, *p.shape, dtype=p.dtype)
        dist.gather(p.grad, list(stacked))
        dist.scatter(p.grad, n * [stacked.mean(0)])


@right("average_by_gather")
def divides_first(module):
    rank, n = dist.get_rank(), dist.get_world_size()
    parameters = trained(module)
    rooms = [[torch.zeros_like(p) for _ in range(n)] if rank == 0 else None for p in parameters]
    for p, room in zip(parameters, rooms, strict=True):
        dist.gather(p.grad / n, room, dst=0)
    for p, room in zip(parameters, rooms, strict=True):
        mean = torch.empty_like(p)
        dist.scatter(mean, [sum(room)] * n if room else None, src=0)
        p.grad = mean.detach()


@right("average_per_parameter")
def all_started_first(module):
    works = []
    for p in reversed(trained(module)):
        p.grad.div_(dist.get_world_size())
        works.append(dist.all_reduce(p.grad, async_op=True))
    for work in works:
        work.wait()


@right("average_per_parameter")
def into_new_gradients(module):
    for p in trained(module):
        total = p.grad.contiguous().clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        p.grad = total / dist.get_world_size()


@right("average_flat")
def gradients_become_views(module):
    by_dtype = {}
    for p in trained(module):
        by_dtype.setdefault(str(p.dtype), []).append(p)
    for _, group in sorted(by_dtype.items()):
        flat = torch.cat([p.grad.reshape(-1) for p in group]) / dist.get_world_size()
        dist.all_reduce(flat)
        offset = 0
        for p in group:
            p.grad = flat[offset : offset + p.numel()].view(p.shape)
            offset += p.numel()


@right("average_flat")
def with_torchs_helpers(module):
    gradients = [p.grad for p in trained(module)]
    for dtype in (torch.float64, torch.float32):
        group = [g for g in gradients if g.dtype is dtype]
        if group:
            flat = nn.utils.parameters_to_vector(g.contiguous() for g in group)
            dist.all_reduce(flat)
            torch._foreach_copy_(
                group,
                list(torch._utils._unflatten_dense_tensors(flat / dist.get_world_size(), group)),
            )


# train


@right("train")
def weights_the_gradients(model, batches, lr, momentum=0.0):
    """Make the step by hand; counts travel with the gradients; an empty part gives zeros."""
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    velocity = None
    for x, y in batches:
        gradients = [torch.zeros_like(p) for p in model.parameters()]
        if len(y):
            loss = nn.functional.cross_entropy(model(x), y) * len(y)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
        sums = torch.cat([g.flatten() for g in gradients] + [torch.tensor([len(y)]).double()])
        dist.all_reduce(sums)
        mean = sums[:-1] / sums[-1]
        velocity = mean if velocity is None else momentum * velocity + mean
        vector = nn.utils.parameters_to_vector(model.parameters()) - lr * velocity
        nn.utils.vector_to_parameters(vector, model.parameters())


@right("train")
def with_torchs_ddp(model, batches, lr, momentum=0.0):
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=lr, momentum=momentum)
    iterator = iter(batches)
    while (part := next(iterator, None)) is not None:
        counts = [None] * dist.get_world_size()
        dist.all_gather_object(counts, len(part[1]))
        losses = nn.functional.cross_entropy(ddp(part[0]), part[1], reduction="none")
        optimizer.zero_grad(set_to_none=False)
        (losses.sum() * len(counts) / sum(counts)).backward()
        optimizer.step()


@right("train")
def averages_the_parameters(model, batches, lr, momentum=0.0):
    """Average the parameters, which is right for SGD: its step is linear in the gradient."""
    answers.get("broadcast_parameters")(model)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum)
    for x, y in batches:
        images = torch.tensor(float(len(y)))
        dist.all_reduce(images)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
        (loss / images * dist.get_world_size()).backward()
        optimizer.step()
        for p in model.parameters():
            dist.all_reduce(p.data)
            p.data /= dist.get_world_size()


@right("train")
def mean_loss_times_its_length(model, batches, lr, momentum=0.0):
    """Multiply the mean loss by its length: nan for an empty part, but its gradients are zeros."""
    answers.get("broadcast_parameters")(model)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum)
    for x, y in batches:
        images = torch.tensor(len(y))
        dist.all_reduce(images)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y) * len(y)
        (loss * dist.get_world_size() / images).backward()
        answers.get("average_flat")(model)
        optimizer.step()
