"""Models that should be equal on several ranks, and differ: a warning after the run."""

from __future__ import annotations

import copy
import io
import pickle
import re
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Cluster, same
from ddpkit.cluster.afterwards.replicas import differing
from ddpkit.protocol.replica import Fingerprints, Replica
from ddpkit.rank.record.replicas import fingerprint, is_looked_after
from tests.project.source import ROOT
from tests.ways import WAYS, run, words

in_every_way = pytest.mark.parametrize("way", WAYS)


def layers() -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
    )
    torch.manual_seed(dist.get_rank())
    return model


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)


def backward(model: torch.nn.Module) -> None:
    model(torch.randn(6, 4)).pow(2).sum().backward()


def average(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


# Programs at fault


def goes_past_ddp() -> None:
    model = DistributedDataParallel(layers())
    optimizer = sgd(model)
    for step in range(6):
        optimizer.zero_grad()
        backward(model.module if step >= 2 else model)
        optimizer.step()


def never_synchronizes() -> None:
    model = DistributedDataParallel(layers())
    optimizer = sgd(model)
    for _ in range(3):
        with model.no_sync():
            backward(model)
        optimizer.step()
        optimizer.zero_grad()


def skips_a_step_on_rank_1() -> None:
    model = DistributedDataParallel(layers())
    optimizer = sgd(model)
    for step in range(4):
        optimizer.zero_grad()
        backward(model)
        if step != 3 or dist.get_rank() == 0:
            optimizer.step()


def loads_on_rank_0() -> None:
    model = DistributedDataParallel(layers())
    if dist.get_rank() == 0:
        torch.manual_seed(7)
        other = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
        )
        model.module.load_state_dict(other.state_dict())
    backward(model)


def forgets_a_parameter() -> None:
    model = layers()
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        backward(model)
        average(model[:2])
        optimizer.step()


def stops_averaging() -> None:
    model = layers()
    optimizer = sgd(model)
    for step in range(8):
        optimizer.zero_grad()
        backward(model)
        if step < 3:
            average(model)
        optimizer.step()


def averages_nothing() -> None:
    model = layers()
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()


def averages_the_loss_alone() -> None:
    model = layers()
    optimizer = sgd(model)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(6, 4)).pow(2).sum()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())


DDP = "A DDP model should be equal on all ranks, but "
BEGAN = "The parameters of an optimizer began equal on all ranks, but "
WRONG: dict[Callable[[], None], tuple[str, str]] = {
    goes_past_ddp: (
        f"{DDP}0.weight differs between ranks 0 and 1, and so do",
        "parameters, first after step 3; during step 3, no rank communicated.",
    ),
    never_synchronizes: (
        f"{DDP}0.weight differs between ranks 0 and 1, and so do",
        "parameters, first after step 1.",
    ),
    skips_a_step_on_rank_1: (
        f"{DDP}0.weight differs between ranks 0 and 1, and so do",
        "parameters, first after step 4. Rank 0 made 4 optimizer steps, rank 1 made 3",
    ),
    loads_on_rank_0: (f"{DDP}0.weight differs between ranks 0 and 1, and so do", "parameters."),
    forgets_a_parameter: (
        f"{BEGAN}parameter 4 of SGD differs between ranks 0 and 1, and so does 1 more parameter",
        "first after step 1.",
    ),
    stops_averaging: (
        f"{BEGAN}parameter 0 of SGD differs between ranks 0 and 1, and so do",
        "parameters, first after step 4; during step 4, no rank communicated.",
    ),
    averages_nothing: (
        f"{BEGAN}parameter 0 of SGD differs between ranks 0 and 1, and so do",
        "parameters, first after step 1; during step 1, no rank communicated.",
    ),
    averages_the_loss_alone: (
        f"{BEGAN}parameter 0 of SGD differs between ranks 0 and 1, and so do",
        "parameters, first after step 1",
    ),
}


# Correct programs of the same kinds


def trains_with_ddp() -> None:
    model = DistributedDataParallel(layers())
    optimizer = sgd(model)
    for step in range(6):
        with nullcontext() if step % 2 else model.no_sync():
            backward(model)
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    backward(model.module)
    copied = copy.deepcopy(model.module)
    torch.save(model.module, io.BytesIO())
    pickle.dumps(optimizer)
    assert same(model, buffers=False)
    assert same(copied.parameters())


