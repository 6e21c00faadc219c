"""What lets gloo's threads call Python at half the price: they keep their thread state.

The problem. A future's callback runs in the thread of gloo's that has ended the operation. Python
did not start that thread. C++ asks for the GIL with `PyGILState_Ensure`, which makes a thread state
where there is none, and gives it back with `PyGILState_Release`, which destroys the state when its
last user has gone. gloo's threads come back for every operation, to store one number, and so most
of what a callback costs is to make a thread state and to destroy it. Meanwhile the callback holds
the GIL, which the backward wants.

It would be simpler to hear of the end without a callback, and that is done where the main thread
waits for the operation itself. But DDP's reducer waits in C++, and an operation that ends while the
rank computes has nobody to look. To ask `is_completed()` now and then would tell the end too late.

So each of gloo's threads asks for the GIL once more than it gives it back. Its state is then in use
for as long as the thread lives, and every later callback finds it there.

What must hold: the extra `PyGILState_Ensure` is called in the thread itself, while it holds the
GIL, and at most once (`this_thread.keeps_state` is the thread's own). It goes through
`ctypes.pythonapi`, which keeps the GIL during the call: a foreign function that let go of it would
wait for itself.

What it costs: one thread state for each thread of gloo's, never freed. gloo has a few threads in a
rank, and the rank ends by SIGKILL, so nobody misses it. It would be a leak in a process that makes
and ends threads without limit, or that ends Python and goes on.
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
