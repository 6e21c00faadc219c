"""Demands of other courses on sharded optimizers and models, put to our answers.

Stanford's CS336 (assignment 2, 2025 and 2026) trains toy models with frozen, unused and tied
parameters beside an unsharded twin, and gathers whole parameters after each step. Further tests do
with our optimizer what users of torch do with any optimizer.
"""

from copy import deepcopy
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpkit import Cluster, answers

pytestmark = pytest.mark.processes


class Toy(nn.Module):
    """A model that is frozen in part; no forward uses `fixed`."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(10, 10, bias=False), nn.Linear(10, 50)
        self.three, self.spare = nn.Linear(50, 5, bias=False), nn.Linear(3, 3)
        self.two.bias.requires_grad_(False)
        self.fixed = nn.Parameter(torch.tensor([2.0, 2.0]), requires_grad=False)

    def forward(self, x):
        return self.three(self.two(self.one(x).relu()).relu())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(10, 10, bias=False) for _ in range(3)])
        self.layers[2].weight = self.layers[0].weight

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x[:, :5]


def loss_of(net, seed):
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.rand((32, 10), generator=generator), torch.rand((32, 5), generator=generator)
    return ((net(x) - y) ** 2).sum()


def stepped(net, optimizer, steps, start=0):
    for step in range(start, start + steps):
        optimizer.zero_grad()
        loss_of(net, step).backward()
        optimizer.step()


def same(one, other):
    return all(map(torch.equal, one.parameters(), other.parameters()))


def twins(kind, make, **options):
    """Return a model and its copy, stepped ten times by a whole and by a sharded optimizer."""
    torch.manual_seed(42)
    whole = kind()
    sharded = deepcopy(whole)
    optimizers = (
        make(whole.parameters(), **options),
        sharded_by(sharded.parameters(), make, **options),
    )
    for net, optimizer in zip((whole, sharded), optimizers, strict=True):
        stepped(net, optimizer, 10)
    return whole, sharded, *optimizers


def sharded_by(parameters, make, **options):
    return answers.get("ShardedOptimizer")(parameters, make, **options)


def of_the_optimizer():
    """Return question -> True if the optimizer's behaviour is right."""
    adamw = partial(twins, make=torch.optim.AdamW, lr=0.1, weight_decay=0.1, betas=(0.9, 0.999))
    found = {kind.__name__: same(*adamw(kind)[:2]) for kind in (Toy, Tied)}
    found["momentum"] = same(*twins(Toy, torch.optim.SGD, lr=0.01, momentum=0.9)[:2])
    _, net, _, optimizer = adamw(Toy)
    found["is one of torch's"] = isinstance(optimizer, torch.optim.Optimizer)
    # a checkpoint of this rank's state continues bitwise equal
    copy = deepcopy(net)
    state = deepcopy(optimizer.state_dict())
    optimizer.param_groups[0]["lr"] = 0.5  # a change after the checkpoint
    other = sharded_by(copy.parameters(), torch.optim.AdamW, lr=7.0)
    other.load_state_dict(state)
    optimizer.param_groups[0]["lr"] = 0.1
    for one, steps in ((net, optimizer), (copy, other)):
        stepped(one, steps, 3, start=10)
    found["state_dict"] = same(net, copy)
    return {**found, **_what_users_do()}


def _what_users_do():
    torch.manual_seed(1)
    net = Toy()
    twin, found = deepcopy(net), {}
    pair = []
    for one, make in ((twin, torch.optim.SGD), (net, partial(sharded_by, make=torch.optim.SGD))):
        optimizer = make(one.one.parameters(), lr=0.01)
        optimizer.add_param_group({"params": list(one.three.parameters()), "lr": 0.1})
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
        for step in range(3):
            loss = optimizer.step(partial(_closure, one, optimizer, step))
            scheduler.step()
        pair.append(loss.item())
    found["groups, scheduler, closure"] = same(net, twin) and pair[0] == pair[1]
    mixed = nn.Sequential(nn.Linear(10, 10).bfloat16(), nn.Linear(10, 5))
    halves = deepcopy(mixed)
    for one, make in (
        (mixed, torch.optim.AdamW),
        (halves, partial(sharded_by, make=torch.optim.AdamW)),
    ):
        optimizer = make(one.parameters(), lr=0.1)
        for number, p in enumerate(one.parameters()):
            p.grad = torch.full_like(p, number + 1.0)
        optimizer.step()
    found["two dtypes"] = same(mixed, halves)
    return found


