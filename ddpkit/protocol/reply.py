"""`Reply`: what a rank has to say when its function has returned or raised."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

from ddpkit.protocol.raised import Raised
from ddpkit.protocol.replica import Replica
from ddpkit.trace import Dropped, MemoryLevel, Span


@dataclass(frozen=True)
class Reply:
    """The end of a rank's part in a run."""

    spans: list[Span]
    dropped: Dropped  # what a long run's spans do not hold any more
    raised: Raised | None = None  # None if the function returned
    result: list[Any] = field(default_factory=list)  # of `ship.pack_result`; empty if it raised
    memory: list[MemoryLevel] = field(default_factory=list)  # of a modelled machine
    imported: bool = False  # a part of torch's compiler, which was not there when the rank began
    reads: Mapping[tuple[str, int], int] = field(default_factory=dict)  # see `Recorder.reads`
    has_joined: bool = True  # the default process group
    replicas: list[Replica] = field(default_factory=list)  # models that should be equal
    limit: float | None = None  # seconds: the timeout that a script gives its default group
    timed: str = ""  # on a device: lines of the program that measure launches
    printed: list[str] = field(default_factory=list)  # lines, where the launcher has not read them


def send_reply(connection: Connection, reply: Reply) -> None:
    """Send a reply in parts: their sizes in bytes come first.

    The reply follows without the parts of its result, and then these as they are.
    """
    parts = [pickle.dumps(replace(reply, result=[])), *reply.result]
    connection.send_bytes(pickle.dumps([memoryview(part).nbytes for part in parts]))
    for part in parts:
        connection.send_bytes(part)


def receive_reply(connection: Connection) -> Reply:
    """The reply that `send_reply` sent; the parts of its result are bytearrays.

    Raises EOFError if the sender is gone before the end.
    """
    sizes: list[int] = pickle.loads(connection.recv_bytes())
    head, *result = (_receive(connection, size) for size in sizes)
    reply: Reply = pickle.loads(head)
    return replace(reply, result=result)


def _receive(connection: Connection, size: int) -> bytearray:
    """One message of a known size, read straight into its place where the system has pipes."""
    if os.name != "posix":
        return bytearray(connection.recv_bytes())
    descriptor, part = connection.fileno(), bytearray(size)
    view = memoryview(part)
    _read_into(descriptor, memoryview(bytearray(4 if size <= 0x7FFFFFFF else 12)))  # its header
    _read_into(descriptor, view)
    return part


def _read_into(descriptor: int, view: memoryview) -> None:
    while view.nbytes:
        count = os.readv(descriptor, [view])
        if not count:
            raise EOFError
        view = view[count:]
