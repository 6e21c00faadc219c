"""Wrong answers to lab 02."""

import torch
import torch.distributed as dist

from tests.mutants import edit, mutant

# fit_link


@mutant("fit_link", hint="one takes half the time")
def whole_round_trip(nbytes, round_trips):
    slope, latency = torch.linalg.lstsq(*_system(nbytes, round_trips)).solution.tolist()
    return latency, 1 / slope


def _system(nbytes, seconds):
    size = torch.tensor(nbytes, dtype=torch.float64)
    ones = torch.ones_like(size)
    return torch.stack([size, ones], dim=1), torch.tensor(seconds, dtype=torch.float64)


@mutant("fit_link", hint="carries the bytes twice")
def halves_the_latency_only(nbytes, round_trips):
    slope, latency = torch.linalg.lstsq(*_system(nbytes, round_trips)).solution.tolist()
    return latency / 2, 1 / slope


@mutant("fit_link", hint="Not through two points only")
def through_the_ends(nbytes, round_trips):
    slope = (round_trips[-1] - round_trips[0]) / (nbytes[-1] - nbytes[0])
    return (round_trips[0] - slope * nbytes[0]) / 2, 2 / slope


@mutant("fit_link", hint="need not go through zero")
def through_zero(nbytes, round_trips):
    squares = sum(size * size for size in nbytes)
    slope = sum(size * t for size, t in zip(nbytes, round_trips, strict=True)) / squares
    return 0.0, 2 / slope


@mutant("fit_link", hint="take no means first")
def mean_of_each_size(nbytes, round_trips):
    times = {size: [] for size in nbytes}
    for size, seconds in zip(nbytes, round_trips, strict=True):
        times[size].append(seconds / 2)
    means = [sum(each) / len(each) for each in times.values()]
    slope, latency = torch.linalg.lstsq(*_system(list(times), means)).solution.tolist()
    return latency, 1 / slope


edit(
    "fit_link",
    "slope",
    replace="1 / seconds_per_byte.item()",
    by="seconds_per_byte.item()",
    hint="seconds per byte",
)
edit(
    "fit_link",
    "bits",
    replace="1 / seconds",
    by="8 / seconds",
    hint="bytes per second",
)
edit(
    "fit_link",
    "the_shortest",
    replace="latency.item()",
    by="one_way.min().item()",
    hint="The shortest message has bytes too",
)


@mutant("fit_link", hint="Compute in float64")
def in_float32(nbytes, round_trips):
    size, t = torch.tensor(nbytes).float(), torch.tensor(round_trips).float() / 2
    far = size - size.mean()
    slope = (far * (t - t.mean())).sum() / (far * far).sum()
    return (t.mean() - slope * size.mean()).item(), 1 / slope.item()


# broadcast


@mutant("broadcast", hint="not the root alone")
def one_by_one(x, src):
    message = x.contiguous()
    if dist.get_rank() == src:
        for peer in range(dist.get_world_size()):
            if peer != src:
                dist.send(message, peer)
    else:
        dist.recv(message, src)
    x.copy_(message)


