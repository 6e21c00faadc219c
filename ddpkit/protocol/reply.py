"""`Reply`: the last message of a rank, after its function has returned or raised."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from ddpkit.protocol.raised import Raised
from ddpkit.protocol.replica import Replica
from ddpkit.trace import Dropped, MemoryLevel, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddpkit.protocol.ship import Part


@dataclass(frozen=True)
class Reply:
    """The last message of a rank in a run: its spans, and its result or its exception."""

    spans: list[Span]
    dropped: Dropped  # the number of spans and steps that the recorder of a long run has dropped
    raised: Raised | None = None  # None if the function returned
    # made by `ship.pack_result`; empty after an exception
    result: Sequence[Part] = field(default_factory=list)
    memory: list[MemoryLevel] = field(default_factory=list)  # memory levels of a modelled machine
    imported: bool = False  # True if the rank's program has imported a part of torch's compiler
    reads: Mapping[tuple[str, int], int] = field(default_factory=dict)  # see `Recorder.reads`
    has_joined: bool = True  # True if the rank has joined the default process group
    # models that should be equal on all ranks
    replicas: list[Replica] = field(default_factory=list)
    limit: float | None = None  # the timeout of the default group in a script, in seconds
    timed: str = ""  # on a device: lines of the program that measure launches
    # printed lines, if no launcher reads the output
    printed: list[str] = field(default_factory=list)


def send_reply(connection: Connection, reply: Reply) -> None:
    """Send a reply in parts, after a list of the parts' sizes in bytes.

    The first part is the reply without its result; the parts of the result follow as they are.
    """
    parts = [pickle.dumps(replace(reply, result=[])), *reply.result]
    connection.send_bytes(pickle.dumps([memoryview(part).nbytes for part in parts]))
    for part in parts:
        connection.send_bytes(part)


def receive_reply(connection: Connection) -> Reply:
    """Return the reply that `send_reply` sent; the parts of its result are bytearrays.

    Raises EOFError if the sender's process ends before the last part.
    """
    sizes: list[int] = pickle.loads(connection.recv_bytes())
    head, *result = (_receive(connection, size) for size in sizes)
    reply: Reply = pickle.loads(head)
    return replace(reply, result=result)


def _receive(connection: Connection, size: int) -> bytearray:
    """Return a message of a known size; on POSIX, read it straight into its final buffer."""
    if os.name != "posix":
        return bytearray(connection.recv_bytes())
    descriptor, part = connection.fileno(), bytearray(size)
    view = memoryview(part)
    # skip the header that `Connection.send_bytes` writes before a message
    _read_into(descriptor, memoryview(bytearray(4 if size <= 0x7FFFFFFF else 12)))
    _read_into(descriptor, view)
    return part


def _read_into(descriptor: int, view: memoryview) -> None:
    while view.nbytes:
        count = os.readv(descriptor, [view])
        if not count:
            raise EOFError
        view = view[count:]
