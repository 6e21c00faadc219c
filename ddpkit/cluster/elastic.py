"""`torchrun` from a notebook: real torchrun, without processes left behind.

`!torchrun` in a cell leaves its ranks behind if the reader stops the cell, or if the kernel dies.
This module puts a process between notebook and torchrun, the `guardian`, which ends the ranks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ddpkit.cluster import blame
from ddpkit.cluster.stopped import check_timeout
from ddpkit.cluster.torchrun import job
from ddpkit.errors import ClusterError
from ddpkit.rank.process import loopback
from ddpkit.text import count

GUARDIAN = Path(__file__).with_name("guardian.py")
MOST = 1000  # lines of output to show and keep
# Without this variable, in torch 2.13, a second attempt reads the first attempt's addresses from
# the store of the agent, and fails to connect or hangs (pytorch/pytorch#135712).
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


# torch.distributed.elastic's words on the first failed rank, and a line of a rank's traceback
FAILED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: \d+\)")
OF_A_TRACEBACK = re.compile(r"\[rank(\d+)\]: (\S.*)$")


@dataclass(frozen=True)
class ElasticRun:
    """The outcome of a script under torchrun.

    code      torchrun's exit code: 0 if all ranks of the last attempt ended well
    output    the first 1000 lines that torchrun and the ranks printed
    restarts  for each restart of all ranks, the failure that caused it: "rank 1: ValueError: bad
              batch"
    """

    code: int
    output: str
    restarts: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return, for example, "exit code 0, after 1 restart (rank 1: ended by SIGKILL)"."""
        because = f" ({'; '.join(self.restarts)})" if self.restarts else ""
        return f"exit code {self.code}, after {count(len(self.restarts), 'restart')}{because}"


def torchrun(
    script: str | Path,
    *arguments: str,
    ranks: int,
    max_restarts: int = 0,
    timeout: float | None = None,
    show: bool = True,
) -> ElasticRun:
    """Run a script on `ranks` ranks under torchrun's agent; print the ranks' output if `show`.

    After a failure the agent starts all ranks again, at most `max_restarts` times. No process
    remains after torchrun's end, after the user stops the cell, or after the kernel's death (on
    Linux; on other systems, torchrun itself may leave processes behind). A failed run raises no
    error: check the result's `code`.

    Raises ClusterError for a missing script or a wrong timeout, RunTimeout after `timeout` seconds.
    """
    check_timeout(timeout, "torchrun")
    path = Path(script)
    if not path.is_file():
        raise ClusterError(f"torchrun() cannot run the script {path}: there is no such file")
    if job.active():
        print("Left out under torchrun: this cell starts a torchrun of its own.")
        return ElasticRun(0, "")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), "--max-restarts", str(max_restarts)]
    return _guarded([*command, str(path), *arguments], timeout, show)


class _Lifeline:
    """A pipe with its writing end only in this process.

    The guardian ends torchrun when the writing end is closed.
    """

    def __init__(self) -> None:
        self.end, self._held = os.pipe()
        self._lock, self._open, self.late = threading.Lock(), True, False

    def let_go(self, late: bool = False) -> None:
        """Close the writing end, once: at the end of the call, or at its timeout (`late`)."""
        with self._lock:
            if self._open:
                os.close(self._held)
                self._open, self.late = False, late


def _guarded(command: list[str], timeout: float | None, show: bool) -> ElasticRun:
    """Run a command under a guardian, which ends the command when this process or call ends."""
    lifeline = _Lifeline()
    clock = threading.Timer(timeout or 0, lifeline.let_go, [True])
    guardian = None
    try:
        guardian = _start(command, lifeline.end)
        if timeout is not None:
            clock.start()
        output, failures = _read(guardian, show)
    finally:
        clock.cancel()
        lifeline.let_go()
        os.close(lifeline.end)
        if guardian is not None:
            # a second press of Stop: the guardian ends in any case
            with suppress(KeyboardInterrupt):
                guardian.wait()
    if lifeline.late and timeout is not None:
        raise blame.late_torchrun(timeout)
    # No restart follows the last failure of a failed run.
    run = ElasticRun(
        guardian.returncode, output, tuple(failures[:-1] if guardian.returncode else failures)
    )
    if show and run.restarts:
        print(f"torchrun ended with {run}.")
    return run


def _start(command: list[str], lifeline: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", str(GUARDIAN), str(lifeline), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=[lifeline],
        start_new_session=True,  # the stop button's signal should reach this process only
        env={"OMP_NUM_THREADS": "1", **os.environ, **OWN_STORE, **loopback()},
    )


def _read(guardian: subprocess.Popen[bytes], show: bool) -> tuple[str, list[str]]:
    """Return the guardian's output, and the failures in it; if `show`, print it as it arrives.

    Only the first lines of a long output are shown and returned.
    """
    assert guardian.stdout is not None
    lines: list[str] = []
    failures: list[str] = []
    newest: dict[str, str] = {}  # rank -> the newest line of a traceback
    for number, raw in enumerate(guardian.stdout):
        line = raw.decode(errors="backslashreplace")
        if traceback := OF_A_TRACEBACK.match(line):
            newest[traceback[1]] = traceback[2]
        if failed := FAILED.search(line):
            failures.append(_failure(int(failed[1]), failed[2], newest))
            newest.clear()
        if number < MOST:
            lines.append(line)
        if show and number < MOST:
            print(lines[-1], end="", flush=True)
        elif show and number == MOST:
            print(f"(More than {MOST} lines: the others are left out.)")
    guardian.stdout.close()
    guardian.wait()  # if the lifeline were closed first, the ended command would count as stopped
    return "".join(lines), failures


def _failure(exit_code: int, rank: str, newest: Mapping[str, str]) -> str:
    """Return a failure as text: "rank 1: ValueError: bad batch" or "rank 1: ended by SIGKILL".

    Of ranks that fail within its 0.1 s, torchrun names the lowest one, which may only have lost
    its connection to another failed rank; `newest` may have the traceback of that rank.
    """
    death = blame.process_death(exit_code, None)
    if death.signal:
        return f"rank {rank}: ended by {death.signal}"
    if not blame.echoes(newest.get(rank, "")):
        return f"rank {rank}: {newest.get(rank) or f'exit code {exit_code}'}"
    for other, text in newest.items():
        if not blame.echoes(text):
            return f"rank {other}: {text}"
    return f"another rank, which torchrun does not name: rank {rank} lost its connection to it"
