"""`busy`: a stretch of a rank's own work, with a stated duration."""

from __future__ import annotations

import time

from ddpkit.link import duration_ns
from ddpkit.rank.emulation import machine
from ddpkit.rank.record.marks import span


def busy(duration: str | float, name: str = "busy") -> None:
    """Work for a stated duration: `busy("20 ms")`, or `busy(0.02)` in seconds.

    On an emulated cluster the rank's clock moves forward by exactly the duration, whatever `speed=`
    is. On a machine with a device, the host launches a kernel of the duration. On a cluster without
    emulation the rank sleeps. The timeline shows the work as compute, by `name`. Raises ValueError
    if the text is not a duration.
    """
    ns = duration_ns(duration)
    with span(name):
        if (current := machine.current()) is not None:
            if not current.launch(ns):
                current.clocks.mine.pass_by(ns)
            current.note("stated", ns)
        else:
            time.sleep(ns / 1e9)
