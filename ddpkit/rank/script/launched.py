"""`LaunchedScript`: wraps an unchanged script for torchrun as a function that a rank calls."""

from __future__ import annotations

import atexit
import gc
import importlib.machinery
import io
import multiprocessing
import os
import runpy
import sys
import threading
import types
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpkit.source import add_user_files

if TYPE_CHECKING:  # loads torch, which the command need not have yet
    from ddpkit.rank.script.gpus import Gpus

WRITING = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


@dataclass(frozen=True)
class LaunchedScript:
    """A script and its arguments; called on a rank, the script runs there as `__main__`.

    target       the script's file, or with `is_module` a module's name, as after `python -m`
    run_id       the job's id, as in torchrun's `--rdzv-id`
    master_port  a free port, for scripts that meet by MASTER_ADDR and MASTER_PORT
    gpus         True if the script gets real GPUs; otherwise "cuda" means the CPU
    """

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False
    run_id: str = "ddpkit"
    master_port: int = 29500
    gpus: bool = False

    @property
    def definition(self) -> tuple[str, str, int]:
        """The script's name, file and first line, for errors without a more exact place."""
        name = self.target if self.is_module else os.path.basename(self.target)
        return name, "" if self.is_module else os.path.abspath(self.target), 1

    def count_as_users(self) -> None:
        """Treat the script's code as user code in this process, even if it is installed."""
        if not self.is_module:
            add_user_files(os.path.abspath(self.target))
        elif spec := _found(self.target.partition(".")[0]):
            for folder in spec.submodule_search_locations or [spec.origin or self.target]:
                add_user_files(folder)

    def __call__(self) -> None:
        """Run the script. Raises its exception, and SystemExit for an exit code other than 0."""
        os.environ.update(self.environ)
        sys.argv[1:] = self.args
        self.count_as_users()
        gpus = None if self.gpus else _let_cuda_mean_the_cpu()
        multiprocessing.set_start_method(None, force=True)  # leaves the choice to the script
        before: list[object] = []  # the marker object for `_flush_files`
        try:
            self._run()
        except SystemExit as left:
            if isinstance(left.code, str):  # the interpreter prints such a code too
                print(left.code, file=sys.stderr)
            if left.code not in (None, 0):
                raise
        except Exception as error:
            if gpus is not None:
                gpus.explain(error)
            raise
        finally:
            _flush_files(before)
            if (module := sys.modules.get("ddpkit.rank.group.following")) is not None:
                module.following.end()
        _end_as_an_interpreter(before)

    @property
    def is_there(self) -> bool:
        """True if the file exists; for a module, True if its outermost package is found."""
        if self.is_module:
            return _found(self.target.partition(".")[0]) is not None
        return os.path.exists(self.target)

    @property
    def holds_main(self) -> bool:
        """True if the target is a folder or archive with a `__main__.py`, which Python can run."""
        return importlib.machinery.PathFinder.find_spec("__main__", [self.target]) is not None

    def _run(self) -> None:
        if not sys.flags.safe_path:
            here = os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.target))
            sys.path[0] = here
        if self.is_module:
            runpy.run_module(self.target, run_name="__main__", alter_sys=True)
        elif self.holds_main:
            runpy.run_path(self.target, run_name="__main__")
        else:
            sys.argv[0] = self.target
            _run_file(os.path.abspath(self.target))

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables that torchrun sets to the same values on all ranks of a job."""
        return {
            "ROLE_NAME": "default",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(self.master_port),
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": self.run_id,
            # a script that asks for a store makes its own store
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }


def _found(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return the import spec of a module in this folder or the environment; None if not found."""
    return importlib.machinery.PathFinder.find_spec(module, [os.getcwd(), *sys.path])


def _let_cuda_mean_the_cpu() -> Gpus:
    """Show the script GPUs that are really the CPU; the script's first use prints a line."""
    from ddpkit.rank.emulation.machine import current
    from ddpkit.rank.script import cuda, spawned, stand_ins
    from ddpkit.rank.script.gpus import Gpus

    emulated = current()
    why = "no GPU here" if emulated is None else "in emulated time"
    places = None if emulated is None else emulated.tell_places()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # in emulated time, hides the machine's own GPUs
    gpus = Gpus(why, places)
    cuda.become_the_cpu(gpus)
    if places is not None:
        from ddpkit.rank.script import two_memories

        two_memories.show(gpus, places)
    stand_ins.stand_in(gpus, int(os.environ["LOCAL_WORLD_SIZE"]))
    spawned.show_gpus()
    return gpus


def _run_file(path: str) -> None:
    """Run a file as the interpreter does; the file's module stays `__main__` afterwards."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _flush_files(before: list[object]) -> None:
    """Write the buffers of open files, because the rank's process will be killed without an exit.

    before  an object made before the script. If Python does not list the object, the script has
            called `gc.freeze()`, which also hides open files
    """
    if not any(each is before for each in gc.get_objects()):
        gc.unfreeze()
    for file in gc.get_objects():
        if issubclass(type(file), WRITING):  # isinstance would ask the object behind a weak proxy
            with suppress(OSError, ValueError):  # a closed file, or a pipe without a reader
                file.flush()


def _end_as_an_interpreter(before: list[object]) -> None:
    """Wait for the script's threads, and call the functions registered for the exit.

    `concurrent.futures` registers a function that ends the idle threads of every open pool, and the
    interpreter calls this function before it waits for threads.
    """
    for end_of_threads in reversed(getattr(threading, "_threading_atexits", ())):
        end_of_threads()
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()
    _flush_files(before)
