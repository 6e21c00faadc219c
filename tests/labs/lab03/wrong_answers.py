"""Wrong answers to lab 03: errors of students and of published all-reduces."""

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong
from tests.labs.lab03.right_answers import (
    exchange,
    farthest_first,
    in_two_loops_that_end_at_the_right,
    other_all_to_all,
    other_master_worker,
    other_round_robin,
    other_tree,
    received_like,
)


@wrong("all_to_all", "collective")
@wrong("round_robin", "collective")
@wrong("master_worker", "collective")
@wrong("tree", "collective")
@wrong("butterfly", "collective")
@wrong("ring", "collective")
def by_torch(x):
    total = x.clone()
    dist.all_reduce(total)
    return total


@wrong("tree", "collective")
@wrong("ring", "collective")
def by_broadcast_after_a_barrier(x):
    dist.barrier()
    total = x.clone()
    dist.broadcast(total, 0)
    return total


@wrong("round_robin", "other peers")
@wrong("ring", "bytes")
def whole_tensors_around(x):
    """Run the ring of many tutorials: whole tensors go around."""
    rank, n = dist.get_rank(), dist.get_world_size()
    total, passing = x.clone(), x.clone()
    for _ in range(n - 1):
        received = torch.empty_like(x)
        exchange(passing, (rank + 1) % n, received, (rank - 1) % n)
        total += received
        passing = received
    return total


@wrong("tree", "in a row")
@wrong("master_worker", "bytes")
def along_a_line(x):
    """Sum along a line to rank 0, and send the sum back along the line."""
    rank, n = dist.get_rank(), dist.get_world_size()
    total = x.clone()
    if rank < n - 1:
        total += received_like(x, rank + 1)
    if rank > 0:
        dist.send(total, rank - 1)
        dist.recv(total, rank - 1)
    if rank < n - 1:
        dist.send(total, rank + 1)
    return total


ROOM = {}  # tensors that are kept from call to call


@wrong("round_robin", "of two calls")
def into_kept_memory(x):
    total = other_round_robin(x)
    return ROOM.setdefault((x.shape, x.dtype), torch.empty_like(total)).copy_(total)


@wrong("ring", "of two calls")
def ring_in_kept_memory(x):
    total = in_two_loops_that_end_at_the_right(x)
    return ROOM.setdefault((x.shape, x.dtype), torch.empty_like(total)).copy_(total)


@wrong("round_robin", "of two calls")
def never_zeroed(x):
    total = ROOM.setdefault((x.shape, x.dtype), torch.zeros_like(x))
    total += other_round_robin(x)
    return total.clone()


@wrong("all_to_all", "dtype")
def in_a_stack(x):
    return torch.stack([other_all_to_all(x)]).sum(0)


FAR = "for far in range(1, world_size)"
ISENDS = f"    works = [dist.isend(mine, (rank + far) % world_size) {FAR}]\n"

# fmt: off
# Right sums by another way than the exercise's: the answer to another exercise poses as this one
edits(
    ("round_robin", "everyone_to_everyone", {}, "at once"),
    ("tree", "everyone_to_everyone", {}, "bytes"),
    ("butterfly", "everyone_to_everyone", {}, "bytes"),
    ("ring", "everyone_to_everyone", {}, "bytes"),
    of=other_all_to_all,
)
edits(
    ("all_to_all", "one_after_the_other", {}, "in a row"),
    ("master_worker", "one_after_the_other", {}, "bytes"),
    ("all_to_all", "to_both_neighbours", "reversed(range(1, n))", "(1, n - 1)", "lacks"),
    of=other_round_robin,
)
edits(
    ("all_to_all", "through_rank_0", {}, "bytes"),
    ("round_robin", "through_rank_0", {}, "bytes"),
    ("tree", "through_rank_0", {}, "hidden master"),
    ("butterfly", "through_rank_0", {}, "hidden master"),
    ("ring", "through_rank_0", {}, "hidden master"),
    of=other_master_worker,
)
edits(
    ("tree", "torchs_own", "    reduce(total, dst=0)", "    dist.reduce(total, dst=0)",
     "collective"),
)
edits(
    ("ring", "whole_tensors_twice_around", "return total",
     "for _ in range(n - 1):\n"
     "        exchange(total.clone(), (rank + 1) % n, total, (rank - 1) % n)\n"
     "    return total", "bytes"),
    of=whole_tensors_around,
)

