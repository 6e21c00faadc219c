"""Wrong answers to lab 02."""

import time

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong
from tests.labs.lab02.right_answers import (
    exchange,
    here,
    in_a_copy,
    parent_then_children,
    passing_a_buffer,
)

# fmt: off
edits(
    ("fit_link", "texts", "return latency.item(), 1 / seconds_per_byte.item()",
     "return str(latency.item()), str(1 / seconds_per_byte.item())", "no pair"),
    # A line
    ("fit_link", "whole_round_trip", "float64) / 2", "float64)", "round trip"),
    ("fit_link", "halves_the_latency_only", "1 / seconds", "0.5 / seconds", "bytes twice"),
    ("fit_link", "halves_the_bytes_only", "latency.item()", "2 * latency.item()", "latency twice"),
    ("fit_link", "halves_the_slope_only",
     "latency = one_way", "latency = 2 * one_way", "latency"),
    ("fit_link", "halves_twice", "1 / seconds", "0.25 / seconds", "halved twice"),
    ("fit_link", "through_the_ends",
     {"(far * (one_way - one_way.mean())).sum() / (far * far).sum()":
      "(one_way[-1] - one_way[0]) / (size[-1] - size[0])",
      "one_way.mean() - seconds_per_byte * size.mean()":
      "one_way[0] - seconds_per_byte * size[0]"}, "two points"),
    ("fit_link", "through_zero",
     {"size - size.mean()": "size", "latency.item()": "0.0",
      "(one_way - one_way.mean())": "one_way"}, "through zero"),
    ("fit_link", "only_the_slope", "latency.item()", "0.0", "through zero"),
    ("fit_link", "mean_of_each_size",
     "float64) / 2", "float64) / 2\n    size, which = size.unique(return_inverse=True)\n"
     "    one_way = torch.stack([one_way[which == i].mean() for i in range(len(size))])", "means"),
    ("fit_link", "sizes_over_times",
     "(far * (one_way - one_way.mean())).sum() / (far * far).sum()",
     "one_way.var(correction=0) / (far * one_way).mean()", "sizes over times"),
    ("fit_link", "slope", "1 / seconds_per_byte.item()", "seconds_per_byte.item()", "slope"),
    ("fit_link", "bits", "1 / seconds", "8 / seconds", "bits"),
    ("fit_link", "megabytes", "1 / seconds", "1e-6 / seconds", "megabytes"),
    ("fit_link", "in_ms", "latency.item()", "latency.item() * 1e3", "milliseconds"),
    ("fit_link", "in_us", "latency.item()", "latency.item() * 1e6", "microseconds"),
    ("fit_link", "the_shortest", "latency.item()", "one_way.min().item()", "shortest"),
    ("fit_link", "in_float32",
     {"nbytes, dtype=torch.float64": "nbytes, dtype=torch.float32",
      "round_trips, dtype=torch.float64": "round_trips, dtype=torch.float32"}, "float32"),
    ("fit_link", "swapped", "latency.item(), 1 / seconds_per_byte.item()",
     "1 / seconds_per_byte.item(), latency.item()", "swapped"),
    ("fit_link", "mean_of_ratios", "1 / seconds_per_byte", "(size / one_way).mean()", "line"),

    ("fit_link", "by_n_less_one", "(far * far).sum()",
     "(far * far).sum() * (len(nbytes) - 1) / len(nbytes)", "n - 1"),
    ("fit_link", "by_n_less_one_above", "(far * far).sum()",
     "(far * far).sum() * len(nbytes) / (len(nbytes) - 1)", "n - 1"),
    ("fit_link", "a_dict", "latency.item(), 1 / seconds_per_byte.item()",
     '{"latency": latency.item(), "bandwidth": 1 / seconds_per_byte.item()}', "no pair"),
    ("fit_link", "no_return", "    return latency.item(), 1 / seconds_per_byte.item()", "",
     "returned None"),

    # Trees
    ("broadcast", "no_modulo",
     {"dist.send(message, (rank + far) % world_size)": "dist.send(message, rank + far)",
      "dist.recv(message, (rank - far) % world_size)": "dist.recv(message, rank - far)"},
     "no such rank"),
    ("broadcast", "another_memory", "x.copy_(message)", "x.data = message", "not copied back"),
    ("broadcast", "one_by_one",
     {"place < far and place + far < world_size": "place == 0",
      "far <= place < 2 * far": "place == far", "far *= 2": "far += 1"}, "rounds"),
    ("broadcast", "root_0_only", "(rank - src) % world_size", "rank", "root 0"),
    ("broadcast", "to_rank_0_first",
     {"(rank - src) % world_size": "rank",
      "    while": "    if src and rank == src:\n        dist.send(message, 0)\n"
      "    if src and rank == 0:\n        dist.recv(message, src)\n    while"}, "bytes"),
    ("broadcast", "power_of_two",
     "place < far and place + far < world_size", "place < far", "power of two"),
    ("broadcast", "into_a_copy", "    x.copy_(message)", "    x = message", "not copied back"),
    ("broadcast", "in_pieces", "= x.contiguous()", "= x", "not contiguous"),
    ("broadcast", "a_round_short", "while far <", "while 2 * far <", "nothing came"),
    ("broadcast", "from_anybody",
     "dist.recv(message, (rank - far) % world_size)", "dist.recv(message)", "from anybody"),
    ("broadcast", "a_view_of_all", "x.copy_(message)", "x.view(-1).copy_(message.view(-1))",
     "no view"),
    ("broadcast", "never_waits", "dist.recv(", "dist.irecv(", "never waited for"),
    ("broadcast", "never_waits_for_sends", "dist.send(", "dist.isend(", "never waited for"),
    ("broadcast", "room_for_floats", "message = x.contiguous()",
     "message = x.contiguous() if rank == src else torch.empty(x.shape)", "two dtypes"),
    ("broadcast", "barrier_each_round",
     "far *= 2", "far *= 2\n        dist.barrier()", "collective"),
    ("reduce", "all_to_the_root",
     {" and place % far == 0": "", "place % (2 * far) == far": "place == far",
      "place + far < world_size": "place == 0", "far *= 2": "far += 1"}, "rounds"),
    ("reduce", "to_rank_0", "(rank - dst) % world_size", "rank", "root 0"),
    ("reduce", "in_place", "total = total + received", "total += received", "x changed"),
    ("reduce", "everywhere", "if rank == dst", "if True", "x changed"),
    ("reduce", "mean", "x.copy_(total)", "x.copy_(total / world_size)", "mean"),
    ("reduce", "passes_on_its_own", "dist.send(total,", "dist.send(x.contiguous(),", "lacks"),
    ("reduce", "power_of_two", "elif place + far < world_size:", "else:", "power of two"),
    ("reduce", "adds_what_came_before",  # 6 ranks show the error
     {"place, far =": "received = torch.zeros(x.shape, dtype=x.dtype)\n    place, far =",
      "elif place + far < world_size:\n            received = torch.empty_like(total)\n"
      "            dist.recv(received, (rank + far) % world_size)\n":
      "else:\n            if place + far < world_size:\n"
      "                dist.recv(received, (rank + far) % world_size)\n"}, "twice"),
    ("reduce", "replaces", "total + received", "received + received", "no sum"),
    ("reduce", "adds_to_its_own", "x.copy_(total)", "x.add_(total)", "twice"),
    ("reduce", "not_copied_back", "x.copy_(total)", "x = total", "not copied back"),
    ("reduce", "in_float32", "x.contiguous()", "x.float().contiguous()", "float32"),
    ("reduce", "room_for_floats",
     "torch.empty_like(total)", "torch.empty(total.shape)", "two dtypes"),
    ("reduce", "adds_what_has_not_come", "dist.recv(", "dist.irecv(", "never waited for"),

    # Scatter and gather
    ("scatter", "everything_to_everybody",
     {"dist.recv(x, src)": "every = x.repeat(dist.get_world_size())\n        "
      "dist.recv(every, src)\n        x.copy_(every.split(len(x))[dist.get_rank()])",
      "chunk.contiguous()": "torch.cat(chunks)"}, "bytes"),
    ("scatter", "forgets_itself", "    x.copy_(chunks[src])", "    return", "root's chunk"),
    ("scatter", "another_name", "x.copy_(chunks[src])", "x = chunks[src]", "root's chunk"),
    ("scatter", "in_pieces", "chunk.contiguous()", "chunk", "not contiguous"),
    ("scatter", "another_order",
     "enumerate(chunks)", "enumerate([chunks[0], *chunks[:0:-1]])", "wrong chunk"),
    ("scatter", "root_0", "dist.recv(x, src)", "dist.recv(x, 0)", "root 0"),
    ("scatter", "all_of_them", "chunk.contiguous()", "torch.cat([c.flatten() for c in chunks])",
     "not its chunk"),
    ("scatter", "counts_from_the_root",
     {"rank, chunk in": "place, chunk in", "if rank != src": "if place",
      ", rank)": ", (src + place) % dist.get_world_size())", "chunks[src]": "chunks[0]"},
     "not its chunk"),
    ("scatter", "sends_to_itself",
     "if rank != src:\n            dist.send(chunk", "if True:\n            dist.send(chunk",
     "to itself"),
    ("scatter", "forgets_the_last", "enumerate(chunks)", "enumerate(chunks[:-1])", "has returned"),
    ("gather", "into_the_list",
     {"dist.recv(chunk, rank)":
      "chunks[rank] = torch.empty_like(chunk)\n            dist.recv(chunks[rank], rank)",
      "chunks[dst].copy_(x)": "chunks[dst] = x.clone()"}, "not copied back"),
    ("gather", "forgets_itself", "    chunks[dst].copy_(x)", "    return", "own chunk"),
    ("gather", "in_pieces", "x.contiguous()", "x", "not contiguous"),
    ("gather", "as_they_come",  # rank 1 sends after rank 2; otherwise luck would decide the order
     {"dist.recv(chunk, rank)": "dist.recv(chunk)",
      "        dist.send(x.contiguous(), dst)":
      "        if dist.get_rank() == 1:\n            dist.recv(torch.empty(1), 2)\n"
      "        dist.send(x.contiguous(), dst)\n"
      "        if dist.get_rank() == 2:\n            dist.send(torch.empty(1), 1)"}, "wrong chunk"),
    ("gather", "always_to_rank_0", "    if dist", "    dst = 0\n    if dist", "root 0"),
    ("gather", "never_waits", "dist.send(", "dist.isend(", "never waited for"),

    ("gather", "rank_in_the_loop",
     {"    if dist.get_rank() != dst:": "    rank = dist.get_rank()\n    if rank != dst:",
      "chunks[dst].copy_(x)": "chunks[rank].copy_(x)"}, "own x elsewhere"),

    # Rings
    ("all_gather", "zeros_first", "    chunks[rank].copy_(x)",
     "    [chunk.zero_() for chunk in chunks]\n    chunks[rank].copy_(x)", "x is a chunk"),
    ("reduce_scatter", "a_step_short", "range(2, world_size + 1)",
     "range(2, max(2, world_size))", "steps"),
    ("reduce_scatter", "adds_while_it_sends",
     "        sending.wait()\n", "        total += 1\n        sending.wait()\n", "in flight"),
    ("all_gather", "to_everybody",
     {"chunks[(rank - step) % world_size], (rank + 1)": "chunks[rank], (rank + step + 1)",
      ", (rank - 1)": ", (rank - step - 1)"}, "no ring"),
    ("all_gather", "to_the_left",
     {"(rank - step) % world_size], (rank + 1)": "(rank + step) % world_size], (rank - 1)",
      "(rank - step - 1) % world_size], (rank - 1)": "(rank + step + 1) % world_size], (rank + 1)"},
     "backwards"),
    ("all_gather", "a_step_short",
     "range(world_size - 1)", "range(world_size - 2)", "nothing in a chunk"),
    ("all_gather", "a_step_too_many",
     "range(world_size - 1)", "range(max(1, world_size - 1))", "one rank"),
    ("all_gather", "its_own_each_time",
     "chunks[(rank - step) % world_size], (", "x, (", "wrong chunk"),
    ("all_gather", "passes_on_x",
     {"dist.isend(chunks[(rank - step) % world_size]": "dist.isend(x",
      "sending.wait()": "sending.wait()\n        x.copy_(chunks[rank - step - 1])"}, "x changed"),
    ("all_gather", "forgets_its_own", "    chunks[rank].copy_(x)\n", "", "own x first"),
    ("all_gather", "no_copy", "chunks[rank].copy_(x)", "chunks[rank] = x", "own chunk"),
    ("all_gather", "blocks", "dist.isend", "dist.send", "all send"),
    ("all_gather", "receives_from_the_right", ", (rank - 1)", ", (rank + 1)", "circle"),
    ("all_gather", "never_waits", "        sending.wait()\n", "", "never waited for"),
    ("reduce_scatter", "ends_at_the_wrong_rank",
     {"chunks[rank - 1]": "chunks[rank]", "range(2, world_size + 1)": "range(1, world_size)"},
     "other chunks"),
    ("reduce_scatter", "blocks", "dist.isend", "dist.send", "all send"),
    ("reduce_scatter", "forgets_to_add", "received + mine", "mine", "lacks"),
    ("reduce_scatter", "mean", "x.copy_(total)", "x.copy_(total / world_size)", "mean"),
    ("reduce_scatter", "in_pieces", "chunks[rank - step].contiguous()", "chunks[rank - step]",
     "not contiguous"),
    ("reduce_scatter", "equal_lengths",
     "torch.empty_like(mine)", "torch.empty_like(total)", "lengths differ"),
    ("reduce_scatter", "room_for_floats",
     "torch.empty_like(mine)", "torch.empty(mine.shape)", "two dtypes"),

    # A barrier
    ("barrier", "neighbours_only", "far < world_size", "far < min(2, world_size)", "left early"),
    ("barrier", "a_round_short", "while far <", "while 2 * far <", "left early"),
    ("barrier", "at_least_one_round", "far < world_size", "far < max(2, world_size)", "one rank"),
    ("barrier", "powers_of_two",
     {"(rank + far) % world_size": "rank ^ far", "(rank - far) % world_size": "rank ^ far"},
     "power of two"),
    ("barrier", "from_anybody", ", (rank - far) % world_size)", ")", "any message"),
    ("barrier", "sends_and_receives_there", "(rank - far)", "(rank + far)", "other peer"),
    ("barrier", "blocks", "dist.isend", "dist.send", "all send"),
    ("barrier", "never_waits", "        sending.wait()\n", "", "never waited for"),
    ("barrier", "without_waiting",
     {"sending = ": "", "dist.recv": "dist.irecv", "        sending.wait()\n": ""},
     "never waited for"),
    ("barrier", "long_messages",
     {"isend(torch.zeros(1)": "isend(torch.zeros(100)", "recv(torch.zeros(1)":
      "recv(torch.zeros(100)"}, "elements"),
    ("barrier", "empty_messages",
     {"isend(torch.zeros(1)": "isend(torch.zeros(0)", "recv(torch.zeros(1)":
      "recv(torch.zeros(0)"}, "elements"),
    ("barrier", "and_torchs", "far *= 2", "far *= 2\n    dist.barrier()", "collective"),
)
edits(
    ("broadcast", "along_a_chain",
     {"place - 2 ** (level - 1)": "place - 1", "while place + 2**level": "if place + 1",
      "place + 2**level": "place + 1"}, "rounds"),
    of=parent_then_children,
)
edits(
    ("broadcast", "into_another_tensor", "x.copy_(message)", "x.data = message.clone()",
     "not copied back"),
    ("broadcast", "columns_for_rows", "x.copy_(message)",
     "x.t().copy_(message.view(x.t().shape)) if x.dim() == 2 else x.copy_(message)",
     "other places"),
    ("reduce", "always_to_rank_0",
     {"(rank - dst) % world_size, 1": "rank, 1", "rank == dst": "rank == 0"}, "sum elsewhere"),
    ("all_gather", "own_chunk_too_late",
     {"    chunks[rank].copy_(x)\n": "",
      "        sending.wait()": "        sending.wait()\n    chunks[rank].copy_(x)"},
     "nothing in a chunk"),
)
edits(
    ("all_gather", "others_into_the_list",
     "chunks[source % n].copy_(got)", "chunks[source % n] = got", "nothing in a chunk"),
    of=passing_a_buffer,
)
edits(
    ("reduce_scatter", "adds_into_the_chunks",
     "[chunk.clone(memory_format=torch.contiguous_format) for chunk in chunks]", "chunks",
     "chunks changed"),
    of=in_a_copy,
)
# fmt: on


