"""Wrong answers to lab 10."""

import os
import shutil
import tempfile
from statistics import median_low, mode

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from ddpkit.answers.lab10 import straggler
from tests.labs.answers import edits, wrong
from tests.labs.lab10.right_answers import with_dummy_batches

# straggler

SLOWEST = "    slowest = max(compute, key=compute.get)\n"
MIN = "    return slowest if compute[slowest] >= 1.2 * median_low(compute.values()) else None\n"
# fmt: off
edits(
    ("straggler", "always_somebody", MIN, "    return slowest\n", "always somebody"),
    ("straggler", "any_difference", ">= 1.2 *", "> 1.01 *", "a little slower"),
    ("straggler", "from_step_0", "range(1, trace.steps)", "range(trace.steps)", "warm-up"),
    ("straggler", "first_step", "range(1, trace.steps)", "range(1)", "warm-up"),
    ("straggler", "second_step", "range(1, trace.steps)", "(1,)", "one step"),
    ("straggler", "last_step", "] += parts", "] = parts", "one step"),
    ("straggler", "zero_is_false", "return slowest if", "return (slowest or None) if", "rank 0"),
    ("straggler", "most_idle",
     {"parts.compute_ns": "parts.exposed_ns", "median_low(": "min("}, "who waits"),
    ("straggler", "mean", "median_low(compute.values())", "(sum(compute.values()) / len(compute))",
     "median"),
    ("straggler", "median_of_the_others", "median_low(compute.values())",
     "median_low([v for k, v in compute.items() if k != slowest])", "median of others"),
    ("straggler", "length_of_the_step", "parts.compute_ns", "parts.step_ns",
     "waiting is no work"),
)
# fmt: on


@wrong("straggler", "slow link")
def the_network_too(trace):
    comm = {rank: parts.comm_ns for rank, parts in trace.step(1).breakdown().items()}
    longest = max(comm, key=comm.get)
    found = straggler(trace)
    return longest if found is None and comm[longest] > 1.2 * sorted(comm.values())[1] else found


@wrong("straggler", "step by step")
def most_votes(trace):
    votes = []
    for k in range(1, trace.steps):
        work = {rank: parts.compute_ns for rank, parts in trace.step(k).breakdown().items()}
        slowest = max(work, key=work.get)
        votes.append(slowest if work[slowest] >= 1.2 * median_low(work.values()) else None)
    return mode(votes)


# shares

# fmt: off
edits(
    ("shares", "equal", "(taken[rank] + 1) / speeds[rank]", "taken[rank]", "equal"),
    ("shares", "slow_ones_first", "(taken[rank] + 1) / speeds[rank]",
     "(taken[rank] + 1) * speeds[rank]", "the wrong way round"),
    ("shares", "fractions", "    return taken\n",
     "    return [batch_size * speed / sum(speeds) for speed in speeds]\n", "whole images"),
    ("shares", "done_first_now", "(taken[rank] + 1) / speeds[rank]", "taken[rank] / speeds[rank]",
     "nobody is left out"),
    ("shares", "all_to_the_fastest", "taken[first] += 1", "taken[speeds.index(max(speeds))] += 1",
     "too late"),
    ("shares", "one_too_many", "range(batch_size)", "range(batch_size + 1)", "do not add up"),
)
# fmt: on


@wrong("shares", "do not add up")
def each_rounded(batch_size, speeds):
    return [round(batch_size * speed / sum(speeds)) for speed in speeds]


@wrong("shares", "rest to rank 0")
def the_rest_to_rank_0(batch_size, speeds):
    taken = [int(batch_size * speed / sum(speeds)) for speed in speeds]
    taken[0] += batch_size - sum(taken)
    return taken


@wrong("shares", "rounding")
def by_the_largest_remainder(batch_size, speeds):
    due = [batch_size * speed / sum(speeds) for speed in speeds]
    taken = [int(each) for each in due]
    for rank in sorted(range(len(due)), key=lambda r: taken[r] - due[r])[: batch_size - sum(taken)]:
        taken[rank] += 1
    return taken


