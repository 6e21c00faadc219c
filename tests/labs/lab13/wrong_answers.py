"""Wrong answers to lab 13."""

import torch
import torch.distributed as dist
from torch import nn

from tests.labs.answers import edits, wrong

ALL = "12 * optimizer + 2 * gradients + 2 * weights"
LOOP = "in stretches(trainable, dist.get_rank(), dist.get_world_size()):"
HEARD = 'own.update({option: group[option] for option in group if option != "params"})'
MEAN = (
    "        mine = reduce_to_owner(line(gradients, dist.get_world_size())).to(self.shard.dtype)\n"
)
# fmt: off
edits(
    ("state_bytes", "four_and_eight", ALL, "8 * optimizer + 4 * gradients + 4 * weights",
     "split otherwise"),
    ("state_bytes", "no_float32_copy", ALL, "8 * optimizer + 2 * gradients + 2 * weights",
     "no copy"),
    ("state_bytes", "all_by_n", {"stage >= 2": "stage >= 1", "stage >= 3": "stage >= 1"},
     "all by n"),
    ("state_bytes", "gradients_in_the_first", "stage >= 2", "stage >= 1", "a stage too far"),
    ("state_bytes", "later",
     {"stage >= 1": "stage > 1", "stage >= 2": "stage > 2", "stage >= 3": "stage > 3"},
     "a stage too few"),
    ("state_bytes", "parameters_first", ALL, "2 * optimizer + 2 * gradients + 12 * weights",
     "parameters first"),
    ("state_bytes", "rounded_down", "-(-parameters // ranks)", "parameters // ranks",
     "rounded down"),
    ("state_bytes", "one_more", "-(-parameters // ranks)", "parameters // ranks + 1",
     "one too many"),
    ("state_bytes", "divides", "-(-parameters // ranks)", "parameters / ranks", "no int"),
    ("state_bytes", "bytes_dealt_out", f"return {ALL}",
     "each = [12 * parameters, 2 * parameters, 2 * parameters]\n"
     "    return sum(-(-b // ranks) if stage > i else b for i, b in enumerate(each))",
     "cut by bytes"),
    ("state_bytes", "one_stage_alone",
     {"stage >= 1": "stage == 1", "stage >= 2": "stage == 2", "stage >= 3": "stage == 3"}, "other"),
    ("state_bytes", "four_bytes_of_gradient", "2 * gradients", "4 * gradients", "other"),
    ("state_bytes", "gigabytes", f"return {ALL}", f"return ({ALL}) // 10**9", "gigabytes"),
)
edits(
    ("ShardedOptimizer", "keeps_copies", "        self.local.step()\n",
     "        self.local.step()\n"
     "        self.copies = [p.detach().clone() for group in self.param_groups\n"
     "                       for p in group['params'] for _ in range(5)]\n", "kept elsewhere"),
    ("ShardedOptimizer", "all_or_none", "        self.local.step()\n",
     "        if all(piece.grad is not None for piece, *_ in self.pieces):\n"
     "            self.local.step()\n", "other"),
    ("ShardedOptimizer", "hides_its_state", "        self.local.step()\n",
     "        self.local.state.update(getattr(self, 'hidden', {}))\n        self.local.step()\n"
     "        self.hidden = dict(self.local.state)\n        self.local.state.clear()\n",
     "no state"),
    ("ShardedOptimizer", "frozen_shared_out",
     {'trainable = [p for p in group["params"] if p.requires_grad]\n        own':
      'trainable = group["params"]\n        own',
      'trainable = [p for p in group["params"] if p.requires_grad]\n            flat':
      'trainable = group["params"]\n            flat'}, "frozen sent"),
    ("ShardedOptimizer", "loss_not_returned", "        return loss\n", "",
     "loss of the closure"),
    ("ShardedOptimizer", "closure_again", "self.local.step()", "self.local.step(closure)",
     "closure again"),
    ("ShardedOptimizer", "closure_unheard", "                loss = closure()\n",
     "                pass\n", "closure not called"),
    ("ShardedOptimizer", "unsharded", LOOP, "in [(p, 0, p.numel()) for p in trainable]:",
     "state of all"),
    ("ShardedOptimizer", "not_gathered", "p.copy_(values)", "pass", "not gathered"),
    ("ShardedOptimizer", "frozen_too",
     {'if p.requires_grad]\n        own = []': ']\n        own = []',
      "None if p.grad is None else": "torch.zeros_like(piece) if p.grad is None else"},
     "frozen moved"),
    ("ShardedOptimizer", "zeros", "None if p.grad is None else",
     "torch.zeros_like(piece) if p.grad is None else", "unused moved"),
    ("ShardedOptimizer", "deaf", HEARD, "pass", "scheduler unheard"),
    ("ShardedOptimizer", "first_group_alone", HEARD, f"{HEARD}\n            break",
     "first group heard"),
    ("ShardedOptimizer", "keeps_views", "        self.local.zero_grad()  # a piece's",
     "        # a piece's", "keeps gradients"),
    ("ShardedOptimizer", "one_rate", HEARD, 'own["lr"] = self.param_groups[0]["lr"]', "one group"),
    ("ShardedOptimizer", "twice", "            numbers = flat[",
     "            all_gather(flat.clone(), flat.chunk(n)[rank].clone())\n"
     "            numbers = flat[", "more bytes"),
    ("ShardedOptimizer", "own_gradients_alone", "    def state_dict(self):",
     "    def zero_grad(self, set_to_none=True):\n        self.local.zero_grad()\n\n"
     "    def state_dict(self):", "not cleared"),
    ("ShardedOptimizer", "copies", ".view(-1)[start:stop]", ".view(-1)[start:stop].clone()",
     "never stepped"),
    ("ShardedOptimizer", "never_made", "if self.local is None:", "if False:", "not made yet"),
    ("ShardedOptimizer", "list_of_pieces", 'self.make([{**group, "params": own}])',
     "self.make(own)", "nothing of a group"),
    ("ShardedOptimizer", "made_anew", "if self.local is None:", "if True:", "last group alone"),
    ("ShardedOptimizer", "padded", "flat[: sum(p.numel() for p in trainable)]", "flat", "padding"),
    ("ShardedOptimizer", "first_numbers", "p.grad.reshape(-1)[start:stop]",
     "p.grad.reshape(-1)[: stop - start]", "other"),
)


