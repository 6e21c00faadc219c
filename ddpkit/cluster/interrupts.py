"""Holds KeyboardInterrupt back while the processes of a run end, or raises it in another thread.

In ddpkit's commands, SIGTERM and similar signals also raise KeyboardInterrupt.

Python raises KeyboardInterrupt only in the main thread. A check runs answers in another thread, and
`interrupt` raises the exception in that thread.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# `kill`, a closed terminal and Ctrl-\ send these signals, which end a command by default.
_NAMES = ("SIGTERM", "SIGHUP", "SIGQUIT")
ENDING = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]

_lock = threading.Lock()
_holding: dict[int, list[int]] = {}  # thread -> its delayed interrupts


@contextmanager
def interrupts_held() -> Iterator[list[int]]:
    """Delay KeyboardInterrupt until the end of the block.

    Clearing the yielded list drops the interrupt.
    """
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield from _held_in_a_thread(pressed)
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _held_in_a_thread(pressed: list[int]) -> Iterator[list[int]]:
    ident = threading.get_ident()
    with _lock:
        outer = _holding.get(ident)
        _holding[ident] = pressed
    try:
        yield pressed
    finally:
        with _lock:
            if outer is None:
                del _holding[ident]
            else:
                _holding[ident] = outer
                outer += pressed
        if pressed and outer is None:
            raise KeyboardInterrupt


def interrupt(thread: threading.Thread, error: type[BaseException] = KeyboardInterrupt) -> None:
    """Raise an exception in another thread, at the thread's next line of Python.

    Inside `interrupts_held` the thread gets a KeyboardInterrupt at the end of the block instead.
    """
    with _lock:
        if thread.ident in _holding:
            _holding[thread.ident].append(signal.SIGINT)
        elif thread.ident is not None and thread.is_alive():
            ident, raised = ctypes.c_ulong(thread.ident), ctypes.py_object(error)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, raised)


@contextmanager
def interrupted_by_signals() -> Iterator[list[int]]:
    """Make the `ENDING` signals raise KeyboardInterrupt in the block; yield the received signals.

    The process still ignores a signal that nohup or a shell ignores. The block changes nothing
    outside the main thread, because Python lets only the main thread set signal handlers.
    """
    came: list[int] = []

    def interrupt_once_more(number: int, _: object) -> None:
        came.append(number)
        if not callable(signal.getsignal(signal.SIGINT)):  # a background job ignores SIGINT
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.raise_signal(signal.SIGINT)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in ENDING}
        before = {number: one for number, one in before.items() if one is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, interrupt_once_more)
    try:
        yield came
    finally:
        for number, one in before.items():
            signal.signal(number, one or signal.SIG_DFL)
