"""Wrong answers to lab 15."""

import time

import torch
import torch.distributed as dist

from tests.labs.answers import edits, wrong
from tests.labs.lab15.right_answers import backward, host_by_host

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
    ("bottleneck", "by_the_others", "median_low(computes.values())",
     "median_low([each for rank, each in computes.items() if rank != last] or [0])", "usual"),
    ("bottleneck", "calls_of_all_ranks", "in trace.of(last) if one.name",
     "in trace.spans if one.name", "counted twice"),
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
LAST = "min(parts, key=lambda rank: parts[rank].exposed_ns)"
COUNT = "sum(one.blocked_ns is not None for one in operations)"
edits(
    ("bottleneck", "of_rank_0", LAST, "0", "waits move nothing"),
    ("bottleneck", "of_the_slowest", LAST,
     "max(parts, key=lambda rank: parts[rank].compute_ns)", "another rank"),
    ("bottleneck", "of_the_busiest", LAST,
     "min(parts, key=lambda rank: parts[rank].idle_ns)", "waits move nothing"),
    ("bottleneck", "input_in_the_middle", "median_low(computes.values())",
     "median_low(each.compute_ns for each in parts.values())", "input computes"),
    ("bottleneck", "inputs_of_all", '"input": inputs[last]', '"input": sum(inputs.values())',
     "another rank"),
    ("bottleneck", "longest_input", '"input": inputs[last]', '"input": max(inputs.values())',
     "another rank"),
    ("bottleneck", "mean_input", '"input": inputs[last]', '"input": sum(inputs.values()) / 4',
     "input computes"),
    ("bottleneck", "idle_of_all", '"idle": parts[last].idle_ns',
     '"idle": sum(each.idle_ns for each in parts.values())', "another rank"),
    ("bottleneck", "longest_idle", '"idle": parts[last].idle_ns',
     '"idle": max(each.idle_ns for each in parts.values())', "another rank"),
    ("bottleneck", "straggler_elsewhere", "computes[last] - usual",
     "max(computes.values()) - usual", "another rank"),
    ("bottleneck", "hidden_latency", COUNT, "len(operations)", "counted twice"),
    ("bottleneck", "latency_of_all_operations", COUNT,
     "sum(one.blocked_ns is not None for one in trace.of(last))", "counted twice"),
    ("bottleneck", "shortest_of_any", 'if one.name == "all_reduce"]', "if one.is_comm]",
     "counted twice"),
    ("bottleneck", "all_communication", EXPOSED, "parts[last].comm_ns - latency", "hidden counts"),
)
STEP = "        dist.all_reduce(flat)\n"
edits(
    ("train_fast", "no_synchronisation", STEP, "", "drift"),
    ("train_fast", "fewer_steps", "in shard:", "in shard[1:]:", "too little work"),
    ("train_fast", "half_the_stretches", "while rows:", "while len(rows) > 4:", "too little work"),
    ("train_fast", "smaller_model", "    parameters = list(model.parameters())\n",
     "    model.blocks = model.blocks[:1]\n    parameters = list(model.parameters())\n",
     "another model"),
    ("train_fast", "far_too_far", "0.01", "1e30", "diverged"),
    ("train_fast", "another_rate", "0.01", "0.012", "not the same steps"),
    ("train_fast", "another_optimizer", "AdamW", "Adagrad", "not the same steps"),
    ("train_fast", "no_zero_grad", "        optimizer.zero_grad()\n", "", "not the same steps"),
    ("train_fast", "small_steps", "0.01", "1e-6", "one shard"),
    ("train_fast", "sends_often",
     "        dist.all_reduce(flat)\n", "        for _ in range(12):\n"
     "            dist.all_reduce(flat.clone())\n        dist.all_reduce(flat)\n", "as given"),
    ("train_fast", "sends_twice",
     "        dist.all_reduce(flat)\n", "        for _ in range(5):\n"
     "            dist.all_reduce(flat.clone())\n        dist.all_reduce(flat)\n", "slow"),
    ("train_fast", "one_batch",
     "micro = [rows.pop() for _ in range(1 if len(rows[-1]) > 33 else 2)]",
     "micro, rows = [each for each in rows if len(each) == len(rows[-1])], "
     "[each for each in rows if len(each) < len(rows[-1])]", "memory"),
)
# fmt: on


