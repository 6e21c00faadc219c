"""Wrong answers to lab 07."""

import time
from datetime import timedelta
from itertools import combinations

import torch
import torch.distributed as dist

from ddpkit import answers
from tests.labs.answers import edits, wrong
from tests.labs.lab07.right_answers import in_a_new_tensor, lengths_first, looks_now_and_then

# fmt: off
edits(
    ("fp16_hook", "sums_then_divides",
     {"(flat / dist.get_world_size(state)).half()": "flat.half()",
      "flat.copy_(future.value()[0])":
      "flat.copy_(future.value()[0] / dist.get_world_size(state))"}, "too large"),
    ("fp16_hook", "no_division", "(flat / dist.get_world_size(state))", "flat", "the sum"),
    ("fp16_hook", "all_ranks_divide", "dist.get_world_size(state)", "dist.get_world_size()",
     "another number"),
    ("fp16_hook", "casts_the_result",
     {".half()": "", "future.value()[0])": "future.value()[0].half())"}, "not halved"),
    ("fp16_hook", "waits",
     "    return work.get_future()", "    work.wait()\n    return work.get_future()", "waits"),
    ("fp16_hook", "stays_float16", "flat.copy_(future.value()[0])", "future.value()[0]",
     "still float16"),
    ("fp16_hook", "always_float32", "flat.copy_(future.value()[0])", "future.value()[0].float()",
     "another dtype"),
    ("fp16_hook", "a_row", "flat.copy_(future.value()[0])",
     "future.value()[0].to(flat.dtype).view(1, -1)", "another shape"),
    ("fp16_hook", "a_tuple", "flat.copy_(future.value()[0])", "(flat.copy_(future.value()[0]),)",
     "no tensor"),
    ("fp16_hook", "gathers_halves",
     {"work = dist.all_reduce(half,": "halves = [half.clone() for _ in range("
      "dist.get_world_size(state))]\n    work = dist.all_gather(halves, half,",
      "future.value()[0]": "sum(halves)"}, "another collective"),
    ("fp16_hook", "gives_the_list", "flat.copy_(future.value()[0])", "future.value()", "a list"),
    ("fp16_hook", "works_on_the_list", "flat.copy_(future.value()[0])",
     "future.value().to(flat.dtype)", "fails in then"),
    ("fp16_hook", "divides_twice", "flat.copy_(future.value()[0])",
     "flat.copy_(future.value()[0] / dist.get_world_size(state))", "divided twice"),
    ("fp16_hook", "the_largest", "dist.all_reduce(half,",
     "dist.all_reduce(half, dist.ReduceOp.MAX,", "other means"),
    ("fp16_hook", "a_parameter_called_b",
     {"(state, bucket)": "(state, b)", "bucket.buffer()": "b.buffer()"}, "bucket"),
    ("fp16_hook", "bfloat16", ".half()", ".bfloat16()", "bfloat16"),
    ("fp16_hook", "gives_the_work",
     "work.get_future().then(lambda future: flat.copy_(future.value()[0]))", "work", "a Work"),
    ("fp16_hook", "then_of_a_work", "work.get_future().then", "work.then", "a Work"),
    ("fp16_hook", "gives_the_tensor",
     "work.get_future().then(lambda future: flat.copy_(future.value()[0]))", "half.to(flat)",
     "in flight"),
    ("fp16_hook", "ignores_state", ", group=state", "", "ignores state"),
)
edits(
    ("fp16_hook", "gives_the_future_of_a_work_as_text",
     "future.then(lambda _: small.to(flat.dtype))", "str(future)", "no Future"),
    ("fp16_hook", "read_too_early",
     "future.then(lambda _: small.to(flat.dtype))",
     "future.then(lambda _, early=(flat / n / n): early)", "before it is there"),
    of=in_a_new_tensor,
)

