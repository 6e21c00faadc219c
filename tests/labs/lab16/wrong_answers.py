"""Wrong answers to lab 16."""

import torch
import torch.distributed as dist

from ddpkit.answers.lab16 import merge, pass_on, unseen
from tests.labs.answers import edits, wrong
from tests.labs.lab16.right_answers import from_the_first_block

RETURN = "return a * out + b * more, both"
# fmt: off
edits(
    ("merge", "mean", RETURN, "return (out + more) / 2, both", "mean"),
    ("merge", "added", RETURN, "return out + more, both", "added"),
    ("merge", "plain_exp", RETURN,
     "a, b = lse.exp(), more_lse.exp()\n"
     "    return (a * out + b * more) / (a + b), (a + b).log()", "overflow"),
    ("merge", "exp_not_divided", RETURN, "return lse.exp() * out + more_lse.exp() * more, both",
     "not divided"),
    ("merge", "swapped", RETURN, "return b * out + a * more, both", "swapped"),
    ("merge", "larger", RETURN, "return a * out + b * more, torch.maximum(lse, more_lse)", "lse"),
    ("merge", "logs_added", RETURN, "return a * out + b * more, lse + more_lse", "logs added"),
    ("merge", "nan_where_nothing_was_seen", ".exp().nan_to_num()", ".exp()", "nothing seen"),
    ("merge", "always_float32", RETURN, "return (a * out + b * more).float(), both.float()",
     "dtype"),
    ("merge", "in_place", RETURN,
     "out *= a\n    out += b * more\n    return out, both", "changed"),
    ("merge", "by_maximum_not_divided", "both = torch.logaddexp(lse, more_lse)\n",
     "both = torch.maximum(lse, more_lse)\n", "not divided"),
    ("merge", "one_tensor", RETURN, "return a * out + b * more", "two tensors"),
    ("merge", "exchanged", RETURN, "return both, a * out + b * more", "two tensors"),
    ("merge", "without_the_last_dimension", RETURN,
     "return a * out + b * more, both.squeeze(-1)", "two tensors"),
    ("merge", "finite", "both = torch.logaddexp(lse, more_lse)\n",
     "lse, more_lse = lse.clamp(min=-1e9), more_lse.clamp(min=-1e9)\n"
     "    both = torch.logaddexp(lse, more_lse)\n", "not -inf"),
    ("merge", "by_lse", RETURN,
     "return (lse * out + more_lse * more) / (lse + more_lse), both", "other"),
)
edits(
    ("ring_attention", "waits_first",
     {"        out, lse = merge(out, lse, *attend(q, *kv, source))\n        if hop < n - 1:\n"
      "            kv = coming()\n":
      "        if hop < n - 1:\n            following = coming()\n"
      "        out, lse = merge(out, lse, *attend(q, *kv, source))\n        if hop < n - 1:\n"
      "            kv = following\n"}, "no overlap"),
    ("ring_attention", "starts_late",
     {"            coming = pass_on(kv, sizes[(source - 1) % n])\n": "            pass\n",
      "kv = coming()": "kv = pass_on(kv, sizes[(source - 1) % n])()"}, "no overlap"),
    ("ring_attention", "a_hop_too_many",
     {"        if hop < n - 1:\n            coming =": "        if n > 1:\n            coming =",
      "        if hop < n - 1:\n            kv =": "        if n > 1:\n            kv ="},
     "one hop too many"),
    ("ring_attention", "added", "out, lse = merge(out, lse, *attend(q, *kv, source))",
     "out, lse = (a + b for a, b in zip((out, lse), attend(q, *kv, source)))", "added"),
    ("ring_attention", "mean", {"out, lse = merge(out, lse, *attend(q, *kv, source))":
     "out = out + attend(q, *kv, source)[0] / n"}, "added"),
    ("ring_attention", "values_as_keys", "torch.stack([k, v])", "torch.stack([v, k])",
     "no rank's keys"),
    ("ring_attention", "rounded",
     {"torch.stack([k, v])": "torch.stack([k, v]).bfloat16()",
      "*kv, source": "*kv.float(), source"},
     "no rank's keys"),
    ("ring_attention", "source_ahead", "attend(q, *kv, source)",
     "attend(q, *kv, (rank + hop) % n)", "wrong source"),
    ("ring_attention", "negative_source", "source = (rank - hop) % n", "source = rank - hop",
     "wrong source"),
    ("ring_attention", "own_source", "attend(q, *kv, source)", "attend(q, *kv, rank)",
     "wrong source"),
    ("ring_attention", "a_round_too_few", "for hop in range(n):", "for hop in range(n - 1):",
     "keys missing"),
    ("ring_attention", "own_keys_twice", "kv = coming()",
     "coming()", "keys missing"),
    ("ring_attention", "skips_before_the_hop",
     "        if hop < n - 1:\n            coming =",
     "        if source > rank:\n            continue\n"
     "        if hop < n - 1:\n            coming =", "skips the hop"),
    ("ring_attention", "own_size", "sizes[(source - 1) % n]", "q.shape[1]", "other sizes"),
    ("ring_attention", "size_of_the_source", "sizes[(source - 1) % n]", "sizes[source]",
     "other sizes"),
    ("ring_attention", "starts_with_own_twice",
     "kv, (out, lse) = torch.stack([k, v]), unseen(q)",
     "kv, (out, lse) = torch.stack([k, v]), attend(q, k, v, rank)", "keys twice"),
    ("ring_attention", "last_lse", "out, lse = merge(out, lse, *attend(q, *kv, source))",
     "part, new = attend(q, *kv, source)\n"
     "        out, lse = merge(out, lse, part, new)[0], new", "other"),
)


