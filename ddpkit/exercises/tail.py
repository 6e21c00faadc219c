"""The last lines that an answer prints, kept apart from what a check prints."""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Iterator

from ddpkit.cluster.torchrun.job import checking

PRINTED = 3  # last lines kept of what an answer prints
MAX_LINE = 200  # characters kept of each
# gloo's last words on a rank: nobody's print, and the run's explanation says it better.
LAST_WORDS = ("terminate called after throwing an instance of 'gloo::", "[enforce fail at ")


class Tail(io.TextIOBase):
    """Takes the place of stdout while an answer runs; keeps the end of what is printed.

    What an answer prints must not mix with the report, which is compared; a student's debugging
    print is no mistake. When a case fails its last lines are shown.
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
    """Run an answer: what it prints goes to `output`."""
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), checking():
        yield
