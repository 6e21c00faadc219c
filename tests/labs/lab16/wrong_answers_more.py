"""Wrong answers to lab 16: the exchange of heads, and bytes."""

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong

# fmt: off
FORWARD = "return torch.cat([p.view(heads // n, -1, width) for p in coming.split(parts)], dim=1)"
BACK = "        return coming.view(heads * len(going), -1, width), None\n"
edits(
    ("ByHeads", "as_it_lies", FORWARD, "return coming.view(heads // n, -1, width)", "as it lies"),
    ("ByHeads", "gradient_as_it_lies", "torch.cat(going), None",
     "gradient.contiguous().flatten(), None", "as it lies"),
    ("ByHeads", "other_heads", "x.contiguous().flatten(), parts",
     "x.unflatten(0, (heads // n, n)).transpose(0, 1).flatten(), parts", "other heads"),
    ("ByHeads", "room_like_its_own", "[heads // n * size * width for size in sizes]",
     "[heads // n * x.shape[1] * width for size in sizes]", "even"),
    ("ByHeads", "shape_kept_by_forward",
     {"        heads, _, width = x.shape\n": "        heads, _, width = ctx.shape = x.shape\n",
      "coming.view(heads * len(going), -1, width), None": "coming.view(ctx.shape), None"},
     "more than sizes"),
    ("ByHeads", "tensor_kept_by_forward",
     {"        heads, _, width = x.shape\n":
      "        heads, _, width = x.shape\n        ctx.save_for_backward(x)\n",
      "coming.view(heads * len(going), -1, width), None":
      "coming.view_as(ctx.saved_tensors[0]), None"}, "more than sizes"),
    ("ByHeads", "lists_exchanged", "x.contiguous().flatten(), parts)",
     "x.contiguous().flatten(), [x.numel() // n] * n, parts)", "even"),
    ("ByHeads", "as_it_lies_in_memory", "x.contiguous().flatten(), parts",
     "x.as_strided((x.numel(),), (1,)), parts", "other"),
    ("ByHeads", "averaged", BACK,
     "        return coming.view(heads * len(going), -1, width) / len(going), None\n", "averaged"),
    ("ByHeads", "own_heads_alone",
     "        dist.all_to_all_single(coming, torch.cat(going), None, [len(p) for p in going])\n",
     "", "own heads alone"),
    ("ByHeads", "one_gradient", BACK, "        return coming.view(heads * len(going), -1, width)\n",
     "gradients for nothing"),
    ("ByHeads", "forward_again", BACK,
     "        return ByHeads.forward(ctx, gradient, ctx.sizes), None\n", "even"),
    ("ByHeads", "lists",
     "dist.all_to_all_single(coming, x.contiguous().flatten(), parts)",
     "dist.all_to_all(list(coming.split(parts)), list(x.contiguous().flatten().chunk(n)))",
     "lists"),
    ("ByHeads", "reversed_parts", "for p in coming.split(parts)]",
     "for p in reversed(coming.split(parts))]", "other"),
    ("ByHeads", "in_place", "        heads, _, width = gradient.shape\n",
     "        heads, _, width = gradient.shape\n        gradient = gradient.contiguous()\n"
     "        gradient *= 1.5\n        gradient = gradient / 1.5\n", "not left alone"),
)


@wrong("ByHeads", "more bytes")
class Gathers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sizes):
        ctx.sizes, rank, n = sizes, dist.get_rank(), dist.get_world_size()
        shares = [x.new_empty(x.shape[0], size, x.shape[2]) for size in sizes]
        works = []
        for peer in range(n):
            if peer != rank:
                works += [dist.isend(x, peer), dist.irecv(shares[peer], peer)]
        for work in works:
            work.wait()
        shares[rank] = x
        return torch.cat(shares, dim=1).chunk(n)[rank].contiguous()

    @staticmethod
    def backward(ctx, gradient):
        rank, n = dist.get_rank(), dist.get_world_size()
        mine = gradient.contiguous()
        every = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(every, mine)
        return torch.cat([g.split(ctx.sizes, dim=1)[rank] for g in every]), None


HEADS = "return (n - 1) * share * (2 * heads + 2 * max(kv_heads, n)) // n"
RING = "return (n - 1) * share * 2 * kv_heads"
edits(
    ("bytes_sent", "own_share",
     {HEADS: HEADS.replace("n - 1", "n"), RING: RING.replace("n - 1", "n")}, "own share"),
    ("bytes_sent", "no_values", {"2 * max(": "max(", "* 2 * kv_heads": "* kv_heads"}, "no values"),
    ("bytes_sent", "no_way_home", "(2 * heads +", "(heads +", "no way home"),
    ("bytes_sent", "whole_sequence", "tokens // n * width", "tokens * width", "whole sequence"),
    ("bytes_sent", "query_heads", "* 2 * kv_heads", "* 2 * heads", "query heads"),
    ("bytes_sent", "not_repeated", "max(kv_heads, n)", "kv_heads", "not repeated"),
    ("bytes_sent", "part_of_a_part", "* 2 * kv_heads", "* 2 * kv_heads // n", "a part of a part"),
    ("bytes_sent", "both_directions", "share = tokens", "share = 2 * tokens", "both directions"),
    ("bytes_sent", "number_ignored", "* width * number", "* width * 2", "number ignored"),
    ("bytes_sent", "numbers", "* width * number", "* width", "numbers, not bytes"),
    ("bytes_sent", "heads_not_divided", HEADS, HEADS.removesuffix(" // n"), "heads not divided"),
    ("bytes_sent", "a_float", {HEADS: HEADS.replace("// n", "/ n")}, "no int"),
    ("bytes_sent", "keys_twice", "* 2 * kv_heads", "* 3 * kv_heads", "other"),
)
# fmt: on
