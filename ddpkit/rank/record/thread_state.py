"""Makes calls of Python by gloo's threads half as expensive: the threads keep their thread state.

The problem. A future's callback runs in the gloo thread that has ended the operation. Python did
not start that thread. C++ gets the GIL with `PyGILState_Ensure`, which makes a thread state if the
thread has none, and releases it with `PyGILState_Release`, which destroys the state after its last
use. gloo's threads come back for every operation, to store one number. So most of the cost of a
callback is making and destroying a thread state. Meanwhile the callback holds the GIL, which the
backward wants.

It would be simpler to notice the end without a callback, and ddpkit does so if the main thread
waits for the operation itself. But DDP's reducer waits in C++, and while the rank computes, no
Python code looks for ends. Calling `is_completed()` now and then would notice the end too late.

So each gloo thread calls `PyGILState_Ensure` once more than `PyGILState_Release`. The thread's
state is then in use as long as the thread lives, and every later callback finds it.

What must hold: the extra `PyGILState_Ensure` is called in the thread itself, while it holds the
GIL, and at most once (`this_thread.keeps_state` is the thread's own). The call goes through
`ctypes.pythonapi`, which keeps the GIL: a foreign function that released the GIL would wait for
itself.

The cost: one thread state for each gloo thread, never freed. gloo has a few threads in a rank, and
the rank ends by SIGKILL, so the memory is never missed. It would be a leak in a process that makes
and ends threads without limit, or that ends Python and goes on.
"""

import ctypes
import threading


class _OfThread(threading.local):
    keeps_state = False


this_thread = _OfThread()


def keep_thread_state() -> None:
    """Make the calling thread keep its Python thread state until it ends. Call this once."""
    this_thread.keeps_state = True
    ctypes.pythonapi.PyGILState_Ensure()  # without a release, so that the count of uses stays up