def _closure(net, optimizer, step):
    optimizer.zero_grad()
    loss = loss_of(net, step)
    loss.backward()
    return loss


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_sharded_optimizer_is_asked_what_others_ask(ranks):
    for found in Cluster(ranks).run(of_the_optimizer).results:
        assert found == dict.fromkeys(found, True)
        assert len(found) == 7


# FullyShard


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(20, 9), nn.LayerNorm(9)
        self.up, self.down, self.head = nn.Linear(9, 13), nn.Linear(13, 9), nn.Linear(9, 20)

    def forward(self, x):
        return self.head(self.down(self.up(self.norm(self.embedding(x))).relu()))


def sharded(net, dtype=None):
    """Return the model with its leaves in units, and the units by name."""
    units = {}
    for name, leaf in list(net.named_children()):
        before = [each for each, p in leaf.named_parameters() if p.requires_grad]
        units[name] = answers.get("FullyShard")(leaf, *([dtype] if dtype else [])), before
        setattr(net, name, units[name][0])
    return net, units


def whole_parameters(units):
    """Return all parameters by name, gathered, as a checkpoint for one process has them."""
    found = {}
    for name, (unit, before) in units.items():
        unit.begin()
        unit.wait()
        for each, view in zip(before, unit.views, strict=True):
            found[f"{name}.{each}"] = view.detach().clone()
        unit.after()
    return found


def of_the_model(dtype=None):
    """Return the largest difference of a whole parameter from the twin's, in three steps."""
    torch.manual_seed(42)
    twin = Language()
    net, units = sharded(deepcopy(twin))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (twin, net)]
    n, rank, worst = dist.get_world_size(), dist.get_rank(), 0.0
    for _ in range(3):
        x, y = torch.randint(0, 20, (4 * n, 8)), torch.randint(0, 20, (4 * n,))
        mine = slice(4 * rank, 4 * rank + 4)
        for each, optimizer, here in zip((twin, net), optimizers, (slice(None), mine), strict=True):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(each(x[here])[:, -1], y[here]).backward()
            optimizer.step()
        whole = whole_parameters(units)
        assert whole.keys() == dict(twin.named_parameters()).keys()
        for name, p in twin.named_parameters():
            worst = max(worst, (whole[name] - p).abs().max().item())
    return worst, _reloads(net, twin)


def _reloads(net, twin):
    """Return checks of a state_dict: it has shards, and makes another model equal."""
    state = net.state_dict()
    other, _ = sharded(Language())
    other.load_state_dict(state)
    x = torch.arange(8)[None]
    with torch.no_grad():
        same_output = torch.equal(other(x), net(x))
    right = sum(p.numel() for p in twin.parameters()) / dist.get_world_size()
    return same_output, len(state), sum(p.numel() for p in net.parameters()) <= right + 5


def test_a_fully_sharded_model_is_asked_what_others_ask():
    for worst, reloaded in Cluster(2).run(of_the_model).results:
        assert worst < 1e-6
        assert reloaded == (True, 5, True)


def in_half():
    """Return dtypes: weights, gradients and state stay in float32; computing is in bfloat16."""
    torch.manual_seed(42)
    unit = answers.get("FullyShard")(nn.Linear(8, 8), torch.bfloat16)
    optimizer = torch.optim.AdamW(unit.parameters())
    y = unit(torch.ones(2, 8, dtype=torch.bfloat16))
    y.float().square().mean().backward()
    optimizer.step()
    state = optimizer.state[unit.shard]["exp_avg"]
    return [str(each.dtype) for each in (y, unit.shard, unit.shard.grad, state)]


