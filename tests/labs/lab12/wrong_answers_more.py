"""Wrong answers to lab 12 by strangers that had not seen the checks."""

from tests.labs.answers import edits
from tests.labs.lab12.wrong_answers import SPLIT, SUM, SUM_X

OF_RANK_0 = "        total = {}.clone()\n        dist.broadcast(total, 0)\n        return total\n"
# fmt: off
edits(
    ("Copied", "rank_0s", SUM, OF_RANK_0.format("gradient"), "one rank's"),
    ("Copied", "n_times_rank_0s", SUM,
     OF_RANK_0.format("gradient").replace("total\n", "total * dist.get_world_size()\n"),
     "other gradient"),
    ("Copied", "to_rank_0", "dist.all_reduce(total)", "dist.reduce(total, 0)", "on one rank"),
    ("Copied", "the_largest", "dist.all_reduce(total)",
     "dist.all_reduce(total, dist.ReduceOp.MAX)", "other gradient"),
    ("Copied", "own_part_twice", "return total", "return total + gradient", "other gradient"),
    ("Copied", "halves_x", "return x.view_as(x)", "return x / dist.get_world_size()",
     "other output"),
    ("Copied", "the_work", "        dist.all_reduce(total)\n        return total\n",
     "        return dist.all_reduce(total)\n", "no gradient"),
    ("Copied", "in_float32", SUM,
     "        total = gradient.float().clone()\n        dist.all_reduce(total)\n"
     "        return total.to(gradient.dtype)\n", "rounded"),
    ("Summed", "rank_0s", SUM_X, OF_RANK_0.format("x"), "one rank's"),
    ("Summed", "to_rank_0", "dist.all_reduce(total)", "dist.reduce(total, 0)", "on one rank"),
    ("Summed", "the_largest", "dist.all_reduce(total)",
     "dist.all_reduce(total, dist.ReduceOp.MAX)", "other output"),
    ("Summed", "gradient_of_rank_0", "        return gradient\n", OF_RANK_0.format("gradient"),
     "sent back"),
    ("Summed", "n_times", "return gradient\n", "return gradient * dist.get_world_size()\n",
     "other gradient"),
    ("Summed", "ones", "return gradient\n", "return torch.ones_like(gradient)\n",
     "other gradient"),
)
WITH_BIAS = "return Summed.apply(self.down(hidden)) + self.bias"
edits(
    ("SlicedMLP", "bias_on_rank_0", WITH_BIAS, "return Summed.apply(self.down(hidden) "
     "+ (self.bias if dist.get_rank() == 0 else 0))", "a rank learns otherwise"),
    ("SlicedMLP", "nth_of_the_bias", WITH_BIAS, "return Summed.apply(self.down(hidden) "
     "+ self.bias / dist.get_world_size())", "learns otherwise"),
    ("SlicedMLP", "first_numbers_of_the_bias", "first.bias[mine])", "first.bias[: len(mine)])",
     "other output"),
    ("SlicedMLP", "first_bias_whole", "first.bias[mine])", "first.bias)", "bias of other rows"),
    ("SlicedMLP", "second_bias_cut", "second.bias.detach()",
     "second.bias.detach().chunk(world_size)[rank]", "bias of other rows"),
    ("SlicedMLP", "chunk", SPLIT, "torch.arange(first.out_features).chunk(world_size)[rank]",
     "other parts"),
    ("SlicedMLP", "dealt", SPLIT, "torch.arange(first.out_features)[rank::world_size]",
     "dealt in turn"),
    ("SlicedMLP", "first_part", SPLIT,
     "torch.arange(first.out_features).tensor_split(world_size)[0]", "the same part"),
    ("SlicedMLP", "last_part_first", SPLIT,
     "torch.arange(first.out_features).tensor_split(world_size)[-1 - rank]", "other output"),
    ("SlicedMLP", "no_activation", "self.activation(self.up(Copied.apply(x)))",
     "self.up(Copied.apply(x))", "no activation"),
    ("SlicedMLP", "always_relu", "self.activation(self.up(Copied.apply(x)))",
     "self.up(Copied.apply(x)).relu()", "other output"),
    ("SlicedMLP", "detached", "Copied.apply(x)", "Copied.apply(x.detach())", "no gradient of x"),
    ("SlicedMLP", "copied_late", "self.activation(self.up(Copied.apply(x)))",
     "Copied.apply(self.activation(self.up(x)))", "other gradient"),
    ("SlicedMLP", "outside_of_autograd", WITH_BIAS,
     "y = self.down(hidden).detach()\n        dist.all_reduce(y)\n        return y + self.bias",
     "no gradient of x"),
    ("SlicedMLP", "bias_in_down_too", "linear(second.weight[:, mine])\n",
     "linear(second.weight[:, mine], second.bias)\n", "other parts"),
)
edits(
    ("Halo", "others_in_place_of_own",
     {"mine[:, :, :k] += from_above": "mine[:, :, :k] = from_above",
      "mine[:, :, -k:] += from_below": "mine[:, :, -k:] = from_below"}, "instead of added"),
    ("Halo", "inner_rows", "edges(gradient[:, :, :k], gradient[:, :, -k:])",
     "edges(gradient[:, :, k : 2 * k], gradient[:, :, -2 * k : -k])", "other gradient"),
    ("Halo", "from_above_alone", "        mine[:, :, -k:] += from_below\n", "",
     "other gradient"),
    ("Halo", "side_by_side", "torch.cat([above, strip, below], dim=2)",
     "torch.cat([above, strip, below], dim=3)", "another shape"),
    ("Halo", "rims_repeated", "        return torch.cat([above",
     "        if dist.get_rank() == 0:\n            above = strip[:, :, :k]\n"
     "        if dist.get_rank() == dist.get_world_size() - 1:\n            below = "
     "strip[:, :, -k:]\n        return torch.cat([above", "own rows at the rim"),
    ("Halo", "first_rows_twice", "edges(strip[:, :, :k], strip[:, :, -k:])",
     "edges(strip[:, :, :k], strip[:, :, :k])", "other rows"),
    ("Halo", "no_none", "return mine, None", "return mine", "gradients for nothing"),
)
SCATTER = "dist.reduce_scatter(mine, parts)"
edits(
    ("Gathered", "backwards", "torch.cat(parts, dim=1)", "torch.cat(parts[::-1], dim=1)",
     "other output"),
    ("Gathered", "along_the_features", "torch.cat(parts, dim=1)", "torch.cat(parts, dim=-1)",
     "along dim 0"),
    ("Gathered", "next_part", SCATTER, "dist.reduce_scatter(mine, parts[1:] + parts[:1])",
     "another's part"),
    ("Gathered", "the_largest", SCATTER, "dist.reduce_scatter(mine, parts, dist.ReduceOp.MAX)",
     "other gradient"),
    ("Gathered", "all_of_it", "        return mine\n", "        return gradient\n",
     "gradient's shape"),
    ("Scattered", "next_part", SCATTER, "dist.reduce_scatter(mine, parts[1:] + parts[:1])",
     "another's part"),
    ("Scattered", "the_largest", SCATTER, "dist.reduce_scatter(mine, parts, dist.ReduceOp.MAX)",
     "other output"),
    ("Scattered", "divided", "return torch.cat(parts, dim=1)",
     "return torch.cat(parts, dim=1) / dist.get_world_size()", "divided gradient"),
    ("Scattered", "own_repeated", "dist.all_gather(parts, gradient)",
     "parts = [gradient for _ in parts]", "other gradient"),
)
edits(
    ("global_norm", "roots_too_early", "p.grad.double().square().sum()",
     "p.grad.double().square().sum().sqrt()", "other norm"),
    ("global_norm", "mixed_up", "if sliced(p):", "if not sliced(p):", "mixed up"),
    ("global_norm", "without_squares", "p.grad.double().square()", "p.grad.double().abs()",
     "other norm"),
    ("global_norm", "of_parameters", "p.grad.double()", "p.double()", "other norm"),
    ("global_norm", "to_rank_0", "dist.all_reduce(of_slices)", "dist.reduce(of_slices, 0)",
     "not on all"),
    ("global_norm", "silent_without_slices", "    dist.all_reduce(of_slices)\n",
     "    if of_slices:\n        dist.all_reduce(of_slices)\n", "not all call"),
    ("global_norm", "never_called", "if sliced(p):", "if sliced:", "counted by all"),
)
HEADS = "torch.arange(heads).tensor_split(world_size)[rank]"
edits(
    ("SlicedAttention", "bias_on_rank_0", "return Summed.apply(self.out(heads)) + self.bias",
     "return Summed.apply(self.out(heads) + (self.bias if dist.get_rank() == 0 else 0))",
     "a rank learns otherwise"),
    ("SlicedAttention", "dealt", HEADS, "torch.arange(heads)[rank::world_size]", "dealt in turn"),
    ("SlicedAttention", "chunk", HEADS, "torch.arange(heads).chunk(world_size)[rank]", "chunk"),
    ("SlicedAttention", "first_heads", HEADS, "torch.arange(heads).tensor_split(world_size)[0]",
     "the same part"),
    ("SlicedAttention", "one_block",
     "torch.cat([columns + i * heads * self.head_dim for i in range(3)])",
     "torch.arange(3 * len(columns)) + 3 * int(columns[0])", "in thirds"),
    ("SlicedAttention", "values_before_keys", "for i in range(3)", "for i in (0, 2, 1)",
     "other output"),
    ("SlicedAttention", "first_biases", "attention.in_proj_bias[rows]",
     "attention.in_proj_bias[: len(rows)]", "other output"),
    ("SlicedAttention", "detached", "Copied.apply(x)", "Copied.apply(x.detach())",
     "no gradient of x"),
    ("SlicedAttention", "copied_late", "self.qkv(Copied.apply(x))", "Copied.apply(self.qkv(x))",
     "other gradient"),
)
# fmt: on
