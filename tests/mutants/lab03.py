"""Wrong answers to lab 03: what students and published all-reduces get wrong."""

import torch
import torch.distributed as dist

from tests.mutants import edit, mutant

SIX = ("all_to_all", "round_robin", "master_worker", "tree", "butterfly", "ring")


def here():
    """Rank, number of ranks, and the ranks to the right and left."""
    rank, n = dist.get_rank(), dist.get_world_size()
    return rank, n, (rank + 1) % n, (rank - 1) % n


def exchange(outgoing, to, incoming, source):
    sending = dist.isend(outgoing, to)
    dist.recv(incoming, source)
    sending.wait()


# Right sums by another way than the exercise's: each poses as all the others


def by_torch(x):
    total = x.clone()
    dist.all_reduce(total)
    return total


def everyone_to_everyone(x):
    rank, n, _, _ = here()
    parts = [x.contiguous() if each == rank else torch.empty_like(x) for each in range(n)]
    works = [dist.isend(parts[rank], (rank + far) % n) for far in range(1, n)]
    works += [dist.irecv(parts[(rank - far) % n], (rank - far) % n) for far in range(1, n)]
    for work in works:
        work.wait()
    return sum(parts[1:], parts[0].clone())


def one_after_the_other(x):
    rank, n, _, _ = here()
    total, received = x.clone(), torch.empty_like(x)
    for far in range(1, n):
        exchange(x, (rank + far) % n, received, (rank - far) % n)
        total += received
    return total


def through_rank_0(x):
    rank, n, _, _ = here()
    total, received = x.clone(), torch.empty_like(x)
    if rank:
        dist.send(total, 0)
        dist.recv(total, 0)
        return total
    for worker in range(1, n):
        dist.recv(received, worker)
        total += received
    for worker in range(1, n):
        dist.send(total, worker)
    return total


def whole_tensors_around(x):
    """The ring of many tutorials."""
    _, n, right, left = here()
    total, passing = x.clone(), x.clone()
    for _ in range(n - 1):
        received = torch.empty_like(x)
        exchange(passing, right, received, left)
        total += received
        passing = received
    return total


def along_a_line(x):
    """To rank 0 from rank to rank, and back."""
    rank, n, _, _ = here()
    total, received = x.clone(), torch.empty_like(x)
    if rank < n - 1:
        dist.recv(received, rank + 1)
        total += received
    if rank > 0:
        dist.send(total, rank - 1)
        dist.recv(total, rank - 1)
    if rank < n - 1:
        dist.send(total, rank + 1)
    return total


for name in SIX:
    mutant(name, hint="all_reduce would do the work")(by_torch)
for name, hint in {
    "round_robin": "under way at once",
    "tree": "Rank 0 sent 96 bytes; a binomial tree sends 64",
    "butterfly": "Rank 0 sent 96 bytes to ranks 1, 2 and 3; a butterfly sends 64",
    "ring": "Rank 0 sent 96 bytes to ranks 1, 2 and 3; a ring sends 48 to rank 1.",
}.items():
    mutant(name, hint=hint)(everyone_to_everyone)
mutant("all_to_all", hint="Start all messages before you wait")(one_after_the_other)
for name in ("all_to_all", "round_robin", "tree", "butterfly", "ring"):
    mutant(name, hint="Rank 1 sent 32" if "_" in name else "hidden master")(through_rank_0)
for name, hint in {
    "round_robin": "in a round robin they go",
    "ring": "Rank 0 sent 96 bytes to rank 1; a ring sends 48 to rank 1. Pass on one chunk",
}.items():
    mutant(name, hint=hint)(whole_tensors_around)
for name, hint in {
    "tree": "many pairs talk at the same time",
    "master_worker": "a master sends 96 to ranks 1, 2 and 3",
}.items():
    mutant(name, hint=hint)(along_a_line)

# all_to_all

