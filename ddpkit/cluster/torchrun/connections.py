"""Connections of all ranks of a torchrun job to rank 0: they carry messages, and the end of a rank.

The end of a connection tells that a process is gone, at once and on whichever host, even if it was
killed or holds the GIL. A host that is down or cut off is noticed by TCP, after `SILENCE`.
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
from typing import Any

from ddpkit.errors import ClusterError
from ddpkit.protocol.messages import Message, from_bytes, to_bytes

PATIENCE = 60  # seconds in which all ranks must have reached rank 0; all are running already
SILENCE = 20  # seconds after which a host that does not answer counts as gone
SECRET = 16  # bytes


def connect(store: Any, rank: int, size: int, address: str) -> tuple[Connection, list[Connection]]:
    """Connect every rank to rank 0. Returns the rank's own end, and on rank 0 those of all ranks.

    Rank 0 listens on `address`, only until all are there. It accepts nobody without the secret that
    it has left in the job's store.
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
    """The ranks that connect, with their lines; a stranger is hung up on."""
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
        if hasattr(socket, name):  # which of them there are is the system's matter
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection = Connection(line.detach())
    if hasattr(os, "register_at_fork"):  # a child would hide the end of its rank
        os.register_at_fork(after_in_child=connection.close)
    return connection


def send(line: Connection, message: Message) -> None:
    """Send a message. Raises OSError if the other side is gone."""
    line.send_bytes(to_bytes(message))


def receive(line: Connection) -> Message | None:
    """The next message; None if the other side is gone."""
    try:
        return from_bytes(line.recv_bytes())
    except (EOFError, OSError):
        return None
