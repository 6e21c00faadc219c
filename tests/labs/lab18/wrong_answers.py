"""Wrong answers to lab 18."""

import torch
import torch.distributed as dist

from ddpkit.answers.lab18 import all_gather
from tests.labs.answers import edits, wrong
from tests.labs.lab18.right_answers import WithTheInputsOnCtx, most_held

# kept

NOTE = "found[storage.data_ptr()] = storage.nbytes()"
SUM = "sum(size for place, size in found.items() if place not in own)"
# fmt: off
edits(
    ("kept", "every_saved_tensor",
     {"found = {}": "found = []", NOTE: "found.append((storage.data_ptr(), storage.nbytes()))",
      "found.items()": "found"}, "counted twice"),
    ("kept", "bytes_of_the_view", NOTE, "found[storage.data_ptr()] = tensor.nbytes",
     "the view alone"),
    ("kept", "by_the_address_of_the_view", NOTE, "found[tensor.data_ptr()] = storage.nbytes()",
     "views counted apart"),
    ("kept", "with_parameters", " if place not in own", "", "parameters"),
    ("kept", "parameters_by_their_own_address", "{p.untyped_storage().data_ptr() for p",
     "{p.data_ptr() for p", "parameters"),
    ("kept", "parameters_by_class",
     {NOTE: "if not isinstance(tensor, torch.nn.Parameter):\n            " + NOTE,
      " if place not in own": ""}, "parameters"),
    ("kept", "four_bytes_each", NOTE,
     "found[storage.data_ptr()] = 4 * (storage.nbytes() // tensor.itemsize)", "four bytes each"),
    ("kept", "without_a_graph",
     "with saved_tensors_hooks(note, lambda tensor: tensor):",
     "with torch.no_grad(), saved_tensors_hooks(note, lambda tensor: tensor):", "nothing"),
    ("kept", "with_a_backward",
     "        module(*inputs)", "        module(*inputs).sum().backward()", "backward"),
    ("kept", "by_shape", "found[storage.data_ptr()]", "found[tuple(tensor.shape)]", "outputs"),
    ("kept", "as_a_float", f"return {SUM}", f"return float({SUM})", "no int"),
    ("kept", "without_buffers", "for p in module.parameters()}",
     "for p in (*module.parameters(), *module.buffers())}", "other count"),
    ("kept", "megabytes", f"return {SUM}", f"return {SUM} // 1000", "other count"),
)
# fmt: on


@wrong("kept", "outputs")
def outputs_of_modules(module, *inputs):
    total = [0]

    def note(_, given, made):
        total[0] += made.nbytes

    hooks = [part.register_forward_hook(note) for part in module.modules()]
    module(*inputs)
    for hook in hooks:
        hook.remove()
    return total[0]


# Again

