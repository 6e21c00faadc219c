"""gloo's calls on a rank with a device.

A group of two backends gives calls with tensors of the host to gloo, and a script of NCCL may make
groups of gloo. gloo's calls run on no stream. The host waits for them, and the device continues
meanwhile. If they were queued on streams, a thread with a group of gloo's (DCP's `async_save`) and
the main thread would queue their calls in another order on each rank, and would block each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpkit.protocol.emulation import After
from ddpkit.rank.emulation.machine import Machine

if TYPE_CHECKING:  # the import loads a part of torch that only machines with a device need
    from ddpkit.rank.emulation.carried import Carrying


class HostOf:
    """The machine of a rank as gloo's calls see it: without the machine's device."""

    device = None

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def post(
        self, operation: Carrying, args: tuple[object, ...], *, by_nccl: bool = False
    ) -> After:
        """Wait for the work before the call on the call's tensors; return ().

        The host waits for gloo's earlier operations, and for the stream if a tensor is on the GPU.
        """
        if self._machine.device is not None:
            self._machine.device.carried.touch(args)
            if self._machine.has_tensor_of_device(args):
                self._machine.device.wait(why="gloo, with a tensor of the GPU")
        operation.call.own_now = lambda: self._machine.clocks.mine.now()
        operation.call.posted = operation.call.own_now()
        return ()

    def __getattr__(self, name: str) -> object:
        return getattr(self._machine, name)
