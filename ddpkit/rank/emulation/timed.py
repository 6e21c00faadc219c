"""Finds time measurements on the host that measure only launches, because the device still works.

`time.perf_counter()` returns the host's time, and the host is ahead of the device. So the
difference of two readings is the time of the launches, unless the program waits for the device
before the second reading. On a GPU, a program can make the same mistake without any warning.

A reading counts only if the same line subtracts from it (`time.time() - start`), or if the program
subtracts from the variable to which the line assigns the reading. A comparison
(`time.time() - start > limit`) is a limit, and not a measurement. The times of the device are known
when the run is over.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

from ddpkit.rank.emulation.device import Device
from ddpkit.rank.record.clock import DeviceMoment
from ddpkit.source import is_user_file
from ddpkit.text import count

MOST = 16  # readings of a line that are kept
AT_MOST = 4  # lines that the text names
# A difference is reported if the device's time is longer by this factor, and by so many ns.
FAR, LEAST_NS = 1.1, 20_000


@dataclass(frozen=True, slots=True)
class TimeTaken:
    """A reading of the clock: its line, the host's launches and time, and the device's moment."""

    file: str
    line: int
    launches: int
    host_ns: int
    moment: DeviceMoment


class TimedLaunches:
    """Pairs of clock readings of a rank's main thread, with launches between the two readings."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._last: TimeTaken | None = None
        self._pairs: dict[tuple[str, int], list[tuple[TimeTaken, TimeTaken]]] = {}

    def looked(self, frame: FrameType) -> None:
        """Record that a line of the user's code reads the clock."""
        device, file, line = self._device, frame.f_code.co_filename, frame.f_lineno
        if device.stands or not device.on_main_thread or not is_user_file(file):
            return
        pairs = self._pairs.setdefault((file, line), [])
        if len(pairs) >= MOST:
            self._last = None
            return
        moment = device.moment(device.queues.everything())
        now = TimeTaken(file, line, device.launches, device.host_time, moment)
        before, self._last = self._last, now
        if before is not None and before.launches < now.launches and measures(file, line):
            pairs.append((before, now))

    def text(self) -> str:
        """Return a text about the lines that measure only launches; "" if no line does.

        Call this method once the run is over.
        """
        far = [max(found, key=_off) for found in map(self._far, self._pairs.values()) if found]
        far.sort(key=_off, reverse=True)
        named = [
            f"{Path(end.file).name} line {end.line} ({host / 1e6:.3g} ms since line {start.line}, "
            f"the device works until {true / 1e6:.3g} ms)"
            for start, end, host, true in far[:AT_MOST]
        ]
        if len(far) > AT_MOST:
            named.append(count(len(far) - AT_MOST, "more line"))
        return ", ".join(named)

    def _far(
        self, pairs: list[tuple[TimeTaken, TimeTaken]]
    ) -> list[tuple[TimeTaken, TimeTaken, int, int]]:
        """Return the pairs of readings that measure far too little, with host and device time."""
        found = []
        for start, end in pairs:
            host = end.host_ns - start.host_ns
            true = self._device.ns(end.moment) - self._device.ns(start.moment)
            if true > FAR * host and true - host > LEAST_NS:
                found.append((start, end, host, true))
        return found


def _off(pair: tuple[TimeTaken, TimeTaken, int, int]) -> int:
    return pair[3] - pair[2]


@cache
def measures(file: str, line: int) -> bool:
    """True if a line reads the clock for a difference, directly or through an assigned name."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return False
    of_line = [node for node in ast.walk(tree) if getattr(node, "lineno", None) == line]
    compares = [node for node in of_line if isinstance(node, ast.Compare)]
    compared = {id(part) for node in compares for part in ast.walk(node)}
    reads = [node for node in of_line if isinstance(node, ast.Call)]
    if any(id(read) in compared for read in reads):
        return False
    if any(_is_first(node, reads) for node in of_line):
        return True
    made = [node for node in of_line if isinstance(node, ast.Assign) and node.value in reads]
    names = {ast.unparse(target) for node in made for target in node.targets}
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and ast.unparse(node.left) in names
        for node in ast.walk(tree)
    )


def _is_first(node: ast.AST, reads: list[ast.Call]) -> bool:
    """True if a node is a subtraction from one of the calls `reads`."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    return any(node.left is read for read in reads)
