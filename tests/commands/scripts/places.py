"""The memory of a tensor is the device's or the host's: to the byte, and in torch's errors."""

import gc
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MB = 250_000  # float32 numbers


def error_of(call) -> str:
    """Return the text of a call's RuntimeError; "" without an error."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return ""


def device_and_bytes() -> None:
    """A tensor of the host fills the host's memory only; a result is in its arguments' memory."""
    images = torch.zeros(20, MB)
    assert not images.is_cuda
    assert images.device == torch.device("cpu")
    assert images.get_device() == -1
    assert torch.cuda.memory_allocated() == 0
    prepared = (images - 0.5) / 0.25
    assert prepared.device.type == "cpu"
    assert torch.cuda.memory_allocated() == 0
    moved = prepared[:2].to("cuda")
    assert moved.is_cuda
    assert moved.get_device() == 0
    assert moved.device == torch.device("cuda", 0)
    assert torch.cuda.memory_allocated() == 2_000_000
    result = moved * 2 + torch.tensor(1.0)  # an argument may be a number of the host
    assert result.is_cuda
    assert torch.cuda.memory_allocated() == 4_000_000
    assert torch.cuda.max_memory_allocated() == 6_000_000
    back = result.cpu()
    assert not back.is_cuda
    assert torch.cuda.memory_allocated() == 4_000_000
    del moved, result
    assert torch.cuda.memory_allocated() == 0


def made() -> None:
    """Ways to make a tensor on the device, and ways to make one on the host."""
    there = torch.ones(3, device="cuda")
    for tensor in (
        torch.arange(3, device=there.device),
        torch.zeros_like(there),
        torch.zeros_like(torch.ones(3), device="cuda"),
        there.new_zeros(3),
        torch.ones(3).new_zeros(3, device="cuda"),
        torch.as_tensor([1, 2], device="cuda"),
        torch.ones(3).to(there),
        there.to(there.device),
        there.t(),
        nn.Linear(3, 3, device="cuda").weight,
        torch.nn.functional.one_hot(torch.arange(3, device="cuda")),
        torch.cat([there, there]),
        there > 0,
        there.sum(),
    ):
        assert tensor.is_cuda, tensor
    with torch.device("cuda"):
        assert torch.zeros(3).is_cuda
        assert nn.Linear(3, 3).weight.is_cuda
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).cuda()
    assert all(each.is_cuda for each in (*model.parameters(), *model.buffers()))
    model(torch.ones(5, 3, device="cuda")).sum().backward()
    assert all(parameter.grad.is_cuda for parameter in model.parameters())
    for tensor in (
        torch.zeros(3),
        torch.zeros(3, device="cpu"),
        torch.ones(3, device="cuda").to("cpu"),
        torch.zeros_like(there, device="cpu"),
        torch.randperm(3),
        torch.from_numpy(torch.zeros(3).numpy()),
        nn.Linear(3, 3).weight,
    ):
        assert not tensor.is_cuda, tensor


def mixed() -> None:
    """Operations on tensors of both memories, refused and accepted as on a GPU."""
    there, here = torch.ones(3, device="cuda"), torch.ones(3)
    for refused in (lambda: there + here, lambda: torch.cat([there, here]), lambda: here @ there):
        assert error_of(refused).startswith("Expected all tensors to be on the same device")
    assert there[torch.tensor([0, 2])].is_cuda  # indices may lie in the host's memory
    there[torch.tensor([True, False, True])] = 5.0
    assert (there * torch.tensor(2.0)).is_cuda
    there.copy_(here)
    here.copy_(there)
    assert there.is_cuda
    assert not here.is_cuda


def pinned() -> None:
    """Pinned memory, by a method, an argument, and a DataLoader with and without workers."""
    torch.cuda.set_device(0)
    assert torch.zeros(3).pin_memory().is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert not torch.zeros(3).is_pinned()
    assert "cannot pin" in error_of(torch.zeros(3, device="cuda").pin_memory)
    for workers in (0, 1):
        for pins in (True, False):
            data = TensorDataset(torch.zeros(8, 3), torch.zeros(8))
            for x, y in DataLoader(data, batch_size=4, pin_memory=pins, num_workers=workers):
                assert x.is_pinned() is y.is_pinned() is pins
                assert x.cuda().is_cuda


def full() -> None:
    """A data set larger than the device's memory fits on the host; both memories have a limit."""
    torch.cuda.set_device(0)
    data = torch.zeros(30, MB)  # 30 MB; the device has 20, the host 50
    batch = data[:10].cuda()
    for size, device, memory in ((15, "cuda", "has 20 MB"), (25, "cpu", "host beside the machine")):
        assert memory in error_of(lambda size=size, on=device: torch.zeros(size, MB, device=on))
        gc.collect()
    assert batch.is_cuda


def loaded() -> None:
    """`map_location` decides; a state dict on the host does not change the device's memory."""
    model = nn.Linear(250, 1000, bias=False, device="cuda")
    torch.save(model.state_dict(), "weights.pt")
    before = torch.cuda.memory_allocated()
    assert before == 1_000_000
    on_host = torch.load("weights.pt", map_location="cpu")
    assert not on_host["weight"].is_cuda
    assert torch.cuda.memory_allocated() == before
    on_gpu = torch.load("weights.pt", map_location="cuda")
    assert on_gpu["weight"].is_cuda
    assert torch.cuda.memory_allocated() == 2 * before
    model.load_state_dict(on_host)
    kept = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    assert not kept["weight"].is_cuda
    assert torch.cuda.memory_allocated() == 2 * before


def communicated() -> None:
    """Tensors of collectives are on the device, also the tensors of gathered objects."""
    dist.init_process_group("nccl")
    mean = torch.ones(3, device="cuda")
    dist.all_reduce(mean)
    gathered = [torch.empty_like(mean) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mean)
    assert mean.is_cuda
    assert all(each.is_cuda for each in gathered)
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"rank": dist.get_rank()})
    assert objects[0] == {"rank": 0}


def to_numpy() -> None:
    """NumPy accepts tensors of the host only; the error has torch's words."""
    there = torch.arange(4.0, device="cuda")
    for call in (
        there.numpy,
        lambda: np.asarray(there),
        lambda: np.stack([there]),
        there[:2].numpy,
    ):
        try:
            call()
        except TypeError as error:
            said = str(error)
            assert said.startswith("can't convert cuda:0 device type tensor to numpy."), said
        else:
            raise AssertionError("a tensor on the device became an array")
    assert there.cpu().numpy().tolist() == there.tolist() == [0, 1, 2, 3]
    assert there.numpy(force=True).tolist() == np.asarray(there.detach().cpu()).tolist()
    assert float(there.sum()) == 6
    weights = nn.Linear(2, 2).cuda()
    torch.save(weights.state_dict(), "weights.pt")
    back = torch.load("weights.pt", map_location="cpu")
    assert back["weight"].numpy().shape == (2, 2)
    optimizer = torch.optim.Adam(weights.parameters())
    weights(torch.ones(1, 2).cuda()).sum().backward()
    optimizer.step()
    # the counter of steps is on the host
    assert next(iter(optimizer.state.values()))["step"].numpy() == 1
    for (rows,) in DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2, pin_memory=True):
        assert rows.numpy().sum() == 4
        losses = [weights(rows.cuda()).mean().item()]
    assert np.isfinite(np.asarray(torch.tensor(losses))).all()
    host = torch.empty(4)
    host.copy_(there)
    assert host.numpy().sum() == 6


globals()[sys.argv[1]]()
