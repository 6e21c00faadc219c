# mypy: ignore-errors
"""Answers of lab 13 (shards).

Generated from solutions/13_shards.py by `make release`; do not edit.
"""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from ddpkit.answers import get

unflatten = get("unflatten")


def state_bytes(parameters: int, ranks: int, stage: int) -> int:
    """Return the bytes of parameters, gradients and optimizer on the rank that holds most.

    The training has mixed precision and Adam. In stage 0, all ranks hold everything. Stage 1 shares
    out the optimizer, stage 2 the gradients too, and stage 3 the parameters too.
    """
    share = -(-parameters // ranks)
    optimizer = share if stage >= 1 else parameters
    gradients = share if stage >= 2 else parameters
    weights = share if stage >= 3 else parameters
    return 12 * optimizer + 2 * gradients + 2 * weights


def line(tensors, n):
    """Return all numbers of `tensors` in one line, with zeros up to a length that n divides."""
    parts = [torch.zeros(0)] if not tensors else [each.detach().reshape(-1) for each in tensors]
    flat = torch.cat(parts)
    return nn.functional.pad(flat, (0, -len(flat) % n))


def stretches(tensors, rank, n):
    """List the parts of tensors in chunk `rank` of their line: (tensor, start, stop)."""
    chunk, first, found = len(line(tensors, n)) // n, 0, []
    for each in tensors:
        start = max(rank * chunk - first, 0)
        stop = min((rank + 1) * chunk - first, each.numel())
        if start < stop:
            found.append((each, start, stop))
        first += each.numel()
    return found


def all_gather(whole, mine, **how):
    """Fill `whole` with all ranks' chunks; with async_op=True, returns a Work."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(whole, mine, **how)


def reduce_scatter(mine, whole, **how):
    """Fill `mine` with this rank's chunk of the sum of all ranks' `whole`."""
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return scatter(mine, whole, **how)


class ShardedOptimizer(torch.optim.Optimizer):
    """Steps like `optimizer_class(params, **options)`, with the state of only 1/n of the numbers.

    Works for optimizers that update each number on its own (SGD, Adam, AdamW). Before a step, the
    gradients are averaged already, so all ranks have the same gradients. After a step, all ranks
    have the same parameters, bit for bit, and keep no gradient. Each group of parameters is a line
    of its own.
    """

    def __init__(self, params, optimizer_class, **options):
        self.make = partial(optimizer_class, **options)
        self.local = None  # made with the first group: the optimizer of this rank's pieces
        self.pieces = []  # (piece, parameter, start, stop)
        super().__init__(params, options)  # calls add_param_group for each group

    def add_param_group(self, group):
        """Share out one more group of parameters, {"params": …, and options of its own}."""
        super().add_param_group(group)
        group = self.param_groups[-1]  # complete now: "params" is a list
        trainable = [p for p in group["params"] if p.requires_grad]
        own = []
        for p, start, stop in stretches(trainable, dist.get_rank(), dist.get_world_size()):
            own.append(nn.Parameter(p.detach().view(-1)[start:stop]))
            self.pieces.append((own[-1], p, start, stop))
        if self.local is None:
            self.local = self.make([{**group, "params": own}])
        else:
            self.local.add_param_group({**group, "params": own})
        for option, value in self.local.param_groups[-1].items():
            group.setdefault(option, value)  # options that the group does not set

    @torch.no_grad()
    def step(self, closure=None):
        """Step this rank's pieces, and gather the pieces of all ranks."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, own in zip(self.param_groups, self.local.param_groups):
            own.update({option: group[option] for option in group if option != "params"})
        for piece, p, start, stop in self.pieces:
            piece.grad = None if p.grad is None else p.grad.reshape(-1)[start:stop]
        self.local.step()
        self.local.zero_grad()  # a piece's gradient would keep the whole gradient alive
        n, rank = dist.get_world_size(), dist.get_rank()
        for group in self.param_groups:
            trainable = [p for p in group["params"] if p.requires_grad]
            flat = line(trainable, n)
            all_gather(flat, flat.chunk(n)[rank].clone())
            numbers = flat[: sum(p.numel() for p in trainable)]
            for p, values in zip(trainable, unflatten(numbers, trainable)):
                p.copy_(values)
        return loss

    def state_dict(self):
        """Return the state of this rank's pieces."""
        return self.local.state_dict()

    def load_state_dict(self, state):
        """Load a state that `state_dict` returned on this rank."""
        self.local.load_state_dict(state)
        for group, own in zip(self.param_groups, self.local.param_groups):
            group.update({option: own[option] for option in own if option != "params"})


def reduce_to_owner(flat):
    """Return this rank's chunk of the mean of all ranks' `flat`; n divides the length of `flat`.

    `flat` stays unchanged, and the result has memory of its own.
    """
    n = dist.get_world_size()
    mine = torch.empty_like(flat[: len(flat) // n])
    reduce_scatter(mine, flat / n)
    return mine


def slots(block):
    """Return {trainable parameter of a block: all its places as (module, name)}."""
    found = {}
    for module in block.modules():
        for name, p in module.named_parameters(recurse=False):
            if p.requires_grad:
                found.setdefault(p, []).append((module, name))
    return found


def views_of(flat, block):
    """Replace a block's trainable parameters by views of `flat`, in order; return the views."""
    found, views = slots(block), []
    sizes = [p.numel() for p in found]
    for numbers, (p, places) in zip(flat[: sum(sizes)].split(sizes), found.items()):
        views.append(nn.Parameter(numbers.data.view(p.shape)))
        for module, name in places:
            delattr(module, name)
            vars(module)[name] = views[-1]  # not registered: optimizers must find only the shard
    return views


class FullyShard(nn.Module):
    """A block that holds its parameters only while it computes; each rank keeps a shard of them.

    `shard` is a Parameter for the optimizer: this rank's chunk of the line of the block's trainable
    parameters. A backward adds the mean of all ranks' gradients to `shard.grad`. `flat` is the
    whole line, in `dtype` if it is given; the block's tensors are `views` of `flat`. A block takes
    and returns a tensor, and runs forward once for each backward. Blocks that share a tensor must
    be in one FullyShard.
    """

    def __init__(self, block, dtype=None):
        super().__init__()
        self.block, self.work, self.missing = block, None, set()
        n, rank = dist.get_world_size(), dist.get_rank()
        self.flat = line(list(slots(block)), n)
        self.shard = nn.Parameter(self.flat.chunk(n)[rank].clone())
        self.flat = self.flat.to(dtype)
        self.nbytes = self.flat.untyped_storage().nbytes()
        self.views = views_of(self.flat, block)
        for frozen in block.parameters():  # only frozen parameters are left
            frozen.data = frozen.data.to(dtype)
        for view in self.views:
            view.register_post_accumulate_grad_hook(self.arrived)
        self.free()

    def gather(self):
        """Allocate the `nbytes` of `flat`, start to gather all shards, and return the Work."""
        self.flat.untyped_storage().resize_(self.nbytes)
        return all_gather(self.flat, self.shard.detach().to(self.flat.dtype), async_op=True)

    def free(self):
        """Free the memory of `flat`."""
        self.flat.untyped_storage().resize_(0)

    def ready(self):
        """Add the mean gradient to `shard.grad`, and leave no whole gradient behind.

        A view whose `grad` is None counts as zeros.
        """
        gradients = [torch.zeros_like(v) if v.grad is None else v.grad for v in self.views]
        for view in self.views:
            view.grad = None
        mine = reduce_to_owner(line(gradients, dist.get_world_size())).to(self.shard.dtype)
        self.shard.grad = mine if self.shard.grad is None else self.shard.grad + mine

    def forward(self, x):
        """Return the block's output. Outside forward and backward, parameters take no memory."""
        self.before(1)
        y = self.block(x)
        self.after()
        if y.requires_grad:
            y.register_hook(self.backward_begins)
        return y

    # Given

    def before(self, step):
        """Bring the parameters: before a forward (step 1), before a backward (step -1)."""
        self.begin()
        self.wait()

    def begin(self):
        """Start to gather, if that has not begun yet."""
        if self.work is None:
            self.work = self.gather()

    def wait(self):
        """Wait until the parameters have arrived."""
        self.work.wait()

    def after(self):
        """Free the parameters."""
        self.work = None
        self.free()

    def backward_begins(self, gradient):
        """The hook of the block's output: the block's backward begins."""
        self.missing = set(self.views)
        self.before(-1)
        after_all = torch.autograd.Variable._execution_engine.queue_callback
        after_all(self.backward_ends)  # autograd calls it at the end of the whole backward

    def arrived(self, view):
        """The hook of each view: its gradient is ready."""
        self.missing.discard(view)
        if not self.missing:
            self.ready()
            self.after()

    def backward_ends(self):
        """Finish a block with unused views, at the end of the whole backward."""
        if self.missing:
            self.missing = set()
            self.ready()
            self.after()


def prefetch(units, k: int, step: int) -> None:
    """Bring the parameters of unit k, and start the gather of the next unit before you return.

    In a forward (step 1), the next unit is k + 1; in a backward (step -1), it is k - 1. Start no
    gather of any unit after the next.
    """
    units[k].begin()
    if 0 <= k + step < len(units):
        units[k + step].begin()
    units[k].wait()


def pieces(length: int, old: int, new: int, rank: int) -> list[tuple[int, int, int]]:
    """List the pieces of old shards that rank `rank` of `new` ranks reads, in order.

    A piece is (old rank, start, stop): the numbers from start to stop, counted within the old
    rank's shard. No piece is empty. Together, the pieces are the new rank's shard. The whole line
    has `length` numbers, and `old` ranks saved it.
    """
    before, now = -(-length // old), -(-length // new)
    start, stop = min(rank * now, length), min((rank + 1) * now, length)
    found = []
    for owner in range(old):
        first = owner * before
        a, b = max(start, first), min(stop, first + before)
        if a < b:
            found.append((owner, a - first, b - first))
    return found
