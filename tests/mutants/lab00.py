"""Wrong answers to lab 00."""

import torch
import torch.distributed as dist

from tests.mutants import edit, mutant


@mutant("token_ring", hint="All ranks wait in recv")
def everyone_receives_first(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = token.clone()
    dist.recv(token, src=(rank - 1) % n)
    token += rank + 1
    dist.send(token, dst=(rank + 1) % n)
    return token


@mutant("token_ring", hint="hides who talks to whom")
def by_all_reduce(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    total = torch.full_like(token, rank + 1)
    dist.all_reduce(total)
    passed_on = token + sum(range(1, rank + 2))
    return token + total if rank == 0 else passed_on if n > 1 else token


@mutant("token_ring", hint="not its neighbour")
def through_a_hub(token):
    """Rank 0 sends the token to every rank in turn, and gets it back."""
    rank, n = dist.get_rank(), dist.get_world_size()
    token = token.clone()
    if rank > 0:
        dist.recv(token, src=0)
        token += rank + 1
        dist.send(token, dst=0)
        return token
    token += 1
    for other in range(1, n):
        dist.send(token, dst=other)
        dist.recv(token, src=other)
    return token


@mutant("token_ring", hint="wrong way round")
def backwards(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = token.clone()
    if rank > 0:
        dist.recv(token, src=(rank + 1) % n)
    token += rank + 1
    if n > 1:
        dist.send(token, dst=(rank - 1) % n)
        if rank == 0:
            dist.recv(token, src=1)
    return token


@mutant("token_ring", hint="Rank 0 returns what it sent")
def ignores_what_comes_back(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = token.clone()
    if rank > 0:
        dist.recv(token, src=rank - 1)
    token += rank + 1
    if n > 1:
        dist.send(token, dst=(rank + 1) % n)
        if rank == 0:
            dist.recv(torch.empty_like(token), src=n - 1)
    return token


@mutant("token_ring", hint="Rank 0 adds to the token twice")
def adds_at_both_ends(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = token.clone()
    if rank > 0:
        dist.recv(token, src=rank - 1)
    token += rank + 1
    if n > 1:
        dist.send(token, dst=(rank + 1) % n)
        if rank == 0:
            dist.recv(token, src=n - 1)
            token += 1
    return token


@mutant("token_ring", hint="not the one that it received")
def passes_on_its_own(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, received = token + rank + 1, torch.empty_like(token)
    if rank > 0:
        dist.recv(received, src=rank - 1)
    if n > 1:
        dist.send(mine, dst=(rank + 1) % n)
        if rank == 0:
            dist.recv(mine, src=n - 1)
    return mine


@mutant("token_ring", hint="The last rank must send the token back")
def stops_at_the_last(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = token.clone()
    if rank > 0:
        dist.recv(token, src=rank - 1)
    token += rank + 1
    if rank < n - 1:
        dist.send(token, dst=rank + 1)
    return token


@mutant("token_ring", hint="count the sends and the recvs")
def last_forgets_rank_0(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    token = token.clone()
    if rank > 0:
        dist.recv(token, src=rank - 1)
    token += rank + 1
    if rank < n - 1:
        dist.send(token, dst=rank + 1)
    if rank == 0 and n > 1:
        dist.recv(token, src=n - 1)
    return token


edit("token_ring", "in_place", replace="token.clone()", by="token", hint="token.clone()")
edit("token_ring", "adds_rank", replace="+= rank + 1", by="+= rank", hint="adds its rank + 1")
edit("token_ring", "one_rank", replace="world_size > 1", by="world_size > 0", hint="With one rank")


@mutant("who_waits", hint="Let some receive first")
def all_send_first(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    y = x.clone()
    if n > 1:
        dist.send(x, dst=(rank + 1) % n)
        dist.recv(y, src=(rank - 1) % n)
    return y


@mutant("who_waits", hint="One of them has to send first")
def all_receive_first(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    y = x.clone()
    if n > 1:
        dist.recv(y, src=(rank - 1) % n)
        dist.send(x, dst=(rank + 1) % n)
    return y


@mutant("who_waits", hint="hides who talks to whom")
def by_all_gather(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    everything = [torch.empty_like(x) for _ in range(n)]
    dist.all_gather(everything, x)
    return everything[rank - 1]


@mutant("who_waits", hint="wrong way round")
def to_the_left(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    y = x.clone()
    if n == 1:
        return y
    if rank % 2 == 0:
        dist.send(x, dst=(rank - 1) % n)
        dist.recv(y, src=(rank + 1) % n)
    else:
        dist.recv(y, src=(rank + 1) % n)
        dist.send(x, dst=(rank - 1) % n)
    return y


@mutant("who_waits", hint="Not every rank sends")
def open_ring(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    y = x.clone()
    if rank > 0:
        dist.recv(y, src=rank - 1)
    if rank < n - 1:
        dist.send(x, dst=rank + 1)
    return y


edit("who_waits", "into_x", replace="y = x.clone()", by="y = x", hint="x.clone()")
edit(
    "who_waits",
    "returns_x",
    replace="        dist.send(x, dst=right)\n    return y",
    by="        dist.send(x, dst=right)\n    return x",
    hint="Every rank returns its own x",
)
edit("who_waits", "one_rank", replace="world_size == 1", by="world_size == 0", hint="With one rank")
edit(
    "who_waits",
    "no_neighbours",
    replace="rank % 2 == 0",
    by="rank < 2",
    hint="Let some receive first",
)