edit(
    "all_to_all",
    "into_x",
    replace="total = parts[0].clone()\n    for part in parts[1:]:",
    by="total = mine\n    for part in parts[:rank] + parts[rank + 1 :]:",
    hint="x has changed",
)
edit(
    "all_to_all",
    "from_itself_on",
    replace="parts[0].clone()\n    for part in parts[1:]:",
    by="mine.clone()\n    for part in parts[rank + 1 :] + parts[:rank]:",
    hint="different orders",
)
edit("all_to_all", "own_twice", replace="parts[1:]", by="parts", hint="Each rank's x counts once")
edit("all_to_all", "mean", replace="return total", by="return total / world_size", hint="the mean")
edit("all_to_all", "as_it_lies", replace="x.contiguous()", by="x", hint="lie in one piece")
edit(
    "all_to_all",
    "room_for_floats",
    replace="total = parts[0].clone()",
    by="total = torch.zeros(x.shape) + parts[0]",
    hint="torch.empty_like",
)
edit(
    "all_to_all",
    "alone",
    replace="rank, world_size =",
    by="if dist.get_world_size() == 1:\n        return x\n    rank, world_size =",
    hint="lies in the memory of x",
)


@mutant("all_to_all", hint="All wait in send")
def sends_before_it_receives(x):
    rank, n, _, _ = here()
    total, received = x.clone(), torch.empty_like(x)
    for far in range(1, n):
        dist.send(x, (rank + far) % n)
    for far in range(1, n):
        dist.recv(received, (rank - far) % n)
        total += received
    return total


@mutant("all_to_all", hint="one from each of the n - 1 others")
def to_both_neighbours(x):
    _, n, right, left = here()
    total, received = x.clone(), torch.empty_like(x)
    for to, source in [(right, left), (left, right)][: n - 1]:
        exchange(x, to, received, source)
        total += received
    return total


# round_robin

edit(
    "round_robin",
    "sends_the_sum",
    replace="dist.isend(mine,",
    by="dist.isend(total.clone(),",
    hint="not the sum so far",
)
edit(
    "round_robin",
    "a_round_short",
    replace="range(1, world_size)",
    by="range(1, max(1, world_size - 1))",
    hint="It takes n - 1 rounds",
)
edit("round_robin", "into_x", replace="mine.clone()", by="mine", hint="x has changed")
edit(
    "round_robin",
    "mean_of_each",
    replace="return total",
    by="return total / world_size * world_size",
    hint="and so is the sum",
)
edit(
    "round_robin",
    "by_binary_digits",
    replace="(rank + far) % world_size)\n        dist.recv(received, (rank - far) % world_size)",
    by="rank ^ far)\n        dist.recv(received, rank ^ far)",
    hint="not every rank has a partner",
)
edit("round_robin", "sends_first", replace="dist.isend(mine, (rank + far) % world_size)",
     by="dist.send(mine, (rank + far) % world_size)", hint="All wait in send")  # fmt: skip
edit("round_robin", "same_side", replace="(rank - far)", by="(rank + far)",
     hint="Draw an arrow")  # fmt: skip

# master_worker

edit(
    "master_worker",
    "keeps_the_sum",
    replace="        dist.recv(total, 0)\n        return total",
    by="        return total",
    hint="count who sends and who receives",
)
edit(
    "master_worker",
    "workers_add",
    replace="        dist.recv(total, 0)\n        return total",
    by="        dist.recv(received := torch.empty_like(total), 0)\n        return total + received",
    hint="a worker adds nothing",
)
edit("master_worker", "workers_receive_first",
     replace="        dist.send(total, 0)\n        dist.recv(total, 0)\n",
     by="        dist.recv(total, 0)\n        dist.send(total, 0)\n",
     hint="Draw an arrow")  # fmt: skip
edit("master_worker", "into_x", replace="x.clone(memory_format=torch.contiguous_format)",
     by="x", hint="x has changed")  # fmt: skip
edit("master_worker", "as_it_lies", replace="memory_format=torch.contiguous_format",
     by="", hint="lie in one piece")  # fmt: skip


@mutant("master_worker", hint="when it has added all n - 1")
def serves_one_after_the_other(x):
    rank, n, _, _ = here()
    total, received = x.clone(), torch.empty_like(x)
    if rank:
        dist.send(total, 0)
        dist.recv(total, 0)
        return total
    for worker in range(1, n):
        dist.recv(received, worker)
        total += received
        dist.send(total, worker)
    return total


mutant("master_worker", hint="Rank 1 sent 96 bytes to ranks 0, 2 and 3; a master sends 32")(
    one_after_the_other
)

# tree

edit("tree", "into_x", replace="x.clone()", by="x", hint="x has changed")
edit(
    "tree",
    "no_way_down",
    replace="    broadcast(total, src=0)\n",
    by="",
    hint="down goes the whole",
)
edit("tree", "other_root", replace="src=0", by="src=dist.get_world_size() - 1",
     hint="A rank hands its sum over when")  # fmt: skip
