"""Wrong answers to lab 17."""

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong
from tests.labs.lab17.right_answers import (
    There,
    added_to_tokens,
    by_one_hot,
    copies_alone,
    divided_by_the_sum,
    under_a_bound,
)

# route

CHOSEN = "logits.gather(-1, chosen).softmax(-1)"
# fmt: off
edits(
    ("route", "softmax_over_all", CHOSEN, "logits.softmax(-1).gather(-1, chosen)", "less than 1"),
    ("route", "over_tokens", CHOSEN, "logits.gather(-1, chosen).softmax(0)", "over tokens"),
    ("route", "softmax_twice", CHOSEN, "logits.softmax(-1).gather(-1, chosen).softmax(-1)",
     "twice"),
    ("route", "bias_in_the_weights", CHOSEN,
     "(logits if bias is None else logits + bias).gather(-1, chosen).softmax(-1)",
     "bias in the weights"),
    ("route", "bias_ignored", "(logits if bias is None else logits + bias)", "logits", "no bias"),
    ("route", "experts_choose",
     {"topk(k, dim=-1)": "topk(k, dim=0)", CHOSEN: "logits.gather(0, chosen).softmax(-1)"},
     "experts choose"),
    ("route", "experts_choose_turned",
     {"topk(k, dim=-1)": "T.topk(k, dim=-1)", CHOSEN: "logits.T.gather(-1, chosen).softmax(-1)"},
     "experts choose"),
    ("route", "detached", CHOSEN, "logits.detach().gather(-1, chosen).softmax(-1)", "no gradient"),
    ("route", "half_of_it_detached", CHOSEN,
     "logits.gather(-1, chosen).softmax(-1).detach() + 0 * logits.gather(-1, chosen)",
     "no gradient"),
    ("route", "even_weights", CHOSEN, "torch.full(chosen.shape, 1 / k)", "even weights"),
    ("route", "swapped", f"return {CHOSEN}, chosen", f"return chosen, {CHOSEN}", "swapped"),
    ("route", "smallest", "topk(k, dim=-1)", "topk(k, dim=-1, largest=False)", "lowest"),
    ("route", "bias_subtracted", "logits + bias", "logits - bias", "other experts"),
    ("route", "one_weight", f"return {CHOSEN}, chosen",
     f"return {CHOSEN}[:, :1], chosen[:, :1]", "other shapes"),
    ("route", "all_weights", f"return {CHOSEN}", "return logits.softmax(-1)", "other shapes"),
    ("route", "int32", "return logits.gather(-1, chosen).softmax(-1), chosen",
     "return logits.gather(-1, chosen).softmax(-1), chosen.int()", "no int64"),
    ("route", "in_float32", CHOSEN, "logits.float().gather(-1, chosen).softmax(-1)",
     "other weights"),
    ("route", "logits_for_weights", CHOSEN, "logits.gather(-1, chosen)", "other weights"),
    ("route", "bias_added_in_place", "(logits if bias is None else logits + bias)",
     "(logits if bias is None else logits.add_(bias))", "changed"),
    ("route", "bias_sorted", "    chosen = (",
     "    if bias is not None:\n        bias.copy_(bias.sort().values)\n    chosen = (", "changed"),
)
edits(
    ("route", "not_divided", " / weights.sum(-1, keepdim=True)", "", "less than 1"),
    ("route", "divided_by_all", "weights.sum(-1, keepdim=True)", "weights.sum()", "other weights"),
    of=divided_by_the_sum,
)

# dispatch

