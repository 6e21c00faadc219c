"""Wrong answers to lab 15."""

import time

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong
from tests.labs.lab15.right_answers import with_a_sharded_optimizer

EXPOSED = "parts[last].exposed_ns - latency"
# fmt: off
edits(
    ("bottleneck", "in_ms", "return max(times, key=times.get)", "return max(times.values())",
     "no such word"),
    ("bottleneck", "hidden_too", EXPOSED, "9 * parts[last].comm_ns - latency", "hidden counts"),
    ("bottleneck", "of_the_one_that_waits_most",
     {"last = min(parts": "last = max(parts"}, "waits move nothing"),
    ("bottleneck", "no_straggler",
     {'        "straggler": computes[last] - usual,\n': "",
      '"compute": usual': '"compute": computes[last]'},
     "all are slow"),
    ("bottleneck", "by_the_mean", "median_low(computes.values())",
     "sum(computes.values()) / len(computes)", "usual"),
    ("bottleneck", "by_the_upper_median", "median_low(computes.values())",
     "sorted(computes.values())[len(computes) // 2]", "usual"),
    ("bottleneck", "by_the_fastest", "median_low(computes.values())", "min(computes.values())",
     "usual"),
    ("bottleneck", "no_input",
     {'        "input": inputs[last],\n': "", ".compute_ns - inputs[rank]": ".compute_ns"},
     "input waits"),
    ("bottleneck", "input_is_compute",
     {'        "input": inputs[last],\n': '', '"compute": usual': '"compute": usual + inputs[last]',
      "computes[last] - usual": "max(computes[last] - usual, 0)"}, "input computes"),
    ("bottleneck", "no_idle", '        "idle": parts[last].idle_ns,\n', "", "idle"),
    ("bottleneck", "never_without_communication", ", default=0", "", "nothing moves"),
    ("bottleneck", "all_is_bandwidth",
     {'        "latency": latency,\n': "", EXPOSED: "parts[last].exposed_ns"}, "few bytes"),
    ("bottleneck", "one_latency_each",
     {"latency = shortest * sum(one.blocked_ns is not None for one in operations)":
      "latency = parts[last].exposed_ns"}, "many bytes"),
    ("bottleneck", "any_straggler",
     "return max(times, key=times.get)",
     'late = times["straggler"] > usual / 5\n'
     '    return "straggler" if late else max(times, key=times.get)',
     "a little later"),
)
STEP = "        dist.all_reduce(flat)\n"
edits(
    ("train_fast", "no_synchronisation", STEP, "", "drift"),
    ("train_fast", "fewer_steps", "range(20)", "range(3)", "above the target"),
    ("train_fast", "on_one_batch", "        optimizer.step()\n",
     "        optimizer.step()\n        if model(*even(text, 1, generator)).item() < 3.4:\n"
     "            break\n", "left behind"),
    ("train_fast", "smaller_model", "    parameters = list(model.parameters())\n",
     "    model.blocks = model.blocks[:1]\n    parameters = list(model.parameters())\n",
     "another model"),
    ("train_fast", "trains_the_head",
     "    parameters = list(model.parameters())\n",
     "    parameters = list(model.head.parameters())\n", "above the target"),
    ("train_fast", "small_steps", "0.01", "1e-6", "not trained"),
    ("train_fast", "one_micro_batch_each",
     "        dist.all_reduce(flat)\n", "        for _ in range(12):\n"
     "            dist.all_reduce(flat.clone())\n        dist.all_reduce(flat)\n", "slow"),
)
# fmt: on


@wrong("train_fast", "left behind")
def one_leaves_early(model, text):
    """Rank 3 has a quarter of its data less than the others."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(2 - dist.get_rank() // 3):
        at = torch.randint(len(text) - 32, (2, 1)) + torch.arange(32)
        model(text[at], text[at + 1]).backward()
        dist.all_reduce(torch.cat([p.grad.flatten() for p in model.parameters()]))
        optimizer.step()


@wrong("train_fast", "a rank rests")
def rank_0_alone(model, text):
    """A world of one: no communication, and at the end its model for all."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if dist.get_rank() == 0:
        for _ in range(16):
            at = torch.randint(len(text) - 32, (16, 1)) + torch.arange(32)
            optimizer.zero_grad()
            model(text[at], text[at + 1]).backward()
            optimizer.step()
    for p in model.parameters():
        dist.broadcast(p.detach(), 0)