edit("tree", "mean", replace="return total", by="return total / dist.get_world_size()",
     hint="the mean")  # fmt: skip


def up(x):
    """The sum of what hangs below this rank, and the ranks there."""
    rank, n, _, _ = here()
    total, received, below = x.clone(memory_format=torch.contiguous_format), torch.empty(0), []
    for distance in [2**k for k in range((n - 1).bit_length())]:
        if rank % (2 * distance) == distance:
            dist.send(total, rank - distance)
            return total, below, rank - distance
        if rank + distance < n:
            received = torch.empty_like(total)
            dist.recv(received, rank + distance)
            total += received
            below.append(rank + distance)
    return total, below, None


@mutant("tree", hint="the sum is copied, not added")
def adds_on_the_way_down(x):
    total, below, above = up(x)
    if above is not None:
        received = torch.empty_like(total)
        dist.recv(received, above)
        total += received
    for rank in reversed(below):
        dist.send(total, rank)
    return total


@mutant("tree", hint="it alone sent 96 bytes; in a binomial tree, 64")
def rank_0_tells_all(x):
    """A tree up, and a master down."""
    total, _, above = up(x)
    if above is not None:
        dist.recv(total, 0)
    else:
        for other in range(1, dist.get_world_size()):
            dist.send(total, other)
    return total


# butterfly

edit(
    "butterfly",
    "powers_of_two_only",
    replace="2 ** (world_size.bit_length() - 1)",
    by="2 ** (world_size - 1).bit_length()",
    hint="not every rank has a partner",
)
edit(
    "butterfly",
    "leaves_the_others_out",
    replace="    if rank >= doubled:\n        dist.send(total, rank - doubled)\n"
    "        dist.recv(total, rank - doubled)\n        return total\n"
    "    if rank + doubled < world_size:\n        dist.recv(received, rank + doubled)\n"
    "        total += received\n",
    by="    if rank >= doubled:\n        dist.recv(total, rank - doubled)\n        return total\n",
    hint="give first and get the sum at the end",
)
edit(
    "butterfly",
    "sends_x",
    replace="dist.isend(total, rank ^ distance)",
    by="dist.isend(x.contiguous(), rank ^ distance)",
    hint="each time send the sum so far",
)
edit(
    "butterfly",
    "a_round_short",
    replace="range(doubled.bit_length() - 1)",
    by="range(max(0, doubled.bit_length() - 2))",
    hint="Exchange at distance 1, 2, 4",
)
edit(
    "butterfly",
    "same_partner",
    replace="[2**k for k in range(doubled.bit_length() - 1)]",
    by="[1 for k in range(doubled.bit_length() - 1)]",
    hint="in a butterfly they go",
)
edit(
    "butterfly",
    "sends_first",
    replace="dist.isend(total, rank ^ distance)",
    by="dist.send(total, rank ^ distance)",
    hint="All wait in send",
)
edit("butterfly", "into_x", replace="x.clone(memory_format=torch.contiguous_format)",
     by="x.contiguous()", hint="x has changed")  # fmt: skip
edit("butterfly", "mean", replace="        total += received\n    if rank + doubled",
     by="        total += received\n    total = total / world_size\n    if rank + doubled",
     hint="the mean")  # fmt: skip


@mutant("butterfly", hint="With 5 ranks all together sent")
def master_where_there_is_no_power_of_two(x):
    rank, n, _, _ = here()
    if n & (n - 1):
        return through_rank_0(x.contiguous())
    total, received = x.clone(), torch.empty_like(x)
    for distance in [2**k for k in range(n.bit_length() - 1)]:
        exchange(total, rank ^ distance, received, rank ^ distance)
        total += received
    return total


# ring

edit("ring", "to_the_left", replace="right, left =", by="left, right =", hint="in a ring they go")
edit(
    "ring",
    "a_step_short",
    replace="range(2 * (world_size - 1))",
    by="range(max(0, 2 * world_size - 3))",
    hint="Each half takes n - 1 steps",
)
edit(
    "ring",
    "copies_a_step_early",
    replace="if step < world_size - 1:",
    by="if step < world_size - 2:",
    hint="until a rank has the whole sum",
)
edit(
    "ring",
    "adds_in_both_halves",
    replace="incoming.copy_(received)",
    by="incoming += received",
    hint="copied, not added",
)
edit("ring", "into_x", replace="x.clone(memory_format=torch.contiguous_format)",
     by="x.contiguous()", hint="x has changed")  # fmt: skip
