"""The functions that ranks run for a benchmark, in every world (see `_worlds`).

Each function is called inside a default process group, and returns plain numbers or a tensor.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

TENSOR = 25_000_000  # float32 values: 100 MB


def nothing() -> None:
    """Do nothing, so that a run has only the start and the end of ranks and group."""


def raises() -> None:
    """Fail on rank 1, while the other ranks wait for rank 1."""
    import torch.distributed as dist

    if dist.get_rank() == 1:
        raise ValueError("on purpose")
    dist.barrier()


def is_killed() -> None:
    """Kill rank 1, while the other ranks wait for rank 1."""
    import torch.distributed as dist

    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def deadlocks() -> None:
    """Let every rank wait to receive from the next rank."""
    import torch
    import torch.distributed as dist

    dist.recv(torch.zeros(1), src=(dist.get_rank() + 1) % dist.get_world_size())


def memory() -> float:
    """Return the memory of this rank in MB, as PSS: a page shared by n processes counts 1/n.

    The memory is read at the beginning of the function, while all ranks live.
    """
    import torch.distributed as dist

    dist.barrier()
    size = pss("self")
    dist.barrier()
    return size


def pss(process: int | str) -> float:
    """Return the MB of a process, as PSS; nan if the system does not tell."""
    try:
        with open(f"/proc/{process}/smaps_rollup") as file:
            return next(int(line.split()[1]) / 1000 for line in file if line.startswith("Pss:"))
    except OSError:
        return float("nan")


def gives() -> tuple[int, Any]:
    """Return the time at which a tensor of 100 MB was ready, and the tensor."""
    import torch
    import torch.distributed as dist

    tensor = torch.ones(TENSOR)
    dist.barrier()
    return time.perf_counter_ns(), tensor


def takes(tensor: Any) -> int:
    """Return the time at which the function began, with its argument received."""
    assert tensor[-1] == 1
    return time.perf_counter_ns()


def in_group(rank: int, ranks: int, store: str, job: str, arguments: tuple[Any, ...]) -> Any:
    """Run a job inside a process group made by hand, as ddpkit does for its own ranks."""
    import torch
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    result = globals()[job](*arguments)
    dist.barrier()  # a rank that leaves early would break the group of the other ranks
    dist.destroy_process_group()
    return result
