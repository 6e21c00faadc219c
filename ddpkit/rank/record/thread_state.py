"""What lets gloo's threads call Python at half the price.

A thread that Python did not start gets a thread state when it calls Python, and loses it when it
returns. For gloo's, which come to say that an operation has ended, that is most of the work.
"""

import ctypes
import threading


class _OfThread(threading.local):
    keeps_state = False


this_thread = _OfThread()


def keep_thread_state() -> None:
    """Let the calling thread keep its Python thread state for as long as it lives; do so once."""
    this_thread.keeps_state = True
    ctypes.pythonapi.PyGILState_Ensure()  # and never released: the count of its uses stays up