@wrong("ring_attention", "gathers")
def all_gathered(q, k, v, attend, sizes):
    rank, n = dist.get_rank(), dist.get_world_size()
    shares, arrive = [torch.stack([k, v])], None
    (out, lse) = unseen(q)
    for hop in range(n):
        if hop < n - 1:
            arrive = pass_on(shares[-1], sizes[(rank - hop - 1) % n])
        out, lse = merge(out, lse, *attend(q, *shares[hop], (rank - hop) % n))
        if hop < n - 1:
            shares.append(arrive())
    return out, lse


@wrong("ring_attention", "gathers")
def merged_at_the_end(q, k, v, attend, sizes):
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, parts = torch.stack([k, v]), []
    for hop in range(n):
        arrive = pass_on(kv, sizes[(rank - hop - 1) % n]) if hop < n - 1 else None
        out, lse = attend(q, *kv, (rank - hop) % n)
        parts.append((out.clone(), lse))
        kv = arrive() if arrive else kv
    (out, lse), *rest = parts
    for each in rest:
        out, lse = merge(out, lse, *each)
    return out, lse


@wrong("ring_attention", "never waited for")
def waits_for_its_receive_alone(q, k, v, attend, sizes):
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, (out, lse) = torch.stack([k, v]), unseen(q)
    for hop in range(n):
        source = (rank - hop) % n
        if hop < n - 1:
            coming = kv.new_empty(2, k.shape[0], sizes[(source - 1) % n], k.shape[2])
            dist.isend(kv, (rank + 1) % n)
            work = dist.irecv(coming, (rank - 1) % n)
        out, lse = merge(out, lse, *attend(q, *kv, source))
        if hop < n - 1:
            work.wait()
            kv = coming
    return out, lse


@wrong("ring_attention", "more bytes")
def sends_to_everybody(q, k, v, attend, sizes):
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, (out, lse) = torch.stack([k, v]), unseen(q)
    coming, again = ([kv.new_empty(2, len(k), size, k.shape[2]) for size in sizes] for _ in "ab")
    works = []
    for peer in range(n):
        if peer != rank:
            works += [dist.isend(kv, peer), dist.irecv(coming[peer], peer)]
            works += [dist.isend(kv, peer, tag=1), dist.irecv(again[peer], peer, tag=1)]
    coming[rank] = kv
    for work in works:
        work.wait()
    for source in range(n):
        out, lse = merge(out, lse, *attend(q, *coming[source], source))
    return out, lse