# Answers that call torch


@wrong("broadcast", "no messages")
def torchs_broadcast(x, src):
    dist.broadcast(x, src)


@wrong("reduce", "no messages")
def torchs_reduce(x, dst):
    total = x.clone()
    dist.all_reduce(total)
    if dist.get_rank() == dst:
        x.copy_(total)


@wrong("scatter", "no messages")
def torchs_scatter(x, chunks, src):
    dist.scatter(x, chunks, src)


@wrong("gather", "no messages")
def torchs_gather(x, chunks, dst):
    dist.gather(x, chunks, dst)


@wrong("all_gather", "no messages")
def torchs_all_gather(chunks, x):
    dist.all_gather(chunks, x)


@wrong("reduce_scatter", "no messages")
def by_all_reduce(x, chunks):
    sums = [chunk.clone() for chunk in chunks]
    for each in sums:
        dist.all_reduce(each)
    x.copy_(sums[dist.get_rank()])


@wrong("barrier", "no messages")
def torchs_barrier():
    dist.barrier()


# Answers by other algorithms


@wrong("broadcast", "bytes")
def everybody_exchanges(x, src):
    """Run a butterfly: ranks without data send too."""
    rank, n, _, _ = here()
    message, far = x.contiguous(), 1
    while far < n:
        got = torch.empty_like(message)
        exchange(message, rank ^ far, got, rank ^ far)
        if (rank ^ src) >= far:
            message = got
        far *= 2
    x.copy_(message)


