"""`LaunchedScript`: a script for torchrun as a function, which a rank calls to run it as it is."""

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
    """A script and its arguments; called on a rank, it runs there as `__main__`.

    target       the script's file, or with `is_module` a module's name, as after `python -m`
    run_id       what torchrun calls the job
    master_port  a port that is free, for scripts that meet by MASTER_ADDR and MASTER_PORT
    gpus         whether it gets GPUs; else cuda means the CPU
    """

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False
    run_id: str = "ddpkit"
    master_port: int = 29500
    gpus: bool = False

    @property
    def definition(self) -> tuple[str, str, int]:
        """Its name, file and first line, for an error that knows nothing nearer."""
        name = self.target if self.is_module else os.path.basename(self.target)
        return name, "" if self.is_module else os.path.abspath(self.target), 1

    def count_as_users(self) -> None:
        """Count its code as the reader's, in this process, also where it is installed."""
        if not self.is_module:
            add_user_files(os.path.abspath(self.target))
        elif spec := _found(self.target.partition(".")[0]):
            for folder in spec.submodule_search_locations or [spec.origin or self.target]:
                add_user_files(folder)

    def __call__(self) -> None:
        """Run the script. Raises what it raises, and SystemExit if it leaves with another code."""
        os.environ.update(self.environ)
        sys.argv[1:] = self.args
        self.count_as_users()
        gpus = None if self.gpus else _let_cuda_mean_the_cpu()
        multiprocessing.set_start_method(None, force=True)  # no choice yet
        before: list[object] = []  # what the script opens is found beside it
        try:
            self._run()
        except SystemExit as left:
            if isinstance(left.code, str):  # as the interpreter does
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
        """Whether there is such a file, or a module of the name's first part."""
        if self.is_module:
            return _found(self.target.partition(".")[0]) is not None
        return os.path.exists(self.target)

    @property
    def holds_main(self) -> bool:
        """Whether it is a folder or an archive with a `__main__.py`, which python runs too."""
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
        """The variables that torchrun sets for all ranks of a job alike."""
        return {
            "ROLE_NAME": "default",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(self.master_port),
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",  # a script that asks for a store makes it
        }


def _found(module: str) -> importlib.machinery.ModuleSpec | None:
    """Where a module lies that this folder or the environment has; None if there is none."""
    return importlib.machinery.PathFinder.find_spec(module, [os.getcwd(), *sys.path])


def _let_cuda_mean_the_cpu() -> Gpus:
    """Let the script see GPUs that are the CPU; once it asks for one, that is said."""
    from ddpkit.rank.emulation.machine import current
    from ddpkit.rank.script import cuda, stand_ins
    from ddpkit.rank.script.gpus import Gpus

    emulated = current()
    why = "no GPU here" if emulated is None else "in emulated time"
    places = None if emulated is None else emulated.tell_places()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # emulated time has none, where the machine has
    gpus = Gpus(why, places)
    cuda.become_the_cpu(gpus)
    if places is not None:
        from ddpkit.rank.script import two_memories

        two_memories.show(gpus, places)
    stand_ins.stand_in(gpus, int(os.environ["LOCAL_WORLD_SIZE"]))
    return gpus


def _run_file(path: str) -> None:
    """Run a file as the interpreter does, as the main module, which stays there afterwards."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _flush_files(before: list[object]) -> None:
    """Write what open files still hold. The rank's process will be killed, not ended.

    before  an object from before the script; after its `gc.freeze()` Python lists neither
    """
    if not any(each is before for each in gc.get_objects()):
        gc.unfreeze()
    for file in gc.get_objects():
        if issubclass(type(file), WRITING):  # isinstance asks what a weak proxy stands for
            with suppress(OSError, ValueError):  # a closed one, a pipe that nobody reads
                file.flush()


def _end_as_an_interpreter(before: list[object]) -> None:
    """Wait for the script's threads, and call the functions registered for the end.

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