@wrong("ShardedOptimizer", "dealt out by parameter")
class ByParameter(torch.optim.Optimizer):
    def __init__(self, params, optimizer_class, **options):
        super().__init__(params, options)
        found = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        self.owned = [(p, i % dist.get_world_size()) for i, p in enumerate(found)]
        mine = [p for p, owner in self.owned if owner == dist.get_rank()]
        self.local = optimizer_class(mine, **options)

    def step(self, closure=None):
        self.local.step()
        for p, owner in self.owned:
            dist.broadcast(p.data, owner)


@wrong("ShardedOptimizer", "no groups")
class Bare:
    def __init__(self, params, optimizer_class, **options):
        self.params = [p for p in params if p.requires_grad]
        n, rank = dist.get_world_size(), dist.get_rank()
        self.pieces = [nn.Parameter(p.data.view(-1).tensor_split(n)[rank]) for p in self.params]
        self.local = optimizer_class(self.pieces, **options)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def step(self, closure=None):
        loss = closure() if closure is not None else None
        n, rank = dist.get_world_size(), dist.get_rank()
        for p, piece in zip(self.params, self.pieces, strict=True):
            piece.grad = None if p.grad is None else p.grad.view(-1).tensor_split(n)[rank]
        self.local.step()
        self.local.zero_grad()
        for p in self.params:
            for owner, part in enumerate(p.data.view(-1).tensor_split(n)):
                if len(part):
                    dist.broadcast(part, owner)
        return loss


edits(
    ("reduce_to_owner", "sum", "flat / n", "flat", "sum"),
    ("reduce_to_owner", "in_place", "flat / n", "flat.div_(n)", "line changed"),
    ("reduce_to_owner", "a_view", "torch.empty_like(flat[: len(flat) // n])",
     "torch.empty_like(flat)[: len(flat) // n]", "a view"),
    ("reduce_to_owner", "in_half", "    reduce_scatter(mine, flat / n)\n",
     "    half = mine.half()\n    reduce_scatter(half, (flat / n).half())\n"
     "    mine = half.to(flat.dtype)\n", "rounded"),
    ("reduce_to_owner", "in_float32", "    reduce_scatter(mine, flat / n)\n",
     "    wide = mine.float()\n    reduce_scatter(wide, flat.float() / n)\n"
     "    mine = wide.to(flat.dtype)\n", "rounded"),
    ("reduce_to_owner", "float32_alone", "torch.empty_like(flat[: len(flat) // n])",
     "torch.empty(len(flat) // n)", "another dtype"),
    ("reduce_to_owner", "divided_twice", "flat / n", "flat / n**2", "other"),
    ("reduce_to_owner", "whole_numbers", "flat / n", "flat // n", "other"),
    ("reduce_to_owner", "nothing_sent", "    reduce_scatter(mine, flat / n)\n",
     "    mine.copy_(flat.chunk(n)[dist.get_rank()])\n", "own batch"),
)


KEPT = {}


