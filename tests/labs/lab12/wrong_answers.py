"""Wrong answers to lab 12."""

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong
from tests.labs.lab12.right_answers import Unstacked, by_hooks, replicas_divided

SUM = "        total = gradient.clone()\n        dist.all_reduce(total)\n        return total\n"
SUM_X = SUM.replace("gradient", "x")
SAME = "        return x.view_as(x)\n"
# fmt: off
edits(
    ("Copied", "in_both", SAME, SUM_X, "in both"),
    ("Copied", "in_neither", SUM, "        return gradient\n", "own part"),
    ("Copied", "averages", "return total", "return total / dist.get_world_size()", "mean"),
    ("Copied", "swapped", {SUM: "        return gradient\n", SAME: SUM_X}, "swapped"),
    ("Copied", "in_place", "gradient.clone()", "gradient",
     "not left alone"),
    ("Copied", "two_gradients", "return total", "return total, total", "gradients for nothing"),
    ("Copied", "no_return", "        return total\n", "", "no gradient"),
    ("Copied", "gathers", SUM,
     "        parts = [torch.empty(gradient.shape, dtype=gradient.dtype)\n"
     "                 for _ in range(dist.get_world_size())]\n"
     "        dist.all_gather(parts, gradient.contiguous())\n        return sum(parts)\n",
     "more bytes"),
    ("Copied", "to_each", SUM,
     "        parts = [gradient.contiguous()] * dist.get_world_size()\n"
     "        theirs = [torch.empty_like(part) for part in parts]\n"
     "        dist.all_to_all(theirs, parts)\n        return sum(theirs)\n",
     "more bytes"),
    ("Copied", "past_the_record", "dist.all_reduce(total)",
     "dist.group.WORLD._inner.allreduce([total]).wait()", "sent too little"),
    ("Copied", "in_half", "return total", "return total.half().to(total.dtype)", "rounded"),
    ("Copied", "no_output", "        return x.view_as(x)\n", "        x.view_as(x)\n",
     "returned None"),
)
BACK = "        return gradient\n"
edits(
    ("Summed", "in_both", BACK, SUM, "in both"),
    ("Summed", "in_neither", SUM_X, "        return x.view_as(x)\n", "own part"),
    ("Summed", "averages", "return total", "return total / dist.get_world_size()", "mean"),
    ("Summed", "swapped", {SUM_X: SAME, BACK: SUM}, "swapped"),
    ("Summed", "in_place", "x.clone()", "x", "not left alone"),
    ("Summed", "divides", BACK, "        return gradient / dist.get_world_size()\n",
     "divided gradient"),
    ("Summed", "in_half", BACK, "        return gradient.half().to(gradient.dtype)\n", "rounded"),
    ("Summed", "twice", "        dist.all_reduce(total)\n",
     "        dist.all_reduce(total)\n        dist.all_reduce(total.clone())\n", "more bytes"),
)
SPLIT = "torch.arange(first.out_features).tensor_split(world_size)[rank]"
edits(
    ("SlicedMLP", "bias_in_the_sum", "Summed.apply(self.down(hidden)) + self.bias",
     "Summed.apply(self.down(hidden) + self.bias)", "bias in each"),
    ("SlicedMLP", "no_bias", " + self.bias\n", "\n", "no bias"),
    ("SlicedMLP", "no_copied", "Copied.apply(x)", "x", "x's part"),
    ("SlicedMLP", "no_summed", "Summed.apply(self.down(hidden))", "self.down(hidden)", "own part"),
    ("SlicedMLP", "rows_and_columns",
     {"second.weight[:, mine]": "second.weight[mine]"}, "shapes"),
    ("SlicedMLP", "whole_parts_only", SPLIT,
     "torch.arange(first.out_features)[rank * (first.out_features // world_size) :]"
     "[: first.out_features // world_size]", "cut off"),
    ("SlicedMLP", "rest_to_the_last", SPLIT,
     "torch.arange(first.out_features)[rank * (first.out_features // world_size) :]"
     "[: None if rank == world_size - 1 else first.out_features // world_size]", "other parts"),
    ("SlicedMLP", "views",
     {"self.down = linear(second.weight[:, mine])":
      "self.down = linear(second.weight[:, mine])\n"
      "        self.down.weight = nn.Parameter(second.weight.detach()[:, mine[0] : mine[-1] + 1])",
      "self.up = linear(first.weight[mine], first.bias[mine])":
      "self.up = linear(first.weight[mine], first.bias[mine])\n"
      "        self.up.weight = nn.Parameter(first.weight.detach()[mine[0] : mine[-1] + 1])"},
     "views"),
    ("SlicedMLP", "keeps_the_whole", "        self.bias = nn.Par",
     "        self.whole = [mlp]\n        self.bias = nn.Par", "views"),
    ("SlicedMLP", "bias_shared", "second.bias.detach().clone()", "second.bias.detach()",
     "not a copy"),
    ("SlicedMLP", "bias_divided",
     {"second.bias.detach().clone()": "second.bias.detach() / world_size",
      "Summed.apply(self.down(hidden)) + self.bias":
      "Summed.apply(self.down(hidden) + self.bias)"}, "learns otherwise"),
    ("SlicedMLP", "fixed_bias", "nn.Parameter(second.bias.detach().clone())",
     "nn.Parameter(second.bias.detach().clone(), requires_grad=False)", "learns otherwise"),
    ("SlicedMLP", "gathers_between",
     {"return Summed.apply(self.down(hidden)) + self.bias":
      "whole = Summed.apply(nn.functional.pad(hidden, self.around))\n"
      "        return Summed.apply(self.down(whole[..., self.mine])) + self.bias",
      "        self.bias = nn.Par": "        self.mine = mine\n"
      "        self.around = (int(mine[0]), first.out_features - 1 - int(mine[-1]))\n"
      "        self.bias = nn.Par"}, "more bytes"),
)
edits(
    ("SlicedMLP", "activation_of_parts",
     {"    mine = torch.arange(first.out_features)": "    mine = torch.arange(first.in_features)",
      "up = nn.Linear(first.in_features, len(mine))":
      "up = nn.Linear(len(mine), first.out_features)",
      "nn.Linear(len(mine), second.out_features, bias=rank == 0)":
      "nn.Linear(second.in_features, second.out_features, bias=rank == 0)",
      "up.weight.copy_(first.weight[mine]), up.bias.copy_(first.bias[mine])":
      "up.weight.copy_(first.weight[:, mine]), up.bias.copy_(first.bias / world_size)",
      "down.weight.copy_(second.weight[:, mine])": "down.weight.copy_(second.weight)",
      "self.layers(x)": "self.layers(x[..., mine])"},
     "activation of parts"),
    of=by_hooks,
)
EDGES = "edges(strip[:, :, :k], strip[:, :, -k:])"
edits(
    ("Halo", "own_rows", f"above, below = {EDGES}",
     "above, below = strip[:, :, :k], strip[:, :, -k:]", "own rows"),
    ("Halo", "upside_down", "[above, strip, below]", "[below, strip, above]", "upside down"),
    ("Halo", "one_row", EDGES, "edges(strip[:, :, :1], strip[:, :, -1:])", "one row"),
    ("Halo", "dropped",
     {"        mine[:, :, :k] += from_above\n        mine[:, :, -k:] += from_below\n": ""},
     "dropped"),
    ("Halo", "at_the_wrong_edge",
     {"mine[:, :, :k] += from_above": "mine[:, :, -k:] += from_above",
      "mine[:, :, -k:] += from_below": "mine[:, :, :k] += from_below"}, "at the wrong edge"),
    ("Halo", "instead",
     {"mine[:, :, :k] += from_above": "mine[:, :, :k] = from_above if dist.get_rank() else "
      "mine[:, :, :k]",
      "mine[:, :, -k:] += from_below": "mine[:, :, -k:] = from_below if dist.get_rank() < "
      "dist.get_world_size() - 1 else mine[:, :, -k:]"}, "instead of added"),
    ("Halo", "whole_strips", f"above, below = {EDGES}",
     "above, below = edges(strip, strip)\n"
     "        above, below = above[:, :, -k:], below[:, :, :k]", "more bytes"),
)


