"""Wrong answers to lab 19: means by bytes and by steps, a quorum, catching up."""

import contextlib
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong

# fmt: off

# mean_by_bytes

NEW, MEAN = "wanted - levels * scale", "(numbers * scales).mean(0)"
edits(
    ("mean_by_bytes", "old_error_lost", "_size(), x + error", "_size(), x", "old error lost"),
    ("mean_by_bytes", "scale_of_at_least_1e_8", "2**-100", "1e-8", "other mean"),
    ("mean_by_bytes", "forgets", NEW, "x - levels * scale", "forgets"),
    ("mean_by_bytes", "of_the_mean", NEW, f"wanted - {MEAN}", "whose error"),
    ("mean_by_bytes", "counted_twice", NEW, f"error + {NEW}", "counted twice"),
    ("mean_by_bytes", "sign", NEW, "levels * scale - wanted", "sign"),
    ("mean_by_bytes", "no_error", NEW, "torch.zeros_like(x)", "no error"),
    ("mean_by_bytes", "truncated", "(wanted / scale).round()", "(wanted / scale)", "not rounded"),
    ("mean_by_bytes", "floored", ".round()", ".floor()", "not rounded"),
    ("mean_by_bytes", "largest_by_128", "/ 127\n", "/ 128\n", "overflow"),
    ("mean_by_bytes", "no_abs", "wanted.abs().max()", "wanted.max()", "overflow"),
    ("mean_by_bytes", "own_scale", MEAN, "(numbers * scale).mean(0)", "scales of others"),
    ("mean_by_bytes", "unsigned", "numbers.flatten().view(torch.int8).view(n, -1)", "numbers",
     "unsigned"),
    ("mean_by_bytes", "a_sum", MEAN, "(numbers * scales).sum(0)", "not a mean"),
    ("mean_by_bytes", "zero_by_zero",
     {".clamp(min=2**-100)": "", NEW: "wanted - (wanted / scale).round() * scale"}, "nan"),
    ("mean_by_bytes", "error_in_place", NEW, "error.copy_(wanted - levels * scale)", "changed"),
    ("mean_by_bytes", "own_alone", MEAN, "(numbers * scales)[dist.get_rank()]", "other mean"),
    ("mean_by_bytes", "half_of_the_error", NEW, f"({NEW}) / 2", "other error"),
)
# fmt: on


@wrong("mean_by_bytes", "more bytes")
def in_floats(x, error):
    wanted = x + error
    scale = wanted.abs().max().clamp(min=2**-100) / 127
    sent = (wanted / scale).round() * scale
    total = sent.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size(), wanted - sent


@wrong("mean_by_bytes", "two collectives")
def scales_by_themselves(x, error):
    n, wanted = dist.get_world_size(), x + error
    scale = wanted.abs().max().clamp(min=2**-100).view(1) / 127
    levels = (wanted / scale).round().to(torch.int8)
    scales = [torch.empty(1) for _ in range(n)]
    dist.all_gather(scales, scale)
    everyone = [torch.empty_like(levels) for _ in range(n)]
    dist.all_gather(everyone, levels)
    total = sum(each * s for each, s in zip(everyone, scales, strict=True))
    return total / n, wanted - levels * scale


@wrong("mean_by_bytes", "own mean")
def sends_nothing(x, error):
    wanted = x + error
    scale = wanted.abs().max().clamp(min=2**-100) / 127
    sent = (wanted / scale).round() * scale
    return sent, wanted - sent


# fmt: off

# mean_of

