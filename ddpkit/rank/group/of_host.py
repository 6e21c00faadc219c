"""Calls with tensors of the host on a rank with a device.

A group of two backends gives such calls to gloo. gloo's calls run on no stream. The host waits for
them, and the device continues meanwhile.
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
        """Wait until gloo has finished earlier operations on the call's tensors; return ()."""
        if self._machine.device is not None:
            self._machine.device.carried.touch(args)
        operation.call.own_now = lambda: self._machine.clocks.mine.now()
        operation.call.posted = operation.call.own_now()
        return ()

    def __getattr__(self, name: str) -> object:
        return getattr(self._machine, name)
