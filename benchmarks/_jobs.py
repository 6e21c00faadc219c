"""What ranks do for a benchmark: functions that every world (see `_worlds`) runs alike.

Each is called inside a default process group, and returns plain numbers or a tensor.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

TENSOR = 25_000_000  # float32 values: 100 MB


def nothing() -> None:
    """An empty function: what is left is the start of ranks and group, and their end."""


def raises() -> None:
    """Rank 1 fails while the others wait for it."""
    import torch.distributed as dist

    if dist.get_rank() == 1:
        raise ValueError("on purpose")
    dist.barrier()


def is_killed() -> None:
    """Rank 1 is killed from outside while the others wait for it."""
    import torch.distributed as dist

    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def deadlocks() -> None:
    """Every rank waits to receive from the next one."""
    import torch
    import torch.distributed as dist

    dist.recv(torch.zeros(1), src=(dist.get_rank() + 1) % dist.get_world_size())


def memory() -> float:
    """Memory of this rank in MB, as PSS: a page shared by n processes counts 1/n.

    Taken while all ranks live: as the function begins, so before it has used any memory itself.
    """
    import torch.distributed as dist

    dist.barrier()
    size = pss("self")
    dist.barrier()
    return size


def pss(process: int | str) -> float:
    """MB of a process; nan where the system does not tell."""
    try:
        with open(f"/proc/{process}/smaps_rollup") as file:
            return next(int(line.split()[1]) / 1000 for line in file if line.startswith("Pss:"))
    except OSError:
        return float("nan")


def gives() -> tuple[int, Any]:
    """Return 100 MB, and the time when it was ready to leave."""
    import torch
    import torch.distributed as dist

    tensor = torch.ones(TENSOR)
    dist.barrier()
    return time.perf_counter_ns(), tensor


def takes(tensor: Any) -> int:
    """The time when the function was entered, its argument in hand."""
    assert tensor[-1] == 1
    return time.perf_counter_ns()


def in_group(rank: int, ranks: int, store: str, job: str, arguments: tuple[Any, ...]) -> Any:
    """Run a job inside a process group made by hand: what ddpkit does for its own ranks."""
    import torch
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    result = globals()[job](*arguments)
    dist.barrier()  # whoever leaves first would break the others
    dist.destroy_process_group()
    return result