FORK = "torch.random.fork_rng(devices=[]), "
DETACHED = "[x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]"
BACK = "        y.backward(gradient)\n        return None, *(x.grad for x in inputs)"
# fmt: off
edits(
    ("Again", "state_not_restored", "            torch.set_rng_state(ctx.state)\n", "",
     "other numbers"),
    ("Again", "state_not_put_back", FORK, "", "rewound"),
    ("Again", "own_seed", "ctx.function, ctx.state = function, torch.get_rng_state()",
     "torch.manual_seed(0)\n        ctx.function, ctx.state = function, torch.get_rng_state()",
     "seeded"),
    ("Again", "gradients_of_inputs_alone", BACK,
     "        wanted = [x for x in inputs if x.requires_grad]\n"
     "        grads = iter(torch.autograd.grad(y, wanted, gradient))\n"
     "        return None, *(next(grads) if x.requires_grad else None for x in inputs)",
     "parameters get nothing"),
    ("Again", "no_enable_grad", ", torch.enable_grad()", "", "no graph"),
    ("Again", "of_the_sum", "y.backward(gradient)", "y.backward(torch.ones_like(y))",
     "another loss"),
    ("Again", "sum_outside", "y.backward(gradient)", "y.sum().backward()", "no graph"),
    ("Again", "not_detached", {DETACHED: "list(ctx.saved_tensors)", "        y.backward(gradient)":
     "        _ = [x.retain_grad() for x in inputs if x.requires_grad]\n"
     "        y.backward(gradient)"}, "not cut off"),
    ("Again", "no_gradient_required", DETACHED, "[x.detach() for x in ctx.saved_tensors]",
     "stops here"),
    ("Again", "an_index_requires_a_gradient", "requires_grad_(x.requires_grad)",
     "requires_grad_()", "an index"),
    ("Again", "in_eval_mode", "            y = ctx.function(*inputs)\n",
     "            ctx.function.eval()\n            y = ctx.function(*inputs)\n"
     "            ctx.function.train()\n", "other numbers"),
    ("Again", "gradients_before_lost", "        y.backward(gradient)",
     "        for p in ctx.function.parameters():\n            p.grad = None\n"
     "        y.backward(gradient)", "overwritten"),
    ("Again", "first_input_alone", "*(x.grad for x in inputs)",
     "inputs[0].grad, *(None for _ in inputs[1:])", "lacks an input"),
    ("Again", "a_seed_for_each_rank", "ctx.function, ctx.state = function, torch.get_rng_state()",
     "torch.manual_seed(7 + dist.get_rank())\n"
     "        ctx.function, ctx.state = function, torch.get_rng_state()", "other output"),
    ("Again", "two_backwards", "        y.backward(gradient)",
     "        y.backward(gradient, retain_graph=True)\n        y.backward(gradient)",
     "other gradients"),
    ("Again", "for_each_input", "            y = ctx.function(*inputs)\n",
     "            y = ctx.function(*inputs)\n            ctx.function(*inputs)\n",
     "computed too often"),
    ("Again", "one_gradient_too_few", "return None, *(x.grad for x in inputs)",
     "return (*(x.grad for x in inputs),)", "none for the function"),
)
edits(
    ("Again", "result_kept_too", "return function(*inputs)",
     "ctx.y = [function(*inputs)]\n        ctx.y += [ctx.y[0].repeat(9, 1)]\n"
     "        return ctx.y[0]", "holds more"),
    of=WithTheInputsOnCtx,
)
# fmt: on


@wrong("Again", "keeps everything")
class KeepsTheGraph(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *inputs):
        ctx.inputs = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
        with torch.enable_grad():
            ctx.y = function(*ctx.inputs)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, gradient):
        ctx.y.backward(gradient)
        return None, *(x.grad for x in ctx.inputs)


# worth_keeping

KEEP = "keep = op in products + travelled"
# fmt: off
edits(
    ("worth_keeping", "all_kept", KEEP, "keep = True", "everything"),
    ("worth_keeping", "nothing_kept", KEEP, "keep = False", "nothing"),
    ("worth_keeping", "products_alone", KEEP, "keep = op in products", "travels again"),
    ("worth_keeping", "travelled_alone", KEEP, "keep = op in travelled", "nothing"),
    ("worth_keeping", "mm_alone", ", aten.addmm.default, aten.bmm.default", ",",
     "multiplies again"),
    ("worth_keeping", "no_addmm", "aten.addmm.default, ", "", "multiplies again"),
    ("worth_keeping", "packets", "aten.mm.default, aten.addmm.default, aten.bmm.default",
     "aten.mm, aten.addmm, aten.bmm", "nothing"),
    ("worth_keeping", "dropout_kept", "op in products + travelled",
     "op in (*products, *travelled, aten.native_dropout.default, aten.bernoulli_.float)",
     "more than products"),
    ("worth_keeping", "mm_in_the_name", "op in products + travelled",
     'op in travelled or "mm" in str(op)', "more than products"),
    ("worth_keeping", "exchanged", "CheckpointPolicy.MUST_SAVE if keep",
     "CheckpointPolicy.MUST_SAVE if not keep", "upside down"),
)

# memory_plan

