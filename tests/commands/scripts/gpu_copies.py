"""Moves to a GPU and back, with and without a copy; the script is also right on a real GPU."""

import copy

import torch
import torch.distributed as dist
from torch import nn

gpu = torch.device("cuda", 0)


def changes(given, moved):
    """Return True if a change of `moved` also changes `given`."""
    before = given.detach().clone()
    with torch.no_grad():
        moved.add_(1)
    return not torch.equal(before.cpu(), given.detach().cpu())


x = torch.zeros(3)
assert not changes(x, x.cuda())
assert not changes(x, x.to(gpu))
assert not changes(x, x.to("cuda", torch.float32))
assert not changes(x, torch.as_tensor(x, device=gpu))

y = torch.zeros(4, device="cuda")
assert changes(y, y.cuda())
assert changes(y, y.to(gpu))
assert changes(y, y[:2].cuda())
assert not changes(y, y.cpu())
assert not changes(y, y.to("cpu"))
assert not changes(y, torch.ones(4, device=gpu).mul_(0).cpu())
assert not changes(y * 2, (y * 2).cpu())

weight = torch.zeros(3, requires_grad=True)
assert weight.cpu() is weight
assert weight.to("cpu") is weight
assert not weight.cuda().is_leaf
weight.cuda().sum().backward()
assert weight.grad is not None
on_gpu = torch.zeros(3, device=gpu, requires_grad=True)
assert on_gpu.cuda() is on_gpu
assert not on_gpu.cpu().is_leaf

model = nn.Linear(2, 2)
first = model.state_dict()
parameter = model.weight
model.cuda()
assert model.weight is parameter
assert not changes(first["weight"], model.weight.data)
best = {name: value.cpu() for name, value in model.state_dict().items()}
assert not changes(best["weight"], model.weight.data)
assert changes(model.weight, model.to(gpu).weight.data)
half = copy.deepcopy(model).to("cuda", torch.float16)
assert half.weight.dtype == torch.float16
assert not changes(model.weight, model.cpu().weight.data * 1)

with torch.device("cuda"):
    inside = nn.Linear(2, 2)
assert inside.weight.cpu() is not inside.weight
torch.set_default_device("cuda:0")
made = torch.ones(2)
assert not changes(made, made.cpu())
torch.set_default_device("cpu")
assert torch.ones(2).cpu().sum() == 2

assert torch.cuda.FloatTensor([1.5]).item() == 1.5
generator = torch.Generator(device="cuda")
assert isinstance(generator, torch.Generator)
assert isinstance(torch.default_generator, torch.Generator)
assert torch.rand(3, device=gpu, generator=generator.manual_seed(1)).shape == (3,)
assert not changes(x, torch.nn.utils.parameters_to_vector([nn.Parameter(x)]).cuda())
try:
    torch.cuda.set_device(99)
except (ValueError, RuntimeError):
    dist.init_process_group()
    dist.barrier()