def joins_with_uneven_data() -> None:
    model = DistributedDataParallel(layers())
    optimizer = sgd(model)
    with model.join():
        for _ in range(2 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            backward(model)
            optimizer.step()


def averages_by_hand() -> None:
    model = layers()
    optimizer = sgd(model)
    for _ in range(5):
        optimizer.zero_grad()
        backward(model)
        average(model)
        optimizer.step()


def averages_weights_now_and_then() -> None:
    model = layers()
    optimizer = sgd(model)
    for step in range(5):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
        if step % 2:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= dist.get_world_size()


def exchanges_fragments_in_turns() -> None:
    """Average one parameter after another, so that at the end only some parameters are equal."""
    model = layers()
    optimizer = sgd(model)
    parameters = list(model.parameters())
    for step in range(8):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
        if step % 2:
            with torch.no_grad():
                # the last of the fragment: a matrix
                fragment = parameters[4 * (step // 2) % len(parameters)]
                dist.all_reduce(fragment)
                fragment /= dist.get_world_size()


def trains_stages() -> None:
    torch.manual_seed(0)
    stage = torch.nn.Linear(4, 4)
    optimizer = sgd(stage)
    for _ in range(3):
        x = torch.randn(2, 4)
        if dist.get_rank():
            dist.recv(x, 0)
        y = stage(x)
        if dist.get_rank() == 0:
            dist.send(y.detach(), 1)
        y.sum().backward()
        optimizer.step()


def trains_a_model_of_its_own() -> None:
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Linear(4, 4)
    optimizer = sgd(model)
    backward(model)
    optimizer.step()


def trains_two_groups() -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    number = dist.get_rank() // 2
    torch.manual_seed(number)
    model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=groups[number])
    optimizer = sgd(model)
    for _ in range(2):
        backward(model)
        optimizer.step()


def trains_with_local_sgd() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local

    model = DistributedDataParallel(layers())
    alone, _ = dist.new_subgroups(1)
    state = local.PostLocalSGDState(None, alone, start_localSGD_iter=2)
    model.register_comm_hook(state, local.post_localSGD_hook)
    optimizer = sgd(model)
    for _ in range(4):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()


def gossips() -> None:
    """Average gradients within pairs of ranks, in DDP's communication hook."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = pairs[dist.get_rank() // 2]

    def average_in_pair(_, bucket):  # unannotated: DDP reads annotations, and wants classes
        work = dist.all_reduce(bucket.buffer(), group=mine, async_op=True)
        return work.get_future().then(lambda done: done.value()[0] / 2)

    model = DistributedDataParallel(layers())
    model.register_comm_hook(None, average_in_pair)
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()


RIGHT: dict[Callable[[], None], int] = {
    trains_with_ddp: 2,
    joins_with_uneven_data: 2,
    averages_by_hand: 2,
    averages_weights_now_and_then: 2,
    trains_stages: 2,
    trains_a_model_of_its_own: 2,
    trains_two_groups: 4,
    trains_with_local_sgd: 2,
    gossips: 4,
    exchanges_fragments_in_turns: 2,
}


@pytest.mark.processes
@in_every_way
@pytest.mark.parametrize("function", WRONG, ids=lambda each: each.__name__)
def test_a_difference_is_said(
    way: str, function: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    run(way, 2, function)
    said = words(capfd, way)
    start, end = WRONG[function]
    assert start in said
    assert end in said


@pytest.mark.processes
@in_every_way
@pytest.mark.parametrize("function", RIGHT, ids=lambda each: each.__name__)
def test_a_right_program_is_not_accused(
    way: str, function: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    run(way, RIGHT[function], function)
    out, err = capfd.readouterr()
    assert "differ" not in out + err


@pytest.mark.processes
def test_without_values_nothing_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    Cluster(2, machine="1 TFLOP/s", values=False).run(never_synchronizes)
    assert capsys.readouterr().out == ""


# ddpkit.same


def asks() -> list[bool]:
    rank = dist.get_rank()
    model = layers()
    equal = [same(model), same(model.parameters()), same(torch.ones(3))]
    backward(model)
    apart = [same(model), same(torch.full((2,), rank)), same(torch.ones(1 + rank))]
    return [*equal, same(model, buffers=False), *apart]


@pytest.mark.processes
@pytest.mark.parametrize("way", ["real", "link", "machine"])
def test_same(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = run(way, 2, asks).results
    assert results == [[True] * 4 + [False] * 3] * 2
    assert capsys.readouterr().out.splitlines() == [
        "[rank 0] 1.running_mean differs between ranks 0 and 1",
        "[rank 0] 1.running_var differs between ranks 0 and 1",
        "[rank 0] tensor 0 differs between ranks 0 and 1",
        "[rank 0] tensor 0 differs between ranks 0 and 1",
    ]


def asks_in_a_group() -> bool | None:
    group = dist.new_group([1, 2])
    if dist.get_rank() == 0:
        return None
    return same(torch.tensor(dist.get_rank()), group=group)


@pytest.mark.processes
def test_same_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert Cluster(3).run(asks_in_a_group).results == [None, False, False]
    assert capsys.readouterr().out == "[rank 1] tensor 0 differs between ranks 1 and 2\n"


def test_same_outside_a_run() -> None:
    assert same(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="takes a module, or tensors"):
        same([1, 2])


# Fingerprints, and texts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.bool])
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 5), (77, 41)])
def test_one_bit_changes_a_fingerprint(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape, dtype=dtype)
    before = fingerprint(tensor)
    assert before == fingerprint(tensor.clone())
    if tensor.numel():
        tensor.view(-1)[-1] = 0
        assert fingerprint(tensor) != before


def test_fingerprints_of_strided_tensors() -> None:
    table = torch.randn(100, 100)
    assert fingerprint(table.t()) == fingerprint(table.t().contiguous())
    odd = torch.randn(2001)[1:]
    assert fingerprint(odd) == fingerprint(odd.clone())


def test_steps_become_rare() -> None:
    assert [n for n in range(1, 50) if is_looked_after(n)] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]


def model(kind: str, begun: int, *steps: int, members: tuple[int, ...] = ()) -> Replica:
    """Return a model of one parameter, with fingerprints at the start and after each step."""
    seen = [Fingerprints(number, (each,), True) for number, each in enumerate(steps, 1)]
    return Replica(kind, ("w",), (True,), members, (begun,), seen[:-1], seen[-1])


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([model("SGD", 0, 1, 2), model("SGD", 0, 1, 3)], True),  # once equal
        ([model("SGD", 0, 1, 2), model("SGD", 0, 5, 3)], False),  # never equal
        ([model("SGD", 0, 0, 2), model("SGD", 0, 0, 3)], False),  # equal, but unchanged
        ([model("SGD", 0, 1, 2), model("SGD", 9, 1, 3)], False),  # did not begin equal
        ([model("SGD", 0, 1, 2), model("SGD", 0, 1, 2)], False),
        # two of three ranks are equal
        ([model("SGD", 0, 1), model("SGD", 0, 1), model("SGD", 0, 5)], True),
        # two ranks and two ranks are equal
        ([model("SGD", 0, n // 2 + 1) for n in range(4)], False),
        # two ranks are unchanged
        ([model("SGD", 0, 1), model("SGD", 0, 0), model("SGD", 0, 0)], False),
        ([model("SGD", 0, 1, 2), model("Adam", 0, 1, 3)], False),
        ([model("DDP", 0, 1, 2), model("DDP", 0, 5, 3)], False),  # on two of three ranks
    ],
)
def test_models_that_count(ranks: list[Replica], said: bool) -> None:
    replicas: dict[int, list[Replica]] = {rank: [each] for rank, each in enumerate(ranks)}
    if ranks[0].kind == "DDP":
        for each in ranks:
            each.members = (0, 1, 2)
    assert bool(differing(replicas, alone=False)) is said


def test_the_block_of_the_page_on_scripts() -> None:
    page = (ROOT / "docs" / "run.md").read_text("utf-8")
    code = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[-1]
    assert "ddpkit.same(" in code

    def compares() -> bool:
        model = layers()
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        exec(code, {"model": model})
        return True

    assert Cluster(2).run(compares).results == [True, True]