LEVEL = "(held - 1) * sum(holds) + max(levels) <= limit"
edits(
    ("memory_plan", "computes_all_again", "    best = None\n",
     "    return [True] * len(blocks)\n    best = None\n", "all again"),
    ("memory_plan", "computes_none_again", "    best = None\n",
     "    return [False] * len(blocks)\n    best = None\n", "too much"),
    ("memory_plan", "after_the_forwards", LEVEL, "held * sum(holds) <= limit", "inside forgotten"),
    ("memory_plan", "inside_on_top", LEVEL,
     "held * sum(holds) + max(block[1] for block in blocks) <= limit", "counted on top"),
    ("memory_plan", "inside_of_again_on_top", LEVEL,
     "held * sum(holds) + max([b[1] for a, b in zip(again, blocks) if a], default=0) <= limit",
     "counted on top"),
    ("memory_plan", "held_ignored", LEVEL, "max(levels) <= limit", "one micro-batch"),
    ("memory_plan", "held_times", LEVEL, "held * max(levels) <= limit", "all at once"),
    ("memory_plan", "one_micro_batch_more", "(held - 1) * sum(holds)", "held * sum(holds)",
     "one too many"),
    ("memory_plan", "blocks_behind", "sum(holds[:i]) + inside for i",
     "sum(holds) - holds[i] + inside for i", "counted on top"),
    ("memory_plan", "own_bytes_beside_the_inside", "sum(holds[:i]) + inside for i",
     "sum(holds[: i + 1]) + inside for i", "own bytes twice"),
    ("memory_plan", "free_inputs", "[given if a else inside", "[0 if a else inside",
     "inputs are not free"),
    ("memory_plan", "fewest_blocks", "ms = sum(ms for",
     "ms = sum(1000 + ms for", "counts blocks"),
    ("memory_plan", "below_the_limit", LEVEL, "(held - 1) * sum(holds) + max(levels) < limit",
     "at the limit"),
    ("memory_plan", "numbers_of_blocks", "return best and best[1]",
     "return best and [at for at, a in enumerate(best[1]) if a]", "one answer a block"),
    ("memory_plan", "all_if_nothing_fits", "return best and best[1]",
     "return best[1] if best else [True] * len(blocks)", "nothing fits"),
    ("memory_plan", "none_for_nothing_again", "return best and best[1]",
     "return best[1] if best and any(best[1]) else None", "gave up"),
    ("memory_plan", "given_twice", "[given if a else inside", "[given // 2 if a else inside",
     "over the limit"),
)
# fmt: on


@wrong("memory_plan", "not the least")
def from_the_front(blocks, held, limit):
    plan = [False] * len(blocks)
    for at in range(len(blocks)):
        if most_held(plan, blocks, held) <= limit:
            return plan
        plan[at] = True
    return plan if most_held(plan, blocks, held) <= limit else None


@wrong("memory_plan", "not the least")
def most_bytes_for_a_ms(blocks, held, limit):
    plan = [False] * len(blocks)
    order = sorted(range(len(blocks)), key=lambda at: blocks[at][0] / (blocks[at][1] + 1))
    for at in order:
        if most_held(plan, blocks, held) <= limit:
            return plan
        plan[at] = True
    return plan if most_held(plan, blocks, held) <= limit else None


@wrong("memory_plan", "slower than needed")
def least_memory(blocks, held, limit):
    n = len(blocks)
    every = [[bool(mask >> at & 1) for at in range(n)] for mask in range(2**n)]
    every = [each for each in every if most_held(each, blocks, held) <= limit]

    def key(plan):
        return most_held(plan, blocks, held), sum(
            b[0] for a, b in zip(plan, blocks, strict=True) if a
        )

    return min(every, key=key, default=None)


# mean_by_halves

