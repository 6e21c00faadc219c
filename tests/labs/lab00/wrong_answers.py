"""Wrong answers to lab 00."""

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong

# fmt: off
edits(
    ("token_ring", "everyone_receives_first",
     {"if rank > 0": "if world_size > 1", "src=rank - 1": "src=(rank - 1) % world_size"},
     "all receive"),
    ("token_ring", "backwards",
     {"src=rank - 1": "src=(rank + 1) % world_size", "dst=(rank + 1)": "dst=(rank - 1)",
      "src=world_size - 1": "src=1"}, "backwards"),
    ("token_ring", "ignores_what_comes_back",
     "recv(token, src=world", "recv(token.clone(), src=world", "returns the sent"),
    ("token_ring", "adds_at_both_ends",
     "src=world_size - 1)", "src=world_size - 1)\n            token += 1", "adds twice"),
    ("token_ring", "passes_on_its_own",
     "recv(token, src=rank", "recv(token.clone(), src=rank",
     "one each, or its own copy"),
    ("token_ring", "stops_at_the_last",
     {"world_size > 1": "rank < world_size - 1", "rank == 0": "False"}, "never comes back"),
    ("token_ring", "last_forgets_rank_0",
     {"if world_size > 1": "if rank < world_size - 1", "        if rank == 0": "    if not rank",
      "            dist.recv": "        dist.recv"}, "has returned"),
    ("token_ring", "in_place", "token.clone()", "token", "input changed"),
    ("token_ring", "adds_rank", "+= rank + 1", "+= rank", "adds its rank"),
    ("token_ring", "others_add_their_rank", "+= rank + 1", "+= rank or 1", "others add their rank"),
    ("token_ring", "each_adds_1", "+= rank + 1", "+= 1", "one each, or its own copy"),
    ("token_ring", "returns_what_came",
     {"token += rank + 1": "more = token + rank + 1", "send(token,": "send(more,"},
     "returns the received"),
    ("token_ring", "adds_twice_its_rank", "+= rank + 1", "+= 2 * rank + 1", "wrong sum"),
    ("token_ring", "returns_the_token_as_it_was",
     "return token", "return token if rank == 0 else token - sum(range(rank + 2))", "wrong sum"),
    ("token_ring", "others_return_zeros",
     "return token", "return token if rank == 0 else token * 0", "wrong sum"),
    ("token_ring", "passes_on_the_senders_number",
     "dist.recv(token, src=rank", "token = dist.recv(token, src=rank", "number for a tensor"),
    ("token_ring", "returns_the_senders_number",
     "dist.recv(token, src=world", "token = dist.recv(token, src=world", "sender's number"),
    ("token_ring", "returns_a_number", "return token", "return token.sum().item()", "no tensor"),
    ("token_ring", "in_float", "token = token.clone()", "token = token.float() + 0", "dtype"),
    ("token_ring", "sends_each_token_twice",
     {"dst=(rank + 1) % world_size)":
      "dst=(rank + 1) % world_size)\n        dist.send(token, dst=(rank + 1) % world_size)",
      "src=rank - 1)": "src=rank - 1)\n        dist.recv(token, src=rank - 1)",
      "src=world_size - 1)":
      "src=world_size - 1)\n            dist.recv(token, src=world_size - 1)"},
     "other messages"),
    ("token_ring", "for_four", "src=world_size - 1", "src=3", "no such rank"),
    ("token_ring", "one_rank", "world_size > 1", "world_size > 0", "one rank"),
    ("who_waits", "all_send_first", "rank % 2 == 0", "True", "all send"),
    ("who_waits", "all_receive_first", "rank % 2 == 0", "False", "all receive"),
    ("who_waits", "to_the_left", "right, left =", "left, right =", "backwards"),
    ("who_waits", "into_x", "y = x.clone()", "y = x", "input changed"),
    ("who_waits", "returns_x", "right)\n    return y", "right)\n    return x", "its own x"),
    ("who_waits", "one_rank", "world_size == 1", "world_size == 0", "one rank"),
    ("who_waits", "barrier_at_the_end", "right)\n    return y",
     "right)\n    dist.barrier()\n    return y", "barrier"),
    ("who_waits", "no_neighbours", "rank % 2 == 0", "rank < 2", "all send"),
    ("who_waits", "odd_ones_look_right",
     "left)\n        dist.send", "right)\n        dist.send", "circle"),
)
# fmt: on


@wrong("token_ring", "collective")
def by_all_reduce(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    total = torch.full_like(token, rank + 1)
    dist.all_reduce(total)
    passed_on = token + sum(range(1, rank + 2))
    return token + total if rank == 0 else passed_on if n > 1 else token


@wrong("token_ring", "no message")
def by_a_formula(token):
    rank, n = dist.get_rank(), dist.get_world_size()
    return token + sum(range(1, (rank or n) + (rank > 0) + 1))


@wrong("token_ring", "no neighbour")
def through_a_hub(token):
    """Send the token from rank 0 to every rank in turn, and back."""
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


@wrong("token_ring", "not the token")
def signals(token):
    """Send only a signal for the next rank's turn: each rank knows the numbers to add."""
    rank, n = dist.get_rank(), dist.get_world_size()
    signal = torch.zeros_like(token)
    if rank > 0:
        dist.recv(signal, rank - 1)
    if n > 1:
        dist.send(signal, (rank + 1) % n)
    if rank == 0 and n > 1:
        dist.recv(signal, n - 1)
    return token + sum(range(1, (rank or n - 1) + 2))


@wrong("who_waits", "other numbers")
def the_first_for_all(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    first = x[:1].clone()
    if n > 1:
        sending = dist.isend(x[:1], (rank + 1) % n)
        dist.recv(first, (rank - 1) % n)
        sending.wait()
    return first.repeat(len(x))


@wrong("who_waits", "collective")
def by_all_gather(x):
    everything = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(everything, x)
    return everything[dist.get_rank() - 1]


@wrong("who_waits", "open ring")
def open_ring(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    y = x.clone()
    if rank > 0:
        dist.recv(y, src=rank - 1)
    if rank < n - 1:
        dist.send(x, dst=rank + 1)
    return y