edits(
    ("all_to_all", "one_room_for_all", "[torch.empty_like(mine) for _ in range(world_size)]",
     "[torch.empty_like(mine)] * world_size", "in flight"),
    ("all_to_all", "into_x",
     "total = parts[0].clone()\n    for part in parts[1:]:",
     "total = mine\n    for part in parts[:rank] + parts[rank + 1 :]:", "x changed"),
    ("all_to_all", "from_itself_on",
     "parts[0].clone()\n    for part in parts[1:]:",
     "mine.clone()\n    for part in parts[rank + 1 :] + parts[:rank]:", "bits"),
    ("all_to_all", "own_twice", "parts[1:]", "parts", "twice"),
    ("all_to_all", "halved", "return total", "return total / 2", "not whole"),
    ("all_to_all", "mean", "return total", "return total / world_size", "mean"),
    ("all_to_all", "as_it_lies", "x.contiguous()", "x", "not contiguous"),
    ("all_to_all", "room_for_floats",
     "total = parts[0].clone()", "total = torch.zeros(x.shape) + parts[0]", "dtype"),
    ("all_to_all", "alone", "rank, world_size =",
     "if dist.get_world_size() == 1:\n        return x\n    rank, world_size =", "x returned"),
    ("all_to_all", "sends_before_it_receives",
     "works = [dist.isend(mine, (rank + far) % world_size) for far in range(1, world_size)]",
     "works = []\n    for far in range(1, world_size):\n"
     "        dist.send(mine, (rank + far) % world_size)", "all send"),
    ("all_to_all", "receives_before_it_sends",
     {ISENDS: "", "works.append(dist.irecv(parts[sender], sender))\n":
      f"dist.recv(parts[sender], sender)\n{ISENDS}"}, "all receive"),

    ("round_robin", "no_return", "    return total", "", "returned None"),
    ("round_robin", "adds_before_it_came",
     {"dist.recv(": "receiving = dist.irecv(",
      "        sending.wait()\n        total += received\n":
      "        total += received\n        sending.wait()\n        receiving.wait()\n"},
     "in flight"),
    ("round_robin", "sends_the_sum", "dist.isend(mine,", "dist.isend(total.clone(),", "twice"),
    ("round_robin", "a_round_short",
     "range(1, world_size)", "range(1, max(1, world_size - 1))", "lacks"),
    ("round_robin", "into_x", "mine.clone()", "mine", "x changed"),
    ("round_robin", "mean_of_each",
     "return total", "return total / world_size * world_size", "dtype"),
    ("round_robin", "by_binary_digits",
     {"(rank + far) % world_size": "rank ^ far", "(rank - far) % world_size": "rank ^ far"},
     "no such rank"),
    ("round_robin", "sends_first", "dist.isend(mine, (rank + far) % world_size)",
     "dist.send(mine, (rank + far) % world_size)", "all send"),
    ("round_robin", "same_side", "(rank - far)", "(rank + far)", "circle"),
    ("round_robin", "never_waits", "        sending.wait()\n", "", "never waited for"),
    ("round_robin", "with_itself_first", "range(1, world_size)", "range(world_size)", "to itself"),
    ("round_robin", "room_for_floats",
     "torch.empty_like(mine)", "torch.empty(mine.shape)", "two dtypes"),

    ("master_worker", "keeps_the_sum",
     "        dist.recv(total, 0)\n        return total", "        return total", "has returned"),
    ("master_worker", "no_return",
     {"recv(total, 0)\n        return total": "recv(total, 0)\n        return",
      "work.wait()\n    return total": "work.wait()"}, "returned None"),
    ("master_worker", "workers_add",
     "        dist.recv(total, 0)\n        return total",
     "        dist.recv(received := torch.empty_like(total), 0)\n        return total + received",
     "twice"),
    ("master_worker", "workers_receive_first",
     "dist.send(total, 0)\n        dist.recv(total, 0)",
     "dist.recv(total, 0)\n        dist.send(total, 0)", "all receive"),
    ("master_worker", "into_x",
     "x.clone(memory_format=torch.contiguous_format)", "x", "x changed"),
    ("master_worker", "as_it_lies",
     "memory_format=torch.contiguous_format", "", "not contiguous"),
    ("master_worker", "serves_one_after_the_other",
     "    for work in [dist.isend(total, worker) for worker in range(1, world_size)]:\n"
     "        work.wait()\n", "        dist.send(total, worker)\n", "lacks"),
    ("master_worker", "from_anybody",
     "dist.recv(received, worker)", "dist.recv(received)", "from anybody"),
    ("master_worker", "from_zeros",
     "    received = torch.empty_like(total)\n",
     "    received = torch.empty_like(total)\n    total = torch.zeros_like(total)\n", "lacks"),

    ("tree", "no_return", "    return total", "", "returned None"),
    ("tree", "sum_of_nothing",
     {"total, src=0)": "total, src=0)\n    total = None"}, "returned None"),
    ("tree", "returns_what_broadcast_gives",
     {"broadcast(total, src=0)\n    return total": "return broadcast(total, src=0)"},
     "returned None"),
    ("tree", "assigns_what_it_gets",
     "    reduce(total, dst=0)\n", "    total = reduce(total, dst=0)\n",
     "works in place"),
    ("master_worker", "assigns_the_senders_number",
     "        dist.recv(total, 0)\n", "        total = dist.recv(total, 0)\n",
     "sender's number"),
    ("butterfly", "assigns_the_senders_number",
     "        dist.recv(total, rank - doubled)", "        total = dist.recv(total, rank - doubled)",
     "sender's number"),
    ("tree", "rank_0_alone_reduces", "    reduce(total, dst=0)\n",
     "    if dist.get_rank() == 0:\n        reduce(total, dst=0)\n", "not all call it"),
    ("tree", "rank_0_alone_calls_both",
     {"    reduce(total, dst=0)\n    broadcast":
      "    if dist.get_rank() == 0:\n        reduce(total, dst=0)\n        broadcast"},
     "not all call it"),
    ("tree", "into_x", "x.clone()", "x", "x changed"),
    ("tree", "no_way_down", "    broadcast(total, src=0)\n", "", "lacks"),
    ("tree", "other_root", "src=0", "src=dist.get_world_size() - 1", "lacks"),
    ("tree", "up_to_the_last",
     {"dst=0": "dst=dist.get_world_size() - 1", "src=0": "src=dist.get_world_size() - 1"},
     "other peers"),
    ("tree", "mean", "return total", "return total / dist.get_world_size()", "mean"),

    ("butterfly", "no_return", "        dist.send(total, rank + doubled)\n    return total",
     "        dist.send(total, rank + doubled)", "returned None"),
    ("butterfly", "plus_for_xor",
     {"isend(total, rank ^ distance)": "isend(total, rank + distance)",
      "recv(received, rank ^ distance)": "recv(received, rank + distance)"}, "both ways"),
    ("butterfly", "adds_while_it_sends",
     "        sending.wait()\n        total += received",
     "        total += received\n        sending.wait()", "in flight"),
    ("butterfly", "powers_of_two_only",
     "2 ** (world_size.bit_length() - 1)", "2 ** (world_size - 1).bit_length()", "no such rank"),
    ("butterfly", "leaves_the_others_out",
     {"        dist.send(total, rank - doubled)\n": "",
      "        dist.recv(received, rank + doubled)\n        total += received\n": "        pass\n"},
     "lacks"),
    ("butterfly", "sends_x",
     "dist.isend(total, rank ^ distance)", "dist.isend(x.contiguous(), rank ^ distance)", "lacks"),
    ("butterfly", "a_round_short", "range(doubled.bit_length() - 1)",
     "range(max(0, doubled.bit_length() - 2))", "lacks"),
    ("butterfly", "same_partner", "[2**k for", "[1 for", "other peers"),
    ("butterfly", "sends_first", "dist.isend(total, rank ^ distance)",
     "dist.send(total, rank ^ distance)", "all send"),
    ("butterfly", "into_x",
     "x.clone(memory_format=torch.contiguous_format)", "x.contiguous()", "x changed"),
    ("butterfly", "mean", "        total += received\n    if rank + doubled",
     "        total += received\n    total = total / world_size\n    if rank + doubled", "mean"),
    ("butterfly", "in_a_circle",  # in a circle, like a barrier: right sums with 2, 4 or 8 ranks
     {"isend(total, rank ^ distance)": "isend(total, (rank + distance) % world_size)",
      "recv(received, rank ^ distance)": "recv(received, (rank - distance) % world_size)"},
     "other peers"),
    ("butterfly", "never_waits", "        sending.wait()\n", "", "in flight"),
    ("butterfly", "keeps_the_sum", "dist.send(total, rank + doubled)", "pass", "has returned"),

    ("ring", "to_the_left", "right, left =", "left, right =", "other peers"),
    ("ring", "a_step_short",
     "range(2 * (world_size - 1))", "range(max(0, 2 * world_size - 3))", "lacks"),
    ("ring", "a_round_more", "range(2 * (world_size - 1))", "range(2 * world_size)",
     "too many rounds"),
    ("ring", "a_round_more_in_each_half",
     {"range(2 * (world_size - 1))": "range(2 * world_size if world_size > 1 else 0)",
      "if step < world_size - 1:": "if step < world_size:",
      "outgoing = chunks[(rank - step)":
      "late = step >= world_size\n        outgoing = chunks[(rank - step + late)",
      "chunks[(rank - step - 1)": "chunks[(rank - step - 1 + late)"}, "too many rounds"),
    ("ring", "a_round_more_with_three",
     "range(2 * (world_size - 1))", "range(2 * (world_size - 1) + (world_size == 3))",
     "too many rounds"),
    ("ring", "copies_a_step_early",
     "if step < world_size - 1:", "if step < world_size - 2:", "lacks"),
    ("ring", "adds_in_both_halves", "incoming.copy_(received)", "incoming += received",
     "adds in both halves"),
    ("ring", "second_half_begins_with_its_own",
     {"for step in range(2 * (world_size - 1)):":
      "for steps in range(2 * (world_size - 1)):\n        step = steps % (world_size - 1)",
      "if step <": "if steps <"}, "own chunks go round"),
    ("ring", "receives_over_its_own_chunk",
     {"dist.recv(received, left)": "dist.recv(incoming, left)",
      "if step < world_size - 1:  # share-reduce\n            incoming += received\n"
      "        else:  # share only\n            incoming.copy_(received)": ""},
     "own chunks go round"),
    ("ring", "plus_step",
     {"(rank - step) % world_size": "(rank + step) % world_size",
      "(rank - step - 1) % world_size": "(rank + step - 1) % world_size"}, "plus for minus"),
    ("ring", "plus_step_and_one",
     {"(rank - step) % world_size": "(rank + step) % world_size",
      "(rank - step - 1) % world_size": "(rank + step + 1) % world_size"}, "plus for minus"),
    ("ring", "changes_what_it_sends",
     "dist.recv(received, left)", "dist.recv(received, left)\n        outgoing += 0", "in flight"),
    ("ring", "in_a_tuple", "return total", "return (total,)", "no tensor"),
    ("ring", "no_return", "    return total", "", "returned None"),
    ("ring", "into_x",
     "x.clone(memory_format=torch.contiguous_format)", "x.contiguous()", "x changed"),
    ("ring", "alone", "    rank, world_size =",
     "    if dist.get_world_size() == 1:\n        return x.view(-1)\n    rank, world_size =",
     "x returned"),
    ("ring", "mean", "return total", "return total / world_size", "mean"),
    ("ring", "divides_and_multiplies", "    return total",
     "    total /= world_size\n    total *= world_size\n    return total", "no cast"),
    ("ring", "equal_room",
     "torch.empty_like(incoming)", "torch.empty_like(chunks[0])", "lengths differ"),
    ("butterfly", "all_beyond_meet_one",
     {"dist.recv(received, rank + doubled)": "dist.recv(received, doubled)"}, "circle"),
    ("ring", "cuts_rows", "total.view(-1).tensor_split", "total.tensor_split", "uneven chunks"),
    ("ring", "drops_the_rest", "total.view(-1).tensor_split(world_size)",
     "total.view(-1)[: x.numel() // world_size * world_size].tensor_split(world_size)",
     "end left out"),
    ("ring", "pads", "    chunks = total.view(-1).tensor_split(world_size)",
     "    room = torch.zeros(-(-x.numel() // world_size) * world_size, dtype=x.dtype)\n"
     "    room[: x.numel()] = total.view(-1)\n"
     "    chunks, total = room.tensor_split(world_size), room[: x.numel()].view(x.shape)",
     "bytes of all"),
    ("ring", "stays_flat", "return total", "return total.view(-1)", "shape"),
    ("ring", "torch_chunk",
     {"tensor_split(world_size)": "chunk(world_size)",
      "outgoing = chunks[(rank - step) % world_size]":
      "at = (rank - step) % world_size\n        outgoing = chunks[at]",
      "chunks[(rank - step - 1) % world_size]": "chunks[at - 1]"}, "fewer than n pieces"),
    ("ring", "sends_first", "dist.isend(outgoing, right)", "dist.send(outgoing, right)",
     "all send"),
    ("ring", "even_ranks_first",
     {"sending = dist.isend(outgoing, right)":
      "if rank % 2 == 0:\n            dist.send(outgoing, right)",
      "sending.wait()": "if rank % 2:\n            dist.send(outgoing, right)"}, "in a row"),
    ("ring", "element_by_element",
     {"sending = dist.isend(outgoing, right)":
      "works = [dist.isend(each, right) for each in outgoing.split(1)]",
      "dist.recv(received, left)":
      "for each in received.split(1):\n            dist.recv(each, left)",
      "sending.wait()": "for work in works:\n            work.wait()"}, "small messages"),
    ("ring", "barrier_in_each_round",
     "        sending.wait()\n", "        sending.wait()\n        dist.barrier()\n", "barrier"),
    ("ring", "never_waits", "        sending.wait()\n", "", "never waited for"),
    ("ring", "cannot_view", "memory_format=torch.contiguous_format", "", "no view"),
    ("ring", "another_chunk",
     "incoming += received", "incoming = incoming + received", "not added in"),
    ("ring", "chunks_of_a_copy",
     {"memory_format=torch.contiguous_format": "", "total.view(-1)": "total.reshape(-1)"},
     "not added in"),

    ("predict", "whole_tensors", "2 * (n - 1) / n)", "2 * (n - 1))", "ring"),
    ("predict", "one_way",
     '"ring": (2 * (n - 1), 2 * (n - 1) / n)', '"ring": (n - 1, (n - 1) / n)', "ring"),
    ("predict", "in_turn", '"all_to_all": (1,', '"all_to_all": (n - 1,', "all_to_all"),
    ("predict", "with_itself",
     '"round_robin": (n - 1, n - 1)', '"round_robin": (n, n)', "round_robin"),
    ("predict", "in_only", "(2, 2 * (n - 1))", "(1, n - 1)", "master_worker"),
    ("predict", "rounded_down", "(n - 1).bit_length()", "n.bit_length() - 1", "tree"),
    ("predict", "no_more_rounds", "up if n == 2**up else up + 1", "up", "butterfly"),
    ("predict", "alone", " if n > 1 else 0.0", "", "one rank"),
    ("predict", "bits", "nbytes / bandwidth", "8 * nbytes / bandwidth", "bits"),
    ("predict", "times_bandwidth", "nbytes / bandwidth", "nbytes * bandwidth", "times bandwidth"),
    ("predict", "no_return", "    return latencies * latency + tensors * t if n > 1 else 0.0", "",
     "returned None"),
    ("predict", "none_for_some", "    return latencies * latency + tensors * t if n > 1 else 0.0",
     '    if algorithm != "tree":\n        return latencies * latency + tensors * t if n > 1 '
     "else 0.0", "returned None"),
    ("predict", "no_sum", "latencies * latency + tensors * t",
     "max(latencies * latency, tensors * t)", "not their sum"),
    ("predict", "in_ms", "return latencies * latency + tensors * t",
     "return 1e3 * (latencies * latency + tensors * t)", "milliseconds"),
)
edits(
    ("tree", "adds_on_the_way_down", "dist.recv(total, rank - distance)",
     "total += received_like(total, rank - distance)", "twice"),
    ("tree", "rank_0_tells_all",  # a tree for the sums, then rank 0 sends to all
     {"reversed(distances)": "range(1, n)",
      "if rank % (2 * distance) == distance:\n            dist.recv(total, rank - distance)":
      "if rank == distance:\n            dist.recv(total, 0)",
      "elif rank % (2 * distance) == 0 and rank + distance < n:\n            dist.send":
      "elif rank == 0:\n            dist.send"}, "hidden master"),
    ("tree", "by_log2", "range((n - 1).bit_length())", "range(int(math.log2(n - 1)) + 1)",
     "one rank"),
    of=other_tree,
)
edits(
    ("butterfly", "master_where_there_is_no_power_of_two",
     "dist.get_world_size()\n",
     "dist.get_world_size()\n    if n & (n - 1):\n        return other_master_worker(x)\n",
     "bytes of all"),
    of=farthest_first,
)
edits(
    ("ring", "shares_with_all",  # a ring for the sums; then each rank sends its sum to all others
     {"chunk(rank - step), (rank - 1)": "chunk(rank - step), (rank - step - 1)",
      "chunk(rank - step + 1), (rank + 1)": "chunk(rank + 1), (rank + step + 1)"},
     "other peers"),
    ("ring", "hub_but_for_4", "    flat = x.reshape(-1).clone()\n",
     "    if n not in (1, 4):\n        return other_master_worker(x)\n"
     "    flat = x.reshape(-1).clone()\n", "other shares"),
    of=in_two_loops_that_end_at_the_right,
)
# fmt: on