ERROR = "    state.error[i] = wanted - flat\n"
edits(
    ("powersgd_hook", "no_feedback", ERROR, "", "no error feedback"),
    ("powersgd_hook", "error_is_a_reference", "flat.clone()", "flat", "the error is zero"),
    ("powersgd_hook", "sign", "wanted - flat", "flat - wanted", "the wrong sign"),
    ("powersgd_hook", "own_q", "manual_seed(i)", "manual_seed(i + dist.get_rank())", "own Q"),
    ("powersgd_hook", "a_new_q_each_time",
     {"if i not in state.q:": "state.t = vars(state).get('t', 0) + 1\n    if True:",
      "manual_seed(i)": "manual_seed(state.t)"}, "a new Q"),
    ("powersgd_hook", "one_q_for_ever", "if i not in state.q:", "if True:", "a new Q"),
    ("powersgd_hook", "one_column", "min(state.rank, *m.shape)", "1", "another rank"),
    ("powersgd_hook", "q_is_float32", "generator=seed).to(flat)", "generator=seed)",
     "another dtype"),
    ("powersgd_hook", "needs_an_error",
     {"flat += state.error.get(i, 0)": "flat += state.error[i] if i in state.q else 0"},
     "an emptied error"),
    ("powersgd_hook", "vectors_on_their_own",
     {"means = mean_of(p + vectors)": "means = mean_of(p) + mean_of(vectors)"}, "no vector"),
    ("powersgd_hook", "orthonormal_and_then_the_mean",
     {"p = [m @ orthonormal(q)": "p = [orthonormal(m @ q)",
      "p = [orthonormal(mean) for mean in means[: len(p)]]": "p = means[: len(p)]"}, "own Q"),
    ("powersgd_hook", "p_as_it_is", "p = [orthonormal(mean) for mean in means[: len(p)]]",
     "p = means[: len(p)]", "P as it is"),
    ("powersgd_hook", "q_is_summed",
     "mean_of([m.T @ each for m, each in zip(matrices, p)]) if p else []",
     "[q * dist.get_world_size() for q in mean_of([m.T @ e for m, e in zip(matrices, p)])]",
     "the sum"),
    ("powersgd_hook", "no_vectors", "        vector.copy_(mean)\n", "        pass\n", "the vector"),
    ("powersgd_hook", "all_of_it_too", "    wanted = flat.clone()\n",
     "    wanted = flat.clone()\n    dist.all_reduce(flat.clone())\n", "too many bytes"),
    ("powersgd_hook", "one_state_for_all", "i, flat = bucket.index()", "i, flat = 0",
     "one state for all"),
    ("powersgd_hook", "no_bucket_without_a_matrix", " if p else []", "", "no matrix"),
    ("powersgd_hook", "wide_q", "min(state.rank, *m.shape)", "state.rank", "other shapes"),
    ("powersgd_hook", "not_written_back", "        m.copy_(each @ q.T)\n",
     "        m = each @ q.T\n", "not written back"),
    ("powersgd_hook", "one_by_one",
     "mean_of(p + vectors)", "[mean_of([each])[0] for each in p + vectors]",
     "several collectives"),
    ("powersgd_hook", "second_ones_one_by_one",
     "mean_of([m.T @ each for m, each in zip(matrices, p)]) if p else []",
     "[mean_of([m.T @ each])[0] for m, each in zip(matrices, p)]", "several collectives"),
    ("powersgd_hook", "begins_with_ones", "torch.randn(size, generator=seed)",
     "torch.ones(size)", "a fixed start"),
    ("powersgd_hook", "begins_with_zeros", "torch.randn(size, generator=seed)",
     "torch.zeros(size)", "a fixed start"),
    ("powersgd_hook", "half_the_error", "flat += state.error.get(i, 0)",
     "flat += 0.5 * state.error.get(i, 0)", "no error feedback"),
    ("powersgd_hook", "half_as_much_more", "m.copy_(each @ q.T)", "m.copy_(1.5 * each @ q.T)",
     "P as it is"),
    ("powersgd_hook", "a_parameter_called_b",
     {"(state, bucket)": "(state, b)", "    i, flat =": "    bucket = b\n    i, flat ="},
     "bucket"),
    ("powersgd_hook", "gives_the_tensor", "return done(flat)", "return flat", "no Future"),
    ("powersgd_hook", "two_dimensions_only",
     {"g.dim() < 2]": "g.dim() != 2]", "g.dim() >= 2]": "g.dim() == 2]"}, "other shapes"),
)

edits(
    ("pair_groups", "own_groups_only", "if first < second:",
     "if first < second and rank in (first, second):", "its own only"),
    ("pair_groups", "keeps_all",
     {"                if rank in (first, second):\n                    groups.append(group)":
      "                groups.append(group)"}, "not in it"),
    ("pair_groups", "to_the_right", "first ^ 2**i", "(first + 2**i) % world_size",
     "other partners"),
    ("pair_groups", "the_highest_digit_first", "first ^ 2**i",
     "first ^ 2 ** (world_size.bit_length() - 2 - i)", "another order"),
    ("pair_groups", "a_digit_too_many", "range(world_size.bit_length() - 1)",
     "range(world_size.bit_length())", "no such rank"),
)


