"""Wrong answers to lab 04."""

import torch
import torch.distributed as dist
from torch import nn

from tests.mutants import edit, mutant

# broadcast_parameters

edit("broadcast_parameters", "buffers_forgotten", replace=", *module.buffers()", by="",
     hint="The buffers differ")  # fmt: skip
edit("broadcast_parameters", "always_from_0", replace="detach(), src", by="detach(), 0",
     hint="its values are the ones to send")  # fmt: skip


@mutant("broadcast_parameters", hint="state_dict() leaves some buffers out")
def by_state_dict(module, src=0):
    for tensor in module.state_dict().values():
        dist.broadcast(tensor, src)


@mutant("broadcast_parameters", hint="A frozen parameter is part of the model")
def what_trains(module, src=0):
    for p in module.parameters():
        if p.requires_grad:
            dist.broadcast(p.detach(), src)
    for buffer in module.buffers():
        dist.broadcast(buffer, src)


@mutant("broadcast_parameters", hint="Every rank still has its own values")
def into_copies(module, src=0):
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach().clone(), src)


@mutant("broadcast_parameters", hint="an optimizer would go on with the old ones")
def new_parameters(module, src=0):
    for child in module.modules():
        for name, p in list(child.named_parameters(recurse=False)):
            values = p.detach().clone()
            dist.broadcast(values, src)
            setattr(child, name, nn.Parameter(values, requires_grad=p.requires_grad))
    for buffer in module.buffers():
        dist.broadcast(buffer, src)


@mutant("broadcast_parameters", hint="its values are the ones to send")
def mean_of_all(module, src=0):
    """The ranks are alike, but nobody's model is rank src's."""
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.all_reduce(tensor.detach(), dist.ReduceOp.MAX)


# shard


def _batches(n, batch_size, epoch):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))
    return order.split(batch_size)


edit("shard", "epoch_ignored", replace="seed=epoch", by="seed=0", hint="Every epoch has the same")


@mutant("shard", hint="Every rank gets the whole batch")
def no_split(n, batch_size, epoch, rank, world_size):
    return list(_batches(n, batch_size, epoch))


@mutant("shard", hint="Some numbers are left out")
def last_samples_dropped(n, batch_size, epoch, rank, world_size):
    parts = []
    for batch in _batches(n, batch_size, epoch):
        size = len(batch) // world_size
        parts.append(batch[rank * size : (rank + 1) * size])
    return parts


@mutant("shard", hint="handed out twice")
def padded(n, batch_size, epoch, rank, world_size):
    """As torch's DistributedSampler does: the first numbers once more, until it divides."""
    parts = []
    for batch in _batches(n, batch_size, epoch):
        lacking = -len(batch) % world_size
        parts.append(torch.cat([batch, batch[:lacking]])[rank::world_size])
    return parts


@mutant("shard", hint="the ranks cut different permutations")
def rank_in_the_seed(n, batch_size, epoch, rank, world_size):
    batches = _batches(n, batch_size, 1000 * epoch + rank)
    return [batch.tensor_split(world_size)[rank] for batch in batches]


@mutant("shard", hint="the ranks cut different permutations")
def global_seed(n, batch_size, epoch, rank, world_size):
    return [b.tensor_split(world_size)[rank] for b in torch.randperm(n).split(batch_size)]


@mutant("shard", hint="not shuffled")
def in_order(n, batch_size, epoch, rank, world_size):
    return [b.tensor_split(world_size)[rank] for b in torch.arange(n).split(batch_size)]


@mutant("shard", hint="much more work than the others")
def rest_to_the_last(n, batch_size, epoch, rank, world_size):
    parts = []
    for batch in _batches(n, batch_size, epoch):
        size = len(batch) // world_size
        parts.append(batch[rank * size : None if rank == world_size - 1 else (rank + 1) * size])
    return parts


@mutant("shard", hint="an empty part belongs in the list")
def no_empty_parts(n, batch_size, epoch, rank, world_size):
    parts = [b.tensor_split(world_size)[rank] for b in _batches(n, batch_size, epoch)]
    return [part for part in parts if len(part)]


@mutant("shard", hint="for all ranks together")
def batch_size_each(n, batch_size, epoch, rank, world_size):
    whole = _batches(n, batch_size * world_size, epoch)
    return [batch[rank::world_size] for batch in whole]


# gradients_of

edit("gradients_of", "frozen_too", replace=" if p.requires_grad]", by="]",
     hint="needs none")  # fmt: skip


@mutant("gradients_of", hint="a missing one must be in the list too")
def those_there_are(module):
    return [p.grad for p in module.parameters() if p.grad is not None]


@mutant("gradients_of", hint="A None is left in the list")
def as_they_are(module):
    return [p.grad for p in module.parameters() if p.requires_grad]


@mutant("gradients_of", hint="These are copies")
def zeros_of_nobody(module):
    trained = [p for p in module.parameters() if p.requires_grad]
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]


@mutant("gradients_of", hint="name a shared one once")
def shared_twice(module):
    gradients = []
    for _, p in module.named_parameters(remove_duplicate=False):
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            gradients.append(p.grad)
    return gradients


