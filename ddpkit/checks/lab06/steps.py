"""Lab 06: a DistributedDataParallel put through its paces on ranks, beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Answer = Callable[..., Any]
WIDTHS = (6, 10, 14, 3)
CAP_MB = 0.0001  # 105 bytes
SIZES = (8, 16, 24, 32)  # of the layers of `sizes`
BUCKETS = 4  # that this cap makes of `model`


def model(seed: int = 0) -> Any:
    """Three layers of different sizes, a batch norm for its buffers, and a frozen parameter."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    a, b, c, d = WIDTHS
    net = nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.Linear(b, c), nn.Linear(c, d))
    net.fixed = nn.Parameter(torch.rand(2), requires_grad=False)
    return net


def batch(step: int, rank: int) -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(4, WIDTHS[0], generator=generator)
    return x, torch.randint(WIDTHS[-1], (4,), generator=generator)


def loss_of(ddp: Any, step: int) -> Any:
    import torch
    import torch.distributed as dist

    x, y = batch(step, dist.get_rank())
    return torch.nn.functional.cross_entropy(ddp(x), y)


def torchs(module: Any, **options: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(module, gradient_as_bucket_view=True, **options)


def _gradients(ddp: Any) -> list[Any]:
    return [None if p.grad is None else p.grad.clone() for p in ddp.parameters()]


def same(one: Any, other: Any) -> bool:
    """Bit for bit, of lists of tensors and None."""
    import torch

    return len(one) == len(other) and all(
        a is b if a is None or b is None else bool(torch.equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


def start(answer: Answer) -> bool:
    """Whether a rank begins with the parameters and buffers of rank 0, whose seed is 0."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    mine, wanted = model(seed=rank), model(seed=0)
    mine[0].requires_grad_(False)
    mine[1].running_mean += rank
    with torch.no_grad():
        wrapped = answer(mine, bucket_cap_mb=CAP_MB, broadcast_buffers=False)
    parameters = same(list(wrapped.module.parameters()), list(wanted.parameters()))
    return parameters and same(list(wrapped.module.buffers()), list(wanted.buffers()))


def steps(answer: Answer, micro_batches: int) -> tuple[list[Any], list[Any], list[int]]:
    """Three steps: the gradients of each, the parameters at the end, and how the buckets lie.

    All but the last of a step's micro-batches are inside `no_sync`.
    """
    import torch
    import torch.distributed as dist

    ddp = answer(model(seed=dist.get_rank()), bucket_cap_mb=CAP_MB)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    gradients, storages = [], []
    for step in range(3):
        optimizer.zero_grad()
        for micro in range(micro_batches - 1):
            with ddp.no_sync():
                loss_of(ddp, 10 * step + micro).backward()
        loss_of(ddp, 10 * step + 9).backward()
        gradients += _gradients(ddp)
        trained = [p.grad for p in ddp.parameters() if p.requires_grad]
        storages.append(len({gradient.untyped_storage().data_ptr() for gradient in trained}))
        optimizer.step()
    return gradients, [p.detach().clone() for p in ddp.parameters()], storages


def beside_torchs(answer: Answer, micro_batches: int = 1) -> tuple[bool, int]:
    """Whether gradients and parameters are torch's, and how many pieces of memory they lie in."""
    mine, theirs = steps(answer, micro_batches), steps(torchs, micro_batches)
    return same(mine[0], theirs[0]) and same(mine[1], theirs[1]), mine[2][-1]


def gated(answer: Answer) -> list[Any]:
    """A backward on two ranks; rank 1 begins its own when rank 0 has made all its gradients.

    Whoever waits inside a hook waits for ever: rank 1's buckets come later. Gives the gradients as
    they are when backward returns.
    """
    import torch
    import torch.distributed as dist

    rank, token = dist.get_rank(), torch.zeros(1)

    class Gate(torch.autograd.Function):
        """Its backward comes after those of all layers."""

        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            if rank == 0:
                dist.send(token, dst=1)
            return gradient

    ddp = answer(model(), bucket_cap_mb=CAP_MB, broadcast_buffers=False)
    x, y = batch(0, rank)
    loss = torch.nn.functional.cross_entropy(ddp(Gate.apply(x.requires_grad_())), y)  # type: ignore[no-untyped-call]
    if rank == 1:
        dist.recv(token, src=0)
    loss.backward()  # type: ignore[no-untyped-call]
    return _gradients(ddp)


def branches() -> Any:
    """Layers of which a forward uses those that it is told, in that order."""
    import torch
    from torch import nn

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Any, use: list[int]) -> Any:
            for i in use:
                x = self.layers[i](x)
            return x

    torch.manual_seed(0)
    return Branches()


def partly_used(answer: Answer, use: list[int]) -> tuple[bool, list[int]]:
    """Whether two backwards, which use only some layers, give what torch's do; and which layers
    have no gradient afterwards."""
    import torch

    found = []
    for wrap in (answer, torchs):
        ddp = wrap(branches(), bucket_cap_mb=0, find_unused_parameters=True)
        for step in range(2):
            ddp.zero_grad()
            ddp(torch.full((1, 4), step + 1.0), use).sum().backward()
        found.append(_gradients(ddp))
    mine, theirs = found
    return same(mine, theirs), [i for i, g in enumerate(mine[::2]) if g is None]


def said_of_missing(answer: Answer) -> str:
    """What backward says when a layer is left out on all ranks."""
    import torch

    ddp = answer(branches(), bucket_cap_mb=0)
    try:
        ddp(torch.ones(1, 4), [0, 2]).sum().backward()
    except RuntimeError as error:
        return "names layers.1" if "layers.1.weight" in str(error) else str(error)
    return "nothing"


def sizes(answer: Answer) -> None:
    """Three backwards; the four layers, of 32 to 128 bytes, are not used in their order."""
    import torch
    from torch import nn

    class Shuffled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(1, n, bias=False) for n in SIZES)

        def forward(self, x: Any) -> Any:
            return sum(self.layers[i](x := x * 1.5).sum() for i in (2, 0, 3, 1))

    ddp = answer(Shuffled(), bucket_cap_mb=0)
    for _ in range(3):
        ddp.zero_grad()
        ddp(torch.ones(1, 1)).backward()
        torch.optim.SGD(ddp.parameters(), lr=0.0).step()


def default_caps(answer: Answer) -> None:
    """A backward of more than 1 MB."""
    import torch
    from torch import nn

    layers = nn.Linear(1, 1024), nn.Linear(1024, 256, bias=False), nn.Linear(256, 1)
    answer(nn.Sequential(*layers))(torch.ones(1, 1)).sum().backward()


def all_reduces(trace: Any, rank: int = 0) -> list[int]:
    """The bytes of each all_reduce of a rank, as they were posted."""
    spans = (span for span in trace.of(rank) if span.name == "all_reduce")
    return [span.bytes for span in sorted(spans, key=lambda span: span.start_ns)]


def linear(seed: int = 0) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTHS[0], 5), nn.Tanh(), nn.Linear(5, WIDTHS[-1]))


def two_forwards(answer: Answer) -> tuple[list[Any], list[Any]]:
    """The gradients after their two backwards, and what a third one adds."""
    ddp = answer(linear(), bucket_cap_mb=CAP_MB)
    losses = [loss_of(ddp, step) for step in range(2)]
    for loss in losses:
        loss.backward(retain_graph=True)
    both = _gradients(ddp)
    losses[0].backward()
    return both, [now - before for now, before in zip(_gradients(ddp), both, strict=True)]


def one_backward(answer: Answer) -> list[Any]:
    """The gradients after one backward from rank 0's start."""
    import torch.distributed as dist

    ddp = answer(linear(seed=dist.get_rank()))
    loss_of(ddp, 0).backward()
    return _gradients(ddp)
