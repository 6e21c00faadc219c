"""A script without an orderly end: the interpreter has to close and stop everything."""

import atexit
import gc
import os
import threading

rank = os.environ["RANK"]


def at_the_exit():
    with open(f"left{rank}", "w") as file:
        file.write("at the exit")


log = open(f"log{rank}", "w")  # noqa: SIM115
log.write("a line")
gc.freeze()  # programs call this so that garbage collection looks at new objects only
atexit.register(at_the_exit)
threading.Timer(0.2, lambda: log.write(", a thread")).start()
