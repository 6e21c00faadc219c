"""RPC with functions and classes of a cell: torch sends names, and the peer finds them."""

from __future__ import annotations

import socket
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed import rpc

from ddpkit import Cluster, RankError

LINK = "1 Gbit/s, 20 us"
TIMES = [{}, {"link": LINK}, {"machine": "laptop core", "link": LINK}]
pytestmark = pytest.mark.processes

CELL = """
import os
from dataclasses import dataclass
import torch.distributed as dist
import torch.distributed.rpc as rpc

@dataclass
class Box:
    number: int

def add(a, b):
    return Box(a.number + b)

def calls(port):
    rank = dist.get_rank()
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    got = rpc.rpc_sync(f"worker{1 - rank}", add, args=(Box(rank), 10)).number
    rpc.shutdown()
    return got

def gathers():
    boxes = [None, None]
    dist.all_gather_object(boxes, Box(dist.get_rank()))
    return [box.number for box in boxes]
"""


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the names of a notebook's main module after a cell."""
    main = types.ModuleType("__main__")
    exec(compile(textwrap.dedent(CELL), "<cell>", "exec"), vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    return vars(main)


@pytest.mark.parametrize("time", TIMES, ids=["real", "link", "machine"])
def test_a_remote_call_of_a_cells_function(cell: dict[str, Any], time: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert Cluster(2, **time).run(cell["calls"], port, timeout=60).results == [10, 11]


@pytest.mark.parametrize("time", TIMES, ids=["real", "link", "machine"])
def test_ranks_that_join_late_hold_up_nobody(tmp_path: Path, time: dict[str, str]) -> None:
    """Rank 0 waits in a file for the other ranks, which wait for a message from rank 0."""

    def meets() -> None:
        place = [f"file://{tmp_path}/rpc"]
        dist.broadcast_object_list(place, src=0)
        options = rpc.TensorPipeRpcBackendOptions(init_method=place[0])
        rank = dist.get_rank()
        rpc.init_rpc(f"w{rank}", rank=rank, world_size=3, rpc_backend_options=options)
        dist.barrier()
        rpc.shutdown()

    Cluster(3, **time).run(meets, timeout=60)
    with pytest.raises(RankError, match="init_rpc"):
        Cluster(2, **time).run(lambda: rpc.init_rpc("w", backend="no backend"), timeout=60)


@pytest.mark.parametrize("network", TIMES[:2])
def test_objects_of_a_cells_class(cell: dict[str, Any], network: dict[str, str]) -> None:
    assert Cluster(2, **network).run(cell["gathers"]).results == [[0, 1]] * 2