@wrong("pair_groups", "too few")
def neighbours():
    return [dist.new_subgroups(2)[0]]


@wrong("pair_groups", "too many")
def with_everybody():
    rank, n = dist.get_rank(), dist.get_world_size()
    every = {pair: dist.new_group(pair) for pair in combinations(range(n), 2)}
    return [group for pair, group in every.items() if rank in pair]


@wrong("pair_groups", "other partners")
def near_and_far():
    rank, n, mine = dist.get_rank(), dist.get_world_size(), []
    for i in range(n.bit_length() - 1):
        for first in range(0, n, 2):
            second = (first + 1) % n if i == 0 else (first - 1) % n
            group = dist.new_group([first, second])
            if rank in (first, second):
                mine.append(group)
    return mine


@wrong("pair_groups", "its own only")
def both_members_make_one():
    rank, n, mine = dist.get_rank(), dist.get_world_size(), []
    for i in range(n.bit_length() - 1):
        for first in range(n):
            group = dist.new_group([first, first ^ 2**i])
            if rank == first:
                mine.append(group)
    return mine


edits(
    ("gossip_hook", "each_bucket", "state.step += bucket.is_last()", "state.step += 1",
     "each bucket"),
    ("gossip_hook", "the_first_bucket", "bucket.is_last()", "bucket.index() == 0",
     "another partner"),
    ("gossip_hook", "never", "    state.step += bucket.is_last()\n", "", "never another"),
    ("gossip_hook", "in_a_circle", "    state.step += bucket.is_last()\n",
     "    state.step = (state.step + bucket.is_last()) % len(state.pairs)\n", "never another"),
    ("gossip_hook", "by_all", "div_(2)", "div_(dist.get_world_size())", "of all"),
    ("gossip_hook", "by_four", "div_(2)", "div_(4)", "halved twice"),
    ("gossip_hook", "a_parameter_called_b",
     {"(state, bucket)": "(state, b)", "    pair =": "    bucket = b\n    pair ="}, "bucket"),
    ("gossip_hook", "sum", ".div_(2)", "", "the sum"),
    ("gossip_hook", "all_ranks", ", group=pair", "", "all ranks"),
    ("gossip_hook", "waits", "    return work.get_future()",
     "    work.wait()\n    return work.get_future()", "waits"),
    ("gossip_hook", "list", "future.value()[0]", "future.value()", "a list"),
    ("gossip_hook", "work", "work.get_future().then(lambda future: future.value()[0])", "work",
     "no Future"),
    ("gossip_hook", "the_lower_alone", "    work = dist",
     "    if dist.get_rank() % 2:\n        future = torch.futures.Future()\n"
     "        future.set_result(flat)\n        return future\n    work = dist", "waits"),
)


edits(
    ("train_uneven", "truth_of_a_batch", "        if batch is not None:\n            loss_of",
     "        if batch:\n            loss_of", "truth of a batch"),
    ("train_uneven", "frozen_ones_too", "        gradients = gradients_of(model)",
     "        if batch is None:\n            gradients_of(model)\n"
     "        gradients = [p.grad for p in model.parameters()]", "frozen"),
    ("train_uneven", "stops_with_its_own",
     "        if batch is not None:\n            loss_of",
     "        if batch is None:\n            return counts\n        else:\n            loss_of",
     "leaves"),
    ("train_uneven", "stops_with_the_first", "if count == 0:",
     "if count < dist.get_world_size():", "left over"),
    ("train_uneven", "a_generator_only", "iter(batches), []", "batches, []", "no iterator"),
    ("train_uneven", "by_all", "total / count", "total / dist.get_world_size()", "by all"),
    ("train_uneven", "idle_ranks_do_not_step", "        optimizer.step()\n",
     "        if batch is not None:\n            optimizer.step()\n", "drift"),
    ("train_uneven", "the_last_gradient_again",
     {"        optimizer.zero_grad()\n": "",
      "        if batch is not None:\n":
      "        if batch is not None:\n            optimizer.zero_grad()\n"}, "again"),
    ("train_uneven", "asks_too_late",
     {"        if count == 0:\n            return counts\n": "",
      "total / count": "total / max(count, torch.ones(1))",
      "        counts.append(int(count))":
      "        counts.append(int(count))\n        if count == 0:\n            return counts"},
     "one step too many"),
    ("train_uneven", "a_tensor", "            return counts\n",
     "            return torch.tensor(counts)\n", "no list of int"),
    ("train_uneven", "of_floats", "counts.append(int(count))", "counts.append(float(count))",
     "no list of int"),
    ("train_uneven", "counts_nothing", "counts.append(int(count))", "counts.append(1)",
     "other counts"),
    ("train_uneven", "flag_of_some",
     {"[has, *gradients])\n        dist.all_reduce(flat)":
      "([has] if batch is not None else []) + gradients)\n        dist.all_reduce(flat)"},
     "flag of some"),
    ("train_uneven", "never_steps", "        optimizer.step()\n", "", "not trained"),
    ("train_uneven", "repeats",
     {"batches, counts = iter(batches), []": "batches, counts, used = iter(batches), [], None",
      "            loss_of(model, batch).backward()": "            used = batch",
      "        gradients = gradients_of(model)":
      "        if used is not None:\n            loss_of(model, used).backward()\n"
      "        gradients = gradients_of(model)"}, "repeated"),
)
edits(("train_uneven", "len", "list(batches), [None]", "batches, [None]", "len"), of=lengths_first)


