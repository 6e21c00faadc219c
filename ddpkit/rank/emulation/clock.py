"""The clocks of a rank's threads, in emulated time.

A thread's clock advances with the CPU time that the thread uses, divided by the machine's speed.
The clock stands still while the thread runs ddpkit's code, and jumps to the end of each wait. So a
rank's time does not depend on the number of ranks that share its cores. On a modelled machine the
speed is infinite, and the cost of operations is counted (`counted`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from ddpkit.protocol.emulation import GOING, After, ClockPage
from ddpkit.rank.record.clock import DeviceMoment, Ends, Later, Mark, Moment

_cpu_ns = time.thread_time_ns
FREE_LOOKS = 16  # the first readings of a clock that stands still are free
# Each later reading costs LOOK_NS plus 1/SHARE of the time since the first of these readings, but
# at most LOOK_AT_MOST_NS, so that the clock of an endless loop stays a finite number.
LOOK_NS = 1_000
SHARE = 256
LOOK_AT_MOST_NS = 1_000_000_000
POLL_NS = 100_000  # polls that are further apart do not belong to one loop


class ThreadClock:
    """The clock of one thread, used by this thread only.

    Times are in ns since the start of the run.
    """

    is_later = False

    def __init__(self, speed: float, ns: int = 0, page: ClockPage | None = None) -> None:
        self._speed, self._page = speed, page
        self._ns, self._cpu_ns = ns, 0
        self._inside = 1  # depth of calls into the kit; above 0 the clock stands still
        self._looks, self._looking_since = 0, 0
        self._polls, self._polling_since, self._polled_ns = 0, 0, 0
        self.before_page: Callable[[], None] | None = None  # called before the page shows a time
        self.how = GOING  # GOING, or the page's word for a thread that may wait for gloo in C++

    def now(self) -> int:
        """Return the clock's time in ns."""
        if self._inside or self._speed == math.inf:
            return self._ns
        return self._ns + int((_cpu_ns() - self._cpu_ns) / self._speed)

    def enter(self) -> None:
        """Stop the clock, because ddpkit's code begins to run."""
        if not self._inside:
            if self.before_page is not None:
                self.before_page()
            if self._page is not None:
                self._page.stop()  # before the CPU time is read (`cluster.local.timekeeper`)
            self._ns = self.now()
        self._inside += 1

    def leave(self) -> None:
        """Start the clock again, because the user's code runs again."""
        self._inside -= 1
        if not self._inside:
            self._cpu_ns = _cpu_ns()
            if self._page is not None:
                self._page.go(self._ns, self._cpu_ns, self.how)

    def wait(self) -> None:
        """Write on the clock's page that the thread waits for gloo, while the clock is stopped."""
        if self._page is not None:
            self._page.wait()

    def say_how(self) -> None:
        """Write on the clock's page whether the running thread computes or waits."""
        if self.before_page is not None:
            self.before_page()
        if not self._inside and self._page is not None:
            self._page.go(self._ns, self._cpu_ns, self.how)

    def forget_page(self) -> None:
        """Stop writing to the clock's page, in a child process: the page belongs to the parent."""
        self._page = self.before_page = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """A block in which the clock stands still."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    @property
    def stands(self) -> bool:
        """True while the clock stands still, because the thread runs ddpkit's code."""
        return self._inside > 0

    def advance(self, ns: int) -> None:
        """Put the running clock forward by counted compute."""
        self._ns += ns
        self._looks = 0
        if self._page is not None:
            self._page.go(self._ns, 0, self.how)

    def spend(self, ns: int) -> None:
        """Put the clock forward by the cost of a launch.

        The page shows the new time once the timekeeper has been told of the launch.
        """
        self._ns += ns
        self._looks = 0

    def jump(self, ns: int) -> None:
        """Put the stopped clock forward to the time `ns`, unless the clock is already later."""
        if ns > self._ns:
            self._ns, self._looks = ns, 0

    def pass_by(self, ns: int) -> None:
        """Put the clock forward by `ns`, for a sleep or for work of a stated duration."""
        with self.stopped():
            self._ns += ns
            self._looks = 0

    def poll(self) -> None:
        """Charge a little time for a poll (a check of a state that other ranks may change).

        The first polls in a row are free. Polls cost time at any `speed=`, because the clock stands
        still while ddpkit checks the state, and the loop around the poll is short.
        """
        if self.now() - self._polled_ns > POLL_NS:
            self._polls, self._polling_since = 0, self.now()
        self._polls += 1
        if self._polls > FREE_LOOKS:
            share = (self.now() - self._polling_since) // SHARE
            self.pass_by(min(LOOK_NS + share, LOOK_AT_MOST_NS))
        self._polled_ns = self.now()

    def look(self) -> int:
        """Return the clock's time in ns to the user's code, for example to `time.time`.

        If compute takes no time, a loop that reads the clock until a given time would never end. So
        after FREE_LOOKS readings in a row, each reading puts the clock forward a little.
        """
        if self._speed == math.inf and not self._inside:
            self._looks += 1
            if self._looks == 1:
                self._looking_since = self._ns
            if self._looks > FREE_LOOKS:
                looks = self._looks
                share = (self._ns - self._looking_since) // SHARE
                self.pass_by(min(LOOK_NS + share, LOOK_AT_MOST_NS))
                self._looks = looks
        return self.now()


