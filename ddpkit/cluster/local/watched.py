"""The clock of a rank that computes, as the launcher sees it from outside."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from ddpkit.protocol.emulation import ClockPage

STANDSTILL = 0.5  # seconds in the user's code
STANDSTILL_IN_GLOO = 0.02  # where it may wait for what others will post
STANDSTILL_FOR_BYTES = 60.0  # where gloo has all that it needs: on busy cores, messages take long


@dataclass(slots=True, eq=False)
class Watched:
    """The main thread of a rank that computes, as seen from outside."""

    page: ClockPage
    pid: int
    speed: float
    cpu_ns: int = 0
    since: float = 0.0  # when its CPU time was seen to have grown

    def ns(self) -> int:
        """A time that the rank's clock has reached; 0 if that cannot be told."""
        reading = self.page.read()
        if reading is None:
            return 0
        if math.isinf(self.speed):
            return reading.ns
        used = self.used_ns()
        if used is None or self.page.read() != reading:
            return reading.ns
        return reading.ns + int(max(0, used - reading.cpu_ns) / self.speed)

    def used_ns(self) -> int | None:
        """The CPU time of the thread; None where the system does not tell."""
        if not sys.platform.startswith("linux"):
            return None
        try:
            text = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text("ascii")
        except OSError:
            return None
        return int(text.split(" ", 1)[0])

    def stands_still(self, now: float, *, unmet: bool) -> bool:
        """Whether the thread has slept, and used no CPU time, for so long that nobody waits for it.

        ``unmet``: a peer has not posted its part of something that the rank has posted.
        """
        used = self.used_ns()
        if used is not None and (used > self.cpu_ns + 100_000 or self._is_ready()):
            self.cpu_ns, self.since = used, now
        limit = STANDSTILL_FOR_BYTES
        if self.page.in_users_code:
            limit = STANDSTILL
        elif unmet and self.page.may_wait_for_gloo:
            limit = STANDSTILL_IN_GLOO
        return now - self.since > limit

    def _is_ready(self) -> bool:
        """Whether the thread runs, or would if it had a core."""
        try:
            text = Path(f"/proc/{self.pid}/task/{self.pid}/stat").read_text("ascii", "replace")
        except OSError:
            return False
        return text.rpartition(")")[2].split()[:1] in (["R"], ["D"])
