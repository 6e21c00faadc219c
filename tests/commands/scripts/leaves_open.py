"""A script that leaves the end of its work to the interpreter."""

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
gc.freeze()  # as programs do that look for garbage among what is new alone
atexit.register(at_the_exit)
threading.Timer(0.2, lambda: log.write(", a thread")).start()