@wrong("reduce_to_owner", "overwritten")
def into_what_is_kept(flat):
    n = dist.get_world_size()
    mine = KEPT.setdefault((len(flat), flat.dtype), torch.empty_like(flat[: len(flat) // n]))
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(mine, flat / n)
    return mine


@wrong("reduce_to_owner", "more bytes")
def all_reduced(flat):
    total = flat / dist.get_world_size()
    dist.all_reduce(total)
    return total.chunk(dist.get_world_size())[dist.get_rank()].clone()


@wrong("reduce_to_owner", "whole mean")
def everything(flat):
    total = flat / dist.get_world_size()
    dist.all_reduce(total)
    return total


@wrong("reduce_to_owner", "another's chunk")
def to_the_next(flat):
    n = dist.get_world_size()
    parts = [part.clone() for part in flat.chunk(n)]
    for owner, part in enumerate(parts):
        dist.reduce(part, (owner + 1) % n)
    return parts[dist.get_rank() - 1] / n


edits(
    ("FullyShard", "waits_at_once", ", async_op=True)", ")", "no work"),
    ("FullyShard", "waits_itself",
     {"return all_gather(self.flat,": "work = all_gather(self.flat,",
      ", async_op=True)": ", async_op=True)\n        work.wait()\n        return work"}, "waits"),
    ("FullyShard", "no_hook", "y.register_hook(self.backward_begins)", "pass", "no memory"),
    ("FullyShard", "new_memory", "self.flat.untyped_storage().resize_(self.nbytes)",
     "self.flat = self.flat.new_empty(self.shard.numel() * dist.get_world_size())", "no memory"),
    ("FullyShard", "not_freed", "        self.after()\n        if y.req", "        if y.req",
     "not freed"),
    ("FullyShard", "frees_nothing", "self.flat.untyped_storage().resize_(0)", "pass", "stays"),
    ("FullyShard", "keeps_gradients", "            view.grad = None\n", "            pass\n",
     "stays"),
    ("FullyShard", "reduces_in_float32", MEAN, MEAN.replace(
     "dist.get_world_size())", "dist.get_world_size()).float()"), "another width"),
    ("FullyShard", "own_batch", MEAN,
     "        whole = line(gradients, dist.get_world_size())\n        mine = "
     "whole.chunk(dist.get_world_size())[dist.get_rank()].clone().to(self.shard.dtype)\n",
     "own batch"),
    ("FullyShard", "numbers_for_bytes", "resize_(self.nbytes)", "resize_(self.flat.numel())",
     "too little memory"),
    ("FullyShard", "no_numbers_left", "self.flat.untyped_storage().resize_(0)",
     "self.flat.data = torch.empty(0)", "another line"),
    ("FullyShard", "two_ahead", "self.before(1)", "self.before(2)", "another direction"),
    ("FullyShard", "sums", ".to(self.shard.dtype)",
     ".to(self.shard.dtype) * dist.get_world_size()", "sum"),
    ("FullyShard", "divides_twice", ".to(self.shard.dtype)",
     ".to(self.shard.dtype) / dist.get_world_size()", "divided twice"),
    ("FullyShard", "all_reduces", MEAN,
     "        flat = line(gradients, dist.get_world_size()) / dist.get_world_size()\n"
     "        dist.all_reduce(flat)\n"
     "        mine = flat.chunk(dist.get_world_size())[dist.get_rank()].to(self.shard.dtype)\n"
     "        mine = mine.clone()\n", "more bytes"),
    ("FullyShard", "asks_first", MEAN,
     "        has = torch.tensor([float(v.grad is not None) for v in self.views])\n"
     "        dist.all_reduce(has)\n" + MEAN, "many operations"),
    ("FullyShard", "overwrites", "mine if self.shard.grad is None else self.shard.grad + mine",
     "mine", "last backward alone"),
    ("FullyShard", "none", "torch.zeros_like(v) if v.grad is None else v.grad", "v.grad", "None"),
    ("FullyShard", "skips_none",
     "torch.zeros_like(v) if v.grad is None else v.grad for v in self.views",
     "v.grad for v in self.views if v.grad is not None", "None"),
    ("FullyShard", "flat_is_gone", "self.flat.untyped_storage().resize_(0)", "self.flat = None",
     "flat is gone"),
    ("FullyShard", "returns_nothing", "        return y\n", "        return None\n",
     "returns nothing"),
    ("FullyShard", "hook_of_the_input", "y.register_hook", "x.register_hook", "needs no gradient"),
    ("FullyShard", "no_padding", "line(gradients, dist.get_world_size())",
     "torch.cat([each.reshape(-1) for each in gradients])", "no zeros at the end"),
    ("FullyShard", "one_dtype", ".to(self.flat.dtype)", "", "another dtype"),
    ("FullyShard", "other_order", "line(gradients, dist", "line(gradients[::-1], dist",
     "gradients"),
    ("FullyShard", "first_shards",
     {"self.shard.detach().to(self.flat.dtype)": "self.first.to(self.flat.dtype)",
      "        self.free()\n\n    def gather":
      "        self.first = self.shard.detach().clone()\n        self.free()\n\n    def gather"},
     "stale"),
)
NEXT = "    if 0 <= k + step < len(units):\n        units[k + step].begin()\n"
edits(
    ("prefetch", "nothing", NEXT, "", "nothing ahead"),
    ("prefetch", "at_once", "units[k + step].begin()",
     "units[k + step].begin()\n        units[k + step].wait()", "waits for the next"),
    ("prefetch", "no_wait", "    units[k].wait()\n", "", "not there"),
    ("prefetch", "waits_for_another", "units[k].wait()", "units[min(k + 1, len(units) - 1)].wait()",
     "first not begun"),
    ("prefetch", "all", "    units[k].begin()\n", "    [unit.begin() for unit in units]\n",
     "all at the start"),
    ("prefetch", "forward_order", NEXT,
     "    if k + 1 < len(units):\n        units[k + 1].begin()\n", "wrong way"),
    ("prefetch", "round", "if 0 <= k + step <", "if k + step <", "round the end"),
    ("prefetch", "forward_alone", "if 0 <= k + step <", "if step > 0 and k + step <",
     "forward alone"),
    ("prefetch", "beyond", "if 0 <= k + step < len(units)", "if True", "beyond the last"),
    ("prefetch", "never_begun", "    units[k].begin()\n", "", "first not begun"),
    ("prefetch", "gathers_itself", "units[k].wait()", "units[k].gather().wait()",
     "other attributes"),
    ("prefetch", "every_second", "if 0 <= k + step <", "if k % 2 and 0 <= k + step <", "other"),
)
edits(
    ("pieces", "empty", "if a < b:", "if True:", "empty ones"),
    ("pieces", "from_the_line", "(owner, a - first, b - first)", "(owner, a, b)", "global"),
    ("pieces", "whole_shards", "(owner, a - first, b - first)",
     "(owner, 0, min(before, length - first))", "whole shards"),
    ("pieces", "how_many", "(owner, a - first, b - first)", "(owner, a - first, b - a)",
     "how many"),
    ("pieces", "inclusive", "b - first))", "b - first - 1))", "inclusive"),
    ("pieces", "floor", "-(-length // old), -(-length // new)", "length // old, length // new",
     "some missing"),
    ("pieces", "beyond_the_line", "min(rank * now, length), min((rank + 1) * now, length)",
     "rank * now, (rank + 1) * now", "past the end"),
    ("pieces", "yields", {"    found = []\n": "", "found.append((owner, a - first, b - first))":
     "yield owner, a - first, b - first", "    return found\n": ""}, "no list"),
    ("pieces", "backwards", "return found", "return found[::-1]", "other"),
)
# fmt: on


@wrong("pieces", "even sizes")
def as_tensor_split(length, old, new, rank):
    mine = set(torch.arange(length).tensor_split(new)[rank].tolist())
    found = []
    for owner, shard in enumerate(torch.arange(length).tensor_split(old)):
        at = [place for place, number in enumerate(shard.tolist()) if number in mine]
        if at:
            found.append((owner, at[0], at[-1] + 1))
    return found


@wrong("pieces", "between")
def first_and_last(length, old, new, rank):
    size, wide = -(-length // old), -(-length // new)
    start, stop = min(rank * wide, length), min((rank + 1) * wide, length)
    if start == stop:
        return []
    first, last = start // size, (stop - 1) // size
    if first == last:
        return [(first, start - first * size, stop - first * size)]
    return [(first, start - first * size, size), (last, 0, stop - last * size)]


@wrong("pieces", "rounded down")
def rest_to_the_last(length, old, new, rank):
    start, stop = rank * (length // new), (rank + 1) * (length // new)
    found, size = [], length // old
    for owner in range(old):
        first, end = owner * size, length if owner == old - 1 else (owner + 1) * size
        a, b = max(start, first), min(length if rank == new - 1 else stop, end)
        if a < b:
            found.append((owner, a - first, b - first))
    return found


@wrong("pieces", raises="ZeroDivisionError")
def no_empty_line(length, old, new, rank):
    size, wide = -(-length // old), -(-length // new)
    start, stop = min(rank * wide, length), min((rank + 1) * wide, length)
    found = []
    for owner in range(start // size, old):
        a, b = max(start, owner * size), min(stop, (owner + 1) * size)
        if a < b:
            found.append((owner, a - owner * size, b - owner * size))
    return found