MINE = "difference * steps if steps else torch.zeros_like(difference)"
DIVIDED = "both[:-1] / both[-1].clamp(min=1)"
edits(
    ("mean_of", "divided_by_n", DIVIDED, "both[:-1] / dist.get_world_size(group)", "by all"),
    ("mean_of", "unweighted", {MINE: "difference if steps else torch.zeros_like(difference)",
                               "float(steps)": "float(bool(steps))"}, "unweighted"),
    ("mean_of", "unweighted_by_n", {MINE: "difference if steps else torch.zeros_like(difference)",
                                    DIVIDED: "both[:-1] / dist.get_world_size(group)"},
     "unweighted"),
    ("mean_of", "nan_times_0", MINE, "difference * steps", "nan"),
    ("mean_of", "counts_for_nothing", {MINE: "difference", "float(steps)": "1.0"}, "nan"),
    ("mean_of", "own_steps", DIVIDED, "both[:-1] / max(steps, 1)", "own weight"),
    ("mean_of", "a_sum", DIVIDED, "both[:-1]", "not divided"),
    ("mean_of", "zero_by_zero", ".clamp(min=1)", "", "nobody"),
    ("mean_of", "one_number_more", DIVIDED, "both / both[-1].clamp(min=1)", "length"),
    ("mean_of", "all_ranks", ", group=group", "", "other group"),
    ("mean_of", "rounded", "torch.cat([mine, mine.new_tensor([float(steps)])])",
     "torch.cat([mine.bfloat16().float(), mine.new_tensor([float(steps)])])", "rounded"),
    ("mean_of", "in_place", "difference * steps if", "difference.mul_(steps) if", "changed"),
    ("mean_of", "sends_nothing", {"    dist.all_reduce(both, group=group)\n": "",
                                  DIVIDED: "both[:-1] / max(steps, 1)"}, "own mean"),
    ("mean_of", "two_collectives", "    dist.all_reduce(both, group=group)\n",
     "    dist.all_reduce(both[:-1], group=group)\n    dist.all_reduce(both[-1:], group=group)\n",
     "two collectives"),
    ("mean_of", "every_nan_is_0", MINE, "difference.nan_to_num() * steps", "other mean"),
    ("mean_of", "minus", DIVIDED, f"-{DIVIDED}", "other mean"),
    ("mean_of", "in_float64", {MINE: f"({MINE}).double()", DIVIDED: f"({DIVIDED}).float()"},
     "more bytes"),
    ("mean_of", "stays_away", "    dist.all_reduce(both, group=group)\n",
     "    if not steps:\n        return mine\n    dist.all_reduce(both, group=group)\n",
     "must take part"),
)

# quorum

WAIT = "            store.wait([members], timedelta(seconds=seconds))\n"
AGREED = 'agreed = store.compare_set(members, "", " ".join(map(str, here)))'
ASKED = "[r for r in range(world_size) if store.check([f\"{name}/{r}\"])]"
edits(
    ("quorum", "own_list", AGREED, 'agreed = " ".join(map(str, here)); store.set(members, agreed)',
     "adds itself"),
    ("quorum", "overwritten", AGREED,
     'here = [r for r in here if r != rank or not store.check([members])]\n'
     '    store.set(members, " ".join(map(str, [*here, rank] if rank not in here else here)))\n'
     '    agreed = store.get(members)', "lists differ"),
    ("quorum", "one_name_for_all_rounds", 'members = f"{name}/members"', 'members = "members"',
     "old round"),
    ("quorum", "goes_on_with_too_few", "if len(here) < least and not store.check([members]):",
     "if False:", "too few"),
    ("quorum", "wants_all", "if len(here) < least and not", "if len(here) < world_size and not",
     "wants all"),
    ("quorum", "marks_itself_late",
     {'    store.set(f"{name}/{rank}", "here")\n': "",
      f"    here = {ASKED}": f'    store.set(f"{{name}}/{{rank}}", "here")\n    here = {ASKED}'},
     "not there"),
    ("quorum", "another_error", "raise RuntimeError", "raise TimeoutError", "another exception"),
    ("quorum", "never_early", "store.add(f\"{name}/count\", 1) < world_size",
     "store.add(f\"{name}/count\", 1)", "waits for nothing"),
    ("quorum", "unsorted", "[int(r) for r in agreed.split()]",
     "[int(r) for r in agreed.split()][::-1]", "unsorted"),
    ("quorum", "by_the_digits", "[int(r) for r in agreed.split()]",
     "[int(r) for r in str(agreed) if r.isdigit()]", "twice"),
    ("quorum", "sorted_as_text", "for r in range(world_size) if",
     "for r in sorted(range(world_size), key=str) if", "unsorted"),
    ("quorum", "none_in_place_of_an_error", "raise RuntimeError(", "return None and (", "too few"),
    ("quorum", "a_late_rank_raises", "    return [int(r) for r in agreed.split()]",
     "    if str(rank) not in agreed.split():\n        raise RuntimeError(\"late\")\n"
     "    return [int(r) for r in agreed.split()]", "raises"),
    ("quorum", "a_set", "[int(r) for r in agreed.split()]", "{int(r) for r in agreed.split()}",
     "no list"),
    ("quorum", "half_the_time", "seconds=seconds", "seconds=seconds / 2", "impatient"),
    ("quorum", "twice_the_time", "seconds=seconds", "seconds=2 * seconds", "late decision"),
    ("quorum", "everybody_is_there", ASKED, "list(range(world_size))", "away"),
    ("quorum", "others_alone", f"here = {ASKED}", f"here = [r for r in {ASKED} if r]",
     "not there"),
)
# fmt: on


