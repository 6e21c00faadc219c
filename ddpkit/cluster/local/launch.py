"""Starts the processes of a run, and ends them.

On Linux, ranks are forked by the standard library's forkserver, which has imported torch once: four
ranks fork in about a tenth of a second. On other systems ranks are spawned, and each imports torch.
"""

from __future__ import annotations

import multiprocessing.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from ddpkit.cluster.local.hashing import hash_seed
from ddpkit.cluster.local.typed import standard_input
from ddpkit.errors import ClusterError
from ddpkit.protocol.assignment import Assignment, ProcessSettings, RankPipes
from ddpkit.rank.main import main
from ddpkit.source import RANK_MAIN, is_user_file

START = "forkserver" if sys.platform.startswith("linux") else "spawn"
# Ask for a heap in pages of 2 MB, if the kernel has such pages: entries for pages of 4 kB are
# half of the work of a fork and of an exit. glibc reads the variable when a program begins.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# numpy's BLAS gets one thread in a rank, as under torchrun: more threads would spin during imports.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
# Names in code that needs torch's compiler: such code calls the compiler, or makes objects that
# import the compiler, which takes a second or more.
COMPILES = (
    *(b"torch.compile", b"\x8c\x07compile", b"_dynamo"),  # the second name is `compile` in a pickle
    *(b"FSDP", b"fsdp", b"fully_shard", b"DTensor", b"distributed.tensor"),
    *(b"pipelining", b"utils.checkpoint", b"distributed.checkpoint", b"functional_collectives"),
)
# bytes to read of a file and of a call; a call's function comes before its arguments
MOST_READ = 1 << 18
SOCKETS_NAME = 107  # largest length in bytes of a Unix socket's name (`sun_path`)
SHORT_FOLDER = "/tmp"
RETRY = 5  # seconds in which a killed forkserver is replaced
_asked_for_compiler: list[int] = []  # the process id of the forkserver that imports the compiler
_starting = threading.Lock()  # held while a start changes the state of the whole process
_start_program = multiprocessing.util.spawnv_passfds


def warm_up() -> None:
    """Start the forkserver, which imports torch in the background, if it does not run already."""
    if START == "forkserver":
        _context().set_forkserver_preload(["ddpkit.rank.preload"])
        # During the import of torch, SIGUSR2 (which asks for the compiler) would end the
        # forkserver.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        try:
            with _nameless_main(), _own_groups(), _settings():
                _shorten_sockets_name()
                forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def load_compiler_for(call: bytes, file: str, *, values: bool) -> None:
    """Make the forkserver import torch's compiler, once for all ranks, if the ranks need it.

    call    the pickle of a function and its arguments
    file    the file of the function, because the pickle of a script or a module holds only names
    values  False for ranks without values: torch's fake tensors need the compiler
    """
    if START != "forkserver" or (_asked_for_compiler and _asked_for_compiler == _server()):
        return
    code = call[:MOST_READ] + _content(file)
    if not values or any(name in code for name in COMPILES):
        warm_up()
        _asked_for_compiler[:] = _server()
        for pid in _asked_for_compiler:
            # the forkserver was killed; the next run asks its successor
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR2)


def load_more_of_compiler() -> None:
    """Make the forkserver import the next part of torch's compiler, which ranks had to import.

    A function's code does not show every need, for example a `backward` with a gradient.
    """
    for pid in _server():
        with suppress(ProcessLookupError):  # the forkserver was killed
            os.kill(pid, signal.SIGURG)  # a process without a handler ignores this signal


def _server() -> list[int]:
    """Return a list with the process id of this process's forkserver; [] if there is none."""
    pid = vars(forkserver._forkserver).get("_forkserver_pid")
    return [pid] if pid else []


def _content(file: str) -> bytes:
    with suppress(OSError, ValueError):  # the file cannot be read, or the text is no file's name
        if os.path.isfile(file):  # a pipe can be read only once
            with open(file, "rb") as stream:
                return stream.read(MOST_READ)
    return b""


