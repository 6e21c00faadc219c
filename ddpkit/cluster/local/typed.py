"""The standard input of a script's rank 0, which is the launcher's."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection


def standard_input() -> Connection | None:
    """What rank 0 reads; None where there is nothing to be read.

    A file or a pipe is read by the rank itself. What is typed at a terminal is handed on: a rank
    has a process group of its own, which the terminal would stop for reading.
    """
    if os.name != "posix":
        return None
    try:
        here = os.dup(0)
    except OSError:  # closed
        return None
    if not os.isatty(here):
        return Connection(here, writable=False)
    reader, writer = Pipe(duplex=False)
    threading.Thread(target=_hand_on, args=(here, writer), name="ddpkit-typed", daemon=True).start()
    return reader


def _hand_on(here: int, writer: Connection) -> None:
    with suppress(OSError):  # the rank has ended
        while typed := os.read(here, 1 << 16):
            os.write(writer.fileno(), typed)
    writer.close()
