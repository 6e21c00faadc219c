"""A finished collective, which replaces gloo's handle so that gloo releases the tensors.

gloo's handle holds the tensors, and so does one of gloo's threads until a moment after the wait.
The last holder to release the tensors frees them. If gloo's thread is the last, the emulated time
at which the rank's program had finished with the tensors is unknown. So the rank waits until the
thread has released them, which takes microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from ddpkit import torch_private

# The wait has a limit: other code, such as autograd, may have begun to use a tensor meanwhile.
LONGEST_S = 0.2
ITS_THREAD = "pt_gloo_runloop"  # torch's name of the thread
LOOKS, PAUSE_S = 3, 0.001  # after the limit: looks in a row that find all of gloo's threads at rest


class Carried:
    """The tensors of a call to gloo, with their reference counts before gloo holds them."""

    def __init__(self, tensors: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        self.results = list(results)
        self._uses = [(each, torch_private.use_count(each)) for each in tensors]

    def wait_for_gloo(self) -> None:
        """Wait until gloo's threads have released the tensors.

        No other code may hold gloo's handle.
        """
        latest, at_rest = time.perf_counter() + LONGEST_S, 0
        while self._held_by_gloo() and at_rest < LOOKS:
            if time.perf_counter() < latest:
                time.sleep(0)  # releases the GIL, which gloo's thread may need
            else:
                at_rest = 0 if _gloo_gets_no_core() else at_rest + 1
                time.sleep(PAUSE_S)
        self._uses = []

    def _held_by_gloo(self) -> bool:
        return any(torch_private.use_count(each) > count for each, count in self._uses)


def _gloo_gets_no_core() -> bool:
    """True if a thread of gloo's is ready to run but may wait for a core, as on a busy machine."""
    for task in Path("/proc/self/task").glob("*"):
        try:
            name, state = (task / "stat").read_text("utf-8", "replace").rpartition(")")[::2]
        except OSError:  # the thread has ended
            continue
        if name.endswith(f"({ITS_THREAD}") and state.split()[0] == "R":
            return True
    return False


class EndedCollective:
    """A finished collective, with the methods that code may still call on it."""

    def __init__(self, results: Sequence[torch.Tensor]) -> None:
        self._results = list(results)

    def wait(self, *_: object) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        return self._results

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future that is already done, with the results as its value."""
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self._results)
        return future
