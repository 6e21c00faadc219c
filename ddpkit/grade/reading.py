"""A submission read by a process of its own: whoever made it, its reading ends, and soon.

The limits are of processor time and memory, so a busy machine refuses nobody.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from multiprocessing.connection import Connection
from pathlib import Path

from ddpkit.grade.cellnames import names_in
from ddpkit.grade.course import lab_of
from ddpkit.grade.submission import Refused, Submission, read

READ_S = 20  # seconds of processor time; an honest notebook takes less than one
PATIENCE = 30  # times that, on a busy machine
MEMORY = 3 << 30  # bytes, on top of what the grader has

Read = tuple[Submission, str | None]  # a submission, and the lab that it is of


def read_apart(path: Path) -> Read:
    """Read a submission, and find its lab. Raises Refused: see `read`, or it takes too much."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_read, args=(path, sending), daemon=True)
    process.start()
    sending.close()
    try:
        if not receiving.poll(READ_S * PATIENCE):
            raise EOFError
        answer: Read | str = receiving.recv()
    except (EOFError, OSError):  # the second: it ended in the middle of its answer
        raise Refused(
            f"reading it takes more than {READ_S} s or {MEMORY >> 30} GB: Python code without "
            "thousands of magics or brackets does not"
        ) from None
    finally:
        process.kill()
        process.join()
        process.close()
        receiving.close()
    if isinstance(answer, str):
        raise Refused(answer)
    return answer


def _read(path: Path, sending: Connection) -> None:
    grow_by(MEMORY)
    resource.setrlimit(resource.RLIMIT_CPU, (READ_S, READ_S + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        submission = read(path)
        for cell in submission.cells:  # as slow as any of it can be, so it is done here
            names_in(cell.source)
        answer: Read | str = submission, lab_of(submission)
    except Refused as error:
        answer = str(error)
    except MemoryError:
        os._exit(1)
    sending.send(answer)


def grow_by(memory: int) -> None:
    """Let this process have so many bytes more than it has, and no more; not what it starts."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + memory
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