@wrong("shares", "nobody is left out")
def one_for_everybody(batch_size, speeds):
    taken = [1] * len(speeds)
    for _ in range(batch_size - len(speeds)):
        taken[min(range(len(speeds)), key=lambda rank: (taken[rank] + 1) / speeds[rank])] += 1
    return taken


# train_unequal

# fmt: off
NEXT = "        batch = next(batches, None)\n"
ALL = "    batches, steps = iter(batches), 0\n"
edits(
    ("train_unequal", "stops_when_it_has_none", NEXT,
     NEXT + "        if batch is None:\n            return steps\n", "left alone"),
    ("train_unequal", "stops_at_an_empty_batch", "if not ranks:", "if not images or "
     "(batch is not None and not len(batch[1]) and dist.all_reduce(torch.zeros(1))):",
     "left alone"),
    ("train_unequal", "ends_with_an_empty_batch", {
        NEXT: NEXT + "        empty = torch.tensor(int(batch is not None and not len(batch[1])))\n"
              "        dist.all_reduce(empty)\n", "if not ranks:": "if not ranks or empty:"},
     "an empty batch"),
    ("train_unequal", "asked_ahead", "iter(batches), 0", "iter(list(batches)), 0", "asked ahead"),
    ("train_unequal", "mean_of_means", {
        'reduction="sum"': 'reduction="mean"', "dist.get_world_size() / images": "1",
        "average_flat(model)": "average_flat(model)\n        for p in model.parameters():\n"
        "            p.grad *= dist.get_world_size() / ranks"}, "mean of means"),
    ("train_unequal", "mean_over_all_ranks", {
        'reduction="sum"': 'reduction="mean"', "dist.get_world_size() / images": "1"},
     "mean of means"),
    ("train_unequal", "the_sum", "dist.get_world_size() / images", "dist.get_world_size()",
     "the sum"),
    ("train_unequal", "divided_twice", "dist.get_world_size() / images", "1 / images",
     "divided twice"),
    ("train_unequal", "old_gradients", {
        "        optimizer.zero_grad()\n": "",
        "        if batch is not None:\n": "        if batch is not None:\n"
                                           "            optimizer.zero_grad()\n"},
     "old gradients"),
    ("train_unequal", "idle_ranks_do_not_step", {
        "        optimizer.step()\n": "        if batch is not None:\n"
                                      "            optimizer.step()\n"}, "ranks differ"),
    ("train_unequal", "counts_its_own", "steps += 1", "steps += batch is not None", "steps"),
    ("train_unequal", "all_parameters_too", "        optimizer.step()\n",
     "        optimizer.step()\n        for p in model.parameters():\n"
     "            dist.broadcast(p.detach(), 0)\n", "too much"),
    ("train_unequal", "momentum", "model.parameters(), lr)", "model.parameters(), lr, 0.9)",
     "other steps"),
)
edits(
    ("train_unequal", "n_times", "* (batch is not None) / count",
     "* (batch is not None) / count * dist.get_world_size()", "n times"),
    ("train_unequal", "no_dummy", {
        "inputs, targets = batch or last": "inputs, targets = batch or last\n        idle = "
        "batch is None", "        loss.backward()\n": "        if not idle:\n"
        "            loss.backward()\n"}, "no gradient"),
    of=with_dummy_batches,
)

# checkpoints