# train

edit("train", "no_broadcast", replace="    broadcast_parameters(model)\n", by="",
     hint="start from different models")  # fmt: skip
edit("train", "mean_and_images", replace='reduction="sum"', by='reduction="mean"',
     hint="The loss is a mean already")  # fmt: skip
edit("train", "summed_loss", replace="loss * dist.get_world_size() / images",
     by="loss * dist.get_world_size()", hint="the gradient of the summed loss")  # fmt: skip
edit("train", "no_images", replace="loss * dist.get_world_size() / images", by="loss",
     hint="and by its images")  # fmt: skip
edit("train", "divides_twice", replace="loss * dist.get_world_size() / images", by="loss / images",
     hint="averaging divides by it already")  # fmt: skip
edit("train", "own_images", replace="dist.all_reduce(images)  # of the whole batch", by="pass",
     hint="too large by the number of ranks")  # fmt: skip
edit("train", "no_momentum", replace="lr, momentum)", by="lr)", hint="Momentum has no effect")
edit("train", "never_averaged", replace="        average_flat(model)\n", by="",
     hint="average before the step")  # fmt: skip
edit("train", "steps_first", hint="average before the step",
     replace="        average_flat(model)\n        optimizer.step()",
     by="        optimizer.step()\n        average_flat(model)")  # fmt: skip
edit("train", "no_zero_grad", replace="        optimizer.zero_grad()\n", by="",
     hint="zero_grad() before backward")  # fmt: skip
edit("train", "skips_empty_parts", replace="        images = torch.tensor(len(y))\n",
     by="        if len(y) == 0:\n            continue\n        images = torch.tensor(len(y))\n",
     hint="A rank with an empty part")  # fmt: skip
edit("train", "all_parts_first", replace="in batches:", by="in list(batches):",
     hint="take a part, make a step")  # fmt: skip


@mutant("train", hint="too much weight")
def mean_of_means(model, batches, lr, momentum=0.0):
    for p in model.parameters():
        dist.broadcast(p.detach(), 0)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()


@mutant("train", hint="Momentum has no effect")
def new_optimizer_each_step(model, batches, lr, momentum=0.0):
    for p in model.parameters():
        dist.broadcast(p.detach(), 0)
    for x, y in batches:
        optimizer = torch.optim.SGD(model.parameters(), lr, momentum)
        images = torch.tensor(len(y))
        dist.all_reduce(images)
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(x), y, reduction="sum") / images).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()


# Of a stubborn student


@mutant("broadcast_parameters", hint="lost their last digits")
def all_through_float32(module, src=0):
    tensors = [t.detach() for t in (*module.parameters(), *module.buffers())]
    flat = torch.cat([t.float().flatten() for t in tensors])
    dist.broadcast(flat, src)
    for t, new in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        t.copy_(new.view(t.shape))


@mutant("shard", hint="an empty part belongs in the list")
def parts_first_then_batches(n, batch_size, epoch, rank, world_size):
    """Each rank gets a part of the epoch, and cuts batches of its own."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))
    return list(order.tensor_split(world_size)[rank].split(max(1, batch_size // world_size)))


@mutant("shard", hint="a tensor of int64")
def lists_of_numbers(n, batch_size, epoch, rank, world_size):
    return [batch.tolist()[rank::world_size] for batch in _batches(n, batch_size, epoch)]


edit("gradients_of", "all_zeros", replace="if p.grad is None:", by="if True:", hint="are gone")
edit("gradients_of", "backwards", replace="[p.grad for p in parameters]",
     by="[p.grad for p in reversed(parameters)]", hint="order of module.parameters()")  # fmt: skip
edit("gradients_of", "float32", replace="torch.zeros_like(p)", by="torch.zeros(p.shape)",
     hint="the dtype of its parameter")  # fmt: skip
edit("train", "starts_from_the_last", replace="broadcast_parameters(model)",
     by="broadcast_parameters(model, dist.get_world_size() - 1)",
     hint="One process starts from rank 0's model")  # fmt: skip


@mutant("train", hint="all images of this step's batch")
def counts_the_first_batch(model, batches, lr, momentum=0.0):
    for p in model.parameters():
        dist.broadcast(p.detach(), 0)
    optimizer, images = torch.optim.SGD(model.parameters(), lr, momentum), None
    for x, y in batches:
        if images is None:
            images = torch.tensor(len(y))
            dist.all_reduce(images)
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(x), y, reduction="sum") / images).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()


@mutant("shard", hint="tensor_split makes all")
def by_chunk(n, batch_size, epoch, rank, world_size):
    return [batch.chunk(world_size)[rank] for batch in _batches(n, batch_size, epoch)]


edit("train", "zeros_after_backward", hint="zero_grad() forgets",
     replace="        optimizer.zero_grad()\n"
     "        (loss * dist.get_world_size() / images).backward()\n",
     by="        (loss * dist.get_world_size() / images).backward()\n"
     "        optimizer.zero_grad()\n")  # fmt: skip