@dataclass
class RankProcess:
    """The process of a rank, and the launcher's ends of the rank's pipes."""

    process: BaseProcess
    reply: Connection
    output: Connection
    crash: Connection
    lifeline: Connection
    timekeeping: tuple[Connection, ...] = ()  # for the timekeeper, which closes both pipes
    killed: bool = False
    stack_text: bytes = b""

    def kill(self) -> None:
        """Kill the rank and the rank's children."""
        pid = self.process.pid
        if os.name == "posix" and pid is not None and not self.killed:
            # Kill the group even if the rank has ended, because children of the rank may live on.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self.killed = True
        if self.process.exitcode is None:
            with suppress(ProcessLookupError, PermissionError):
                self.process.kill()

    def close(self, seconds: float) -> None:
        """Close the pipes of the killed process, and wait at most `seconds` for the process's end.

        The forkserver reports the end, and may be busy for a while with importing torch._dynamo.
        """
        self.process.join(max(0.0, seconds))
        for connection in (self.reply, self.output, self.crash, self.lifeline):
            connection.close()
        with suppress(ValueError):  # without a report of the end, leave it to the garbage collector
            self.process.close()

    def ask_where(self) -> None:
        """Make faulthandler write the rank's stack to `crash`, even if the rank holds the GIL."""
        pid = self.process.pid
        if hasattr(signal, "SIGUSR1") and pid is not None and self.process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)

    def last_line(self) -> tuple[str, int] | None:
        """Return the user's line in the newest stack that faulthandler wrote, or None."""
        while wait([self.crash], 0) and (data := read_bytes(self.crash)):
            self.stack_text += data
        newest = self.stack_text.decode(errors="replace").rpartition("most recent call first")[2]
        for line in newest.split("\n")[:-1]:  # the last line of the text may be incomplete
            if line.startswith('  File "'):
                filename, _, rest = line[8:].partition('", line ')
                if filename == RANK_MAIN:
                    break
                if is_user_file(filename):
                    return filename, int(rest.split(" ", 1)[0])
        return None


def start(mine: Assignment, settings: ProcessSettings) -> RankProcess:
    """Start one rank. Raises ClusterError if the system refuses a process."""
    give_up = time.monotonic() + RETRY
    while True:
        try:
            return _start(mine, settings)
        except (OSError, EOFError) as error:
            # Without an answer the forkserver has ended, or is about to: retry with a new one.
            if isinstance(error, (ConnectionError, EOFError)) and time.monotonic() < give_up:
                time.sleep(0.1)
                continue
            why = f"{type(error).__name__}: {error}"
            raise ClusterError(
                f"rank {mine.rank} of {mine.world_size} could not be started ({why}). If memory, "
                "processes or open files have run out, free some or start fewer ranks."
            ) from error


def _start(mine: Assignment, settings: ProcessSettings) -> RankProcess:
    context = multiprocessing.get_context("spawn") if settings.own_interpreters else _context()
    with ExitStack() as undo:
        pairs = []
        for _ in range(4):
            receiver, sender = _context().Pipe(duplex=False)
            undo.callback(receiver.close)
            undo.callback(sender.close)
            pairs.append((receiver, sender))
        (reply, reply_end), (output, output_end), (crash, crash_end), (lifeline_end, lifeline) = (
            pairs
        )
        _widen(reply)
        ends = [reply_end, output_end, crash_end, lifeline_end]
        asked = []
        for _ in range(2 if settings.emulated else 0):
            here, there = _context().Pipe()
            undo.callback(here.close)
            undo.callback(there.close)
            asked.append(here)
            ends.append(there)
        typed = standard_input() if mine.script and mine.rank == 0 else None
        # Not a daemon: a rank may start processes of its own (a DataLoader's workers).
        given = (mine, settings, replace(RankPipes(*ends), typed=typed))
        process = context.Process(target=main, args=given, name=f"rank {mine.rank}")
        with _nameless_main(), hash_seed(mine) if settings.own_interpreters else nullcontext():
            process.start()
        undo.pop_all()
    for end in filter(None, [*ends, typed]):
        end.close()
    # multiprocessing would wait for the rank at the exit of the notebook; the lifeline ends the
    # rank instead.
    multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
    return RankProcess(process, reply, output, crash, lifeline, tuple(asked))