@wrong("Halo", "wraps round")
class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, strip, k):
        ctx.k = k
        return torch.cat([*ring(strip[:, :, :k], strip, strip[:, :, -k:])], dim=2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient[:, :, ctx.k : -ctx.k], None


def ring(top, strip, bottom):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return bottom, strip, top
    above, below = torch.empty(bottom.shape), torch.empty(top.shape)
    works = [
        dist.isend(top.contiguous(), (rank - 1) % n, tag=1),
        dist.isend(bottom.contiguous(), (rank + 1) % n, tag=2),
        dist.irecv(above, (rank - 1) % n, tag=2),
        dist.irecv(below, (rank + 1) % n, tag=1),
    ]
    for work in works:
        work.wait()
    return above, strip, below


@wrong("Halo", "in a row")
class OneAfterTheOther(torch.autograd.Function):
    @staticmethod
    def forward(ctx, strip, k):
        ctx.k = k
        above, below = down_and_up(strip[:, :, :k], strip[:, :, -k:])
        return torch.cat([above, strip, below], dim=2)

    @staticmethod
    def backward(ctx, gradient):
        k = ctx.k
        above, below = down_and_up(gradient[:, :, :k], gradient[:, :, -k:])
        mine = gradient[:, :, k:-k].clone()
        mine[:, :, :k] += above
        mine[:, :, -k:] += below
        return mine, None


def down_and_up(top, bottom):
    rank, n = dist.get_rank(), dist.get_world_size()
    above, below = torch.zeros(bottom.shape), torch.zeros(top.shape)
    if rank:
        dist.recv(above, rank - 1)
    if rank < n - 1:
        dist.send(bottom.contiguous(), rank + 1)
        dist.recv(below, rank + 1)
    if rank:
        dist.send(top.contiguous(), rank - 1)
    return above, below


CAT = "        return torch.cat(parts, dim=1)\n"
SCATTER = "        dist.reduce_scatter(mine, parts)\n        return mine\n"
edits(
    ("Gathered", "along_dim_0", "torch.cat(parts, dim=1)", "torch.cat(parts)", "along dim 0"),
    ("Gathered", "one_below_the_other", "torch.cat(parts, dim=1)",
     "torch.cat(parts).view(len(x), -1, *x.shape[2:])", "one below the other"),
    ("Gathered", "own_slice", SCATTER, "        return parts[dist.get_rank()]\n", "own slice"),
    ("Gathered", "into_the_gradient", "torch.empty_like(parts[0])", "parts[0]", "not left alone"),
    ("Gathered", "averages", "return mine", "return mine / dist.get_world_size()", "mean"),
    ("Gathered", "all_reduce", SCATTER,
     "        total = gradient.clone()\n        dist.all_reduce(total)\n"
     "        return total.chunk(dist.get_world_size(), dim=1)[dist.get_rank()]\n", "more bytes"),
    ("Gathered", "zeros_summed", "        dist.all_gather(parts, x)\n",
     "        parts = [part.zero_() for part in parts]\n"
     "        parts[dist.get_rank()] += x\n"
     "        whole = torch.stack(parts)\n        dist.all_reduce(whole)\n"
     "        parts = [*whole]\n", "more bytes"),
    ("Scattered", "into_x", "torch.empty_like(parts[0])", "parts[0]", "not left alone"),
    ("Scattered", "averages", "return mine", "return mine / dist.get_world_size()", "mean"),
    ("Scattered", "own_slice", SCATTER, "        return parts[dist.get_rank()]\n", "own slice"),
    ("Scattered", "along_dim_0", "torch.cat(parts, dim=1)", "torch.cat(parts)", "gradient's shape"),
    ("Scattered", "only_its_own", CAT,
     "        parts = [part * (i == dist.get_rank()) for i, part in enumerate(parts)]\n" + CAT,
     "only its own"),
)
edits(
    ("Scattered", "all_reduce", "return my_sum(x)",
     "total = x.clone()\n        dist.all_reduce(total)\n"
     "        return total.chunk(dist.get_world_size(), dim=1)[dist.get_rank()]", "more bytes"),
    of=Unstacked,
)
edits(
    ("global_norm", "alone", "    dist.all_reduce(of_slices)\n", "", "own"),
    ("global_norm", "everything_summed", "if sliced(p):", "if True:", "counted by all"),
    ("global_norm", "slices_alone", "(of_slices.item() + of_whole)", "of_slices.item()",
     "left out"),
    ("global_norm", "forgets_the_root", " ** 0.5", "", "no root"),
    ("global_norm", "none", "        if p.grad is not None:\n", "        if True:\n", "None"),
    ("global_norm", "a_tensor", "return (of_slices.item() + of_whole) ** 0.5",
     "return (of_slices + of_whole) ** 0.5", "no float"),
    ("global_norm", "in_half", "    dist.all_reduce(of_slices)\n",
     "    of_slices = of_slices.half()\n    dist.all_reduce(of_slices)\n", "rounded"),
    ("global_norm", "in_place", "p.grad.double().square()", "p.grad.square_()", "changed"),
)
NORMS = "    total = torch.zeros(1)\n"
edits(
    ("global_norm", "norms_added",
     {" / (1 if sliced(p) else dist.get_world_size())": "",
      "    dist.all_reduce(total)\n": "    total = total.sqrt()\n    dist.all_reduce(total)\n",
      "return total.sqrt().item()": "return total.item()"}, "norms added"),
    ("global_norm", "each_norm_added",
     {"p.grad.norm() ** 2": "p.grad.norm()", "return total.sqrt().item()": "return total.item()"},
     "norms added"),
    ("global_norm", "largest",
     {" / (1 if sliced(p) else dist.get_world_size())": "",
      "dist.all_reduce(total)": "dist.all_reduce(total, dist.ReduceOp.MAX)"}, "largest"),
    ("global_norm", "mean",
     {" / (1 if sliced(p) else dist.get_world_size())": "",
      "dist.all_reduce(total)": "dist.all_reduce(total, dist.ReduceOp.AVG)"}, "mean"),
    ("global_norm", "a_norm_for_each",
     {NORMS: NORMS + "    ahead = torch.zeros(9)\n    dist.all_reduce(ahead)\n"}, "more bytes"),
    of=replicas_divided,
)
HEADS = "torch.arange(heads).tensor_split(world_size)[rank]"
ROWS = "torch.cat([columns + i * heads * self.head_dim for i in range(3)])"
edits(
    ("SlicedAttention", "bias_in_the_sum", "Summed.apply(self.out(heads)) + self.bias",
     "Summed.apply(self.out(heads) + self.bias)", "bias in each"),
    ("SlicedAttention", "no_bias", " + self.bias\n", "\n", "no bias"),
    ("SlicedAttention", "no_bias_of_queries", "attention.in_proj_bias[rows]",
     "0 * attention.in_proj_bias[rows]", "no bias of queries"),
    ("SlicedAttention", "no_copied", "Copied.apply(x)", "x", "x's part"),
    ("SlicedAttention", "no_summed", "Summed.apply(self.out(heads))", "self.out(heads)",
     "own part"),
    ("SlicedAttention", "rows_of_the_last", "out_proj.weight[:, columns]",
     "out_proj.weight[columns]", "shapes"),
    ("SlicedAttention", "queries_alone", ROWS, "columns", "shapes"),
    ("SlicedAttention", "as_it_lies", ROWS,
     "torch.arange(3 * heads * self.head_dim).chunk(world_size)[rank]", "in thirds"),
    ("SlicedAttention", "every_other_row",
     {"        rows = ": "        every = torch.arange(self.head_dim) * heads + mine[:, None]\n"
      "        rows = ", "[columns + i": "[every.flatten() + i"}, "every other row"),
    ("SlicedAttention", "whole_parts_only", HEADS,
     "torch.arange(heads)[rank * (heads // world_size) :][: heads // world_size]", "cut off"),
    ("SlicedAttention", "rest_to_the_last", HEADS,
     "torch.arange(heads)[rank * (heads // world_size) :]"
     "[: None if rank == world_size - 1 else heads // world_size]", "other heads"),
    ("SlicedAttention", "views", "        self.bias = nn.Par",
     "        self.out.weight = nn.Parameter(attention.out_proj.weight.detach()"
     "[:, columns[0] : columns[-1] + 1])\n"
     "        self.qkv.whole = attention.in_proj_weight\n        self.bias = nn.Par", "views"),
    ("SlicedAttention", "bias_shared", "out_proj.bias.detach().clone()", "out_proj.bias.detach()",
     "not a copy"),
    ("SlicedAttention", "fixed_bias", "nn.Parameter(attention.out_proj.bias.detach().clone())",
     "nn.Parameter(attention.out_proj.bias.detach().clone(), requires_grad=False)",
     "learns otherwise"),
    ("SlicedAttention", "sums_what_heads_make",
     {"return Summed.apply(self.out(heads)) + self.bias":
      "whole = Summed.apply(nn.functional.pad(heads, self.around))\n"
      "        return Summed.apply(self.out(whole[..., self.mine])) + self.bias",
      "        self.bias = nn.Par": "        self.mine = columns\n"
      "        last = len(attention.out_proj.bias) - 1\n"
      "        self.around = (int(columns[0]), last - int(columns[-1]))\n"
      "        self.bias = nn.Par"}, "more bytes"),
)
# fmt: on