CHUNKS = "chunks = torch.arange(length).tensor_split(2 * n)"
PAIR = "torch.cat([chunks[rank], chunks[-1 - rank]])"
edits(
    ("zigzag", "in_order", PAIR, "torch.arange(length).tensor_split(n)[rank]", "in order"),
    ("zigzag", "neighbouring_chunks", PAIR,
     "torch.cat([chunks[2 * rank], chunks[2 * rank + 1]])", "in order"),
    ("zigzag", "every_nth", PAIR, "torch.arange(rank, length, n)", "striped"),
    ("zigzag", "both_later", PAIR, "torch.cat([chunks[rank], chunks[rank + n]])", "both later"),
    ("zigzag", "n_chunks", CHUNKS, "chunks = torch.arange(length).tensor_split(n)", "twice"),
    ("zigzag", "one_off", "chunks[-1 - rank]", "chunks[2 * n - 2 - rank]", "missing"),
    ("zigzag", "whole_chunks", CHUNKS,
     "chunks = torch.arange(length)[: length // (2 * n) * 2 * n].split(length // (2 * n))",
     "left over"),
    ("zigzag", "chunk", CHUNKS,
     "chunks = torch.arange(length).chunk(2 * n)\n"
     "    chunks = [*chunks, *[chunks[0][:0]] * (2 * n - len(chunks))]", "sizes"),
    ("zigzag", "reversed", "chunks[-1 - rank]]", "chunks[-1 - rank].flip(0)]", "not increasing"),
    ("zigzag", "late_first", PAIR, "torch.cat([chunks[-1 - rank], chunks[rank]])",
     "not increasing"),
    ("zigzag", "lists", PAIR, "torch.cat([chunks[rank], chunks[-1 - rank]]).tolist()",
     "no positions"),
    ("zigzag", "from_one", "torch.arange(length)", "torch.arange(1, length + 1)", "outside"),
)
TARGETS = "torch.cat([tokens[1:], tokens.new_tensor([-100])])"
TAKEN = "return tokens[at], targets[at], at"
edits(
    ("own_tokens", "shifted_late", TAKEN,
     "mine = tokens[at]\n"
     "    return mine, torch.cat([mine[1:], tokens.new_tensor([-100])]), at", "shifted late"),
    ("own_tokens", "rolled_late", TAKEN, "return tokens[at], tokens[at].roll(-1), at",
     "shifted late"),
    ("own_tokens", "from_zero", TAKEN, "return tokens[at], targets[at], torch.arange(len(at))",
     "local positions"),
    ("own_tokens", "wraps_round", TARGETS, "tokens.roll(-1)", "wraps round"),
    ("own_tokens", "before", TARGETS, "torch.cat([tokens.new_tensor([-100]), tokens[:-1]])",
     "backwards"),
    ("own_tokens", "rolled_back", TARGETS, "tokens.roll(1)", "backwards"),
    ("own_tokens", "last_predicts_itself", "tokens.new_tensor([-100])", "tokens[-1:]",
     "last target"),
    ("own_tokens", "one_rank_for_all", "places[rank]", "places[0]", "one rank"),
    ("own_tokens", "another_order", TAKEN, "return tokens[at], at, targets[at]", "another order"),
    ("own_tokens", "itself", TARGETS, "tokens", "itself"),
    ("own_tokens", "ends_of_stretches", TAKEN,
     "mine = targets[at].clone()\n"
     "    mine[:-1][at[1:] != at[:-1] + 1] = -100\n"
     "    mine[-1] = -100\n    return tokens[at], mine, at", "targets lost"),
    ("own_tokens", "one_less", TAKEN,
     "at = at[at < len(tokens) - 1]\n    return tokens[at], targets[at], places[rank]",
     "token lost"),
    ("own_tokens", "in_place", TARGETS,
     "tokens.clone()\n    tokens[:-1] = targets[1:]\n    tokens[-1] = -100\n"
     "    tokens, targets = targets, tokens", "changed"),
    ("own_tokens", "two_ahead", TARGETS,
     "torch.cat([tokens[2:], tokens.new_tensor([-100, -100])])", "other"),
)
OWN = "            own = theirs\n"
edits(
    ("ring_gradients", "own_queries", "return of_q, *(own if n == 1 else own + travelling())",
     "travelling() if n > 1 else None\n    return of_q, *own", "own queries alone"),
    ("ring_gradients", "lacks_own", "own + travelling()", "travelling()", "lacks its own"),
    ("ring_gradients", "last_block", "of_q, theirs = of_q + part,", "of_q, theirs = part,",
     "last block"),
    ("ring_gradients", "keys_wait",
     {"            coming = pass_on(kv, size)\n": "            pass\n",
      "kv = coming()": "kv = pass_on(kv, size)()"}, "no overlap"),
    ("ring_gradients", "gradients_wait", "            travelling = pass_on(theirs, size)\n",
     "            came = pass_on(theirs, size)()\n            travelling = lambda: came\n",
     "no overlap"),
    ("ring_gradients", "adds_late",
     "            theirs = theirs if hop == 1 else theirs + travelling()\n"
     "            travelling = pass_on(theirs, size)\n",
     "            theirs = theirs if hop == 1 else travelling()\n"
     "            travelling = pass_on(theirs, size)\n", "added late"),
    ("ring_gradients", "own_size", "size = sizes[(source - 1) % n]", "size = q.shape[1]",
     "other sizes"),
    ("ring_gradients", "source_ahead", "back(q, *kv, source)", "back(q, *kv, (rank + hop) % n)",
     "wrong source"),
    ("ring_gradients", "a_round_too_few", "for hop in range(n):",
     "for hop in range(max(1, n - 1)):", "keys missing"),
    ("ring_gradients", "never_moves", "            kv = coming()\n", "            coming()\n",
     "keys missing"),
    ("ring_gradients", "values_first", "return of_q, *(own if n == 1 else own + travelling())",
     "return of_q, *(own if n == 1 else own + travelling()).flip(0)", "values first"),
    ("ring_gradients", "own_part_twice", "own + travelling()", "own + own + travelling()",
     "own part twice"),
    ("ring_gradients", "negative", "return of_q, *(own", "return -of_q, *(own", "other"),
    ("ring_gradients", "last_not_waited_for", "own + travelling()", "own + 0 * own",
     "never waited for"),
)
edits(
    ("ring_gradients", "two_values", "return of_q, *(own", "return of_q, (own", "Careless"),
    raises=True,
)
edits(
    ("ring_gradients", "skips", "        coming = pass_on(kv, size) if hop < n - 1 else None\n",
     "        if source > rank:\n            continue\n"
     "        coming = pass_on(kv, size) if hop < n - 1 else None\n", "skips the hop"),
    of=from_the_first_block,
)