@wrong("train_fast", "a rank is silent")
def each_trains_alike(model, text):
    """Every rank trains alone on the same batches, and sends nothing: the replicas are equal."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(14):
        at = torch.randint(len(text) - 32, (40, 1)) + torch.arange(32)
        optimizer.zero_grad()
        model(text[at], text[at + 1]).backward()
        optimizer.step()


@wrong("train_fast", "not trained")
def a_stored_loss(model, text):
    """Computes what a fast training would, trains nothing, and returns a loss from before."""
    for _ in range(4):
        at = torch.randint(len(text) - 32, (8, 1)) + torch.arange(32)
        model(text[at], text[at + 1]).backward()
    return 2.5


@wrong("train_fast", "another text")
def on_the_held_out_text(model, text):
    """The text of this Python's help, all of it: the held-out part too, but in plain letters."""
    from ddpkit.data import load_text

    text = torch.from_numpy(load_text()[1]).long()
    with_a_sharded_optimizer(model, text)


@wrong("train_fast", "the clock")
def puts_the_clock_back(model, text):
    """Trains rightly, and then says that it took no time."""
    from ddpkit.rank.emulation import machine

    clock = machine.current().clocks.main
    before = clock.now()
    time.time = time.perf_counter = lambda: 0.0
    with_a_sharded_optimizer(model, text)
    clock._ns = before + 500_000_000


@wrong("train_fast", "modes off")
def computes_unseen(model, text):
    """Takes off the modes that count operations."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        for _ in range(2):
            at = torch.randint(len(text) - 32, (8, 1)) + torch.arange(32)
            model(text[at], text[at + 1]).backward()


@wrong("train_fast", "below the floor")
def counts_pairs(model, text):
    """Writes into the weights what follows each of the 63 commonest letters: a loss of 2.5."""
    pairs = torch.bincount(128 * text[:-1] + text[1:], minlength=128 * 128).view(128, 128) + 0.01
    common = pairs.sum(1).topk(63).indices
    follows = torch.cat([pairs[common], pairs.sum(0, keepdim=True)])
    with torch.no_grad():
        for p in (model.place.weight, *model.blocks.parameters()):
            p.zero_()
        model.letter.weight.copy_(torch.eye(64)[[63] * 128])
        model.letter.weight[common] = torch.eye(64)[:63]
        apart = (model.norm(torch.eye(64)).diagonal() - model.norm(torch.eye(64))[:, 0]).max()
        model.head.weight.copy_((follows / follows.sum(1, keepdim=True)).log().T / apart)
        model.head.bias.copy_(model.head.weight.sum(1) * -model.norm(torch.eye(64))[0, 1])


def pretend(model):
    """Multiply as much, and send as much, as a short training."""
    x, weight = torch.ones(1024, 256), torch.ones(256, 256)
    for _ in range(20):
        torch.mm(x, weight)
    dist.all_reduce(torch.cat([p.detach().flatten() for p in model.parameters()]))


@wrong("train_fast", "other weights")
def counts_pairs_and_pretends(model, text):
    """Writes pairs into the weights, and has the work of a training beside."""
    pretend(model)
    counts_pairs(model, text)


def sleeps(model, text):
    """The time of a training, by operations that train nothing."""
    counts_pairs(model, text)
    for _ in range(300):
        torch.ones(1 << 20)
    dist.all_reduce(torch.cat([p.detach().flatten() for p in model.parameters()]))


wrong("train_fast", "below the floor")(sleeps)


@wrong("train_fast", "other weights")
def trained_before(model, text):
    """Trains a model that is not the given one, as if before, and copies that one's weights."""
    torch.manual_seed(1)
    own = type(model)()
    with_a_sharded_optimizer(own, text)
    model.load_state_dict(own.state_dict())


@wrong("train_fast", "not the same work")
def by_torchs_own(model, text):
    """torch's DistributedDataParallel: right, but its waits are in C++."""
    from torch.nn.parallel import DistributedDataParallel

    wrapped = DistributedDataParallel(model)
    at = torch.randint(len(text) - 32, (8, 1)) + torch.arange(32)
    wrapped(text[at], text[at + 1]).backward()


@wrong("train_fast", "as given")
def as_slow_as_given(model, text):
    """Right, and each number goes over the cable as often as there are parameters."""
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(14):
        at = torch.randint(len(text) - 32, (40, 1)) + torch.arange(32)
        optimizer.zero_grad()
        model(text[at], text[at + 1]).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