edit("ring", "alone", replace="    rank, world_size =",
     by="    if dist.get_world_size() == 1:\n        return x.view(-1)\n    rank, world_size =",
     hint="lies in the memory of x")  # fmt: skip
edit("ring", "mean", replace="return total", by="return total / world_size", hint="the mean")
edit(
    "ring",
    "divides_and_multiplies",
    replace="    return total",
    by="    total /= world_size\n    total *= world_size\n    return total",
    hint="x may hold integers",
)
edit(
    "ring",
    "equal_room",
    replace="torch.empty_like(incoming)",
    by="torch.empty_like(chunks[0])",
    hint="differ in length",
)
edit(
    "ring",
    "drops_the_rest",
    replace="total.view(-1).tensor_split(world_size)",
    by="total.view(-1)[: x.numel() // world_size * world_size].tensor_split(world_size)",
    hint="The end of x is left out",
)
edit(
    "ring",
    "pads",
    replace="    chunks = total.view(-1).tensor_split(world_size)",
    by="    room = torch.zeros(-(-x.numel() // world_size) * world_size, dtype=x.dtype)\n"
    "    room[: x.numel()] = total.view(-1)\n"
    "    chunks, total = room.tensor_split(world_size), room[: x.numel()].view(x.shape)",
    hint="no padding",
)


@mutant("ring", hint="fewer than n pieces")
def torch_chunk(x):
    rank, n, right, left = here()
    total = x.clone(memory_format=torch.contiguous_format)
    cut = total.view(-1).chunk(n)
    for step in range(2 * n - 2):
        at = (rank - step) % n
        mine = cut[at]
        other = cut[at - 1]
        got = torch.empty_like(other)
        exchange(mine, right, got, left)
        other.copy_(other + got if step < n - 1 else got)
    return total


edit("ring", "sends_first", replace="dist.isend(outgoing, right)", by="dist.send(outgoing, right)",
     hint="All wait in send")  # fmt: skip


def around(x, exchange):
    """The right ring, but for how it exchanges."""
    rank, n, right, left = here()
    total = x.clone(memory_format=torch.contiguous_format)
    chunks = total.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        incoming = chunks[(rank - step - 1) % n]
        received = torch.empty_like(incoming)
        exchange(chunks[(rank - step) % n], right, received, left)
        incoming.copy_(incoming + received if step < n - 1 else received)
    return total


@mutant("ring", hint="12 messages go in a row")
def even_ranks_first(x):
    def in_turn(outgoing, right, received, left):
        calls = [(dist.send, outgoing, right), (dist.recv, received, left)]
        for call, tensor, peer in calls if dist.get_rank() % 2 == 0 else reversed(calls):
            call(tensor, peer)

    return around(x, in_turn)


@mutant("ring", hint="The right bytes, but in 12 messages")
def element_by_element(x):
    def one_by_one(outgoing, right, received, left):
        sends = [dist.isend(outgoing[i : i + 1], right) for i in range(len(outgoing))]
        for i in range(len(received)):
            dist.recv(received[i : i + 1], left)
        for sending in sends:
            sending.wait()

    return around(x, one_by_one)


@mutant("ring", hint="Rank 0 sent 192 bytes to rank 1")
def whole_tensors_twice_around(x):
    """What becomes of a ring when the chunks are forgotten."""
    _, n, right, left = here()
    total, passing, received = x.clone(), x.clone(), torch.empty_like(x)
    for step in range(2 * (n - 1)):
        if step == n - 1:
            passing = total.clone()
        exchange(passing, right, received, left)
        if step < n - 1:
            total += received
        passing = received.clone()
    return total


# predict

edit("predict", "whole_tensors", replace="2 * (n - 1) / n)", by="2 * (n - 1))",
     hint="a chunk, which is 1/n")  # fmt: skip
edit("predict", "one_way", replace='"ring": (2 * (n - 1), 2 * (n - 1) / n)',
     by='"ring": (n - 1, (n - 1) / n)', hint="With 2 ranks you count 1 latencies")  # fmt: skip
edit("predict", "in_turn", replace='"all_to_all": (1,', by='"all_to_all": (n - 1,',
     hint="share a latency")  # fmt: skip