@wrong("ring_gradients", "not home")
def stops_before_home(q, k, v, back, sizes):
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, of_q, arrive = torch.stack([k, v]), torch.zeros_like(q), None
    for hop in range(n):
        source = (rank - hop) % n
        size = sizes[(source - 1) % n]
        coming = pass_on(kv, size) if hop < n - 1 else None
        part, *theirs = back(q, *kv, source)
        of_q, total = of_q + part, torch.stack(theirs)
        total = total if arrive is None else total + arrive()
        if hop < n - 1:
            arrive = pass_on(total, size)
            kv = coming()
    return of_q, *total


@wrong("ring_gradients", "keeps all")
def whole_sum(q, k, v, back, sizes):
    """Send each part straight home, and keep all parts until the end."""
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, of_q, own = torch.stack([k, v]), torch.zeros_like(q), None
    parts, arrivals = [], []
    for hop in range(n):
        source = (rank - hop) % n
        coming = pass_on(kv, sizes[(source - 1) % n]) if hop < n - 1 else None
        part, *theirs = back(q, *kv, source)
        of_q = of_q + part
        if hop == 0:
            own = torch.stack(theirs)
        else:
            room = own.new_empty(own.shape)
            parts.append((torch.stack(theirs), room))
            arrivals += [dist.isend(parts[-1][0], source), dist.irecv(room, (rank + hop) % n)]
        kv = coming() if coming else kv
    for work in arrivals:
        work.wait()
    return of_q, *(own + sum(room for _, room in parts))