MINE = "(coming.view(n, -1).float().sum(0) / n).bfloat16()"
# fmt: off
edits(
    ("mean_by_halves", "adds_in_bfloat16", MINE,
     "(sum(coming.view(n, -1).unbind()) / n).bfloat16()", "adds in halves"),
    ("mean_by_halves", "sum_in_bfloat16", MINE, "coming.view(n, -1).sum(0) / n", "adds in halves"),
    ("mean_by_halves", "owner_keeps_float32",
     {MINE: "coming.view(n, -1).float().sum(0) / n", "all_gather(whole, mine)":
      "all_gather(whole, mine.bfloat16())\n    whole = whole.float()\n"
      "    whole.view(n, -1)[dist.get_rank()] = mine"}, "ranks differ"),
    ("mean_by_halves", "own_part_unrounded", MINE,
     "((coming.view(n, -1).float().sum(0) - coming.view(n, -1)[dist.get_rank()].float()\n"
     "             + nn.functional.pad(flat, (0, -len(flat) % n)).view(n, -1)[dist.get_rank()])"
     " / n).bfloat16()", "own part finer"),
    ("mean_by_halves", "padding_returned", "whole[: len(flat)].float()", "whole.float()",
     "other length"),
    ("mean_by_halves", "float16", {".bfloat16()\n    coming": ".half()\n    coming",
                                   "/ n).bfloat16()": "/ n).half()"}, "other mean"),
    ("mean_by_halves", "no_division", ".sum(0) / n", ".sum(0)", "a sum"),
    ("mean_by_halves", "divided_before", {".bfloat16()\n    coming": ".div(n).bfloat16()\n"
     "    coming", ".sum(0) / n": ".sum(0)"}, "divided first"),
    ("mean_by_halves", "not_padded", "nn.functional.pad(flat, (0, -len(flat) % n))", "flat",
     "does not divide"),
    ("mean_by_halves", "float32_means", {MINE: "coming.view(n, -1).float().sum(0) / n",
     "whole = torch.empty_like(parts)": "whole = torch.empty(len(parts))"}, "whole bytes back"),
    ("mean_by_halves", "returns_bfloat16", "whole[: len(flat)].float()", "whole[: len(flat)]",
     "dtype"),
    ("mean_by_halves", "writes_into_flat", "return whole[: len(flat)].float()",
     "flat.copy_(whole[: len(flat)])\n    return flat", "changed"),
)
# fmt: on


@wrong("mean_by_halves", "rounded at each hop")
def ring_in_bfloat16(flat):
    short = flat.bfloat16()
    dist.all_reduce(short)
    return (short.float() / dist.get_world_size()).bfloat16().float()


@wrong("mean_by_halves", "whole bytes")
def ring_in_float32(flat):
    whole = flat.bfloat16().float()
    dist.all_reduce(whole)
    return (whole / dist.get_world_size()).bfloat16().float()


@wrong("mean_by_halves", "more bytes")
def all_gathered(flat):
    n = dist.get_world_size()
    whole = torch.empty(n * len(flat), dtype=torch.bfloat16)
    all_gather(whole, flat.bfloat16())
    return (whole.view(n, -1).float().sum(0) / n).bfloat16().float()


# LossScale

REDUCED = "dist.all_reduce(bad, dist.ReduceOp.MAX)"
FINITE = "float(not all(g.isfinite().all() for g in gradients))"
# fmt: off
edits(
    ("LossScale", "each_for_itself", REDUCED, "dist.all_reduce(bad.clone(), dist.ReduceOp.MAX)",
     "ranks differ"),
    ("LossScale", "by_min", "dist.ReduceOp.MAX", "dist.ReduceOp.MIN", "only if all"),
    ("LossScale", "only_inf", FINITE, "float(any(g.isinf().any() for g in gradients))",
     "nan passes"),
    ("LossScale", "by_a_sum", FINITE,
     "float(not sum(g.sum() for g in gradients).isfinite() if gradients else 0)", "too careful"),
    ("LossScale", "stays_away", f"        {REDUCED}\n",
     f"        if gradients:\n            {REDUCED}\n", "must take part"),
    ("LossScale", "one_for_each_tensor", f"        {REDUCED}\n",
     "        for _ in optimizer.param_groups:\n"
     f"            {REDUCED}\n", "one by one"),
    ("LossScale", "zeros_and_a_step", "        if bad:\n",
     "        if bad:\n            for g in gradients:\n                g.zero_()\n"
     "            optimizer.step()\n", "steps anyway"),
    ("LossScale", "inf_becomes_0", f"bad = torch.tensor({FINITE})",
     "bad = torch.tensor(0.0)\n        for g in gradients:\n"
     "            g.nan_to_num_(0.0, 0.0, 0.0)", "cleaned"),
    ("LossScale", "not_divided", "            g /= self.scale\n", "            pass\n",
     "not unscaled"),
    ("LossScale", "by_the_new_scale",
     {"        for g in gradients:\n            g /= self.scale\n        optimizer.step()\n"
      "        self.good += 1\n": "        self.good += 1\n",
      "            self.scale, self.good = self.scale * 2, 0\n":
      "            self.scale, self.good = self.scale * 2, 0\n        for g in gradients:\n"
      "            g /= self.scale\n        optimizer.step()\n"}, "new scale"),
    ("LossScale", "good_steps_not_reset", "self.scale, self.good = self.scale / 2, 0",
     "self.scale = self.scale / 2", "counts on"),
    ("LossScale", "doubles_on_and_on", "self.scale, self.good = self.scale * 2, 0",
     "self.scale *= 2; self.good -= 1", "other scale"),
    ("LossScale", "never_halved", "self.scale, self.good = self.scale / 2, 0", "self.good = 0",
     "never smaller"),
    ("LossScale", "says_the_opposite", {
     "/ 2, 0\n            return False": "/ 2, 0\n            return 2 > 1",
     "* 2, 0\n        return True": "* 2, 0\n        return False"}, "the opposite"),
)

