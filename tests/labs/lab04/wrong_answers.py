"""Wrong answers to lab 04."""

import torch
import torch.distributed as dist

from ddpkit import answers
from tests.labs.answers import edits, wrong
from tests.labs.lab04.right_answers import flat_by_dtype, gradients_become_views

THERE_ARE = "[p.grad for p in module.parameters() if p.grad is not None]"
EACH_MODULES = "[p for m in module.modules() for p in m.parameters(recurse=False)]"
SPLIT = "[batch.tensor_split(world_size)[rank] for batch in batches]"

# fmt: off
edits(
    ("broadcast_parameters", "buffers_forgotten", ", *module.buffers()", "", "buffers"),
    ("broadcast_parameters", "buffers_alone", "*module.parameters(), ", "", "some differ"),
    ("broadcast_parameters", "mean_of_parameters",
     {"    for tensor": "    for p in module.parameters():\n        dist.all_reduce(p.data)\n"
      "        p.data /= dist.get_world_size()\n    for tensor", "*module.parameters(), ": ""},
     "src changed"),
    ("broadcast_parameters", "always_from_0", "detach(), src", "detach(), 0", "src changed"),
    ("broadcast_parameters", "by_state_dict", "[*module.parameters(), *module.buffers()]",
     "module.state_dict().values()", "state_dict"),
    ("broadcast_parameters", "what_trains", "[*module.parameters(),",
     "[*(p for p in module.parameters() if p.requires_grad),", "frozen"),
    ("broadcast_parameters", "into_copies", "detach()", "detach().clone()", "own values"),
    ("broadcast_parameters", "new_parameters", "detach(), src)", """detach(), src)
    for child in module.modules():
        for name, p in list(child.named_parameters(recurse=False)):
            setattr(child, name, nn.Parameter(p.detach().clone(), requires_grad=p.requires_grad))
""", "new Parameters"),
    ("broadcast_parameters", "new_buffers", "detach(), src)", """detach(), src)
    for child in module.modules():
        for name, buffer in child.named_buffers(recurse=False):
            setattr(child, name, buffer.clone())
""", "new buffers"),
    ("broadcast_parameters", "new_memory", "dist.broadcast(tensor.detach(), src)",
     "new = tensor.detach().clone()\n        dist.broadcast(new, src)\n        tensor.data = new",
     "new Parameters"),
    ("broadcast_parameters", "new_memory_of_buffers", "dist.broadcast(tensor.detach(), src)",
     "new = tensor.detach().clone()\n        dist.broadcast(new, src)\n"
     "        kept = tensor.data.copy_(new)\n"
     "        tensor.data = kept if isinstance(tensor, nn.Parameter) else new", "new buffers"),
    # no rank has the values of src
    ("broadcast_parameters", "mean_of_all", "broadcast(tensor.detach(), src)",
     "all_reduce(tensor.detach(), dist.ReduceOp.MAX)", "src changed"),
    ("broadcast_parameters", "src_alone", "dist.broadcast",
     "dist.get_rank() == src and dist.broadcast", "other calls"),
    ("broadcast_parameters", "src_is_1", "src: int = 0", "src: int = 1", "src changed"),
    ("broadcast_parameters", "all_frozen", "detach()", "requires_grad_(False)", "requires_grad"),
)
edits(
    ("broadcast_parameters", "all_through_float32",
     {"kinds[tensor.dtype]": "kinds[torch.float32]", "tensor.reshape": "tensor.float().reshape"},
     "last digits"),
    ("broadcast_parameters", "copies_into_parameters", "tensor.data", "tensor", "differentiated"),
    of=flat_by_dtype,
)
edits(
    ("shard", "epoch_ignored", "seed=epoch", "seed=0", "seed"),
    ("shard", "two_orders_in_turn", "seed=epoch", "seed=epoch % 2", "seed"),
    ("shard", "seeds_everybody", "    batches = minibatches(n, batch_size, seed=epoch)",
     "    torch.manual_seed(epoch)\n    batches = torch.randperm(n).split(batch_size)",
     "global seed"),
    ("shard", "one_at_a_time", SPLIT, f"({SPLIT[1:-1]})", "no list"),
    ("shard", "no_split", ".tensor_split(world_size)[rank]", "", "whole batch"),
    ("shard", "last_samples_dropped", "batch.tensor_split",
     "batch[: len(batch) // world_size * world_size].tensor_split", "missing"),
    ("shard", "padded", "batch.tensor_split",  # torch's DistributedSampler pads too
     "torch.cat([batch, batch[: -len(batch) % world_size]]).tensor_split", "handed out twice"),
    ("shard", "rank_in_the_seed", "seed=epoch", "seed=1000 * epoch + rank", "permutations"),
    ("shard", "global_seed", "minibatches(n, batch_size, seed=epoch)",
     "torch.randperm(n).split(batch_size)", "permutations"),
    ("shard", "in_order", "minibatches(n, batch_size, seed=epoch)",
     "torch.arange(n).split(batch_size)", "in order"),
    ("shard", "rest_to_the_last", "tensor_split(world_size)",
     "tensor_split([len(batch) // world_size * r for r in range(1, world_size)])", "uneven"),
    ("shard", "no_empty_parts", "in batches]", "in batches if len(batch) > rank]", "steps differ"),
    ("shard", "batch_size_each", "(n, batch_size,", "(n, batch_size * world_size,",
     "batch_size each"),
    ("shard", "parts_first_then_batches",
     {"(n, batch_size,": "(n, n,",
      SPLIT: "batches[0].tensor_split(world_size)[rank].split(max(1, batch_size // world_size))"},
     "steps differ"),
    ("shard", "one_too_many", "(n, batch_size,", "(n, batch_size + 1,", "sizes"),
    ("shard", "lists_of_numbers", "[rank]", "[rank].tolist()", "no int64"),
    ("shard", "begins_with_the_next",
     "batch.tensor_split(world_size)[rank]", "batch[rank + 1 :: world_size]", "left out"),
    ("shard", "places_for_numbers",
     "batch.tensor_split", "torch.arange(len(batch)).tensor_split", "places"),
    ("shard", "by_chunk", "tensor_split", "chunk", "chunk"),
    ("shard", "by_chunk_and_padding", SPLIT,
     "[[*batch.chunk(world_size), *[batch[:0]] * world_size][rank] for batch in batches]",
     "uneven"),
)
edits(
    ("gradients_of", "frozen_too", " if p.requires_grad]", "]", "frozen"),
    ("gradients_of", "those_there_are", "p.requires_grad]", "p.grad is not None]", "too few"),
    ("gradients_of", "as_they_are", "p.grad is None:", "False:", "None"),
    ("gradients_of", "zeros_of_nobody",
     {"p.grad is None:": "False:",
      "[p.grad for": "[torch.zeros_like(p) if p.grad is None else p.grad for"}, "copies"),
    ("gradients_of", "a_row_each", "[p.grad for", "[p.grad.view(1, -1) for", "shape"),
    ("gradients_of", "zeros_besides", "[p.grad for p in parameters]",
     "[p.grad for p in parameters] + [torch.zeros(7)]", "too many"),
    ("gradients_of", "shared_twice", "for p in module.parameters()",
     "for _, p in module.named_parameters(remove_duplicate=False)", "shared twice"),
    ("gradients_of", "module_by_module", "for p in module.parameters()", f"for p in {EACH_MODULES}",
     "shared twice"),
    ("gradients_of", "zeros_in_place", "p.grad = torch.zeros_like(p)", "p.grad.zero_()",
     "no tensor"),
    ("gradients_of", "all_zeros", "if p.grad is None:", "if True:", "gone"),
    ("gradients_of", "one_at_a_time",
     "return [p.grad for p in parameters]", "return (p.grad for p in parameters)", "no list"),
    ("gradients_of", "yields",
     "return [p.grad for p in parameters]", "yield from [p.grad for p in parameters]", "no list"),
    ("gradients_of", "backwards", "[p.grad for p in parameters]",
     "[p.grad for p in reversed(parameters)]", "order"),
    ("gradients_of", "frozen_with_an_old_one", "if p.requires_grad]",
     "if p.requires_grad or p.grad is not None]", "too many"),
    ("gradients_of", "equal_ones_once", "    return [p.grad for p in parameters]",
     "    found = []\n    for p in parameters:\n"
     "        if not any(torch.equal(p.grad, g) for g in found):\n"
     "            found.append(p.grad)\n"
     "    return found", "too few"),
    ("gradients_of", "float32", "torch.zeros_like(p)", "torch.zeros(p.shape)", "dtype"),
)
edits(
    ("average_by_gather", "no_division", "sum(parts) / world_size", "sum(parts)", "sum"),
    ("average_by_gather", "division_twice", "/ world_size", "/ world_size**2", "divided twice"),
    ("average_by_gather", "never_scattered",
     "        dist.scatter(gradient, parts, src=0)", "            gradient.copy_(parts[0])",
     "on rank 0 alone"),
    ("average_by_gather", "to_the_last",
     {"0:\n            parts = [torch": "world_size - 1:\n            parts = [torch",
      "0:\n            parts = [sum": "world_size - 1:\n            parts = [sum",
      "dst=0": "dst=world_size - 1", "src=0": "src=world_size - 1"}, "other root"),
    ("average_by_gather", "by_broadcast", "        dist.scatter(gradient, parts, src=0)",
     "            gradient.copy_(parts[0])\n        dist.broadcast(gradient, 0)", "other calls"),
    ("average_by_gather", "rank_0_alone", "        dist.scatter", "            dist.scatter",
     "same calls"),
    ("average_by_gather", "gather_what_is_there", "gradients_of(module)", THERE_ARE, "same list"),
    ("average_by_gather", "into_a_name", "gradients_of(module)",
     "[g.clone() for g in gradients_of(module)]", "own gradients"),
    ("average_by_gather", "whole_numbers", "/ world_size", "// world_size", "rounded"),
    ("average_by_gather", "means_of_the_first", "sum(parts) / world_size",
     "(sum(parts) - parts[-1]) / world_size", "no mean"),
    ("average_by_gather", "module_by_module", "    for gradient in gradients_of(module)",
     "    gradients_of(module)\n"
     f"    for gradient in [p.grad for p in {EACH_MODULES} if p.requires_grad]", "other calls"),
    ("average_by_gather", "of_those_who_have_one", "/ world_size",
     "/ max(1, sum(bool(part.any()) for part in parts))", "of who has one"),
)
edits(
    ("average_per_parameter", "no_division", "gradient /= dist.get_world_size()", "pass", "sum"),
    ("average_per_parameter", "division_twice", "dist.all_reduce(gradient)",
     "gradient /= dist.get_world_size()\n        dist.all_reduce(gradient)", "divided twice"),
    ("average_per_parameter", "divides_in_bfloat16", "gradient /= dist.get_world_size()",
     "gradient.copy_(gradient.bfloat16() / dist.get_world_size())", "rounded"),
    ("average_per_parameter", "divides_in_float32", "gradient /= dist.get_world_size()",
     "gradient.copy_(gradient.float() / dist.get_world_size())", "rounded"),
    ("average_per_parameter", "only_rank_0", "all_reduce(gradient)", "reduce(gradient, dst=0)",
     "ranks differ"),
    ("average_per_parameter", "only_rank_0_divides", "dist.get_world_size()",
     "dist.get_world_size() if dist.get_rank() == 0 else 1", "ranks differ"),
    ("average_per_parameter", "a_new_tensor", "gradient /= d", "gradient = gradient / d", "sum"),
    ("average_per_parameter", "reduce_what_is_there", "gradients_of(module)", THERE_ARE,
     "same list"),
    ("average_per_parameter", "trusts_every_grad", "gradients_of(module)",
     "[p.grad for p in module.parameters()]", "None"),
    ("average_per_parameter", "frozen_too", "gradients_of(module)",
     "gradients_of(module.requires_grad_())", "frozen"),
    ("average_per_parameter", "shared_ones_twice", "    for gradient in gradients_of(module)", """\
    gradients_of(module)
    named = module.named_parameters(remove_duplicate=False)
    for gradient in [p.grad for _, p in named if p.requires_grad]""", "other calls"),
    ("average_per_parameter", "module_by_module", "    for gradient in gradients_of(module)",
     "    gradients_of(module)\n"
     f"    for gradient in [p.grad for p in {EACH_MODULES} if p.requires_grad]", "other calls"),
    ("average_per_parameter", "zeros_for_the_others", "gradients_of(module)", """[
        torch.zeros_like(p) if p.grad is None else p.grad
        for p in module.parameters() if p.requires_grad
    ]""", "still None"),
    ("average_per_parameter", "not_waited_for", "(gradient)", "(gradient, async_op=True)",
     "in flight"),
    ("average_per_parameter", "never_waited_for",
     {"        dist.all_reduce(gradient)\n": "", "size()": "size()\n"
      "        dist.all_reduce(gradient, async_op=True)"}, "never waited for"),
    ("average_per_parameter", "divides_in_flight",
     {"dist.all_reduce(gradient)\n": "work = dist.all_reduce(gradient, async_op=True)\n",
      "/= dist.get_world_size()": "/= dist.get_world_size()\n        work.wait()"}, "in flight"),
    ("average_per_parameter", "parameters",
     "gradients_of(module)", "[p.data for p in module.parameters()]", "parameters"),
    ("average_per_parameter", "by_those_who_have_one",
     {"    for gradient in": "    have = [torch.tensor(float(p.grad is not None))\n"
      "            for p in module.parameters() if p.requires_grad]\n    for gradient in",
      "dist.get_world_size()": "ranks.clamp(min=1)",
      "dist.all_reduce(gradient)\n":
      "dist.all_reduce(gradient)\n        ranks = have.pop(0)\n        dist.all_reduce(ranks)\n"},
     "counted"),
    ("average_per_parameter", "by_those_who_have_one_counted_together",
     {"    for gradient in": "    have = torch.tensor([int(p.grad is not None)\n"
      "            for p in module.parameters() if p.requires_grad])\n"
      "    dist.all_reduce(have)\n    have = have.clamp(min=1).tolist()\n    for gradient in",
      "dist.get_world_size()": "have.pop(0)"}, "counted"),
)
edits(
    ("average_flat", "by_a_set", "dict.fromkeys(g.dtype for g in gradients)",
     "set(g.dtype for g in gradients)", "a set"),
    ("average_flat", "by_a_set_of_braces", "dict.fromkeys(g.dtype for g in gradients)",
     "{g.dtype for g in gradients}", "a set"),
    ("average_flat", "odd_ranks_back_to_front", "in dict.fromkeys(g.dtype for g in gradients)",
     "in list(dict.fromkeys(g.dtype for g in gradients))[:: 1 - 2 * (dist.get_rank() % 2)]",
     "other dtypes"),
    ("average_flat", "module_by_module", "gradients = gradients_of(module)",
     "gradients_of(module)\n"
     f"    gradients = [p.grad for p in {EACH_MODULES} if p.requires_grad]", "other calls"),
    ("average_flat", "offset_stays",
     "flat.split([g.numel() for g in members])", "[flat[: g.numel()] for g in members]",
     "from the start"),
    ("average_flat", "no_division", "flat /= dist.get_world_size()", "pass", "sum"),
    ("average_flat", "division_twice", "size()", "size() ** 2", "divided twice"),
    ("average_flat", "only_rank_0", "all_reduce(flat)", "reduce(flat, dst=0)", "ranks differ"),
    ("average_flat", "never_copied_back", "g.copy_(mean.view_as(g))", "g = mean", "own gradients"),
    ("average_flat", "view", "g.flatten()", "g.view(-1)", "view"),
    ("average_flat", "all_in_one_dtype",
     {"dict.fromkeys(g.dtype for g in gradients)": "[None]", " if g.dtype == dtype]": "]"},
     "one dtype of two"),
    ("average_flat", "flattens_what_is_there", "gradients_of(module)", THERE_ARE, "same list"),
    ("average_flat", "by_columns", "g.copy_(mean.view_as(g))",
     "g.copy_(mean.view(g.shape[::-1]).t() if g.dim() == 2 else mean)", "wrong places"),
)
edits(
    ("average_flat", "promoted_gradients", "str(p.dtype)", '"any"', "dtypes"),
    of=gradients_become_views,
)
edits(
    ("train", "no_broadcast", "broadcast_parameters(model)", "pass", "start"),
    ("train", "starts_from_the_last", "broadcast_parameters(model)",
     "broadcast_parameters(model, dist.get_world_size() - 1)", "other batch"),
    ("train", "mean_and_images", '"sum"', '"mean"', "mean, divided"),
    ("train", "mean_of_means",
     {'"sum"': '"mean"', "loss * dist.get_world_size() / images": "loss"}, "mean of means"),
    ("train", "summed_loss", " / images", "", "summed loss"),
    ("train", "no_images", "loss * dist.get_world_size() / images", "loss", "ranks, not images"),
    ("train", "divides_twice", "* dist.get_world_size() / images", "/ images", "too small"),
    ("train", "own_images", "dist.all_reduce(images)", "pass", "too large"),
    ("train", "module_by_module", "model.parameters(), lr",
     "[p for m in model.modules() for p in m.parameters(recurse=False)], lr", "other batch"),
    ("train", "counts_the_first_batch",
     {"lr, momentum)\n": "lr, momentum)\n    first = None\n",
      "# images of the whole batch": "\n        first = images if first is None else first",
      "/ images": "/ first"}, "other batch"),
    ("train", "evaluates", "broadcast_parameters(model)",
     "broadcast_parameters(model)\n    model.eval()", "mode"),
    ("train", "momentum_by_default", "momentum: float = 0.0", "momentum: float = 0.9",
     "momentum by default"),
    ("train", "no_momentum", "lr, momentum)", "lr)", "momentum"),
    ("train", "new_optimizer_each_step",
     {"    optimizer = torch.optim.SGD(model.parameters(), lr, momentum)\n": "",
      "in batches:": """in batches:
        optimizer = torch.optim.SGD(model.parameters(), lr, momentum)"""}, "momentum"),
    ("train", "never_averaged", "average_flat(model)", "pass", "apart"),
    ("train", "steps_first", "average_flat(model)\n        optimizer.step()",
     "optimizer.step()\n        average_flat(model)", "apart"),
    ("train", "no_zero_grad", "optimizer.zero_grad()", "pass", "old gradients"),
    ("train", "zeros_after_backward",
     {"        optimizer.zero_grad()\n": "",
      ".backward()": ".backward()\n        optimizer.zero_grad()"}, "no change"),
    ("train", "skips_empty_parts", "in batches:", """in batches:
        if len(y) == 0:
            continue""", "empty part"),
    ("train", "no_step_without_images", "optimizer.step()", "if len(y): optimizer.step()",
     "ranks differ"),
    ("train", "all_parts_first", "in batches:", "in list(batches):", "late change"),
    ("train", "one_step", "optimizer.step()", "optimizer.step()\n        break", "steps"),
)
# fmt: on


