"""The last lines that an answer prints, kept apart from a check's own output."""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Iterator

from ddpkit.cluster.torchrun.job import checking

PRINTED = 3  # last lines of an answer's output to keep
MAX_LINE = 200  # characters kept of each line
# gloo's last words on a rank: no code printed them, and the run's error explains the end better.
LAST_WORDS = ("terminate called after throwing an instance of 'gloo::", "[enforce fail at ")


class Tail(io.TextIOBase):
    """A stream that replaces stdout while an answer runs, and keeps the end of the output.

    An answer's output must not appear in the report: printing is no mistake, and tests compare the
    reports of right answers as text. If a case fails, the last lines are shown.
    """

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=PRINTED)
        self._open = ""  # the line being written

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        *whole, rest = (self._open + text).split("\n")
        said = (line for line in whole if not any(words in line for words in LAST_WORDS))
        self.lines.extend(line[:MAX_LINE] for line in said if line.strip())
        self._open = rest[:MAX_LINE]
        return len(text)

    def last(self) -> tuple[str, ...]:
        rest = [self._open] if self._open.strip() else []
        return tuple([*self.lines, *rest][-PRINTED:])


@contextlib.contextmanager
def captured(output: Tail) -> Iterator[None]:
    """Send all output of the answer inside the `with` block to `output`."""
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), checking():
        yield
