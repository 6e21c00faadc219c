"""Functions and classes of a cell, which torch sends by their name: they are found on a peer."""

from __future__ import annotations

import socket
import sys
import textwrap
import types
from typing import Any

import pytest

from ddpkit import Cluster

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


def test_a_remote_call_of_a_cells_function(cell: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert Cluster(2).run(cell["calls"], port, timeout=60).results == [10, 11]


@pytest.mark.parametrize("network", [{}, {"link": "1 Gbit/s, 20 us"}])
def test_objects_of_a_cells_class(cell: dict[str, Any], network: dict[str, str]) -> None:
    assert Cluster(2, **network).run(cell["gathers"]).results == [[0, 1]] * 2
