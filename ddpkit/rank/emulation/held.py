"""Live storages, and the memories that they fill: the device's and the host's."""

from __future__ import annotations

from dataclasses import dataclass

from ddpkit.protocol.raised import MemoryFull
from ddpkit.text import size

DEVICE, HOST, PINNED, UNDECIDED = "device", "host", "pinned", ""  # places of a storage


@dataclass(slots=True, eq=False)
class Held:
    """A live storage: its bytes, its kind (such as gradients) and its place (device or host)."""

    nbytes: int
    kind: str = "activations"
    ref: object = None
    collected_ns: int | None = None  # the end of the wait for an operation that carried the storage
    place: str = UNDECIDED  # on a machine with a device; may be decided after the first use


@dataclass(slots=True)
class BytesInUse:
    """One memory: the bytes in use, their maximum, and the first request that did not fit."""

    limit: int | None
    live: int = 0
    most: int = 0
    full_by: int = 0  # bytes of the first request beyond the limit
    full_with: int = 0  # bytes in use with that request; gloo may free some of them afterwards

    def change(self, by: int) -> None:
        """Allocate `by` bytes, or free bytes if `by` is negative."""
        self.live += by
        self.most = max(self.most, self.live)
        full = self.limit is not None and self.live > self.limit
        if by > 0 and full and not self.full_by:
            self.full_by, self.full_with = by, self.live


def full_text(full: MemoryFull, *, of_host: bool) -> str:
    """Return the text of the error for a full memory."""
    alive = ", ".join(f"{kind} {size(nbytes)}" for kind, nbytes in full.alive.items())
    if of_host:
        return (
            f"the host beside the machine {full.machine} of rank {full.rank} has "
            f"{size(full.limit)} of memory: {size(full.used)} are in use, and {size(full.asked)} "
            f"more do not fit. The memory would hold: {alive}. Load the data in parts, or move "
            "tensors to the device."
        )
    return (
        f"the machine {full.machine} of rank {full.rank} has {size(full.limit)} of memory: "
        f"{size(full.used)} are in use, and {size(full.asked)} more do not fit. The memory would "
        f"hold: {alive}. A smaller batch or checkpointing holds fewer activations; sharding "
        "divides parameters, gradients and optimizer state among ranks."
    )