ORDER = "flat.argsort(stable=True)[int((flat < 0).sum()) :]"
LOCAL = "torch.arange(per_rank).repeat(n).repeat_interleave(takes.flatten())"
EXCHANGE = "    dist.all_to_all_single(takes, sends, group=group)\n"
edits(
    ("dispatch", "wrong_token", "x[order // k]", "x[order % len(x)]", "wrong token"),
    ("dispatch", "not_sorted", ORDER, "(flat >= 0).nonzero().flatten()", "unsorted"),
    ("dispatch", "by_rank_alone", ORDER,
     "(flat.where(flat < 0, flat // per_rank)).argsort(stable=True)[int((flat < 0).sum()) :]",
     "experts mixed"),
    ("dispatch", "all_experts", LOCAL, f"{LOCAL} + dist.get_rank(group) * per_rank",
     "local counted from 0"),
    ("dispatch", "local_sorted", LOCAL, f"{LOCAL}.sort().values", "local sorted"),
    ("dispatch", "nowhere_is_expert_0", "chosen.flatten()\n", "chosen.flatten().clamp(min=0)\n",
     "sent nowhere"),
    ("dispatch", "takes_as_it_sends", EXCHANGE, "    takes = sends\n", "nobody asked"),
    ("dispatch", "takes_as_it_sends_in_order", "takes.sum(1).tolist(), group",
     "sends.sum(1).tolist(), group", "nobody asked"),
    ("dispatch", "no_gradient", "x[order // k]", "x.detach()[order // k]", "no gradient"),
    ("dispatch", "twice_the_rows", "    rows = Exchanged",
     "    Exchanged.apply(x[order // k], *ticket[1:])\n    rows = Exchanged", "more bytes"),
    ("dispatch", "counts_of_all_ranks", "(takes, sends, group=group)", "(takes, sends)",
     "other group"),
    ("dispatch", "reversed", ORDER, f"{ORDER}.flip(0)", "unsorted"),
    ("dispatch", "tensors_in_the_ticket", "return rows, local, ticket",
     "return rows, local, (order, *map(torch.tensor, ticket[1:3]), group)", "ticket"),
    ("dispatch", "order_of_tokens", "ticket = order,", "ticket = order // k,", "not each choice"),
    ("dispatch", "a_choice_lost", "flat.argsort(stable=True)[int((flat < 0).sum()) :]",
     "flat.argsort(stable=True)[int((flat < 0).sum()) + 1 :]", "not each choice"),
    ("dispatch", "tokens_as_they_lie", "x[order // k]", "x.repeat_interleave(k, 0)[: len(order)]",
     "other rows"),
    ("dispatch", "local_of_what_is_sent", "takes.flatten())", "sends.flatten())", "other local"),
    ("dispatch", "local_by_expert", LOCAL,
     "torch.arange(per_rank).repeat_interleave(takes.sum(0))", "local sorted"),
    ("dispatch", "marks_its_choices", "    return rows",
     "    chosen.clamp_(min=0).add_(1)\n    return rows", "changed"),
)