edits(
    ("monitored_barrier", "waits_for_ever", ", timedelta(seconds=timeout)", "", "its own time"),
    ("monitored_barrier", "each_its_time", "        store.wait(keys, timedelta(seconds=timeout))",
     "        for each in reversed(keys):\n            try:\n"
     "                store.wait([each], timedelta(seconds=timeout))\n"
     "            except RuntimeError:\n                pass\n"
     "        store.wait(keys, timedelta(0))",
     "each its time"),
    ("monitored_barrier", "names_all", " if not store.check([key])]", "]", "who came"),
    ("monitored_barrier", "no_name", 'f"{name}/{each}"', 'f"{each}"', "silent"),
    ("monitored_barrier", "rank_0_alone", "        raise RuntimeError",
     "        if rank == 0:\n          raise RuntimeError", "rank 0 alone"),
    ("monitored_barrier", "silent", {"raise RuntimeError(": "print(", ") from None": ")"},
     "silent"),
    ("monitored_barrier", "no_list", "ranks {missing} did",
     "ranks {' '.join(map(str, missing))} did", "no list"),
    ("monitored_barrier", "the_first", "{missing}", "{missing[:1]}", "not all"),
    ("monitored_barrier", "half_the_time", "seconds=timeout", "seconds=timeout / 2", "too early"),
    ("monitored_barrier", "cleans", "    except RuntimeError:",
     "        store.delete_key(keys[rank])\n    except RuntimeError:", "keys go"),
    ("monitored_barrier", "itself_too", "missing = [each", "missing = [rank] + [each", "itself"),
    ("monitored_barrier", "leaves_no_word",
     "    store.set(keys[rank], \"here\")\n", "", "who came"),
    ("monitored_barrier", "counts_from_1", "enumerate(keys)", "enumerate(keys, 1)", "other ends"),
    ("monitored_barrier", "milliseconds", "timedelta(seconds=timeout)",
     "timedelta(milliseconds=timeout)", "too early"),
    ("monitored_barrier", "seconds", "timedelta(seconds=timeout)", "timeout", "another error"),
)
edits(
    ("monitored_barrier", "looks_for_ever",
     {"        time.sleep(0.01)\n": "        continue\n"}, "looks for ever"),
    of=looks_now_and_then,
)


edits(
    ("ring_all_reduce", "gives_it_back",
     "        tensor.copy_(ring(tensor))", "        return ring(tensor)", "not written back"),
    ("ring_all_reduce", "the_first_alone", "in tensors:", "in tensors[:1]:", "only the first"),
    ("ring_all_reduce", "torchs", "tensor.copy_(ring(tensor))", "dist.all_reduce(tensor)",
     "by another"),
    ("ring_all_reduce", "any_but_a_maximum", "!= dist.ReduceOp.SUM:", "== dist.ReduceOp.MAX:",
     "any operation"),
    ("ring_all_reduce", "any_operation", "if options.reduceOp != dist.ReduceOp.SUM:", "if False:",
     "any operation"),
    ("ring_all_reduce", "asks_afterwards",
     {"    if options.reduceOp": "    for tensor in tensors:\n        tensor.copy_(ring(tensor))\n"
      "    if options.reduceOp",
      '{options.reduceOp}")\n    for tensor in tensors:\n        tensor.copy_(ring(tensor))':
      '{options.reduceOp}")'}, "too late"),
    ("ring_all_reduce", "mean", "ring(tensor))", "ring(tensor) / dist.get_world_size())",
     "the mean"),
    ("ring_all_reduce", "in_a_view", "ring(tensor))", "ring(tensor.view(-1)).view_as(tensor))",
     "no view"),
    ("ring_all_reduce", "doubles", "ring(tensor))", "ring(tensor) + 1)", "other sums"),
)
# fmt: on


