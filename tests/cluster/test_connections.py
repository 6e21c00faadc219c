"""The connection of each rank to rank 0: strangers are refused, an end is noticed."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from ddpkit.cluster.torchrun import connections
from ddpkit.errors import ClusterError
from ddpkit.protocol.call import Call
from ddpkit.protocol.messages import Failed, Goodbye, JobEnded, News
from ddpkit.protocol.raised import Raised
from ddpkit.protocol.status import RankStatus

SEND = Call("send", "", ("f.py", 3), "isend", 1, shape=(2,), dtype="float32", bytes=8, seq=4)
MESSAGES = [
    News(RankStatus(7, "running", ("f.py", 3), "isend", SEND, 1, 1, 2, 3), [SEND, SEND], 5),
    News(RankStatus(8, "returned", ("", 0), "", None, 1, 1, 2, 3), [], 0),
    Goodbye(),
    JobEnded(),
]


def test_ranks_get_through_and_strangers_do_not():
    store = dist.HashStore()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(connections.connect, store, 0, 3, "127.0.0.1")
        host, port, secret = json.loads(store.get("rank 0"))
        for greeting in (
            b"GET / HTTP/1.1\r\n\r\n--",
            bytes.fromhex(secret)[:-1] + b"x\1\0\0\0",
        ):
            with socket.create_connection((host, port), timeout=20) as stranger:
                stranger.sendall(greeting)
                assert stranger.recv(1) == b"", "hung up on"
        second = pool.submit(connections.connect, store, 1, 3, "127.0.0.1")
        third, none = connections.connect(store, 2, 3, "127.0.0.1")
        mine, lines = first.result(20)
    assert (none, second.result(20)[1]) == ([], [])
    for rank, line in enumerate([mine, second.result()[0], third]):
        for message in (Failed(Raised("KeyError", f"of rank {rank}")), *MESSAGES):
            connections.send(line, message)
            assert connections.receive(lines[rank]) == message
    third.close()
    assert connections.receive(lines[2]) is None
    lines[0].close()
    assert connections.receive(mine) is None


def test_a_rank_that_never_calls_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    with pytest.raises(ClusterError, match="some ranks did not reach rank 0 .* firewall"):
        connections.connect(dist.HashStore(), 0, 2, "127.0.0.1")