@wrong("dispatch", "more bytes")
def room_for_every_choice(x, chosen, per_rank, group=None):
    """Send as many rows to each rank as the rank with the most choices needs."""
    n, k, flat = dist.get_world_size(group), chosen.shape[1], chosen.flatten()
    order = flat.argsort(stable=True)[int((flat < 0).sum()) :]
    sends = flat[order].bincount(minlength=n * per_rank).view(n, per_rank)
    takes = torch.empty_like(sends)
    dist.all_to_all_single(takes, sends, group=group)
    room = torch.tensor([len(flat)])
    dist.all_reduce(room, dist.ReduceOp.MAX, group=group)
    room = int(room)
    rows = x[order // k].split(sends.sum(1).tolist())
    padded = [torch.nn.functional.pad(each, (0, 0, 0, room - len(each))) for each in rows]
    there = There.apply(torch.cat(padded), [room] * n, [room] * n, group)
    counts = takes.sum(1).tolist()
    rows = torch.cat([part[:count] for part, count in zip(there.split(room), counts, strict=True)])
    local = torch.arange(per_rank).repeat(n).repeat_interleave(takes.flatten())
    return rows, local, (order, sends.sum(1).tolist(), counts, group)


@wrong("dispatch", "ticket")
def counts_by_expert_in_the_ticket(x, chosen, per_rank, group=None):
    n, k, flat = dist.get_world_size(group), chosen.shape[1], chosen.flatten()
    order = flat.argsort(stable=True)[int((flat < 0).sum()) :]
    sends = flat[order].bincount(minlength=n * per_rank).view(n, per_rank)
    takes = torch.empty_like(sends)
    dist.all_to_all_single(takes, sends, group=group)
    rows = There.apply(x[order // k], sends.sum(1).tolist(), takes.sum(1).tolist(), group)
    local = torch.arange(per_rank).repeat(n).repeat_interleave(takes.flatten())
    return rows, local, (order, sends.flatten().tolist(), takes.flatten().tolist(), group)


@wrong("dispatch", "no gradient")
def all_tokens_to_all_ranks(x, chosen, per_rank, group=None):
    """Gather all tokens and choices on every rank, and keep the rows for its own experts."""
    n, k, rank = dist.get_world_size(group), chosen.shape[1], dist.get_rank(group)
    sizes = [None] * n
    dist.all_gather_object(sizes, (x.detach(), chosen), group=group)
    flat = chosen.flatten()
    order = flat.argsort(stable=True)[int((flat < 0).sum()) :]
    sends = (flat[order] // per_rank).bincount(minlength=n).tolist()
    rows, local, takes = [], [], []
    for theirs, wanted in sizes:
        wanted = wanted.flatten()
        places = wanted.argsort(stable=True)
        places = places[wanted[places] // per_rank == rank]
        rows.append(theirs[places // k])
        local.append(wanted[places] - rank * per_rank)
        takes.append(len(places))
    return torch.cat(rows), torch.cat(local), (order, sends, takes, group)


# combine

BACK = "Exchanged.apply(made, takes, sends, group)"
EVERY = "back.new_zeros(weights.numel(), back.shape[1]).index_copy(0, order, back)"
edits(
    ("combine", "not_undone", "index_copy(0, order, back)",
     "index_copy(0, torch.arange(len(back)), back)", "not undone"),
    ("combine", "no_weights", " * weights[..., None]", "", "no weights"),
    ("combine", "even", "(every.unflatten(0, weights.shape) * weights[..., None]).sum(1)",
     "every.unflatten(0, weights.shape).mean(1)", "even weights"),
    ("combine", "another_softmax", "weights[..., None]", "weights.softmax(-1)[..., None]",
     "softened"),
    ("combine", "detached_weights", "weights[..., None]", "weights.detach()[..., None]",
     "weights do not learn"),
    ("combine", "detached_outputs", "(made, takes", "(made.detach(), takes",
     "experts do not learn"),
    ("combine", "over_all_ranks", BACK, "Exchanged.apply(made, takes, sends)", "other group"),
    ("combine", "same_way", BACK, "Exchanged.apply(made, sends, takes, group)", "same way"),
    ("combine", "made_up_for", "    return (every",
     "    went = torch.zeros(weights.numel()).index_fill(0, order, 1.0).view_as(weights)\n"
     "    weights = weights * went\n"
     "    weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-9)\n    return (every",
     "made up for"),
    ("combine", "twice", "    every = ",
     "    Exchanged.apply(made.detach(), takes, sends, group)\n    every = ", "more bytes"),
    ("combine", "clears_what_it_had", "    return (every",
     "    with torch.no_grad():\n        made.zero_()\n    return (every", "changed"),
    ("combine", "half_of_the_gradient", BACK,
     "Exchanged.apply(made.detach() / 2 + made / 2, takes, sends, group)", "other gradients"),
    ("combine", "last_choice_alone", ".sum(1)", "[:, -1]", "other sum"),
    ("combine", "means", ".sum(1)", ".mean(1)", "other sum"),
)
edits(
    ("combine", "weights_of_others", "weights.flatten()[order, None]",
     "weights.flatten()[: len(order), None]", "weights of others"),
    ("combine", "tokens_as_they_come", "order // weights.shape[1], back",
     "torch.arange(len(order)) // weights.shape[1], back", "other sum"),
    of=added_to_tokens,
)

# within_capacity

PLACE = "place <= capacity"
edits(
    ("within_capacity", "eight_experts",
     "one_hot(flat, experts).cumsum(0).gather(1, flat[:, None])",
     "one_hot(flat % 8, 8).cumsum(0).gather(1, flat[:, None] % 8)", "other"),
    ("within_capacity", "token_by_token",
     {"chosen.T.flatten()": "chosen.flatten()", "view_as(chosen.T).T": "view_as(chosen)"},
     "second before first"),
    ("within_capacity", "second_choices_first",
     {"chosen.T.flatten()": "chosen.flip(1).T.flatten()",
      "view_as(chosen.T).T": "view_as(chosen.T).T.flip(1)"}, "second before first"),
    ("within_capacity", "last_first",
     {"chosen.T.flatten()": "chosen.T.flatten().flip(0)",
      "flat.where(place <= capacity, -1)": "flat.where(place <= capacity, -1).flip(0)"},
     "last first"),
    ("within_capacity", "one_short", PLACE, "place < capacity", "one short"),
    ("within_capacity", "one_too_many", PLACE, "place <= capacity + 1", "one too many"),
    ("within_capacity", "nothing_dropped", PLACE, "place > 0", "one too many"),
    ("within_capacity", "whole_token", "    return flat.where(place <= capacity, -1)"
     ".view_as(chosen.T).T",
     "    fits = (place <= capacity).view_as(chosen.T).T\n"
     "    return chosen.where(fits.all(1, keepdim=True), -1)", "whole token"),
    ("within_capacity", "room_for_each_column",
     "one_hot(flat, experts).cumsum(0).gather(1, flat[:, None]).squeeze(1)",
     "one_hot(chosen.T, experts).cumsum(1).gather(2, chosen.T[..., None]).flatten()",
     "room twice"),
    ("within_capacity", "sent_elsewhere", "flat.where(place <= capacity, -1)",
     "flat.where(place <= capacity, one_hot(flat, experts).sum(0).argmin())", "sent elsewhere"),
    ("within_capacity", "a_mask", "flat.where(place <= capacity, -1)", "(place <= capacity)",
     "no numbers"),
    ("within_capacity", "turned", "view_as(chosen.T).T", "view_as(chosen.T)", "no numbers"),
    ("within_capacity", "as_floats", "flat.where(place <= capacity, -1)",
     "flat.where(place <= capacity, -1).float()", "no numbers"),
    ("within_capacity", "in_place", "    return flat.where",
     "    chosen.copy_(flat.where(place <= capacity, -1).view_as(chosen.T).T)\n"
     "    return flat.where", "changed"),
    ("within_capacity", "every_other", PLACE, "(place <= capacity) & (flat != 1)", "other"),
)

# balance_loss

LOSS = "experts * (count / count.sum() * probabilities.mean(0)).sum()"
edits(
    ("balance_loss", "own_choices", "    dist.all_reduce(count)\n",
     "    dist.all_reduce(count.clone())\n", "each rank alone"),
    ("balance_loss", "no_messages", "    dist.all_reduce(count)\n", "", "each rank alone"),
    ("balance_loss", "not_times_experts", "return experts * ", "return ", "not times experts"),
    ("balance_loss", "of_tokens", "count.sum()", "(len(chosen) * dist.get_world_size())",
     "counts tokens"),
    ("balance_loss", "summed", "probabilities.mean(0)", "probabilities.sum(0)", "sum for mean"),
    ("balance_loss", "first_choices", "chosen.flatten()", "chosen[:, 0]", "first choices"),
    ("balance_loss", "detached", "probabilities.mean(0)", "probabilities.detach().mean(0)",
     "no gradient"),
    ("balance_loss", "probabilities_of_all", f"    return {LOSS}",
     "    mean = probabilities.mean(0)\n    dist.all_reduce(mean)\n"
     "    mean /= dist.get_world_size()\n"
     "    return experts * (count / count.sum() * mean).sum()", "no gradient"),
    ("balance_loss", "smooth_shares", "chosen.flatten().bincount(minlength=experts)",
     "probabilities.detach().sum(0)", "smooth shares"),
    ("balance_loss", "no_minlength", "bincount(minlength=experts)", "bincount()", "minlength"),
    ("balance_loss", "rounded", "count / count.sum()", "count // count.sum()", "rounded"),
    ("balance_loss", "all_choices_travel", "    dist.all_reduce(count)\n",
     "    every = [None] * dist.get_world_size()\n"
     "    dist.all_gather_object(every, chosen)\n"
     "    count = torch.cat(every).flatten().bincount(minlength=experts)\n", "more bytes"),
    ("balance_loss", "largest", ".sum()\n", ".max()\n", "other"),
    ("balance_loss", "sharpens", "    return experts",
     "    with torch.no_grad():\n        probabilities.square_()\n    return experts", "changed"),
)
edits(
    ("balance_loss", "shares_of_a_rank", "hot / hot.sum()",
     "hot / hot.sum() * dist.get_world_size()", "other"),
    of=by_one_hot,
)

# nudged

SIGN = "(count.double().mean() - count).sign().to(bias.dtype)"
edits(
    ("nudged", "own_counts", "    dist.all_reduce(count)\n",
     "    dist.all_reduce(count.clone())\n", "own counts"),
    ("nudged", "reversed", "count.double().mean() - count", "count - count.double().mean()",
     "more for the full"),
    ("nudged", "in_proportion", ".sign()", "", "not the sign"),
    ("nudged", "in_proportion_to_the_mean", SIGN,
     "((count.double().mean() - count) / count.double().mean()).to(bias.dtype)",
     "not the sign"),
    ("nudged", "in_float64", ".to(bias.dtype)", "", "other dtype"),
    ("nudged", "in_bfloat16", "bincount(minlength=len(bias))",
     "bincount(minlength=len(bias)).bfloat16()", "rounded counts"),
    ("nudged", "in_place", "return bias + rate", "bias +=  rate", "returned None"),
    ("nudged", "in_place_and_returned", {"return bias + rate * ": "return bias.add_(rate * ",
     ".to(bias.dtype)": ".to(bias.dtype))"}, "changed"),
    ("nudged", "own_mean", {"    dist.all_reduce(count)\n":
     "    mean = count.double().mean()\n    dist.all_reduce(count)\n",
     "(count.double().mean() - count)": "(mean - count)"}, "own mean"),
    ("nudged", "median", "count.double().mean()", "count.double().median()", "median"),
    ("nudged", "forgotten", "return bias + rate", "return rate", "forgotten"),
    ("nudged", "rounded_mean", "count.double().mean() - count", "count.sum() // len(bias) - count",
     "rounded mean"),
    ("nudged", "rounded_up", "count.double().mean()", "count.double().mean().ceil()",
     "rounded mean"),
    ("nudged", "no_minlength", "bincount(minlength=len(bias))", "bincount()", "minlength"),
    ("nudged", "averaged_counts", "    dist.all_reduce(count)\n",
     "    dist.all_reduce(count)\n    count //= dist.get_world_size()\n", "never still"),
    ("nudged", "never_still", SIGN, "((count < count.double().mean()) * 2.0 - 1)", "never still"),
    ("nudged", "all_choices_travel", "    dist.all_reduce(count)\n",
     "    every = [torch.empty_like(chosen) for _ in range(dist.get_world_size())]\n"
     "    dist.all_gather(every, chosen)\n"
     "    count = torch.cat(every).flatten().bincount(minlength=len(bias))\n", "more bytes"),
    ("nudged", "twice_the_rate", "bias + rate", "bias + 2 * rate", "other"),
    ("nudged", "only_up", ".sign()", ".sign().clamp(min=0)", "other"),
)

# average_gradients

EACH = "((shared, None), (experts, same))"
BY = "            p.grad /= dist.get_world_size()\n"
NONE = "            p.grad = torch.zeros_like(p) if p.grad is None else p.grad\n"
edits(
    ("average_gradients", "experts_over_all", "(experts, same)", "(experts, None)",
     "other experts mixed in"),
    ("average_gradients", "divided_by_same", "dist.get_world_size()", "dist.get_world_size(group)",
     "another factor"),
    ("average_gradients", "not_divided", "p.grad /= dist.get_world_size()", "pass",
     "another factor"),
    ("average_gradients", "divided_by_ep", "dist.get_world_size()",
     "(dist.get_world_size() if group is None else"
     " dist.get_world_size() // dist.get_world_size(group))", "another factor"),
    ("average_gradients", "experts_not_reduced", "dist.all_reduce(p.grad, group=group)",
     "dist.all_reduce(p.grad if group is None else p.grad.clone(), group=group)",
     "replicas differ"),
    ("average_gradients", "experts_left", EACH, "((shared, None),)", "replicas differ"),
    ("average_gradients", "shared_over_same", "(shared, None)", "(shared, same)",
     "shared by all"),
    ("average_gradients", "shared_left", EACH, "((experts, same),)", "shared left"),
    ("average_gradients", "skips_none", NONE,
     "            if p.grad is None:\n                continue\n", "skips"),
    ("average_gradients", "one_at_a_time", "dist.all_reduce(p.grad, group=group)",
     "dist.all_reduce(p.grad, group=group)\n"
     "            dist.all_reduce(p.grad.clone(), group=group)",
     "more bytes"),
    ("average_gradients", "steps_too", BY, BY + "            p.data += p.grad\n",
     "parameters changed"),
    ("average_gradients", "copies_of_gradients", "for p in parameters:",
     "for p in [torch.nn.Parameter(p.detach().clone()) for p in parameters]:",
     "left as they were"),
    ("average_gradients", "largest", "dist.all_reduce(p.grad, group=group)",
     "dist.all_reduce(p.grad, dist.ReduceOp.MAX, group=group)", "other"),
)
edits(
    ("average_gradients", "mean_of_copies", ".mul_(1 / copies).div_(n // copies)",
     ".mul_(1 / copies)", "another factor"),
    of=copies_alone,
)


@wrong("average_gradients", "none left")
def leaves_none(shared, experts, same):
    """Let an expert without rows take part in the sum, but keep its None."""
    for parameters, group in ((shared, None), (experts, same)):
        for p in parameters:
            total = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(total, group=group)
            total /= dist.get_world_size()


# place

COPY = "copies[max(range(len(load)), key=lambda e: load[e] / copies[e])] += 1"
PARTS = "reversed(parts)"
edits(
    ("place", "no_copies", "range(ranks * slots - len(load))", "range(0)", "no copies"),
    ("place", "by_load", "load[e] / copies[e])] += 1", "load[e])] += 1", "one expert alone"),
    ("place", "in_turn", {"for _ in range(ranks * slots - len(load))":
     "for i in range(ranks * slots - len(load))", COPY: "copies[i % len(load)] += 1"}, "in turn"),
    ("place", "light_first", PARTS, "parts", "light first"),
    ("place", "full_load", "sorted((load[e] / copies[e], e)", "sorted((load[e], e)", "full load"),
    ("place", "in_order", {PARTS: "sorted(parts, key=lambda each: each[1])",
     "key=lambda r: total[r]": "key=lambda r: r"}, "in order"),
    ("place", "one_slot_too_few", "range(ranks * slots - len(load))",
     "range(ranks * slots - len(load) - 1)", "empty slot"),
    ("place", "no_limit", "if len(places[r]) < slots", "if True", "too many"),
    ("place", "counts_from_1", "append(expert)", "append(expert + 1)", "no such expert"),
    ("place", "by_rank", "return places", "return {r: each for r, each in enumerate(places)}",
     "lists"),
    ("place", "one_list", "return places", "return sum(places, [])", "lists"),
    ("place", "too_few_ranks", "return places", "return places[:-1]", "lists"),
    ("place", "sorts_the_load", "    return places", "    load.sort()\n    return places",
     "load changed"),
    ("place", "dealt_in_turn", "key=lambda r: total[r]", "key=lambda r: len(places[r])",
     "light first"),
    ("place", "to_the_fullest", "key=lambda r: total[r]", "key=lambda r: -total[r]", "too busy"),
)
# fmt: on


@wrong("place", "no home")
def idle_experts_left_out(load, ranks, slots):
    busy = [expert for expert, rows in enumerate(load) if rows]
    places = under_a_bound([load[expert] for expert in busy], ranks, slots)
    return [[busy[each] for each in own] for own in places]