@wrong("gather", "bytes")
def all_to_all(x, chunks, dst):
    """Send from every rank to every rank."""
    rank, n, _, _ = here()
    rooms = chunks or [torch.empty_like(x.contiguous()) for _ in range(n)]
    for far in range(1, n):
        exchange(x.contiguous(), (rank + far) % n, rooms[rank - far], (rank - far) % n)
    rooms[rank].copy_(x)


@wrong("all_gather", "bytes")
def through_rank_0(chunks, x):
    """Gather on rank 0, which broadcasts everything."""
    from ddpkit.answers.lab02 import broadcast, gather

    gather(x, None if dist.get_rank() else chunks, 0)
    for chunk in chunks:
        broadcast(chunk, 0)


@wrong("all_gather", "rounds")
def even_ranks_first(chunks, x):
    """Send the right bytes, but receive only when the rank's own message is through."""
    rank, n, to, source = here()
    chunks[rank].copy_(x)
    for step in range(n - 1):
        calls = [
            (dist.send, chunks[(rank - step) % n], to),
            (dist.recv, chunks[(rank - step - 1) % n], source),
        ]
        for one, chunk, peer in reversed(calls) if rank % 2 else calls:
            one(chunk, peer)


@wrong("reduce_scatter", "no ring")
def to_the_owners(x, chunks):
    rank, n, _, _ = here()
    total = chunks[rank].clone(memory_format=torch.contiguous_format)
    for far in range(1, n):
        got, peer = torch.empty_like(total), (rank + far) % n
        exchange(chunks[peer].contiguous(), peer, got, (rank - far) % n)
        total += got
    x.copy_(total)


