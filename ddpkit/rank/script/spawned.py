"""Processes that a script spawns: each imports the script again, and sees the GPUs of the rank.

A spawned process runs this file in the place of the script. The file makes "cuda" mean the CPU, and
then runs the script under the name that multiprocessing gives to a spawned process's script.
"""

from __future__ import annotations

import functools
import multiprocessing.spawn
import os
import runpy

MAIN = "__mp_main__"  # multiprocessing's name for the script of a spawned process
SCRIPT = "DDPKIT_SPAWNED_SCRIPT"  # the script's file
MODULE = "DDPKIT_SPAWNED_MODULE"  # the script's module, if `python -m` would run it
WHY = "in a process that the script starts, without emulated time"


def show_gpus() -> None:
    """Make processes that this process spawns from now on see the GPUs of a rank."""
    original = multiprocessing.spawn.get_preparation_data

    @functools.wraps(original)
    def get_preparation_data(name: str) -> dict[str, object]:
        data = original(name)
        for variable, key in ((SCRIPT, "init_main_from_path"), (MODULE, "init_main_from_name")):
            os.environ.pop(variable, None)
            if key in data:
                os.environ[variable] = str(data.pop(key))
                data["init_main_from_path"] = __file__
        return data

    multiprocessing.spawn.get_preparation_data = get_preparation_data


def _run() -> dict[str, object]:
    """Run the script; return its names."""
    from ddpkit.rank.script import cuda, stand_ins
    from ddpkit.rank.script.gpus import Gpus

    gpus = Gpus(WHY)
    cuda.become_the_cpu(gpus)
    stand_ins.stand_in(gpus, int(os.environ["LOCAL_WORLD_SIZE"]))
    show_gpus()
    if module := os.environ.get(MODULE):
        return runpy.run_module(module, run_name=MAIN, alter_sys=True)
    return runpy.run_path(os.environ[SCRIPT], run_name=MAIN)


if __name__ == MAIN:
    globals().update(_run())
