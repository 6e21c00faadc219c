"""A backward while it runs: which gradients are ready, and what has been posted meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ddpkit.rank.call import Call
from ddpkit.rank.clock import HOST, Clock, Moment, Read


@dataclass(slots=True)
class Backward:
    """One backward of a rank, from `start` on."""

    line: tuple[tuple[str, int], str]  # the user's that called it, as `where.user_call` says it
    start: Moment
    # When each gradient became ready, and its bytes; in order, once it has ended.
    ready: list[tuple[Moment, int]] = field(default_factory=list)
    posted: list[Call] = field(default_factory=list)  # in it
    end: Moment = 0

    def ends(self, clock: Clock) -> None:
        if clock is HOST:  # several threads may have done it; of a GPU's, one has
            self.ready.sort()
        self.end = clock.now()

    def spans(self) -> Iterator[tuple[str, str, Moment, Moment, int]]:
        """A stretch for each gradient, and one for what came after the last."""
        start = self.start
        for end, nbytes in (*self.ready, (self.end, 0)):
            yield "backward", "backward", start, end, nbytes
            start = end

    def hidden_wait(self) -> Callable[[Read], None]:
        """Finds since when it waited for what it had posted; to be called when moments can be read.

        DDP's reducer waits in C++ at the end of a backward, where no Python sees it begin. It
        begins when there is nothing left to do: the last gradient is ready, and the last bucket has
        been posted.
        """
        nothing_to_do = [self.ready[-1][0] if self.ready else self.start]
        nothing_to_do += [call.posted for call in self.posted]
        ended = [call for call in self.posted if call.done and call.blocked is None]

        def find(read: Read) -> None:
            idle_from = max(map(read, nothing_to_do))
            for call in ended:
                if read(call.done) > idle_from:
                    call.blocked = idle_from

        return find
