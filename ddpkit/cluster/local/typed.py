"""The standard input of a script's rank 0: the launcher passes on its own standard input."""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

LOOK = 0.2  # seconds between two looks at a terminal that belongs to the shell


def standard_input() -> Connection | None:
    """Return the standard input for rank 0; None if the launcher has no standard input.

    The rank itself reads a file or a pipe. A rank has its own process group, and a terminal stops a
    background process group that reads from it. So a thread passes on the text that is typed in a
    terminal.
    """
    if os.name != "posix":
        return None
    try:
        here = os.dup(0)
    except OSError:  # standard input is closed
        return None
    if not os.isatty(here):
        return Connection(here, writable=False)
    reader, writer = Pipe(duplex=False)
    threading.Thread(target=_hand_on, args=(here, writer), name="ddpkit-typed", daemon=True).start()
    return reader


def _hand_on(here: int, writer: Connection) -> None:
    typed = b"?"
    with suppress(OSError):  # the rank has ended
        while typed:
            select.select([here], [], [])
            # typed text belongs to the shell, and reading it would stop this process
            if _in_the_background(here):
                time.sleep(LOOK)
                continue
            typed = os.read(here, 1 << 16)
            os.write(writer.fileno(), typed)
    writer.close()


def _in_the_background(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:  # the terminal belongs to no shell
        return False