def _context() -> Any:
    return multiprocessing.get_context(START)


def read_bytes(connection: Connection) -> bytes:
    """Return the available bytes, at most 64 kB; b"" at the end of the file."""
    try:
        if os.name == "posix":
            return os.read(connection.fileno(), 1 << 16)
        return connection.recv_bytes()
    except (EOFError, OSError):
        return b""


def _widen(pipe: Connection) -> None:
    """Enlarge a pipe's buffer from 64 kB to 1 MB, if Linux allows, for large results."""
    if sys.platform.startswith("linux"):
        import fcntl

        with suppress(OSError):  # Linux limits the total size of a user's pipes
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)


@contextmanager
def _nameless_main() -> Iterator[None]:
    """Hide the main module's file, so that a rank does not run the user's script a second time.

    multiprocessing imports this file in each child to find functions; ddpkit ships functions by
    value.
    """
    with _starting:
        main_module = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main_module


@contextmanager
def _own_groups() -> Iterator[None]:
    """A block in which each program that multiprocessing starts leads its own process group.

    When a Jupyter kernel ends or restarts, Jupyter first sends a signal to all processes in the
    kernel's process group. The resource tracker ignores the signal, so Jupyter would wait, and
    finally kill the kernel. The forkserver and the tracker end anyway when the pipes to the kernel
    close.
    """
    home: Any = multiprocessing.util
    before = home.spawnv_passfds
    if before is _start_program:  # the grader's kernel may have replaced the function
        home.spawnv_passfds = start_in_own_group
    try:
        yield
    finally:
        home.spawnv_passfds = before


def start_in_own_group(
    path: bytes, arguments: Sequence[str | bytes], descriptors: Sequence[int]
) -> int:
    """Start a program like `multiprocessing.util.spawnv_passfds`, in a new process group."""
    program = subprocess.Popen(
        [*arguments],
        executable=path,
        pass_fds=[*map(int, descriptors)],
        process_group=0,
        restore_signals=False,
    )
    program.returncode = 0  # the caller waits for the program's end
    return program.pid


def _shorten_sockets_name() -> None:
    """Make the path of the forkserver's socket, in a temporary folder, short enough to be legal.

    The TMPDIR of a batch system can be too long for a socket's path, and multiprocessing tries no
    other folder.
    """
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    folder = config.get("tempdir") or f"{tempfile.gettempdir()}/pymp-abcdefgh"
    if len(os.fsencode(f"{folder}/listener-abcdefgh")) <= SOCKETS_NAME:
        return
    try:
        config["tempdir"] = tempfile.mkdtemp(prefix="pymp-", dir=SHORT_FOLDER)
    except OSError as error:
        raise ClusterError(
            f"ranks cannot be started: the name of a socket in {folder} would be longer than "
            f"{SOCKETS_NAME} bytes, and {SHORT_FOLDER} cannot be used instead "
            f"({error.strerror}). Set TMPDIR to a folder with a shorter name"
        ) from None
    Finalize(None, shutil.rmtree, args=(config["tempdir"], True), exitpriority=-100)


@contextmanager
def _settings() -> Iterator[None]:
    """A block in which started programs get environment variables for their libraries.

    The user's own settings take precedence.
    """
    wanted = HUGE_PAGES | ONE_THREAD
    given = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)


# A folder for each run: the rendezvous file and the black boxes


@contextmanager
def run_folder() -> Iterator[Path]:
    """Yield a new folder for one run; remove the folder afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"ddpkit-{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Remove the folders of runs in processes that were killed before they could remove them."""
    if os.name != "posix":
        return
    for folder in Path(tempfile.gettempdir()).glob("ddpkit-*-*"):
        pid = folder.name.split("-")[1]
        with suppress(OSError):
            if pid.isdigit() and not _alive(int(pid)) and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