@wrong("ring_all_reduce", "too many bytes")
def everybody_to_everybody(tensors, options):
    if options.reduceOp != dist.ReduceOp.SUM:
        raise NotImplementedError("sums only")
    for tensor in tensors:
        tensor.copy_(answers.get("all_to_all")(tensor))


@wrong("ring_all_reduce", "recursion")
def over_its_own_group(tensors, options):
    over_its_own_group(tensors, options)


@wrong("monitored_barrier", "its own time")
def asks_for_each(store, name, rank, world_size, timeout):
    store.set(f"{name}{rank}", "1")
    end, missing = time.monotonic() + timeout, []
    for each in range(world_size):
        try:
            store.get(f"{name}{each}")
        except RuntimeError:
            missing.append(each)
    if missing or time.monotonic() > end:
        raise RuntimeError(f"{missing}")


@wrong("gossip_hook", "waits")
def by_messages(state, bucket):
    flat = bucket.buffer()
    members = dist.get_process_group_ranks(state.pairs[state.step % len(state.pairs)])
    (partner,) = {*members} - {dist.get_rank()}
    state.step += bucket.is_last()
    theirs = torch.empty_like(flat)
    works = [dist.isend(flat, partner), dist.irecv(theirs, partner)]
    for work in works:
        work.wait()
    future = torch.futures.Future()
    future.set_result((flat + theirs) / 2)
    return future


@wrong("monitored_barrier", "another error")
def gives_up_otherwise(store, name, rank, world_size, timeout):
    store.set(f"{name}{rank}", "1")
    keys = [f"{name}{each}" for each in range(world_size)]
    try:
        store.wait(keys, timedelta(seconds=timeout))
    except RuntimeError:
        missing = [k for k in range(world_size) if not store.check([keys[k]])]
        raise TimeoutError(f"{missing}") from None


@wrong("monitored_barrier", "nobody missing")
def rank_0_says_go(store, name, rank, world_size, timeout):
    keys = [f"{name}/{each}" for each in range(world_size)]
    store.set(keys[rank], "1")
    try:
        store.wait([f"{name} go"] if rank else keys, timedelta(seconds=timeout))
        store.set(f"{name} go", "1")
    except RuntimeError:
        missing = [each for each in range(world_size) if not store.check([keys[each]])]
        raise RuntimeError(f"ranks {missing}") from None


@wrong("powersgd_hook", "too many bytes")
def by_messages_beside_zeros(state, bucket):
    """Send the whole gradients by messages, beside collectives of zeros of the right sizes."""
    rank, n, flat = dist.get_rank(), dist.get_world_size(), bucket.buffer()
    thin = [
        torch.zeros(min(state.rank, len(g), g.numel() // len(g)), len(g) + g.numel() // len(g))
        if g.dim() > 1
        else torch.zeros_like(g)
        for g in bucket.gradients()
    ]
    dist.all_reduce(torch.cat([each.to(flat).flatten() for each in thin]))
    others = [k for k in range(n) if k != rank]
    works = [dist.isend(flat, k) for k in others]
    parts = [torch.empty_like(flat) for _ in others]
    for part, k in zip(parts, others, strict=True):
        dist.recv(part, k)
    for work in works:
        work.wait()
    flat += sum(parts)
    flat /= n
    future = torch.futures.Future()
    future.set_result(flat)
    return future


@wrong("ring_all_reduce", "other bytes")
def past_the_record(tensors, options):
    """Sum by the inner group, which no trace records."""
    if options.reduceOp != dist.ReduceOp.SUM:
        raise NotImplementedError
    for tensor in tensors:
        whole = tensor.contiguous()
        dist.group.WORLD._inner.allreduce([whole]).wait()
        tensor.copy_(whole)


@wrong("train_uneven", "no gradient")
def an_idle_rank_has_none(model, optimizer, batches, loss_of):
    batches, counts = iter(batches), []
    while True:
        batch = next(batches, None)
        has = torch.tensor(float(batch is not None))
        dist.all_reduce(has)
        if has == 0:
            return counts
        optimizer.zero_grad()
        if batch is not None:
            loss_of(model, batch).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= has
        optimizer.step()
        counts.append(int(has))