@wrong("quorum", "does not hear")
def waits_for_all_keys(store, name, rank, world_size, least, seconds):
    store.set(f"{name}/{rank}", "here")
    with contextlib.suppress(RuntimeError):
        every = [f"{name}/{r}" for r in range(world_size)]
        store.wait(every, timedelta(seconds=seconds))
    here = [r for r in range(world_size) if store.check([f"{name}/{r}"])]
    if len(here) < least:
        raise RuntimeError("too few")
    agreed = store.compare_set(f"{name}/members", "", " ".join(map(str, here)))
    return [int(r) for r in agreed.split()]


@wrong("quorum", "does not hear")
def each_its_own_list(store, name, rank, world_size, least, seconds):
    """Each rank waits for all others, and returns the ranks that it sees."""
    store.set(f"{name}/{rank}", "here")
    with contextlib.suppress(RuntimeError):
        every = [f"{name}/{r}" for r in range(world_size)]
        store.wait(every, timedelta(seconds=seconds))
    here = [r for r in range(world_size) if store.check([f"{name}/{r}"])]
    if len(here) < least:
        raise RuntimeError("too few")
    return here if rank else [*here, world_size - 1][: len(here)]


@wrong("quorum", "waits for nothing")
def sleeps(store, name, rank, world_size, least, seconds):
    store.set(f"{name}/{rank}", "here")
    time.sleep(seconds)
    here = [r for r in range(world_size) if store.check([f"{name}/{r}"])]
    if len(here) < least:
        raise RuntimeError("too few")
    agreed = store.compare_set(f"{name}/members", "", " ".join(map(str, here)))
    return [int(r) for r in agreed.split()]


@wrong("quorum", "rank 0 is away")
def rank_0_decides(store, name, rank, world_size, least, seconds):
    members = f"{name}/members"
    store.set(f"{name}/{rank}", "here")
    if rank:
        store.wait([members], timedelta(seconds=300))
    else:
        with contextlib.suppress(RuntimeError):
            every = [f"{name}/{r}" for r in range(world_size)]
            store.wait(every, timedelta(seconds=seconds))
        here = [r for r in range(world_size) if store.check([f"{name}/{r}"])]
        if len(here) < least:
            raise RuntimeError("too few")
        store.set(members, " ".join(map(str, here)))
    return [int(r) for r in store.get(members).split()]


@wrong("quorum", "looks forever")
def without_a_pause(store, name, rank, world_size, least, seconds):
    store.set(f"{name}/{rank}", "here")
    end = time.monotonic() + seconds
    while time.monotonic() < end and not store.check([f"{name}/{world_size - 1}"]):
        pass
    return [0]


@wrong("quorum", "other list")
def the_first_ranks(store, name, rank, world_size, least, seconds):
    members = f"{name}/members"
    store.set(f"{name}/{rank}", "here")
    if store.add(f"{name}/count", 1) < world_size:
        with contextlib.suppress(RuntimeError):
            store.wait([members], timedelta(seconds=seconds))
    here = [r for r in range(world_size) if store.check([f"{name}/{r}"])]
    if len(here) < least and not store.check([members]):
        raise RuntimeError("too few")
    agreed = store.compare_set(members, "", " ".join(map(str, here)))
    return list(range(1, 1 + len(agreed.split())))


# fmt: off