# gather_fp8

edits(
    ("gather_fp8", "own_scales_for_all", "joined = [x * s for x, s in zip(numbers, scales)]",
     "own = torch.stack([x.abs().max() for x in shards]).clamp(min=2**-100) / 448\n"
     "    joined = [x * s for x, s in zip(numbers, own)]", "scales of others"),
    ("gather_fp8", "scales_in_bfloat16", ".clamp(min=2**-100) / 448",
     ".clamp(min=2**-100).div(448).bfloat16().float()", "other values"),
    ("gather_fp8", "one_scale", ".clamp(min=2**-100) / 448",
     ".max().expand(len(shards)).clamp(min=2**-100).contiguous() / 448", "one for all"),
    ("gather_fp8", "no_scale", ".clamp(min=2**-100) / 448", ".fill_(1.0)", "beyond 448"),
    ("gather_fp8", "divides_by_0", ".clamp(min=2**-100)", "", "zeros"),
    ("gather_fp8", "largest_as_240", "/ 448", "/ 240", "range"),
    ("gather_fp8", "largest_as_512", "/ 448", "/ 512", "range"),
    ("gather_fp8", "to_uint8",
     "mine = torch.cat([x.view(torch.uint8) for x in (scales, *numbers)])",
     "mine = torch.cat([scales.view(torch.uint8), *(x.float().to(torch.uint8) for x in numbers)])",
     "converted"),
    ("gather_fp8", "float_of_bytes", ".view(torch.float8_e4m3fn).float()", ".float()",
     "converted"),
    ("gather_fp8", "not_multiplied_back", "joined = [x * s for x, s in zip(numbers, scales)]",
     "joined = numbers", "not multiplied"),
    ("gather_fp8", "without_abs", "x.abs().max()", "x.max()", "other values"),
    ("gather_fp8", "scale_of_at_least_1e_8", "2**-100", "1e-8", "other values"),
    ("gather_fp8", "flat", "[each.view(-1, *x.shape[1:]) for each, x in zip(joined, shards)]",
     "[each.flatten() for each in joined]", "shape"),
    ("gather_fp8", "sends_float8", {
        "mine = torch.cat([x.view(torch.uint8) for x in (scales, *numbers)])":
        "dist.all_reduce(numbers[0])\n    mine = torch.cat([x.view(torch.uint8) for x in (scales, "
        "*numbers)])"}, "fp8 in gloo"),
    ("gather_fp8", "scales_once_more", "    all_gather(whole, mine)\n",
     "    all_gather(whole, mine)\n    all_gather(scales.new_empty(n * len(scales)), scales)\n",
     "several collectives"),
    ("gather_fp8", "divides_in_place", "n, sizes = dist.get_world_size(), "
     "[x.numel() for x in shards]", "n, sizes = dist.get_world_size(), [x.numel() for x in "
     "shards]\n    for x in shards:\n        x += 0.5\n        x -= 0.5", "changed"),
)
edits(
    ("gather_fp8", "e5m2", {"(x / s).to(torch.float8_e4m3fn)": "(x / s).to(torch.float8_e5m2)",
     "view(torch.float8_e4m3fn)": "view(torch.float8_e5m2)"}, "coarser"),
)
# fmt: on


@wrong("gather_fp8", "more bytes")
def in_float32(shards):
    n, sizes = dist.get_world_size(), [x.numel() for x in shards]
    flat = torch.cat([x.flatten() for x in shards])
    whole = flat.new_empty(n * len(flat))
    all_gather(whole, flat)
    parts = whole.view(n, -1).split(sizes, dim=1)
    return [part.reshape(-1, *x.shape[1:]) for part, x in zip(parts, shards, strict=True)]
