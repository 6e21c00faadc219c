"""Connections of all ranks of a torchrun job to rank 0, for messages and to notice a rank's end.

The connection of a dead process closes at once, on any host, even if the process was killed or held
the GIL. TCP notices a host that is down or cut off after `SILENCE`.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from ddpkit.errors import ClusterError
from ddpkit.protocol.messages import Message, from_bytes, to_bytes

if TYPE_CHECKING:
    import torch.distributed as dist

PATIENCE = 60  # seconds for all ranks to reach rank 0; all ranks are running already
SILENCE = 20  # seconds without an answer, after which a host counts as gone
SECRET = 16  # length of the secret, in bytes


def connect(
    store: dist.Store, rank: int, size: int, address: str
) -> tuple[Connection, list[Connection]]:
    """Connect every rank to rank 0.

    Returns the rank's own end of the connection, and on rank 0 also rank 0's ends of the
    connections to all ranks. Rank 0 listens on `address` until all ranks are connected. Rank 0
    writes a secret to the job's store, and accepts no caller without the secret.
    """
    if rank != 0:
        host, port, secret = json.loads(store.get("rank 0"))
        line = socket.create_connection((host, port), timeout=PATIENCE)
        line.sendall(bytes.fromhex(secret) + rank.to_bytes(4, "little"))
        return _connection(line), []
    mine, ours = Pipe()
    lines = {0: ours}
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, backlog=size) as server:
        secret = secrets.token_bytes(SECRET)
        store.set("rank 0", json.dumps([*server.getsockname()[:2], secret.hex()]))
        for caller, line in _callers(server, secret):
            if 0 < caller < size:
                lines[caller] = _connection(line)
            if len(lines) == size:
                break
    return mine, [lines[each] for each in range(size)]


def _callers(server: socket.socket, secret: bytes) -> Iterator[tuple[int, socket.socket]]:
    """Yield the rank and the socket of each caller. A caller without the secret is disconnected."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            server.settimeout(max(0.001, give_up - time.monotonic()))
            line, _ = server.accept()
        except TimeoutError:
            raise ClusterError(
                f"some ranks did not reach rank 0 within {PATIENCE} s on port "
                f"{server.getsockname()[1]}: does a firewall stand between the hosts?"
            ) from None
        line.settimeout(5)
        try:
            greeting = line.recv(SECRET + 4, socket.MSG_WAITALL)
        except OSError:
            greeting = b""
        if hmac.compare_digest(greeting[:SECRET], secret):
            yield int.from_bytes(greeting[SECRET:], "little"), line
        else:
            line.close()


def _connection(line: socket.socket) -> Connection:
    line.settimeout(None)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    limits = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": SILENCE // 5 - 1}
    for name, value in {**limits, "TCP_USER_TIMEOUT": 1000 * SILENCE}.items():
        if hasattr(socket, name):  # each operating system has a different set of options
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection = Connection(line.detach())
    if hasattr(os, "register_at_fork"):  # a child with the socket open would hide the rank's end
        os.register_at_fork(after_in_child=connection.close)
    return connection


def send(line: Connection, message: Message) -> None:
    """Send a message. Raises OSError if the peer is gone."""
    line.send_bytes(to_bytes(message))


def receive(line: Connection) -> Message | None:
    """Return the next message; None if the peer is gone."""
    try:
        return from_bytes(line.recv_bytes())
    except (EOFError, OSError):
        return None