BESIDE = 'f"{path}.new")\n'
SAVE = '            torch.save(state, f"{path}.new")\n'
REPLACE = '            os.replace(f"{path}.new", path)\n'
edits(
    ("save_checkpoint", "in_place", {SAVE: "            torch.save(state, path)\n", REPLACE: ""},
     "in place"),
    ("save_checkpoint", "removes_first", REPLACE, "            if os.path.exists(path):\n"
     "                os.remove(path)\n" + REPLACE, "removed first"),
    ("save_checkpoint", "all_write", {"if dist.get_rank() == 0:": "if True:",
     SAVE: '            beside = f"{path}.{dist.get_rank()}"\n'
     "            torch.save(state, beside)\n",
     REPLACE: "            os.replace(beside, path)\n"}, "all write"),
    ("save_checkpoint", "returns_at_once", "    dist.barrier()\n", "", "not yet there"),
    ("save_checkpoint", "barrier_first", {
        "    dist.barrier()\n": "", "    if dist": "    dist.barrier()\n    if dist"},
     "not yet there"),
    ("save_checkpoint", "no_optimizer", ', "optimizer": optimizer.state_dict()', "",
     "no momentum"),
    ("save_checkpoint", "the_model_alone", "torch.save(state,", 'torch.save(state["model"],',
     "no checkpoint"),
    ("save_checkpoint", "one_step_more", '"step": step,', '"step": step + 1,', "another step"),
    ("save_checkpoint", "keeps_the_old_one", REPLACE, "            if os.path.exists(path):\n"
     '                os.link(path, f"{path}.old")\n' + REPLACE, "left behind"),
    ("save_checkpoint", "barrier_of_one", "    dist.barrier()\n", "        dist.barrier()\n",
     "left alone"),
    ("save_checkpoint", "swallows", "        finally:\n",
     "        except Exception:\n            pass\n        finally:\n", "swallowed"),
    ("save_checkpoint", "stumbles",
     {SAVE: '            open(f"{path}.new", "x").close()\n' + SAVE,
      "        finally:\n": "        except Exception:\n",
      "  # a part, if the disk is full\n": "\n            raise\n"}, "stumbles"),
)
# fmt: on


@wrong("save_checkpoint", "another folder")
def in_the_temporary_folder(path, step, model, optimizer):
    if dist.get_rank() == 0:
        beside = os.path.join(tempfile.mkdtemp(), "new")
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, beside)
        os.replace(beside, path)
    dist.barrier()


@wrong("save_checkpoint", "copied")
def copies(path, step, model, optimizer):
    if dist.get_rank() == 0:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        try:
            torch.save(state, f"{path}.new")
            shutil.copyfile(f"{path}.new", path)
        finally:
            os.remove(f"{path}.new")
    dist.barrier()


@wrong("save_checkpoint", "in place")
def puts_it_there_whatever_happens(path, step, model, optimizer):
    if dist.get_rank() == 0:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        try:
            torch.save(state, f"{path}.new")
        finally:
            os.replace(f"{path}.new", path)
    dist.barrier()


# fmt: off
READ = "        found = [torch.load(path)]\n"
SENT = "    dist.broadcast_object_list(found, src=0)\n"
edits(
    ("load_checkpoint", "only_rank_0", SENT, "", "only rank 0"),
    ("load_checkpoint", "every_rank_reads", {
        "    if dist.get_rank() == 0 and os.path.exists(path):\n" + READ: "    if True:\n" + READ,
        SENT: ""}, "no file"),
    ("load_checkpoint", "rank_0_tells_of_it", {
        "    if dist.get_rank() == 0 and os.path.exists(path):\n" + READ:
        "    found = [os.path.exists(path)]\n",
        "    if found[0] is None:\n        return 0\n": "    if not found[0]:\n        return 0\n"
        "    found = [torch.load(path)]\n"}, "every rank reads"),
    ("load_checkpoint", "only_who_has_it_sends", SENT, "    if found[0]:\n    " + SENT,
     "left alone"),
    ("load_checkpoint", "one_step_more", 'return found[0]["step"]', 'return found[0]["step"] + 1',
     "off by one"),
    ("load_checkpoint", "no_optimizer",
     '    optimizer.load_state_dict(found[0]["optimizer"])\n', "", "no momentum"),
    ("load_checkpoint", "begins_anew", READ, "        try:\n    " + READ +
     "        except Exception:\n            pass\n", "begins anew"),
    ("load_checkpoint", "removes_it", READ, "        try:\n    " + READ +
     "        except Exception:\n            os.remove(path)\n            raise\n", "file changed"),
    ("load_checkpoint", "only_the_step", {'    model.load_state_dict(found[0]["model"])\n': "",
     '    optimizer.load_state_dict(found[0]["optimizer"])\n': ""}, "not loaded"),
)

