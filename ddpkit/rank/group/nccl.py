"""Makes NCCL groups, which work inside recorded groups, and handles their differences from gloo.

NCCL queues its work on the GPU and returns. A blocking call runs on the current stream, and returns
no Work. Messages of a batch must be posted together, because otherwise the second message would
wait for the first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import PrefixStore

from ddpkit import torch_private
from ddpkit.rank.group import arguments


def make(options: Any) -> dist.ProcessGroupNCCL:
    """Return a new NCCL group with the options of the recorded group's gloo group."""
    torch_private.require(torch_private.Feature.NCCL)
    settings = dist.ProcessGroupNCCL.Options()
    torch_private.set_timeout(settings, options.timeout)
    store = PrefixStore("nccl", options.store)
    return dist.ProcessGroupNCCL(store, options.group_rank, options.group_size, settings)


def post_batches_as_one() -> None:
    """Make `batch_isend_irecv` work on ddpkit's groups as it does on NCCL's own groups.

    torch's function checks for NCCL's class, and posts messages of any other class one by one: on
    NCCL, two ranks that send to each other would wait forever.
    """
    original: Callable[..., Any] = dist.batch_isend_irecv

    @functools.wraps(original)
    def batch_isend_irecv(p2p_op_list: list[object]) -> list[object]:
        first = next(iter(p2p_op_list), None)
        group: Any = getattr(first, "group", None) or dist.group.WORLD
        on_gpu = arguments.on_gpu(getattr(first, "tensor", None), None)
        if not (on_gpu and getattr(group, "has_nccl", False)):
            return list(original(p2p_op_list))
        with group.as_one() as works:
            original(p2p_op_list)
        return list(works)

    for home in (dist, dist.distributed_c10d):
        home.batch_isend_irecv = batch_isend_irecv  # type: ignore[attr-defined]