edit("predict", "in_only", replace="(2, 2 * (n - 1))", by="(1, n - 1)", hint="In, and out again")
edit("predict", "rounded_down", replace="(n - 1).bit_length()", by="n.bit_length() - 1",
     hint="(n - 1).bit_length() counts them")  # fmt: skip
edit("predict", "no_more_rounds", replace="up if n == 2**up else up + 1", by="up",
     hint="and two more")  # fmt: skip
edit("predict", "alone", replace=" if n > 1 else 0.0", by="", hint="One rank alone")
edit("predict", "bits", replace="nbytes / bandwidth", by="8 * nbytes / bandwidth",
     hint="you count 8 tensors, not 1")  # fmt: skip

# Of a stubborn student


@mutant("master_worker", hint="name the rank")
def from_anybody(x):
    rank, n, _, _ = here()
    total = x.clone(memory_format=torch.contiguous_format)
    if rank:
        dist.send(total, 0)
        dist.recv(total, 0)
        return total
    received = torch.empty_like(total)
    for _ in range(1, n):
        dist.recv(received)
        total += received
    for work in [dist.isend(total, worker) for worker in range(1, n)]:
        work.wait()
    return total


@mutant("butterfly", hint="in a butterfly they go")
def in_a_circle(x):
    """As a barrier does it: right sums with 2, 4 or 8 ranks."""
    rank, n, _, _ = here()
    total, received, far = x.contiguous().clone(), torch.empty_like(x.contiguous()), 1
    while far < n:
        exchange(total, (rank + far) % n, received, (rank - far) % n)
        total = total + received
        far *= 2
    return total


@mutant("ring", hint="in a ring they go 0→1 1→2 2→3 3→0")
def shares_with_all(x):
    """A ring for the sums; then each rank sends its own to all others."""
    rank, n, right, left = here()
    total = x.clone(memory_format=torch.contiguous_format)
    chunks = total.view(-1).tensor_split(n)
    for step in range(n - 1):
        incoming = chunks[(rank - step - 2) % n]
        received = torch.empty_like(incoming)
        exchange(chunks[(rank - step - 1) % n], right, received, left)
        incoming += received
    works = [dist.isend(chunks[rank], (rank + far) % n) for far in range(1, n)]
    for far in range(1, n):
        dist.recv(chunks[(rank - far) % n], (rank - far) % n)
    for work in works:
        work.wait()
    return total


edit("ring", "a_round_more", replace="range(2 * (world_size - 1))", by="range(2 * world_size)",
     hint="Rank 0 sent 64 bytes")  # fmt: skip
edit("predict", "no_sum", replace="latencies * latency + tensors * t",
     by="max(latencies * latency, tensors * t)", hint="but not their sum")  # fmt: skip

# Of a student at midnight

for name in ("round_robin", "butterfly", "ring"):
    edit(name, "never_waits", replace="        sending.wait()\n", by="",
         hint="only start a message")  # fmt: skip
edit("round_robin", "with_itself_first", replace="range(1, world_size)", by="range(world_size)",
     hint="A rank sends nothing to itself")  # fmt: skip
edit("round_robin", "room_for_floats", replace="torch.empty_like(mine)",
     by="torch.empty(mine.shape)", hint="int64 is sent and float32 expected")  # fmt: skip
edit("master_worker", "from_zeros", replace="    received = torch.empty_like(total)\n",
     by="    received = torch.empty_like(total)\n    total = torch.zeros_like(total)\n",
     hint="workers' tensors to its own")  # fmt: skip
edit("butterfly", "keeps_the_sum", replace="dist.send(total, rank + doubled)", by="pass",
     hint="count who sends and who receives")  # fmt: skip
edit("ring", "cannot_view", replace="memory_format=torch.contiguous_format", by="",
     hint="no view(-1)")  # fmt: skip
edit("ring", "another_chunk", replace="incoming += received", by="incoming = incoming + received",
     hint="never gets into the tensor")  # fmt: skip
edit("predict", "in_ms", replace="return latencies * latency + tensors * t",
     by="return 1e3 * (latencies * latency + tensors * t)", hint="in milliseconds")  # fmt: skip


@mutant("ring", hint="never gets into the tensor")
def chunks_of_a_copy(x):
    rank, n, right, left = here()
    total = x.clone()
    chunks = total.reshape(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        incoming = chunks[(rank - step - 1) % n]
        received = torch.empty_like(incoming)
        exchange(chunks[(rank - step) % n], right, received, left)
        incoming.copy_(incoming + received if step < n - 1 else received)
    return total