# checkpoint_every

ROOT = "sqrt(2 * save * mean_time_to_failure)"
edits(
    ("checkpoint_every", "no_root", ROOT, "save * mean_time_to_failure", "no root"),
    ("checkpoint_every", "without_2", "2 * save", "save", "the 2"),
    ("checkpoint_every", "half", "2 * save * mean_time_to_failure",
     "save * mean_time_to_failure / 2", "half"),
    ("checkpoint_every", "minutes", ROOT, ROOT + " / 60", "minutes"),
    ("checkpoint_every", "a_ratio", ROOT, "mean_time_to_failure / save", "a ratio"),
    ("checkpoint_every", "the_other_ratio", ROOT, "save / mean_time_to_failure", "a ratio"),
    ("checkpoint_every", "twice_a_failure", ROOT, "mean_time_to_failure / 2", "another"),
)

# supervise

DIED = "        if isinstance(run.error, RankDied):\n"
LESS = "            ranks -= len(run.error.ranks)\n"
edits(
    ("supervise", "attempts_for_restarts", "range(max_restarts + 1)",
     "range(max(1, max_restarts))", "one too few"),
    ("supervise", "never_starts", "range(max_restarts + 1)", "range(max_restarts)",
     "one too few"),
    ("supervise", "one_start_more", "range(max_restarts + 1)", "range(max_restarts + 2)",
     "one too many"),
    ("supervise", "counts_from_1", "= start(ranks, attempt)", "= start(ranks, attempt + 1)",
     "another count"),
    ("supervise", "for_ever", "range(max_restarts + 1)", "__import__('itertools').count()",
     "for ever"),
    ("supervise", "shrinks_always", DIED, "        if True:\n", "nobody died"),
    ("supervise", "not_counted", "= start(ranks, attempt)", "= start(ranks, 0)", "not counted"),
    ("supervise", "returns_the_failed", "    raise run.error\n", "    return run\n",
     "a failed run"),
    ("supervise", "below_least", "ranks < least", "ranks < 1", "too few"),
    ("supervise", "the_least_at_least", LESS,
     "            ranks = max(least, ranks - len(run.error.ranks))\n", "nobody comes back"),
    ("supervise", "as_many_as_before", DIED + LESS, "", "dead ranks"),
    ("supervise", "one_less", LESS, "            ranks -= 1\n", "dead ranks"),
    ("supervise", "swallowed", "    raise run.error\n",
     "    raise RankDied('no attempt succeeded')\n", "another end"),
)

# drifted

CRC = "torch.tensor([zlib.crc32(each) for each in as_bytes])"
edits(
    ("drifted", "rank_0_alone", "    return [name", "    if dist.get_rank():\n        return []\n"
     "    return [name", "rank 0 alone"),
    ("drifted", "what_is_saved", "[*module.named_parameters(), *module.named_buffers()]",
     "module.state_dict()", "buffers"),
    ("drifted", "parameters_only", ", *module.named_buffers()", "", "buffers"),
    ("drifted", "trained_only", "[*module.named_parameters(),",
     "[*((n, p) for n, p in module.named_parameters() if p.requires_grad),", "frozen"),
    ("drifted", "salted", "zlib.crc32(each)", "hash(str(os.getpid()))", "salted"),
    ("drifted", "sums", CRC, "torch.stack([torch.from_numpy(each).long().sum() "
     "for each in as_bytes])", "sums"),
    ("drifted", "back_to_front", "if differs]", "if differs][::-1]", "another list"),
    ("drifted", "no_reshape", ".reshape(-1).view", ".view", "a view"),
    ("drifted", "only_rank_1_asks", "    dist.all_reduce(high, dist.ReduceOp.MAX)\n",
     "    if dist.get_rank():\n        dist.all_reduce(high, dist.ReduceOp.MAX)\n", "left alone"),
)
# fmt: on