class LaterClock(ThreadClock):
    """The clock of a thread that runs callbacks; its times count from the ends of operations."""

    is_later = True

    def __init__(self, speed: float) -> None:
        super().__init__(speed)
        self._after: list[tuple[Ends, int]] = []  # operations, and the clock's time at their ends

    def begin(self, moment: Later) -> None:
        """Set the clock to a moment, which is given relative to the ends of operations."""
        self._after = [(operation, self._ns - later) for operation, later in moment.after]

    def follow(self, operation: Ends) -> None:
        """Count also from the end of `operation`, because the thread has waited for it."""
        self._after.append((operation, self._ns))

    def moment(self) -> Later:
        """Return the present moment, as the times since the ends of operations."""
        now = self.now()
        return Later(tuple((operation, now - since) for operation, since in self._after))

    def after(self) -> After:
        """Return the present moment for the timekeeper.

        The result has numbers of operations, each with the time since its end.
        """
        return tuple((operation.number, later) for operation, later in self.moment().after)


class Clocks:
    """The clocks of all threads of a rank.

    The recorder reads the clocks; ddpkit's code stops them.
    """

    def __init__(self, speed: float, page: ClockPage) -> None:
        self.speed = speed
        self.main = ThreadClock(speed, page=page)
        self._main_thread = threading.main_thread().ident
        self._others = threading.local()
        # On an emulated device: called at each reading of the clock by the user's code.
        self.looked: Callable[[FrameType], None] | None = None

    @property
    def mine(self) -> ThreadClock:
        """The clock of the calling thread; a new clock begins at the main thread's time."""
        if threading.get_ident() == self._main_thread:
            return self.main
        clock: ThreadClock | None = getattr(self._others, "clock", None)
        if clock is None:
            clock = self._others.clock = ThreadClock(self.speed, self.main._ns)
            clock.leave()
        return clock

    def use(self, clock: ThreadClock) -> None:
        """Make `clock` the clock of the calling thread."""
        self._others.clock = clock

    def now(self) -> int | Later:
        """Return the present moment, on the calling thread's clock."""
        clock = self.mine
        return clock.moment() if isinstance(clock, LaterClock) else clock.now()

    def moment(self) -> int | Later:
        """Return the present moment of the calling thread.

        gloo's threads have no clock, and get the main thread's moment.
        """
        return self.now() if self.is_mine else self.main.now()

    @property
    def is_mine(self) -> bool:
        """True if the calling thread has a clock; gloo's threads have no clock."""
        return threading.get_ident() == self._main_thread or hasattr(self._others, "clock")

    def ns(self, moment: Moment) -> int:
        assert not isinstance(moment, Mark | DeviceMoment)  # moments of a GPU
        return moment.ns() if isinstance(moment, Later) else moment

    def is_past(self, moment: Moment) -> bool:
        return True
