"""Wrong answers to lab 04: averaging gradients, in three ways."""

import torch
import torch.distributed as dist

from tests.mutants import edit, mutant


def _filled(module):
    """The parameters that train, with zeros for gradients that are missing."""
    trained = [p for p in module.parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    return trained


# average_by_gather

edit("average_by_gather", "no_division", replace="sum(parts) / world_size", by="sum(parts)",
     hint="That is the sum")  # fmt: skip
edit("average_by_gather", "division_twice", replace="sum(parts) / world_size",
     by="sum(parts) / world_size**2", hint="twice")  # fmt: skip
edit("average_by_gather", "never_scattered", hint="Only rank 0 has the means",
     replace="        dist.scatter(gradient, parts, src=0)",
     by="            gradient.copy_(parts[0])")  # fmt: skip
edit("average_by_gather", "by_broadcast", hint="Here it is one gather and one scatter",
     replace="        dist.scatter(gradient, parts, src=0)",
     by="            gradient.copy_(parts[0])\n        dist.broadcast(gradient, 0)")  # fmt: skip


@mutant("average_by_gather", hint="the same list of gradients")
def gather_what_is_there(module):
    rank, n = dist.get_rank(), dist.get_world_size()
    for p in module.parameters():
        if p.grad is None:
            continue
        parts = [torch.empty_like(p.grad) for _ in range(n)] if rank == 0 else None
        dist.gather(p.grad, parts, dst=0)
        parts = [sum(parts) / n] * n if rank == 0 else None
        dist.scatter(p.grad, parts, src=0)


@mutant("average_by_gather", hint="by other calls")
def gather_by_all_reduce(module):
    for p in _filled(module):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


@mutant("average_by_gather", hint="copy the means back")
def into_a_name(module):
    n, rank = dist.get_world_size(), dist.get_rank()
    for p in module.parameters():
        if p.requires_grad:
            gradient = torch.zeros_like(p) if p.grad is None else p.grad.clone()
            parts = [torch.empty_like(gradient) for _ in range(n)] if rank == 0 else None
            dist.gather(gradient, parts, dst=0)
            parts = [sum(parts) / n] * n if rank == 0 else None
            dist.scatter(gradient, parts, src=0)


# average_per_parameter

edit("average_per_parameter", "no_division", replace="\n        gradient /= dist.get_world_size()",
     by="", hint="That is the sum")  # fmt: skip
edit("average_per_parameter", "division_twice", replace="        dist.all_reduce(gradient)",
     by="        gradient /= dist.get_world_size()\n        dist.all_reduce(gradient)",
     hint="twice")  # fmt: skip
edit("average_per_parameter", "only_rank_0", replace="dist.all_reduce(gradient)",
     by="dist.reduce(gradient, dst=0)", hint="The ranks differ")  # fmt: skip
edit("average_per_parameter", "only_rank_0_divides", hint="The ranks differ",
     replace="gradient /= dist.get_world_size()",
     by="gradient /= dist.get_world_size() if dist.get_rank() == 0 else 1")  # fmt: skip
edit("average_per_parameter", "a_new_tensor", replace="gradient /= d", by="gradient = gradient / d",
     hint="That is the sum")  # fmt: skip


@mutant("average_per_parameter", hint="the same list of gradients")
def reduce_what_is_there(module):
    for p in module.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


@mutant("average_per_parameter", hint="A gradient may be None")
def trusts_every_grad(module):
    for p in module.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


@mutant("average_per_parameter", hint="A frozen parameter has got a gradient")
def frozen_too(module):
    for p in module.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


@mutant("average_per_parameter", hint="by other calls")
def shared_ones_twice(module):
    for _, p in module.named_parameters(remove_duplicate=False):
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


@mutant("average_per_parameter", hint="A gradient that was None still is")
def zeros_for_the_others(module):
    for p in module.parameters():
        if p.requires_grad:
            gradient = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()


# average_flat

edit("average_flat", "no_division", replace="\n        flat /= dist.get_world_size()", by="",
     hint="That is the sum")  # fmt: skip
edit("average_flat", "division_twice", replace="flat /= dist.get_world_size()",
     by="flat /= dist.get_world_size() ** 2", hint="twice")  # fmt: skip
edit("average_flat", "only_rank_0", replace="dist.all_reduce(flat)", by="dist.reduce(flat, dst=0)",
     hint="The ranks differ")  # fmt: skip
edit("average_flat", "never_copied_back", replace="g.copy_(mean.view_as(g))", by="g = mean",
     hint="copy the means back")  # fmt: skip
edit("average_flat", "view", replace="g.flatten()", by="g.view(-1)", hint="g.flatten()")


@mutant("average_flat", hint="by other calls")
def one_by_one(module):
    for p in _filled(module):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


@mutant("average_flat", hint="made one dtype of two")
def all_in_one_dtype(module):
    trained = _filled(module)
    flat = torch.cat([p.grad.flatten() for p in trained])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, mean in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
        p.grad.copy_(mean.view_as(p))


@mutant("average_flat", hint="make one vector for each dtype")
def promoted_gradients(module):
    trained = _filled(module)
    flat = torch.cat([p.grad.flatten() for p in trained])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, mean in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
        p.grad = mean.view_as(p)


@mutant("average_flat", hint="the same list of gradients")
def flattens_what_is_there(module):
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    for dtype in dict.fromkeys(g.dtype for g in gradients):
        members = [g for g in gradients if g.dtype == dtype]
        flat = torch.cat([g.flatten() for g in members])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for g, mean in zip(members, flat.split([g.numel() for g in members]), strict=True):
            g.copy_(mean.view_as(g))


# Of a stubborn student

edit("average_by_gather", "whole_numbers", replace="sum(parts) / world_size",
     by="sum(parts) // world_size", hint="divided by the number of ranks")  # fmt: skip
edit("average_by_gather", "of_those_who_have_one", replace="sum(parts) / world_size",
     by="sum(parts) / max(1, sum(bool(part.any()) for part in parts))",
     hint="of zeros where a rank has none")  # fmt: skip
edit("average_per_parameter", "not_waited_for", replace="dist.all_reduce(gradient)",
     by="dist.all_reduce(gradient, async_op=True)", hint="The ranks differ")  # fmt: skip
edit("average_flat", "by_columns", replace="g.copy_(mean.view_as(g))",
     by="g.copy_(mean.view(g.shape[::-1]).t() if g.dim() == 2 else mean)",
     hint="in the wrong places")  # fmt: skip
