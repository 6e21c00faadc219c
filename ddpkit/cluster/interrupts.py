"""Hold KeyboardInterrupt back while the processes of a run end, and hand it on to a thread.

Python raises KeyboardInterrupt in the main thread alone. A check runs answers in another thread,
and hands the interrupt on: `interrupt` raises the exception there.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_holding: dict[int, list[int]] = {}  # the interrupts put off, by thread


@contextmanager
def interrupts_held() -> Iterator[list[int]]:
    """Put KeyboardInterrupt off until the end of the block, or drop it by clearing the list."""
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