def in_time(store, name, rank, world_size, seconds):
    """Ask, and wait for a decision; return the ranks that have asked, or None after a decision."""
    store.set(f"{name}/{rank}", "here")
    if store.add(f"{name}/count", 1) < world_size:
        with contextlib.suppress(RuntimeError):
            store.wait([f"{name}/members"], timedelta(seconds=seconds))
            return None
    return [r for r in range(world_size) if store.check([f"{name}/{r}"])]


@wrong("quorum", "two decisions")
def writes_over_the_list(store, name, rank, world_size, least, seconds):
    members = f"{name}/members"
    if not store.check([members]):
        here = in_time(store, name, rank, world_size, seconds)
        if here and len(here) < least:
            raise RuntimeError(f"{len(here)} ranks have asked")
        if here:
            store.set(members, " ".join(map(str, here)))
    return [int(r) for r in store.get(members).split()]


@wrong("quorum", "two decisions")
def returns_its_own_list(store, name, rank, world_size, least, seconds):
    members = f"{name}/members"
    if not store.check([members]):
        here = in_time(store, name, rank, world_size, seconds)
        if here and len(here) < least:
            raise RuntimeError(f"{len(here)} ranks have asked")
        if here:
            store.compare_set(members, "", " ".join(map(str, here)))
            return here
    return [int(r) for r in store.get(members).split()]


# catch_up

edits(
    ("catch_up", "first_one_sends_to_all", "have[i % len(have)]", "have[0]", "one does it all"),
    ("catch_up", "last_one_sends_to_the_rest", "have[i % len(have)]",
     "have[min(i, len(have) - 1)]", "one does it all"),
    ("catch_up", "rank_0", "have[i % len(have)]", "0", "one does it all"),
    ("catch_up", "next_rank", "have[i % len(have)]",
     "(late + 1) % dist.get_world_size()", "lacking source"),
    ("catch_up", "in_blocks", "have[i % len(have)]", "have[i // -(-len(lack) // len(have))]",
     "one does it all"),
    ("catch_up", "itself", "have[i % len(have)]", "late", "from itself"),
    ("catch_up", "first_tensor_alone", "for tensor in tensors:", "for tensor in tensors[:1]:",
     "parameters alone"),
    ("catch_up", "parameters_and_velocity", "for tensor in tensors:", "for tensor in tensors[:2]:",
     "parameters alone"),
    ("catch_up", "into_a_copy", "dist.recv(tensor, source)", "dist.recv(tensor.clone(), source)",
     "not filled"),
    ("catch_up", "every_source_sends", "if dist.get_rank() == source", "if dist.get_rank() in have",
     "one each"),
    ("catch_up", "twice", "in tensors:", "in [*tensors, *tensors]:", "twice"),
    ("catch_up", "in_half", {"dist.send(tensor, late)": "dist.send(tensor.bfloat16(), late)",
     "dist.recv(tensor, source)":
     "half = tensor.bfloat16(); dist.recv(half, source); tensor.copy_(half)"}, "other values"),
)
# fmt: on


@wrong("catch_up", "to all")
def broadcast(tensors, have, lack):
    for tensor in tensors if lack else ():
        dist.broadcast(tensor, have[0])


@wrong("catch_up", "sent again")
def to_every_rank(tensors, have, lack):
    for other in (r for r in range(dist.get_world_size()) if lack and r != have[0]):
        for tensor in tensors:
            if dist.get_rank() == have[0]:
                dist.send(tensor, other)
            elif dist.get_rank() == other:
                dist.recv(tensor, have[0])


@wrong("catch_up", "passes on")
def in_a_chain(tensors, have, lack):
    chain = [have[0], *lack]
    for source, late in zip(chain, lack, strict=False):
        for tensor in tensors:
            if dist.get_rank() == source:
                dist.send(tensor, late)
            elif dist.get_rank() == late:
                dist.recv(tensor, source)


@wrong("catch_up", "nothing sent")
def nothing(tensors, have, lack):
    pass


@wrong("catch_up", "away takes part")
def waits_for_everybody(tensors, have, lack):
    if dist.get_rank() in [*have, *lack]:
        dist.barrier()
    for i, late in enumerate(lack):
        source = have[i % len(have)]
        for tensor in tensors:
            if dist.get_rank() == source:
                dist.send(tensor, late)
            elif dist.get_rank() == late:
                dist.recv(tensor, source)