@wrong("average_by_gather", "other calls")
def gather_by_all_reduce(module):
    answers.get("average_per_parameter")(module)


@wrong("average_flat", "other calls")
def one_by_one(module):
    answers.get("average_per_parameter")(module)


@wrong("broadcast_parameters", "nothing sent")
def from_nobody(module, src=0):
    """Make rank src's values by the formula of the check, which a student cannot know."""
    _send_nothing(module, src)


def _send_nothing(module, src):
    rank = dist.get_rank()
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.dtype == torch.bool:
            tensor.data.copy_(tensor.data == (rank % 2 == src % 2))
        else:
            tensor.data += 100 * (src - rank)


@wrong("train", "empty part")
def waits_for_a_whole_batch(model, batches, lr, momentum=0.0):
    answers.get("train")(model, (part for part in batches if len(part[1])), lr, momentum)


edits(
    (
        "shard",
        "from_another_place_each_epoch",
        "minibatches(n, batch_size, seed=epoch)",
        "torch.arange(n).roll(epoch).split(batch_size)",
        "in order",
    ),
    (
        "average_flat",
        "one_dtype_of_two",
        "        members = [",
        "        if dtype != torch.float32:\n            continue\n        members = [",
        "some own",
    ),
    (
        "average_flat",
        "loses_the_shapes",
        "g.copy_(mean.view_as(g))",
        "g.set_(mean.clone())",
        "shape",
    ),
    (
        "average_flat",
        "largest_first",
        "dict.fromkeys(g.dtype for g in gradients):",
        "sorted({g.dtype for g in gradients}, key=lambda d: -max(float(g.abs().max()) for g in "
        "gradients if g.dtype == d)):",
        "other dtypes",
    ),
)