def test_master_weights_stay_in_float32():
    expected = ["torch.bfloat16", *["torch.float32"] * 3]
    assert Cluster(2).run(in_half).results == [expected] * 2


def saves(folder):
    torch.manual_seed(7)
    unit = answers.get("FullyShard")(nn.Linear(5, 3))  # 18 numbers: 4 ranks have 5 each, padded
    torch.save(unit.shard.detach(), f"{folder}/{dist.get_rank()}.pt")


def loads(folder, old):
    torch.manual_seed(8)
    unit, length = answers.get("FullyShard")(nn.Linear(5, 3)), 18
    n, rank = dist.get_world_size(), dist.get_rank()
    read = [
        torch.load(f"{folder}/{owner}.pt")[start:stop]
        for owner, start, stop in answers.get("pieces")(length, old, n, rank)
    ]
    with torch.no_grad():
        numbers = torch.cat([*read, torch.zeros(0)])
        unit.shard.zero_()[: len(numbers)].copy_(numbers)
        return unit(torch.ones(1, 5))


@pytest.mark.parametrize("ranks", [3, 1])
def test_four_ranks_shards_are_loaded_on_others(ranks, tmp_path):
    Cluster(4).run(saves, str(tmp_path))
    torch.manual_seed(7)
    right = nn.Linear(5, 3)(torch.ones(1, 5)).detach()
    for output in Cluster(ranks).run(loads, str(tmp_path), 4).results:
        assert torch.allclose(output, right, atol=1e-6)


# Beside torch's own


class Block(nn.Module):
    """A block with tied, frozen and unused parameters."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(7, 7), nn.Linear(7, 7)
        self.two.weight = self.one.weight
        self.frozen, self.spare = nn.Linear(7, 7), nn.Linear(3, 5)
        self.frozen.weight.requires_grad_(False)

    def forward(self, x):
        return self.two(self.frozen(self.one(x)).relu())


def built():
    torch.manual_seed(0)
    return [Block(), Block(), nn.Linear(7, 3)]


def outputs(net, optimizer, seed, dtype=None):
    """Return a net's output in each of four steps."""
    found = []
    for step in range(4):
        torch.manual_seed(100 * step + seed)
        optimizer.zero_grad()
        y = net(torch.randn(6, 7, dtype=dtype)).float()
        y.square().sum().backward()
        optimizer.step()
        found.append(y.detach())
    return torch.stack(found)


def beside_zero():
    found = []
    for make in (partial(sharded_by, make=torch.optim.AdamW), zero):
        net = nn.Sequential(*built())
        found.append(outputs(net, make(net.parameters(), lr=0.05, weight_decay=0.1), 0))
    return (found[0] - found[1]).abs().max().item()


def zero(parameters, **options):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    trainable = [p for p in parameters if p.requires_grad]
    return ZeroRedundancyOptimizer(trainable, torch.optim.AdamW, **options)


def fully(dtype):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    how = {
        "mesh": init_device_mesh("cpu", (dist.get_world_size(),)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype),
    }
    return fully_shard(nn.Sequential(*(fully_shard(block, **how) for block in built())), **how)


def beside_fully_shard(dtype):
    mine = nn.Sequential(*(answers.get("FullyShard")(block, dtype) for block in built()))
    found = []
    for net in (mine, fully(dtype)):
        adam = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.05)
        found.append(outputs(net, adam, dist.get_rank(), dtype))
    return (found[0] - found[1]).abs().max().item()


def beside_torch():
    return beside_zero(), beside_fully_shard(None), beside_fully_shard(torch.bfloat16)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_tied_frozen_and_unused_learn_as_with_torchs_own(ranks):
    for optimizer, model, halved in Cluster(ranks).run(beside_torch).results:
        assert optimizer == 0
        assert model < 1e-6
        assert halved < 1 / 128  # the precision of bfloat16 for values near 1
