"""Nested tensors, and the types with which old scripts make tensors of a GPU."""

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
torch.cuda.set_device(0)
cuda: Any = torch.cuda
torch_: Any = torch
parts = [torch.randn(3, 8), torch.randn(5, 8)]
jagged: Any = torch.jagged
for layout in (torch.strided, jagged):
    nested = torch.nested.nested_tensor(parts, layout=layout, device="cuda")
    assert nested.unbind()[0].is_cuda
rows: Any = torch.nested.nested_tensor(parts, layout=jagged, device="cuda")
assert nn.Linear(8, 4).cuda()(rows).values().device.type == "cuda"
queries = rows.unflatten(-1, [2, 4]).transpose(1, 2)
assert nn.functional.scaled_dot_product_attention(queries, queries, queries).is_nested
if "causal" in sys.argv:
    nn.functional.scaled_dot_product_attention(queries, queries, queries, is_causal=True)
if "storage" in sys.argv:
    torch.UntypedStorage(3, device="cuda")
made = [cuda.FloatTensor([1.0, 2.0]), cuda.LongTensor(2, 3), cuda.HalfTensor(torch.Size([2]))]
assert [each.device.type for each in made] == ["cuda"] * 3
assert made[1].shape == (2, 3)
assert made[1].dtype == torch.int64
assert isinstance(made[0], cuda.FloatTensor)
assert not isinstance(torch.ones(2), cuda.FloatTensor)
assert torch.ones(2).type(cuda.DoubleTensor).is_cuda
assert made[0].new(3).is_cuda
assert made[0].new_tensor([1.0]).is_cuda
assert not made[0].new_ones(2, device="cpu").is_cuda
torch_.set_default_tensor_type(cuda.FloatTensor)
assert torch.ones(2).is_cuda
torch_.set_default_tensor_type(torch.FloatTensor)
assert not torch.ones(2).is_cuda
dist.all_reduce(made[0])
