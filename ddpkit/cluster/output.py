"""The ranks' printed text: cut into lines, labelled, shown during the run, and limited in size."""

from __future__ import annotations

import codecs
import io
import re
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Any

HEAD, TAIL = 200, 100  # lines to keep of each rank, from the beginning and from the end
WIDTH = 4000  # characters kept of a line
# The two lines with which gloo ends a rank if a message does not fit the receiver's tensor.
GLOO_ABORTS = (
    re.compile(r"terminate called after throwing an instance of 'gloo::\w+'"),
    re.compile(r"  what\(\):  \[enforce fail at .*"),
)


@dataclass
class RankOutput:
    """The printed text of a rank: its first `HEAD` lines and its last `TAIL` lines.

    Lines that gloo prints when it aborts are stored separately while no other line follows, because
    the run's error may explain the abort.
    """

    head: list[str] = field(default_factory=list)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    gloos_lines: list[str] = field(default_factory=list)
    lines: int = 0
    _partial: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def feed(self, data: bytes, final: bool = False) -> None:
        """Add printed bytes, which may end in the middle of a line; `final` ends that line."""
        text = self._partial + self._decoder.decode(data, final)
        *whole, self._partial = text.split("\n")
        if final and self._partial:
            whole.append(self._partial)
            self._partial = ""
        self._partial = _shown(self._partial)
        for line in whole:
            self._add(_shown(line).rstrip("\r"))

    def _add(self, line: str) -> None:
        said = len(self.gloos_lines)
        if said < len(GLOO_ABORTS) and GLOO_ABORTS[said].fullmatch(line):
            self.gloos_lines.append(line)
            return
        followed, self.gloos_lines = self.gloos_lines, []
        for each in [*followed, line]:
            self._keep(each)

    def _keep(self, line: str) -> None:
        self.lines += 1
        if len(self.head) < HEAD:
            self.head.append(line)
        else:
            self.tail.append(line)

    @property
    def omitted(self) -> int:
        """The number of dropped lines between the first and the last kept lines."""
        return self.lines - len(self.head) - len(self.tail)

    def text(self) -> list[str]:
        """Return the kept lines, and one line in place of the omitted lines."""
        gap = [f"... {self.omitted:,} lines left out ..."] if self.omitted else []
        return [*self.head, *gap, *self.tail, *self.gloos_lines]


def _shown(line: str) -> str:
    """Return a line as a terminal finally shows it: a progress bar has overwritten its own text."""
    start = line.rstrip("\r").rfind("\r") + 1  # a final \r has not overwritten anything yet
    line = line[start:]
    return line if len(line) <= WIDTH else f"{line[:WIDTH]} ... (line cut)"


class Output:
    """The output of all ranks of a run.

    In the first moments of a run no line is shown, so a short run always shows its lines in the
    order of the ranks. A longer run shows each line as it arrives, at most `HEAD` lines a rank.
    """

    HOLD = 0.5  # seconds in which nothing is shown

    def __init__(self, world_size: int) -> None:
        self.ranks = [RankOutput() for _ in range(world_size)]
        self._shown = [0] * world_size

    def feed(self, rank: int, data: bytes, final: bool = False) -> None:
        """Add bytes that a rank has printed."""
        self.ranks[rank].feed(data, final)

    def leave_out_gloos_lines(self) -> None:
        """Drop the lines that gloo printed when it aborted: the run's error explains them."""
        for output in self.ranks:
            output.gloos_lines.clear()

    def show(self, *, final: bool = False) -> None:
        """Print the lines that have not been printed yet."""
        lines = []
        for rank, output in enumerate(self.ranks):
            fresh = output.head[self._shown[rank] :]
            self._shown[rank] += len(fresh)
            if final:
                fresh += output.text()[len(output.head) :]
            elif fresh and len(output.head) == HEAD:
                fresh.append("... more is shown when the run has ended ...")
            lines += [f"[rank {rank}] {line}" for line in fresh]
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()

    def __str__(self) -> str:
        return "\n".join(
            f"[rank {rank}] {line}"
            for rank, output in enumerate(self.ranks)
            for line in output.text()
        )


class Labelled(io.TextIOBase):
    """A stream in place of a rank's standard output under torchrun.

    The stream writes each line to the real output, labelled with the rank, and keeps the line.
    """

    def __init__(self, rank: int) -> None:
        self.label, self.kept, self.partial = f"[rank {rank}] ", RankOutput(), ""
        self.shown: Any = sys.__stdout__

    def write(self, text: str) -> int:
        """Print the complete lines; return the length of the text, as streams do."""
        self.kept.feed(text.encode())
        *whole, self.partial = (self.partial + text).split("\n")
        for line in whole:
            # One write: torchrun runs Python unbuffered, and print would write the "\n" later.
            self.shown.write(f"{self.label}{line}\n")
            self.shown.flush()
        return len(text)

    def lines(self) -> list[str]:
        """Return all kept lines, labelled, after ending the last line."""
        if self.partial:
            self.write("\n")
        self.kept.feed(b"", final=True)
        return [self.label + line for line in self.kept.text()]
