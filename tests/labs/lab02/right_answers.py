"""Right answers to lab 02, different from the solution."""

import threading

import numpy as np
import torch
import torch.distributed as dist

from tests.labs.answers import right


def here():
    """Return rank, number of ranks, and the ranks to the right and left."""
    rank, n = dist.get_rank(), dist.get_world_size()
    return rank, n, (rank + 1) % n, (rank - 1) % n


def exchange(outgoing, to, incoming, source):
    ops = [dist.P2POp(dist.isend, outgoing, to), dist.P2POp(dist.irecv, incoming, source)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


# fit_link


@right("fit_link")
def by_numpy(nbytes, round_trips):
    slope, latency = np.polyfit(nbytes, np.array(round_trips) / 2, 1)
    return latency, 1 / slope


@right("fit_link")
def normal_equations(nbytes, round_trips):
    n, sx, sy = len(nbytes), sum(nbytes), sum(round_trips) / 2
    sxx = sum(x * x for x in nbytes)
    sxy = sum(x * t / 2 for x, t in zip(nbytes, round_trips, strict=True))
    slope = (n * sxy - sx * sy) / (n * sxx - sx * sx)
    return (sy - slope * sx) / n, 1 / slope


@right("fit_link")
def lstsq(nbytes, round_trips):
    rows = np.column_stack([np.ones(len(nbytes)), nbytes])
    (a, b), *_ = np.linalg.lstsq(rows, np.array(round_trips), rcond=None)
    return a / 2, 2 / b


# broadcast


@right("broadcast")
def farthest_first(x, src):
    """Halve: a rank that has x sends it to the middle of the ranks that it serves."""
    rank, n, _, _ = here()
    place, message = (rank - src) % n, x.clone(memory_format=torch.contiguous_format)
    low, high = 0, n
    while high - low > 1:
        middle = (low + high + 1) // 2
        if place == low:
            dist.isend(message, (middle + src) % n).wait()
        if place == middle:
            dist.irecv(message, (low + src) % n).wait()
        low, high = (middle, high) if place >= middle else (low, middle)
    x.copy_(message)


@right("broadcast")
def parent_then_children(x, src):
    _, n, _, _ = here()
    place, flat = (dist.get_rank() - src) % n, x.flatten()
    level = place.bit_length()
    if place:
        dist.recv(flat, (place - 2 ** (level - 1) + src) % n)
    while place + 2**level < n:
        dist.send(flat, (place + 2**level + src) % n)
        level += 1
    if place:
        x[...] = flat.view(x.shape)


# reduce


@right("reduce")
def halve(x, dst):
    """Halve: the upper half of the ranks sends its sums to the lower half."""
    rank, n, _, _ = here()
    place, total = (rank - dst) % n, x.clone(memory_format=torch.contiguous_format)
    while n > 1:
        half = (n + 1) // 2
        if half <= place < n:
            dist.send(total, (place - half + dst) % dist.get_world_size())
        elif place + half < n:
            got = torch.zeros_like(total)
            dist.irecv(got, (place + half + dst) % dist.get_world_size()).wait()
            total.add_(got)
        n = half
    if place == 0:
        x.copy_(total)


@right("reduce")
def recursively(x, dst):
    rank, n, _, _ = here()
    place = (rank - dst) % n

    def add_up(total, far):
        if far >= n:
            x.copy_(total)
        elif place & far:
            dist.send(total, (rank - far) % n)
        elif place + far >= n:
            add_up(total, 2 * far)
        else:
            got = torch.empty(total.shape, dtype=total.dtype)
            dist.recv(got, (rank + far) % n)
            add_up(torch.add(total, got), 2 * far)

    add_up(x.contiguous(), 1)


# scatter and gather


@right("scatter")
def all_at_once(x, chunks, src):
    rank, _, _, _ = here()
    if rank == src:
        others = [(r, c.contiguous()) for r, c in enumerate(chunks) if r != rank]
        works = [dist.isend(chunk, r) for r, chunk in others]
        x[:] = chunks[rank]
    else:
        works = [dist.irecv(x, src)]
    for work in works:
        work.wait()


@right("scatter")
def last_first(x, chunks, src):
    if chunks is None:
        dist.recv(x, src=src)
    else:
        x.copy_(chunks[src])
        for r in reversed(range(len(chunks))):
            if r != src and chunks[r].numel():
                dist.send(chunks[r].clone(memory_format=torch.contiguous_format), dst=r)
            elif r != src:
                dist.send(torch.empty_like(x[:0]), dst=r)


@right("gather")
def all_posted_first(x, chunks, dst):
    rank, n, _, _ = here()
    if rank == dst:
        chunks[dst].copy_(x)
        works = [dist.irecv(chunks[r], r) for r in range(n) if r != dst]
    else:
        works = [dist.isend(x.contiguous(), dst)]
    for work in reversed(works):
        work.wait()


@right("gather")
def by_way_of_a_buffer(x, chunks, dst):
    if chunks is None:
        dist.send(x.reshape(-1), dst)
        return
    for r, chunk in enumerate(chunks):
        if r == dst:
            chunk[...] = x
        else:
            flat = torch.empty(chunk.numel(), dtype=x.dtype)
            dist.recv(flat, r)
            chunk[...] = flat.reshape(chunk.shape)


# Rings


@right("all_gather")
def in_a_batch(chunks, x):
    rank, n, right_one, left_one = here()
    chunks[rank][...] = x
    mine = rank
    for _ in range(1, n):
        other = (mine - 1) % n
        exchange(chunks[mine], right_one, chunks[other], left_one)
        mine = other


@right("all_gather")
def passing_a_buffer(chunks, x):
    rank, n, right_one, left_one = here()
    passing = x.contiguous()
    for source in range(rank - 1, rank - n, -1):
        got = torch.empty_like(chunks[source % n])
        receiving = dist.irecv(got, left_one)
        dist.send(passing, right_one)
        receiving.wait()
        chunks[source % n].copy_(got)
        passing = got
    chunks[rank].copy_(x)


@right("reduce_scatter")
def in_a_copy(x, chunks):
    """Add into copies of the chunks, as many published rings do."""
    rank, n, right_one, left_one = here()
    sums = [chunk.clone(memory_format=torch.contiguous_format) for chunk in chunks]
    for step in range(n - 1):
        going, coming = sums[(rank - step - 1) % n], sums[(rank - step - 2) % n]
        got = torch.empty_like(coming)
        exchange(going, right_one, got, left_one)
        coming += got
    x.copy_(sums[rank])


@right("reduce_scatter")
def recursively_back(x, chunks):
    rank, n, right_one, left_one = here()

    def total(k):
        """Return the sum of chunk k over the ranks from k + 1 to this rank."""
        mine = chunks[k % n].contiguous()
        if (rank - k) % n == 1 or n == 1:
            return mine
        going, got = total(k + 1), torch.empty_like(mine)
        exchange(going, right_one, got, left_one)
        return mine + got

    x.copy_(total(rank))


# barrier


@right("barrier")
def sends_in_threads(*, token=0):
    """Send in a thread in each round, which may come late, while the rank receives (h16)."""
    rank, n, _, _ = here()
    for k in range((n - 1).bit_length()):
        out, into = torch.tensor([token]), torch.tensor([token])
        sending = threading.Thread(target=dist.send, args=(out, (rank + 2**k) % n))
        sending.start()
        dist.recv(into, (rank - 2**k) % n)
        sending.join()


@right("barrier")
def farthest_round_first(*, token=0):
    rank, n, _, _ = here()
    for k in reversed(range((n - 1).bit_length())):
        out, into = torch.tensor([token]), torch.tensor([token])
        exchange(out, (rank + 2**k) % n, into, (rank - 2**k) % n)


@right("barrier")
def to_the_left():
    rank, n, _, _ = here()
    far, room = 1, torch.empty(1, dtype=torch.uint8)
    while far < n:
        receiving = dist.irecv(room, (rank + far) % n)
        dist.send(torch.ones(1, dtype=torch.uint8), (rank - far) % n)
        receiving.wait()
        far <<= 1