@wrong("drifted", "too much")
def gathers_everything(module):
    found = []
    for name, t in [*module.named_parameters(), *module.named_buffers()]:
        mine = t.detach().reshape(-1).view(torch.uint8).contiguous()
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        if any(not torch.equal(each, everyone[0]) for each in everyone):
            found.append(name)
    return found


def by_numbers(digest):
    def answer(module):
        found = []
        for name, t in [*module.named_parameters(), *module.named_buffers()]:
            mine = digest(t.detach().double().flatten())
            everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(everyone, mine)
            if any(bool((each != everyone[0]).any()) for each in everyone):
                found.append(name)
        return found

    return answer


@wrong("drifted", "a part of it")
def the_first_bytes(module):
    return by_bytes(lambda raw: raw[:64], module)


@wrong("drifted", "a part of it")
def both_ends(module):
    return by_bytes(lambda raw: raw[:32] + raw[-32:], module)


def by_bytes(some, module):
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    raw = [t.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors.values()]
    mine = torch.tensor([list(some(each).ljust(64, b"-")) for each in raw], dtype=torch.uint8)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return [
        name
        for i, name in enumerate(tensors)
        if any((b[i] != everyone[0][i]).any() for b in everyone)
    ]


@wrong("drifted", "NaN")
def weighted_sums(module):
    return by_numbers(lambda t: (t @ torch.arange(1.0, len(t) + 1).double())[None])(module)


@wrong("drifted", "-0.0")
def of_numbers_without_nan(module):
    return by_numbers(lambda t: (t.nan_to_num(9.0) @ torch.arange(1.0, len(t) + 1).double())[None])(
        module
    )


# The clinic