@mutant("broadcast", hint="not the root alone")
def along_a_chain(x, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    place, message = (rank - src) % n, x.contiguous()
    if place > 0:
        dist.recv(message, (rank - 1) % n)
    if place < n - 1:
        dist.send(message, (rank + 1) % n)
    x.copy_(message)


@mutant("broadcast", hint="No message was sent")
def torchs_broadcast(x, src):
    dist.broadcast(x, src)


@mutant("broadcast", hint="Each rank but src receives x once")
def everybody_exchanges(x, src):
    """A butterfly: those that have nothing yet send too."""
    rank, n = dist.get_rank(), dist.get_world_size()
    message, far = x.contiguous(), 1
    while far < n:
        other, got = rank ^ far, torch.empty_like(message)
        sending = dist.isend(message, other)
        dist.recv(got, other)
        sending.wait()
        if (rank ^ src) >= far:
            message = got
        far *= 2
    x.copy_(message)


@mutant("broadcast", hint="Count the ranks from src")
def root_0_only(x, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    message, far = x.contiguous(), 1
    while far < n:
        if rank < far and rank + far < n:
            dist.send(message, rank + far)
        elif far <= rank < 2 * far:
            dist.recv(message, rank - far)
        far *= 2
    x.copy_(message)


edit(
    "broadcast",
    "power_of_two",
    replace="place < far and place + far < world_size",
    by="place < far",
    hint="no power of two",
)
edit(
    "broadcast",
    "into_a_copy",
    replace="    x.copy_(message)",
    by="    x = message",
    hint="copy_(...)",
)
edit("broadcast", "in_pieces", replace="= x.contiguous()", by="= x", hint="in one piece")
edit(
    "broadcast",
    "a_round_short",
    replace="while far <",
    by="while 2 * far <",
    hint="Nothing has come",
)

# reduce


@mutant("reduce", hint="Let others add too")
def all_to_the_root(x, dst):
    if dist.get_rank() != dst:
        dist.send(x.contiguous(), dst)
        return
    total = x.contiguous().clone()
    for peer in range(dist.get_world_size()):
        if peer != dst:
            received = torch.empty_like(total)
            dist.recv(received, peer)
            total += received
    x.copy_(total)


@mutant("reduce", hint="No message was sent")
def torchs_reduce(x, dst):
    total = x.clone()
    dist.all_reduce(total)
    if dist.get_rank() == dst:
        x.copy_(total)


@mutant("reduce", hint="Count the ranks from dst")
def to_rank_0(x, dst):
    rank, n = dist.get_rank(), dist.get_world_size()
    total, far = x.contiguous(), 1
    while far < n and rank % far == 0:
        if rank % (2 * far) == far:
            dist.send(total, rank - far)
        elif rank + far < n:
            received = torch.empty_like(total)
            dist.recv(received, rank + far)
            total = total + received
        far *= 2
    if rank == dst:
        x.copy_(total)


edit(
    "reduce",
    "in_place",
    replace="total = total + received",
    by="total += received",
    hint="Only rank dst's may",
)
edit("reduce", "everywhere", replace="if rank == dst", by="if True", hint="Only rank dst's may")
edit(
    "reduce",
    "mean",
    replace="x.copy_(total)",
    by="x.copy_(total / world_size)",
    hint="That is the mean",
)
edit(
    "reduce",
    "passes_on_its_own",
    replace="dist.send(total,",
    by="dist.send(x.contiguous(),",
    hint="pass on the sum so far",
)
edit(
    "reduce",
    "power_of_two",
    replace="elif place + far < world_size:",
    by="else:",
    hint="no power of two",
)
edit(
    "reduce",
    "replaces",
    replace="total = total + received",
    by="total = received + received",
    hint="Add each that comes, once",
)
edit("reduce", "not_copied_back", replace="x.copy_(total)", by="x = total", hint="copy_(...)")

# scatter


@mutant("scatter", hint="sends each rank its chunk and nothing else")
def everything_to_everybody(x, chunks, src):
    """The root sends all chunks to all; each takes its own."""
    rank, n = dist.get_rank(), dist.get_world_size()
    lengths = [None] * n
    if rank == src:
        lengths = [len(chunk) for chunk in chunks]
        flat = torch.cat(chunks)
        for peer in range(n):
            if peer != src:
                dist.send(torch.tensor(lengths), peer)
                dist.send(flat, peer)
    else:
        lengths = torch.empty(n, dtype=torch.int64)
        dist.recv(lengths, src)
        flat = torch.empty(sum(lengths.tolist()), dtype=x.dtype)
        dist.recv(flat, src)
        lengths = lengths.tolist()
    x.copy_(flat.split(lengths)[rank])


@mutant("scatter", hint="No message was sent")
def torchs_scatter(x, chunks, src):
    dist.scatter(x, chunks, src)


edit(
    "scatter",
    "forgets_itself",
    replace="    x.copy_(chunks[src])",
    by="    return",
    hint="The root gets a chunk too",
)
edit("scatter", "in_pieces", replace="chunk.contiguous()", by="chunk", hint="in one piece")
edit(
    "scatter",
    "another_order",
    replace="enumerate(chunks)",
    by="enumerate([chunks[0], *chunks[:0:-1]])",
    hint="rank r gets chunks[r]",
)
edit(
    "scatter",
    "root_0",
    replace="dist.recv(x, src)",
    by="dist.recv(x, 0)",
    hint="The root is rank 2",
)
edit(
    "scatter",
    "sends_to_itself",
    replace="        if rank != src:\n            dist.send(chunk.contiguous(), rank)",
    by="        dist.send(chunk.contiguous(), rank)",
    hint="without a message",
)

# gather


@mutant("gather", hint="once, and dst sends nothing")
def all_to_all(x, chunks, dst):
    """Everybody sends to everybody."""
    rank, n = dist.get_rank(), dist.get_world_size()
    x = x.contiguous()
    works = [dist.isend(x, peer) for peer in range(n) if peer != rank]
    for peer in range(n):
        if peer != rank:
            dist.recv(torch.empty_like(x) if chunks is None else chunks[peer], peer)
    for work in works:
        work.wait()
    if chunks is not None:
        chunks[rank].copy_(x)


@mutant("gather", hint="No message was sent")
def torchs_gather(x, chunks, dst):
    dist.gather(x, chunks, dst)


@mutant("gather", hint="A name or a list that is given another tensor")
def into_the_list(x, chunks, dst):
    if dist.get_rank() != dst:
        dist.send(x.contiguous(), dst)
        return
    for rank in range(len(chunks)):
        received = x.clone() if rank == dst else torch.empty_like(chunks[rank])
        if rank != dst:
            dist.recv(received, rank)
        chunks[rank] = received


edit(
    "gather",
    "forgets_itself",
    replace="    chunks[dst].copy_(x)",
    by="    return",
    hint="copy it into chunks[rank]",
)
edit("gather", "in_pieces", replace="x.contiguous()", by="x", hint="in one piece")
edit(
    "gather",
    "as_they_come",
    replace="dist.recv(chunk, rank)",
    by="dist.recv(chunk)",
    hint="receive it from that rank",
)

# all_gather


@mutant("all_gather", hint="to one other only")
def to_everybody(chunks, x):
    rank, n = dist.get_rank(), dist.get_world_size()
    x = x.contiguous()
    works = [dist.isend(x, (rank + far) % n) for far in range(1, n)]
    for far in range(1, n):
        dist.recv(chunks[(rank - far) % n], (rank - far) % n)
    for work in works:
        work.wait()
    chunks[rank].copy_(x)


@mutant("all_gather", hint="one chunk in each of n - 1 steps")
def through_rank_0(chunks, x):
    """A gather, and everything to everybody."""
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks[rank].copy_(x)
    if rank:
        dist.send(chunks[rank], 0)
        for chunk in chunks:
            dist.recv(chunk, 0)
        return
    for peer in range(1, n):
        dist.recv(chunks[peer], peer)
    for peer in range(1, n):
        for chunk in chunks:
            dist.send(chunk, peer)


@mutant("all_gather", hint="No message was sent")
def torchs_all_gather(chunks, x):
    dist.all_gather(chunks, x)


@mutant("all_gather", hint="holds up the next")
def even_ranks_first(chunks, x):
    """Right bytes, but a rank receives only when its message is through."""
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks[rank].copy_(x)
    for step in range(n - 1):
        mine, room = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        if rank % 2 == 0:
            dist.send(mine, (rank + 1) % n)
            dist.recv(room, (rank - 1) % n)
        else:
            dist.recv(room, (rank - 1) % n)
            dist.send(mine, (rank + 1) % n)


edit("all_gather", "a_step_short", replace="range(world_size - 1)", by="range(world_size - 2)",
     hint="A ring takes n - 1 = 3 steps")  # fmt: skip
edit("all_gather", "its_own_each_time", replace="chunks[(rank - step) % world_size], (",
     by="x, (", hint="not your own each time")  # fmt: skip
edit("all_gather", "forgets_its_own", replace="    chunks[rank].copy_(x)\n", by="",
     hint="First copy x")  # fmt: skip
edit("all_gather", "blocks", replace="dist.isend", by="dist.send",
     hint="All ranks wait in send")  # fmt: skip
edit("all_gather", "no_copy", replace="chunks[rank].copy_(x)", by="chunks[rank] = x",
     hint="copy it into chunks[rank]")  # fmt: skip


@mutant("all_gather", hint="wrong way round")
def to_the_left(chunks, x):
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks[rank].copy_(x)
    for step in range(n - 1):
        sending = dist.isend(chunks[(rank + step) % n], (rank - 1) % n)
        dist.recv(chunks[(rank + step + 1) % n], (rank + 1) % n)
        sending.wait()


# reduce_scatter


@mutant("reduce_scatter", hint="to one other only")
def to_the_owners(x, chunks):
    rank, n = dist.get_rank(), dist.get_world_size()
    pieces = [chunk.contiguous() for chunk in chunks]
    works = [dist.isend(pieces[(rank + far) % n], (rank + far) % n) for far in range(1, n)]
    total, received = pieces[rank].clone(), torch.empty_like(pieces[rank])
    for far in range(1, n):
        dist.recv(received, (rank - far) % n)
        total += received
    for work in works:
        work.wait()
    x.copy_(total)


@mutant("reduce_scatter", hint="the sum of one chunk in each")
def whole_vectors(x, chunks):
    """An unchunked ring: everything goes around."""
    rank, n = dist.get_rank(), dist.get_world_size()
    shape = chunks[0].shape[:-1]
    message = torch.cat(chunks, dim=-1)
    total = message.clone()
    for _ in range(n - 1):
        received = torch.empty_like(message)
        sending = dist.isend(message, (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        message, total = received, total + received
    assert total.shape[:-1] == shape
    x.copy_(total.split([chunk.shape[-1] for chunk in chunks], dim=-1)[rank])


@mutant("reduce_scatter", hint="No message was sent")
def by_all_reduce(x, chunks):
    sums = [chunk.clone() for chunk in chunks]
    for each in sums:
        dist.all_reduce(each)
    x.copy_(sums[dist.get_rank()])


@mutant("reduce_scatter", hint="The chunks have changed")
def adds_into_the_chunks(x, chunks):
    rank, n = dist.get_rank(), dist.get_world_size()
    for step in range(1, n):
        mine, next_one = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        received = torch.empty_like(next_one)
        sending = dist.isend(mine, (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        next_one += received
    x.copy_(chunks[rank])


@mutant("reduce_scatter", hint="Begin with chunks[rank - 1]")
def ends_at_the_wrong_rank(x, chunks):
    """As many rings are written: rank r ends with the sum of chunk r + 1."""
    rank, n = dist.get_rank(), dist.get_world_size()
    total = chunks[rank].contiguous()
    for step in range(1, n):
        mine = chunks[(rank - step) % n].contiguous()
        received = torch.empty_like(mine)
        sending = dist.isend(total, (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        total = received + mine
    x.copy_(total)


edit("reduce_scatter", "blocks", replace="dist.isend", by="dist.send",
     hint="All ranks wait in send")  # fmt: skip
edit("reduce_scatter", "forgets_to_add", replace="received + mine", by="mine",
     hint="lacks what")  # fmt: skip
edit("reduce_scatter", "mean", replace="x.copy_(total)", by="x.copy_(total / world_size)",
     hint="That is the mean")  # fmt: skip
edit("reduce_scatter", "in_pieces", replace="mine = chunks[rank - step].contiguous()",
     by="mine = chunks[rank - step]", hint="in one piece")  # fmt: skip
edit("reduce_scatter", "equal_lengths", replace="torch.empty_like(mine)",
     by="torch.empty_like(total)", hint="differ in length")  # fmt: skip

# barrier


@mutant("barrier", hint="No message was sent")
def torchs_barrier():
    dist.barrier()


@mutant("barrier", hint="No message was sent")
def sleeps():
    import time

    time.sleep(0.05)


@mutant("barrier", hint="Somebody left early")
def neighbours_only():
    rank, n = dist.get_rank(), dist.get_world_size()
    if n > 1:
        sending = dist.isend(torch.zeros(1), (rank + 1) % n)
        dist.recv(torch.zeros(1), (rank - 1) % n)
        sending.wait()


@mutant("barrier", hint="let every rank send in each round")
def through_rank_0_and_back():
    rank, n = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank:
        dist.send(token, 0)
        dist.recv(token, 0)
        return
    for peer in range(1, n):
        dist.recv(token, peer)
    for peer in range(1, n):
        dist.send(token, peer)


@mutant("barrier", hint="let every rank send in each round")
def twice_around():
    """A token goes around the ring twice."""
    rank, n = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    for _ in range(2 if n > 1 else 0):
        if rank:
            dist.recv(token, rank - 1)
        dist.send(token, (rank + 1) % n)
        if rank == 0:
            dist.recv(token, n - 1)


@mutant("barrier", hint="only start a message")
def without_waiting():
    """Messages are started, and nobody looks whether they came."""
    rank, n = dist.get_rank(), dist.get_world_size()
    barrier_works, far = [], 1
    while far < n:
        barrier_works.append(dist.isend(torch.zeros(1), (rank + far) % n))
        barrier_works.append(dist.irecv(torch.zeros(1), (rank - far) % n))
        far *= 2


@mutant("barrier", hint="count in a circle")
def powers_of_two():
    rank, n = dist.get_rank(), dist.get_world_size()
    far = 1
    while far < n:
        sending = dist.isend(torch.zeros(1), rank ^ far)
        dist.recv(torch.zeros(1), rank ^ far)
        sending.wait()
        far *= 2


edit("barrier", "a_round_short", replace="while far <", by="while 2 * far <",
     hint="Somebody left early")  # fmt: skip
edit("barrier", "blocks", replace="dist.isend", by="dist.send",
     hint="All ranks wait in send")  # fmt: skip

# Of a stubborn student

edit("fit_link", "swapped", replace="latency.item(), 1 / seconds_per_byte.item()",
     by="1 / seconds_per_byte.item(), latency.item()", hint="First the latency")  # fmt: skip
edit("fit_link", "in_ms", replace="latency.item()", by="latency.item() * 1e3",
     hint="in milliseconds")  # fmt: skip


@mutant("fit_link", hint="t over S, not S over t")
def sizes_over_times(nbytes, round_trips):
    bandwidth, start = torch.linalg.lstsq(
        *_system([t / 2 for t in round_trips], nbytes)
    ).solution.tolist()
    return -start / bandwidth, bandwidth


@mutant("broadcast", hint="192 bytes, where 144 are enough")
def to_rank_0_first(x, src):
    rank, n = dist.get_rank(), dist.get_world_size()
    message, far = x.contiguous(), 1
    if src and rank == src:
        dist.send(message, 0)
    if src and rank == 0:
        dist.recv(message, src)
    while far < n:
        if rank < far and rank + far < n:
            dist.send(message, rank + far)
        elif far <= rank < 2 * far:
            dist.recv(message, rank - far)
        far *= 2
    x.copy_(message)


edit("broadcast", "from_anybody", replace="dist.recv(message, (rank - far) % world_size)",
     by="dist.recv(message)", hint="name the rank")  # fmt: skip
edit("broadcast", "never_waits", replace="dist.recv(", by="dist.irecv(",
     hint="only start a message")  # fmt: skip
edit("reduce", "in_float32", replace="total = x.contiguous()", by="total = x.float().contiguous()",
     hint="as float32 they lose digits")  # fmt: skip


@mutant("gather", hint="The root is rank 2 here, not 0")
def always_to_rank_0(x, chunks, dst):
    if dist.get_rank():
        dist.send(x.contiguous(), 0)
        return
    for rank, chunk in enumerate(chunks):
        if rank:
            dist.recv(chunk, rank)
    chunks[0].copy_(x)


@mutant("barrier", hint="Somebody left early")
def all_rounds_at_once():
    rank, n = dist.get_rank(), dist.get_world_size()
    works, far = [], 1
    while far < n:
        works.append(dist.isend(torch.zeros(1), (rank + far) % n))
        works.append(dist.irecv(torch.zeros(1), (rank - far) % n))
        far *= 2
    for work in works:
        work.wait()


# Of a student at midnight


@mutant("fit_link", hint="need not go through zero")
def only_the_slope(nbytes, round_trips):
    slope, _ = torch.linalg.lstsq(*_system(nbytes, round_trips)).solution.tolist()
    return 0.0, 2 / slope


@mutant("fit_link", hint="all of them one way")
def halves_the_slope_only(nbytes, round_trips):
    slope = torch.linalg.lstsq(*_system(nbytes, round_trips)).solution[0].item() / 2
    return (sum(round_trips) - slope * sum(nbytes)) / len(nbytes), 1 / slope


edit("fit_link", "megabytes", replace="1 / seconds", by="1e-6 / seconds", hint="in MB per second")
edit("fit_link", "halves_twice", replace="1 / seconds", by="0.25 / seconds",
     hint="halved twice")  # fmt: skip
edit("broadcast", "never_waits_for_sends", replace="dist.send(", by="dist.isend(",
     hint="only start a message")  # fmt: skip
edit("broadcast", "room_for_floats", replace="message = x.contiguous()",
     by="message = x.contiguous() if rank == src else torch.empty(x.shape)",
     hint="float64 is sent and float32 expected")  # fmt: skip
edit("broadcast", "barrier_each_round", replace="        far *= 2",
     by="        far *= 2\n        dist.barrier()", hint="a collective beside them")  # fmt: skip
edit("reduce", "room_for_floats", replace="torch.empty_like(total)", by="torch.empty(total.shape)",
     hint="float64 is sent and float32 expected")  # fmt: skip
edit("reduce", "adds_what_has_not_come", replace="dist.recv(", by="dist.irecv(",
     hint="only start a message")  # fmt: skip
edit("scatter", "another_name", replace="    x.copy_(chunks[src])", by="    x = chunks[src]",
     hint="x.copy_(...) of its own")  # fmt: skip
edit("gather", "never_waits", replace="dist.send(", by="dist.isend(",
     hint="only start a message")  # fmt: skip
edit("all_gather", "never_waits", replace="        sending.wait()\n", by="",
     hint="only start a message")  # fmt: skip
edit("reduce_scatter", "room_for_floats", replace="torch.empty_like(mine)",
     by="torch.empty(mine.shape)", hint="float64 is sent and float32 expected")  # fmt: skip
edit("barrier", "never_waits", replace="        sending.wait()\n", by="",
     hint="only start a message")  # fmt: skip
edit("barrier", "and_torchs", replace="        far *= 2", by="        far *= 2\n    dist.barrier()",
     hint="a collective beside them")  # fmt: skip


@mutant("all_gather", hint="puts another one into the list")
def others_into_the_list(chunks, x):
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks[rank].copy_(x)
    for step in range(n - 1):
        received = torch.empty_like(chunks[(rank - step - 1) % n])
        sending = dist.isend(chunks[(rank - step) % n], (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        chunks[(rank - step - 1) % n] = received