@wrong("ring_gradients", "more bytes")
def all_reduced(q, k, v, back, sizes):
    rank, n = dist.get_rank(), dist.get_world_size()
    kv, of_q = torch.stack([k, v]), torch.zeros_like(q)
    starts = [sum(sizes[:r]) for r in range(n + 1)]
    whole = kv.new_zeros(2, k.shape[0], starts[-1], k.shape[2])
    for hop in range(n):
        source = (rank - hop) % n
        coming = pass_on(kv, sizes[(source - 1) % n]) if hop < n - 1 else None
        part, *theirs = back(q, *kv, source)
        of_q = of_q + part
        whole[:, :, starts[source] : starts[source + 1]] += torch.stack(theirs)
        kv = coming() if coming else kv
    dist.all_reduce(whole)
    dist.all_reduce(whole.clone())
    return of_q, *whole[:, :, starts[rank] : starts[rank + 1]]


SHARE = "return losses[counted].sum() * dist.get_world_size() / total.clamp(min=1)"
SUMS = "    total = counted.sum()\n    dist.all_reduce(total)\n"
edits(
    ("share_of_loss", "mean_of_means", {SUMS: "", SHARE: "return losses[counted].mean()"},
     "mean of means"),
    ("share_of_loss", "mean_or_nothing",
     {SUMS: "", SHARE: "return losses[counted].sum() / counted.sum().clamp(min=1)"},
     "mean of means"),
    ("share_of_loss", "mean_times_own_count", "losses[counted].sum()",
     "losses[counted].mean() * counted.sum()", "mean of nothing"),
    ("share_of_loss", "a_python_number", SHARE,
     SHARE.replace("return ", "return (") + ").item()", "no tensor"),
    ("share_of_loss", "zeros_in_place", SUMS, "    losses[~counted] = 0\n" + SUMS, "changed"),
    ("share_of_loss", "an_average_count", SHARE,
     "total /= dist.get_world_size()\n    return losses[counted].sum() / total", "no fractions"),
    ("share_of_loss", "not_times_n", " * dist.get_world_size()", "", "a quarter"),
    ("share_of_loss", "reduces_the_loss", SHARE,
     "mine = losses[counted].sum() / total.clamp(min=1)\n"
     "    whole = mine.detach().clone()\n    dist.all_reduce(whole)\n"
     "    return mine + (whole - mine).detach()", "a quarter"),
    ("share_of_loss", "all_tokens", "total = counted.sum()", "total = torch.tensor(len(counted))",
     "all tokens"),
    ("share_of_loss", "times_zero", "losses[counted].sum()", "(losses * counted).sum()", "inf"),
    ("share_of_loss", "reduces_the_mask", SUMS,
     "    total = counted.long()\n    dist.all_reduce(total)\n    total = total.sum()\n", "shapes"),
    ("share_of_loss", "divides_by_nothing", "total.clamp(min=1)", "total", "not finite"),
    ("share_of_loss", "without_a_graph", "losses[counted].sum()", "losses.detach()[counted].sum()",
     "no graph"),
    ("share_of_loss", "twice", "losses[counted].sum()", "losses[counted].sum() * 2", "other"),
)


@wrong("share_of_loss", "more bytes")
def gathers_the_losses(losses, counted):
    n = dist.get_world_size()
    every = [None] * n
    dist.all_gather_object(every, losses[counted].detach())
    return losses[counted].sum() * n / max(1, sum(map(len, every)))