# fmt: off
edits(
    ("patient_a", "receives", '"all send first"', '"nobody sends"', "another cause"),
    ("patient_a", "rank_0", "None", "0", "all of them"),
    ("patient_a", "a_word", '"all send first"', '"a deadlock"', "no such cause"),
    ("patient_a", "two_things", ", None, mend", ", None", "form"),
    ("patient_a", "receives_first",
     {'"sent = dist.isend(strip[-1], (rank + 1) % n)"': '"dist.recv(above, (rank - 1) % n)"',
      '"dist.recv(above, (rank - 1) % n)\\nsent.wait()"': '"dist.send(strip[-1], (rank + 1) % n)"'},
     "still stuck"),
    ("patient_a", "does_without",
     {'"sent = dist.isend(strip[-1], (rank + 1) % n)"': '"dist.all_reduce(above)"',
      '"dist.recv(above, (rank - 1) % n)\\nsent.wait()"': '""'}, "symptom only"),
    ("patient_a", "one_line", "None, mend", "None, mend[2]", "no mend"),
    ("patient_a", "forgets_a_name", "sent = ", "", "fails"),
    ("patient_b", "rank_1", ", 0, {", ", 1, {", "another rank"),
    ("patient_b", "no_collective", '{8: note, 9: "", 10: ""}', '{10: ""}', "symptom only"),
    ("patient_b", "a_barrier", '{8: note, 9: "", 10: ""}', '{10: "dist.barrier()"}',
     "still stuck"),
    ("patient_c", "rank_2_does_without",
     "'for name in sorted(settings[\"average\"]):'", '"for name in parameters:\\n    continue"',
     "silent ranks"),
    ("patient_c", "other_sizes", '"another order"', '"other sizes"', "another cause"),
    ("patient_c", "rank_0", ", 2, {", ", 0, {", "another rank"),
    ("patient_c", "a_barrier_first", "'for name in sorted(settings[\"average\"]):'",
     "'dist.barrier()\\nfor name in settings[\"average\"]:'", "still stuck"),
    ("patient_c", "averages_the_weight_alone", "'for name in sorted(settings[\"average\"]):'",
     "'for name in [\"weight\"]:'", "symptom only"),
    ("patient_d", "drops_the_rest",
     'mend = {4: "everyone = [None] * n", 5: "dist.all_gather_object(everyone, mine)"}',
     'mend = {2: "part = x[rank * (len(x) // n):][:len(x) // n]"}', "symptom only"),
    ("patient_d", "one_step_more", '"other sizes"', '"one step more"', "another cause"),
    ("patient_d", "rank_0", ", 2, mend", ", 0, mend", "another rank"),
    ("patient_d", "skips_a_short_part",
     'mend = {4: "everyone = [None] * n", 5: "dist.all_gather_object(everyone, mine)"}',
     'mend = {2: "part = x.tensor_split(n)[rank]\\nif len(part) < 4:\\n    continue"}',
     "still stuck"),
    ("patient_d", "each_predicts_all",
     'mend = {4: "everyone = [None] * n", 5: "dist.all_gather_object(everyone, mine)"}',
     'mend = {4: "everyone = [model(x).detach()]", 5: ""}', "silent ranks"),
    ("patient_e", "no_nan", '{5: "loss = sum(0 * p.sum() for p in model.parameters())"}',
     '{4: "if False:"}', "symptom only"),
    ("patient_e", "below_an_if", '{5: "loss = sum(0 * p.sum() for p in model.parameters())"}',
     '{4: "optimizer.zero_grad()", 5: "", 6: "if loss.isfinite():", 7: "    loss.backward()"}',
     "indentation"),
    ("patient_e", "barrier", '{5: "loss = sum(0 * p.sum() for p in model.parameters())"}',
     '{5: "dist.barrier()\\ncontinue"}', "still stuck"),
    ("patient_e", "the_steps_of_data", '"left out"', '"one step more"', "another cause"),
    ("patient_e", "who_waits", ", 2, {", ", 0, {", "another rank"),
    ("patient_e", "averages_at_once", '{5: "loss = sum(0 * p.sum() for p in model.parameters())"}',
     '{5: "optimizer.zero_grad()\\naverage(model)\\ncontinue"}', "fails"),
    ("patient_f", "does_not_evaluate", '{9: "log.append(mse(model(x), y).item())"}', '{9: "pass"}',
     "symptom only"),
    ("patient_f", "who_waits", ", 0, {", ", 1, {", "another rank"),
    ("patient_f", "one_step_more", '"one rank alone"', '"one step more"', "another cause"),
    ("patient_f", "a_barrier_before", '{9: "log.append(mse(model(x), y).item())"}',
     '{7: "dist.barrier()\\nif rank == 0:"}', "still stuck"),
    ("patient_f", "without_ddp", '{9: "log.append(mse(model(x), y).item())"}',
     '{1: "ddp = model"}', "silent ranks"),
    ("patient_g", "another_half_always", 'order[rank::n]"}', 'slice(rank * 3, rank * 3 + 6)"}',
     "symptom only"),
    ("patient_g", "rank_1", ", None, {", ", 1, {", "all of them"),
    ("patient_g", "a_common_start", '"same data"', '"no common start"', "another cause"),
    ("patient_g", "an_order_for_each_rank", '{3: "part = order[rank::n]"}',
     '{2: "generator.manual_seed(rank)\\norder = torch.randperm(len(x), generator=generator)"}',
     "symptom only"),
    ("patient_h", "average_at_the_end", "mend = {1:", "mend = {8: \"optimizer.step()\\n"
     "for p in model.parameters():\\n    dist.all_reduce(p.data)\\n    p.data /= n\"} or {1:",
     "symptom only"),
    ("patient_h", "rank_1", ", None, mend", ", 1, mend", "all of them"),
    ("patient_h", "other_data", '"no common start"', '"same data"', "another cause"),
    ("patient_h", "a_seed_before_it", "mend = {1:", 'mend = {1: "torch.manual_seed(0)\\n'
     'model = build()"} or {1:', "symptom only"),
    ("patient_a", "does_not_wait", "\\nsent.wait()", "", "never waited for"),
    ("patient_g", "notes_nothing", "{3: ", "{4: ", "symptom only"),
    ("patient_i", "rank_0", ", None, {", ", 0, {", "all of them"),
    ("patient_i", "left_from_before", '"divided twice"', '"old gradients"', "another cause"),
    ("patient_i", "no_average", '{4: "mse(model(x[part]), y[part]).backward()"}',
     '{4: "mse(model(x[part]), y[part]).backward()", 5: ""}', "silent ranks"),
    ("patient_i", "larger_steps", '{4: "mse(model(x[part]), y[part]).backward()"}',
     '{6: "optimizer.param_groups[0][\'lr\'] = 0.1 * n\\noptimizer.step()"}', "symptom only"),
    ("patient_j", "rank_2", ", None, mend", ", 2, mend", "all of them"),
    ("patient_j", "one_rank_alone", '"a group of some"', '"one rank alone"', "another cause"),
    ("patient_j", "no_second_group", "mend = {2:", 'mend = {7: "everyone = None"} or {2:',
     "uneven groups"),
    ("patient_j", "by_the_hang", "mend = {2:", 'mend = {3: "pair = None"} or {2:', "still stuck"),
    ("patient_j", "all_in_one_group", "mend = {2:",
     'mend = {2: "if True:", 3: "pair = None"} or {2:', "symptom only"),
    ("patient_k", "rank_1", ", 0, {", ", 1, {", "another rank"),
    ("patient_k", "read_too_early", '"written too early"', '"read too early"', "another cause"),
    ("patient_k", "waits_at_once", '{4: "buffer = x[0].clone()"}', '{5: "dist.send(buffer, 1)"}',
     "still stuck"),
    ("patient_k", "no_barrier", '{4: "buffer = x[0].clone()"}', '{6: ""}', "in flight"),
    ("patient_k", "does_not_wait", 'clone()"}', 'clone()", 11: "", 12: ""}', "never waited for"),
    ("patient_k", "the_last_batch_alone", '{4: "buffer = x[0].clone()"}',
     '{3: "for x, _ in steps[-1:]:", 8: "for _ in steps[-1:]:"}', "symptom only"),
    ("patient_l", "rank_0", ", None, mend", ", 0, mend", "all of them"),
    ("patient_l", "all_send", '"read too early"', '"all send first"', "another cause"),
    ("patient_l", "before_the_wait", '"coming.wait()\\nrows = torch.cat([above[None], strip])"',
     '"rows = torch.cat([above[None], strip])\\ncoming.wait()"', "in flight"),
    ("patient_l", "without_it", "mend = {3:", 'mend = {3: "rows = strip"} or {3:', "symptom only"),
    ("patient_l", "receives_at_once", "mend = {3:",
     'mend = {2: "dist.recv(above, (rank - 1) % n)", 6: ""} or {3:', "still stuck"),
    ("patient_m", "rank_0", ", 1, {", ", 0, {", "another rank"),
    ("patient_m", "no_common_start", '"another order"', '"no common start"', "another cause"),
    ("patient_m", "a_barrier_first", "'for column in sorted(settings[\"columns\"]):'",
     "'dist.barrier()\\nfor column in settings[\"columns\"]:'", "symptom only"),
    ("patient_m", "all_as_rank_0", "{5: 'for column in sorted(settings[\"columns\"]):'}",
     "{11: 'optimizer.step()\\nfor p in model.parameters():\\n    dist.broadcast(p.data, 0)'}",
     "symptom only"),
    ("patient_m", "rank_1_does_without", "'for column in sorted(settings[\"columns\"]):'",
     "'for column in range(3 * (rank != 1)):'", "still stuck"),
    ("patient_n", "rank_0", ", None, {", ", 0, {", "all of them"),
    ("patient_n", "one_step_more", '"data again"', '"one step more"', "another cause"),
    ("patient_n", "four_steps_more", '{2: \'batches = iter(steps[saved["step"] :])\'}',
     '{3: "for step in range(len(steps)):"}', "symptom only"),
    ("patient_n", "from_the_start", '{2: \'batches = iter(steps[saved["step"] :])\'}',
     '{1: "", 3: "for step in range(len(steps)):"}', "symptom only"),
    ("patient_n", "no_next", '{2: \'batches = iter(steps[saved["step"] :])\'}',
     '{2: "batches = iter([])"}', "fails"),
    ("patient_i", "says_too_much", '{4: "mse(model(x[part]), y[part]).backward()"}',
     '{4: "mse(model(x[part]), y[part]).backward()\\ndist.all_reduce(torch.zeros(9999))"}',
     "other bytes"),
    ("patient_i", "another_program", '{4: "mse(model(x[part]), y[part]).backward()"}',
     '{4: "mse(model(x[part]), y[part]).backward()" + "\\na, b = part.start, part.stop" * 9}',
     "another program"),
    ("patient_o", "rank_1", ", None, {", ", 1, {", "all of them"),
    ("patient_o", "divided_twice", '"old gradients"', '"divided twice"', "another cause"),
    ("patient_o", "smaller_steps", '"optimizer.step()\\noptimizer.zero_grad()"',
     '"optimizer.param_groups[0][\'lr\'] = 0.04\\noptimizer.step()"', "symptom only"),
    ("patient_o", "no_average", '{5: "', '{4: "", 5: "', "silent ranks"),
)
# fmt: on