@wrong("reduce_scatter", "bytes")
def whole_vectors(x, chunks):
    """Run a ring without chunks: everything goes around."""
    rank, n, to, source = here()
    message = total = torch.cat(chunks, dim=-1)
    for _ in range(n - 1):
        received = torch.empty_like(message)
        exchange(message, to, received, source)
        message, total = received, total + received
    x.copy_(total.split([chunk.shape[-1] for chunk in chunks], dim=-1)[rank])


@wrong("barrier", "no messages")
def sleeps():
    time.sleep(0.05)


@wrong("barrier", "rounds")
def through_rank_0_and_back():
    rank, n, _, _ = here()
    calls = (dist.send, dist.recv) if rank else (dist.recv, dist.send)
    for one in calls:
        for peer in [0] if rank else range(1, n):
            one(torch.zeros(1), peer)


@wrong("barrier", "rounds")
def twice_around():
    """Send a token around the ring twice."""
    rank, n, to, source = here()
    calls = [(dist.recv, source), (dist.send, to)] if n > 1 else []
    for one, peer in 2 * (calls if rank else calls[::-1]):
        one(torch.zeros(1), peer)


@wrong("barrier", "left early")
def all_rounds_at_once():
    rank, n, _, _ = here()
    hops = [2**k for k in range((n - 1).bit_length())]
    works = [dist.isend(torch.zeros(1), (rank + far) % n) for far in hops]
    works += [dist.irecv(torch.zeros(1), (rank - far) % n) for far in hops]
    for work in works:
        work.wait()


@wrong("scatter", "chunks changed")
def empties_the_list(x, chunks, src):
    if dist.get_rank() != src:
        dist.recv(x, src)
        return
    for rank in range(dist.get_world_size()):
        chunk = chunks.pop(0)
        if rank == src:
            x.copy_(chunk)
        else:
            dist.send(chunk.contiguous(), rank)


@wrong("scatter", "empty chunk")
def leaves_out_empty_chunks(x, chunks, src):
    if dist.get_rank() != src:
        dist.recv(x, src)
        return
    for rank, chunk in enumerate(chunks):
        if rank == src:
            x.copy_(chunk)
        elif chunk.numel():
            dist.send(chunk.contiguous(), rank)
