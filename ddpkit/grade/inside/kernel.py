"""The sandbox's kernel, which replaces ipykernel_launcher.

The command is `python -m ddpkit.grade.inside.kernel -f FILE`.

The problem. A kernel and its forkserver are two programs, and each takes 1.5 s of processor time to
import torch: a third of the time to grade a small notebook. Here the kernel imports torch while it
has one thread and no open files, and then forks the forkserver from itself, so that no second
program starts.

A student's code sees no difference. As before, both processes belong to the same user in the same
sandbox, and the forkserver is forked before the kernel knows the first cell.
"""

from __future__ import annotations

import gc
import json
import multiprocessing.util
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ddpkit.cluster.local.launch import COMPILES, start_in_own_group, warm_up
from ddpkit.rank import compiler

_start_program = multiprocessing.util.spawnv_passfds


class _IsForkserver(BaseException):
    """Raised in the process that becomes the forkserver, to leave all locks and `with` blocks.

    code         the code that the forkserver's program would run
    descriptors  number of each descriptor that the program would inherit -> a copy; the original
                 descriptors are closed as the blocks end
    """

    def __init__(self, code: str, descriptors: dict[int, int]) -> None:
        self.code, self.descriptors = code, descriptors

    def become(self) -> None:
        """Run the forkserver in this process until the kernel has ended."""
        for number, kept in self.descriptors.items():
            os.dup2(kept, number)
            os.close(kept)
        exec(self.code, {})


def _fork(path: bytes, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
    """Start the forkserver as a fork of this process; replaces `util.spawnv_passfds`."""
    if "multiprocessing.forkserver" not in arguments[-1]:  # this program is the resource tracker
        return start_in_own_group(path, arguments, descriptors)
    if pid := os.fork():
        return pid
    os.setpgid(0, 0)
    raise _IsForkserver(arguments[-1], {number: os.dup(number) for number in descriptors})


def _needed_parts(folder: Path) -> Iterator[str]:
    """Yield the parts of torch's compiler that a cell or question in this folder may need."""
    cells = (
        cell.encode(errors="replace") for cell in json.loads((folder / "labels.json").read_text())
    )
    questions = (path.read_bytes() for path in folder.iterdir() if path.suffix != ".json")
    code = b"\0".join((*cells, *questions))
    if any(name in code for name in COMPILES):
        yield from compiler.PARTS
    # `y.backward(gradient)` imports this part; without an import here, each rank would import it
    elif b"backward" in code:
        yield compiler.PARTS[0]


def main() -> None:
    """Import torch, fork the forkserver, and run a Jupyter kernel."""
    gc.disable()  # off during the imports, which leave no garbage
    import torch  # noqa: F401

    compiler.put_off()
    for part in _needed_parts(Path(os.environ["DDPKIT_QUESTIONS"])):
        with suppress(ImportError):  # after the fork, each of the first ranks would import it
            compiler.load(part)
    import ddpkit.grade.inside.asking  # noqa: F401

    gc.freeze()
    gc.enable()
    multiprocessing.util.spawnv_passfds = _fork  # type: ignore[assignment]
    # A usual forkserver blocks SIGUSR2 too, which would end a process without a handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        warm_up()
    except _IsForkserver as forkserver:
        forkserver.become()
        return
    finally:
        multiprocessing.util.spawnv_passfds = _start_program
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    if Path(sys.path[0] or ".").resolve() == Path.cwd():  # ipykernel_launcher does the same
        del sys.path[0]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()


if __name__ == "__main__":
    main()