# fmt: off
edits(
    ("straggler", "without_the_last_step", "range(1, trace.steps)", "range(1, trace.steps - 1)",
     "to the end"),
    ("straggler", "compute_only", "parts.compute_ns", "parts.compute_only_ns", "overlapped"),
    ("straggler", "twice_as_long", "1.2 *", "2 *", "median"),
    ("straggler", "true", "return slowest if", "return slowest is not None if", "no rank"),
    ("train_unequal", "ends_without_images", "if not ranks:", "if not images:", "an empty batch"),
    ("save_checkpoint", "leaves_a_part",
     {"        try:\n            torch.save": "        if True:\n            torch.save",
      "        finally:\n            Path(f\"{path}.new\").unlink(missing_ok=True)  "
      "# a part, if the disk is full\n": ""}, "left behind"),
    ("drifted", "the_first_alone", "if differs]", "if differs][:1]", "another list"),
    ("drifted", "a_set", {"return [name": "return {name", "if differs]": "if differs}"}, "no list"),
    ("drifted", "as_float32", "reshape(-1).view(", "reshape(-1).float().view(", "fewer digits"),
)
# fmt: on


@wrong("train_unequal", "not a number")
def divides_by_no_images(model, batches, lr):
    batches, steps = iter(batches), 0
    while True:
        batch = next(batches, None)
        there = torch.tensor([0, 0] if batch is None else [1, len(batch[1])])
        dist.all_reduce(there)
        if not there[0]:
            return steps
        model.zero_grad()
        if batch is not None:
            cross_entropy(model(batch[0]), batch[1], reduction="sum").backward()
        with torch.no_grad():
            for p in model.parameters():
                total = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(total)
                p -= lr * total / there[1]
        steps += 1
