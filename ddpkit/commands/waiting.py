"""Messages on the progress of a long command, which name the work under way."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddpkit.text import count, size

if TYPE_CHECKING:
    from ddpkit.trace import Trace

PATIENCE_S = 2.0  # seconds before the first message, and between messages


@contextmanager
def said_if_long(patience_s: float = PATIENCE_S) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of the work under way; a thread prints the name.

    The thread prints nothing in the first ``patience_s`` seconds, then the name of each new work
    once. If stderr is no terminal, nothing is printed.
    """
    if not sys.stderr.isatty():
        yield lambda work: None
        return
    state = {"work": "", "printed": ""}
    ended, lock = threading.Event(), threading.Lock()

    def doing(work: str) -> None:
        with lock:
            state["work"] = work

    def watch() -> None:
        while not ended.wait(patience_s):
            with lock:
                if state["work"] != state["printed"]:
                    click.echo(state["work"], err=True)
                    state["printed"] = state["work"]

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield doing
    finally:
        ended.set()
        watcher.join()


def load(files: Sequence[Path]) -> Trace:
    """Return the trace in the files of a command.

    Python's garbage collector skips the present objects from now on: a trace has millions of them.
    """
    from ddpkit.trace import Trace

    found = Trace.load(*files)
    gc.freeze()
    return found


def reading(files: Sequence[Path]) -> str:
    """Return a sentence for `said_if_long`: "Reading 2 files, 8.53 MB."."""
    every = [file for path in files for file in (path.iterdir() if path.is_dir() else [path])]
    there = [file.stat().st_size for file in every if file.is_file()]
    return f"Reading {count(len(every), 'file')}, {size(sum(there))}."
