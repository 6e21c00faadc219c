"""Makes joining and leaving torch's RPC work in emulated time.

In `init_rpc` and `shutdown` ranks wait for each other in C++, by polling a store every few
milliseconds. To the timekeeper such a rank seems to compute, and if compute is counted, its clock
does not move: the other ranks would wait forever. So the call runs in a thread, and the rank waits
for the thread's end as it would wait for a key of a store. The other ranks continue, and the rank
later continues at the cluster's present time.

Remote calls themselves take no emulated time.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch.distributed.rpc as torch_rpc

from ddpkit.rank.emulation import machine
from ddpkit.rank.stores import LOOK

MEETINGS = ("init_rpc", "shutdown")
HOMES = (torch_rpc, torch_rpc.api)


@contextmanager
def met_in_emulated_time() -> Iterator[None]:
    """A block in which ranks that join or leave RPC do not stop the time of other ranks."""
    with ExitStack() as undo:
        for home in HOMES:
            for name in MEETINGS:
                if (original := vars(home).get(name)) is not None:
                    undo.callback(setattr, home, name, original)
                    setattr(home, name, _aside(original))
        yield


def _aside(original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def meet(*args: object, **kwargs: object) -> object:
        emulated = machine.current()
        if emulated is None or not emulated.runs or emulated.clocks.mine.is_later:
            return original(*args, **kwargs)
        ended: list[Callable[[], object]] = []

        def run() -> None:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:  # raised again in the calling thread
                ended.append(functools.partial(_raise, error))
            else:
                ended.append(lambda: result)

        thread = threading.Thread(target=run, name=original.__name__, daemon=True)
        thread.start()
        emulated.wait_for_store(lambda: bool(ended), math.inf, LOOK)
        thread.join()
        return ended[0]()

    return meet


def _raise(error: BaseException) -> None:
    raise error