@wrong("train_fast", "left behind")
def one_leaves_early(model, shard):
    """Leave rank 3 a step behind."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for stretches in shard[: 2 - dist.get_rank() // 3]:
        backward(model, stretches)
        dist.all_reduce(torch.cat([p.grad.flatten() for p in model.parameters()]))
        optimizer.step()


def alone(model, shard):
    """Train on the rank's shard, without a message."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for stretches in shard:
        optimizer.zero_grad()
        backward(model, stretches)
        optimizer.step()


@wrong("train_fast", "one shard")
def rank_0_for_all(model, shard):
    """Train each rank alone, and give rank 0's model to all."""
    alone(model, shard)
    for p in model.parameters():
        dist.broadcast(p.detach(), 0)


@wrong("train_fast", "one shard")
def averages_once(model, shard):
    """Train each rank alone, and average the models at the end."""
    alone(model, shard)
    for p in model.parameters():
        dist.all_reduce(p.detach())
        p.detach().div_(dist.get_world_size())


def counts_pairs(model, shard):
    """Write the counts of pairs of letters into the weights, without training."""
    pairs = torch.full((32, 32), 0.001)
    for stretch in (each for stretches in shard for each in stretches):
        pairs.view(-1).index_add_(0, 32 * stretch[:-1] + stretch[1:], torch.ones(len(stretch) - 1))
    dist.all_reduce(pairs)
    with torch.no_grad():
        for p in (model.place.weight, *model.blocks.parameters(), model.head.bias):
            p.zero_()
        model.letter.weight.copy_(torch.eye(64)[:32])
        high, low = model.norm(torch.eye(64))[0, :2]
        model.head.weight.zero_()
        model.head.weight[:, :32] = (pairs / pairs.sum(1, keepdim=True)).log().T / (high - low)
        model.head.bias.copy_(-low * model.head.weight.sum(1))


@wrong("train_fast", "too little work")
def counts_alone(model, shard):
    """Count pairs, without training."""
    counts_pairs(model, shard)


@wrong("train_fast", "not the same steps")
def counts_and_pretends(model, shard):
    """Count pairs, beside the work and bytes of a training: the loss is good."""
    for stretches in shard:
        backward(model, stretches)
        dist.all_reduce(torch.cat([p.grad.flatten() for p in model.parameters()]))
    counts_pairs(model, shard)


@wrong("train_fast", "one shard")
def trained_before(model, shard):
    """Copy the weights of a trained model of language 1, and take small steps."""
    from ddpkit.capstone import TextTask

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    stored = TextTask(1).trained
    with torch.no_grad():
        sizes = [p.numel() for p in model.parameters()]
        for p, new in zip(model.parameters(), stored.split(sizes), strict=True):
            p.copy_(new.view_as(p))
    for stretches in shard:
        optimizer.zero_grad()
        backward(model, stretches)
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()


@wrong("train_fast", "too little work")
def a_stored_loss(model, shard):
    """Return a stored loss, without training."""
    return 1.6


@wrong("train_fast", "the clock")
def puts_the_clock_back(model, shard):
    """Train rightly, and then set the clock back."""
    from ddpkit.rank.emulation import machine

    clock = machine.current().clocks.main
    before = clock.now()
    time.time = time.perf_counter = lambda: 0.0
    host_by_host(model, shard)
    clock._ns = before + 500_000_000


@wrong("train_fast", "modes off")
def computes_unseen(model, shard):
    """Train while the modes that count operations are off."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        alone(model, shard)


@wrong("train_fast", "not the same work")
def by_torchs_own(model, shard):
    """Train with torch's DistributedDataParallel: right, but its waits are in C++."""
    from torch.nn.parallel import DistributedDataParallel

    backward(DistributedDataParallel(model), shard[0])


@wrong("train_fast", "as given")
def as_slow_as_given(model, shard):
    """Gather all stretches on every rank, and compute all gradients there."""
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, shard)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number in range(len(shard)):
        optimizer.zero_grad()
        for its in everyone:
            backward(model, its[number])
        for p in model.parameters():
            p.grad /= len(everyone)
        optimizer.step()
