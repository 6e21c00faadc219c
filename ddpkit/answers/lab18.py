# mypy: ignore-errors
"""Answers of lab 18 (memory).

Generated from solutions/18_memory.py by `make release`; do not edit.
"""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import CheckpointPolicy


def kept(module, *inputs):
    """Return the bytes that autograd keeps for the backward of `module(*inputs)`: an int.

    Each storage counts once, with all bytes, for any number of saved tensors and views. Parameters
    of the module do not count, nor do saved views of parameters. No gradient is computed.
    """
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    found = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        module(*inputs)
    return sum(size for place, size in found.items() if place not in own)


class Again(torch.autograd.Function):
    """Forward: compute function(*inputs), keep only the inputs. Backward: compute function again.

    inputs are tensors, some of which require a gradient, and function returns a tensor. Parameters
    get the same gradients as without this class. The second computation draws the same random
    numbers as the first, and afterwards the generator is in the same state as before.
    """

    @staticmethod
    def forward(ctx, function, *inputs):
        ctx.function, ctx.state = function, torch.get_rng_state()
        ctx.save_for_backward(*inputs)
        return function(*inputs)  # no graph is made here

    @staticmethod
    def backward(ctx, gradient):
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.state)
            y = ctx.function(*inputs)
        y.backward(gradient)
        return None, *(x.grad for x in inputs)


def worth_keeping(ctx, op, *args, **kwargs):
    """Return MUST_SAVE for a kept output, PREFER_RECOMPUTE for an output to compute again.

    Outputs of matrix products (mm, addmm, bmm), of the functional all-reduce and of the wait are
    kept: no product and no sum over ranks is made twice. All the rest is computed again.
    """
    aten, c10d = torch.ops.aten, torch.ops._c10d_functional
    products = aten.mm.default, aten.addmm.default, aten.bmm.default
    travelled = c10d.all_reduce.default, c10d.wait_tensor.default
    keep = op in products + travelled
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def memory_plan(blocks, held, limit):
    """Return for each block True if computed again, for the least time; None if no plan fits.

    blocks is a list of (ms, inside, given): a forward takes `ms`. A kept block holds `inside` bytes
    from forward to backward. A block to compute again holds `given` bytes, and `inside` in all
    during the block's own backward. Backwards run from the last block to the first, and each
    frees the bytes of the block. `held` micro-batches have had the forward when the first backward
    begins. At most `limit` bytes are held at any moment. There are at most ten blocks.
    """
    best = None
    for again in itertools.product([False, True], repeat=len(blocks)):
        holds = [given if a else inside for a, (_, inside, given) in zip(again, blocks)]
        levels = [sum(holds[:i]) + inside for i, (_, inside, _) in enumerate(blocks)]
        ms = sum(ms for a, (ms, _, _) in zip(again, blocks) if a)
        if (held - 1) * sum(holds) + max(levels) <= limit and (best is None or ms < best[0]):
            best = ms, list(again)
    return best and best[1]


def all_gather(whole, mine):
    """Fill `whole` with all ranks' `mine`, in the order of the ranks."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, mine)


def mean_by_halves(flat):
    """Return the mean of all ranks' `flat`, float32, for half of the bytes of an all-reduce.

    bfloat16 travels. Each number is rounded before the sending, and each mean is rounded once.
    Sums are float32. All ranks return the same, bit for bit. flat remains unchanged.
    """
    n = dist.get_world_size()
    parts = nn.functional.pad(flat, (0, -len(flat) % n)).bfloat16()
    coming = torch.empty_like(parts)
    dist.all_to_all_single(coming, parts)
    mine = (coming.view(n, -1).float().sum(0) / n).bfloat16()
    whole = torch.empty_like(parts)
    all_gather(whole, mine)
    return whole[: len(flat)].float()


class LossScale:
    """scale is the factor of the loss; all ranks step, or none does."""

    def __init__(self, scale, patience):
        self.scale, self.patience, self.good = scale, patience, 0

    def step(self, optimizer):
        """Divide the gradients by scale, step, and return True; skip if any rank has inf or nan.

        At a skip no rank steps, scale is halved on every rank, and step returns False. After
        `patience` steps without a skip, scale is doubled, and the count begins anew. A rank may
        have no gradient at all. Use one collective of at most 8 bytes.
        """
        gradients = [p.grad for g in optimizer.param_groups for p in g["params"]]
        gradients = [g for g in gradients if g is not None]
        bad = torch.tensor(float(not all(g.isfinite().all() for g in gradients)))
        dist.all_reduce(bad, dist.ReduceOp.MAX)
        if bad:
            self.scale, self.good = self.scale / 2, 0
            return False
        for g in gradients:
            g /= self.scale
        optimizer.step()
        self.good += 1
        if self.good == self.patience:
            self.scale, self.good = self.scale * 2, 0
        return True


def gather_fp8(shards):
    """Return the whole tensor for each shard of the rank: float32, in the order of the ranks.

    Numbers travel as float8_e4m3fn, a byte each. Each shard has its own scale, float32: the largest
    absolute value of the shard is sent as 448, the largest number of the type. A shard of zeros
    stays zero. A single all-gather carries all numbers and scales. Shards have the same shapes on
    all ranks, are joined along the first dimension, and remain unchanged.
    """
    n, sizes = dist.get_world_size(), [x.numel() for x in shards]
    scales = torch.stack([x.abs().max() for x in shards]).clamp(min=2**-100) / 448
    numbers = [(x / s).to(torch.float8_e4m3fn).flatten() for x, s in zip(shards, scales)]
    mine = torch.cat([x.view(torch.uint8) for x in (scales, *numbers)])
    whole = mine.new_empty(n * len(mine))
    all_gather(whole, mine)
    first, *rest = whole.view(n, -1).split([scales.nbytes, *sizes], dim=1)
    scales = first.flatten().view(torch.float32).view(n, -1, 1).unbind(1)
    numbers = [each.flatten().view(torch.float8_e4m3fn).float().view(n, -1) for each in rest]
    joined = [x * s for x, s in zip(numbers, scales)]
    return [each.view(-1, *x.shape[1:]) for each, x in zip(joined, shards)]
