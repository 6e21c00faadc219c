"""`DistributedDataParallel` compared with torch's class, on the same ranks and batches."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from ddpkit import Cluster
from tests.ddp.models import Branches, Tied, batch, conv, equal, ours, torchs, train, wide

pytestmark = pytest.mark.processes

RECIPES = {
    "conv, momentum": (conv, {}),
    "tied and frozen, AdamW, clipped": (Tied, {"optimizer": "adam", "clip": 0.5}),
    "torch's own caps": (wide, {"bucket_cap_mb": None}),
    "gradients zeroed in place": (wide, {"set_to_none": False}),
    "micro-batches": (wide, {"micro_batches": 3}),
    "unused parameters looked for": (conv, {"find_unused_parameters": True}),
}


@pytest.mark.parametrize("name", RECIPES)
def test_20_steps_on_2_ranks_are_bitwise_torchs(name):
    model, options = RECIPES[name]

    def both():
        one, other = (train(wrap, model, **options) for wrap in (ours, torchs))
        return equal(one[0], other[0]), equal(one[1], other[1]), one[1]

    run = Cluster(2).run(both)
    assert [result[:2] for result in run.results] == [(True, True)] * 2, "gradients, state_dict"
    last = [list(result[2].values())[-1] for result in run.results]
    assert torch.equal(*last), "the ranks differ"


def test_on_4_ranks_bitwise_too_once_torch_has_the_same_buckets():
    """gloo adds an element's four numbers in an order that depends on its place in the bucket.

    In its first backward, torch reduces all gradients in one bucket; then it rebuilds its buckets,
    which are the same as ours. Therefore the first step is equal up to rounding, and later steps
    are equal bitwise.
    """

    def both():
        still = {"steps": 4, "optimizer": "stand still"}
        one, other = (train(wrap, conv, **still)[0] for wrap in (ours, torchs))
        pairs = zip(one[0], other[0], strict=True)
        worst = max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)
        return [equal(a, b) for a, b in zip(one, other, strict=True)][1:], worst

    for bitwise, worst in Cluster(4).run(both).results:
        assert bitwise == [True] * 3
        assert worst < 1e-5


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_gradients_are_those_of_the_whole_batch_in_one_process(world_size):
    def steps():
        return train(ours, wide, steps=3)

    (gradients, state), *_ = Cluster(world_size).run(steps).results
    torch.manual_seed(0)
    twin = nn.Module()
    twin.module = wide()
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    for step, found in enumerate(gradients):
        optimizer.zero_grad()
        parts = [batch(step, rank) for rank in range(world_size)]
        x, y = (torch.cat(part) for part in zip(*parts, strict=True))
        nn.functional.cross_entropy(twin.module(x), y).backward()
        for p, gradient in zip(twin.parameters(), found, strict=True):
            torch.testing.assert_close(gradient, p.grad, rtol=1e-4, atol=1e-6)
        optimizer.step()
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cap", [0.0001, 0.3, 0.7, 100, None])
def test_the_same_all_reduces_in_the_same_order_as_torchs(cap):
    def sizes(run, step):
        spans = sorted(run.trace.step(step).of(0), key=lambda span: span.start_ns)
        return [span.bytes for span in spans if span.name == "all_reduce"]

    def steps(wrap):
        train(wrap, wide, steps=3, bucket_cap_mb=cap)

    one, other = (Cluster(2).run(steps, wrap) for wrap in (ours, torchs))
    assert sizes(one, 2) == sizes(other, 2)
    assert sum(sizes(one, 2)) == sum(p.numel() * 4 for p in wide().parameters())


def test_a_communication_hook_of_torchs_works_and_does_the_same():
    def both():
        found = []
        for wrap in (ours, torchs):
            torch.manual_seed(0)
            ddp = wrap(wide())
            ddp.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
            for step in range(3):  # torch rebuilds the buckets, and the hook stays
                ddp.zero_grad()
                x, y = batch(step, dist.get_rank())
                nn.functional.cross_entropy(ddp(x), y).backward()
            found.append([p.grad.clone() for p in ddp.parameters()])
        return equal(*found)

    run = Cluster(2).run(both)
    assert run.results == [True, True]
    half = {s.bytes for s in run.trace.of(0) if s.name == "all_reduce" and s.bytes > 1000}
    assert sum(p.numel() * 4 for p in wide().parameters()) not in half


USE = {  # the layers that each rank uses
    "another one on each rank": [[0, 1], [0, 2]],
    "one rank uses all": [[0, 1, 2, 3], [0]],
    "one that no rank uses": [[0, 1, 2], [2, 1, 0]],
    "first and last alone": [[3], [0]],
}


@pytest.mark.parametrize("name", USE)
def test_unused_parameters_get_what_torch_gives_them(name):
    def both():
        found = []
        for wrap in (ours, torchs):
            torch.manual_seed(0)
            ddp = wrap(Branches(), find_unused_parameters=True)
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
            for step in range(3):
                optimizer.zero_grad()
                ddp(batch(step, dist.get_rank())[0], USE[name][dist.get_rank()]).sum().backward()
                optimizer.step()
            gradients = [p.grad for p in ddp.parameters()]
            found.append((gradients, list(ddp.parameters())))
        (one, at), (other, there) = found
        assert [g is None for g in one] == [g is None for g in other]
        return equal([g for g in one if g is not None], [g for g in other if g is not None]), equal(
            at, there
        )

    assert Cluster(2).run(both).results == [(True, True)] * 2


def test_the_state_is_torchs_with_the_wrapper_and_the_modules_without():
    def names():
        torch.manual_seed(dist.get_rank())
        one, other = ours(conv()), torchs(conv())
        other.load_state_dict(one.state_dict())
        bare = conv()
        bare.load_state_dict(one.module.state_dict())
        return (
            list(one.state_dict()) == list(other.state_dict()),
            equal(dict(one.state_dict()), dict(other.state_dict())),
            equal(dict(one.module.state_dict()), dict(bare.state_dict())),
            [name for name, _ in one.named_parameters()]
            == [name for name, _ in other.named_parameters()],
        )

    assert Cluster(2).run(names).results == [(True,) * 4] * 2
