"""The timekeeper: a thread that advances a cluster's emulated time, in one order for all ranks.

The problem. Each rank has its own clock, and messages of several ranks share links. Which rank
comes first on a link, which message a receive from any rank takes, and whether an operation is done
when a rank looks: all of this depends on actions of other ranks at earlier emulated times, and
these actions may come later in real time.

It would be simpler to let each rank compute its own ends, from times that its peers leave in shared
memory. An earlier version did this. It is correct only if links are not shared: two groups each got
the whole bandwidth, and a receive from any rank took the message that came first in real time.

So a thread in the launcher has the only `simulate.Network` of the run. Ranks report their posts to
the thread, and ask it for the ends of operations. The thread is conservative: no event happens
before it is certain that no rank can still post an earlier event.

- A rank that computes can post at its clock's time or later. The clock is known from the rank's
  last message, and from the CPU time that its thread has used since then (Linux shows the CPU time
  of threads of other processes; on other systems the timekeeper waits for the rank's next message).
- A rank that waits for an operation can post after the operation's end. An event of the network
  ends the wait, so the rank posts nothing before this event.
- A rank that waits up to a limit can post at the limit or later.

The rank with the earliest time can always continue, so no rank waits forever because of the order.

What must hold: a rank reports a post before its clock runs again (`protocol.emulation.ClockPage`).
So when the launcher sees that the clock is past a time, all posts before this time have arrived.

What would break it: a rank that waits where ddpkit cannot see the wait, in a lock, a thread's
`join` or the store. Such a rank neither computes nor waits for the network. After `STANDSTILL`
seconds without CPU time, the timekeeper no longer waits for this rank; its later posts get the
network's present time or a later time. Meanwhile, polls of unfinished operations advance clocks no
faster than real time. Otherwise a loop around `is_completed` would advance a clock by years. The
run's trace reports such cases in its fact "order".
"""

from __future__ import annotations

import math
import selectors
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import partial
from multiprocessing.connection import Connection

from ddpkit.cluster.local.actors import Actor, Actors
from ddpkit.cluster.local.devices import Devices
from ddpkit.cluster.local.entering import enter
from ddpkit.cluster.local.kept import Operations, Pending
from ddpkit.cluster.local.watched import Watched
from ddpkit.cluster.speeds import speed_text
from ddpkit.link import Links
from ddpkit.protocol.emulation import (
    MAIN,
    Ask,
    AskTimes,
    ClockPage,
    DeviceTimes,
    Due,
    Follow,
    Found,
    Launched,
    Left,
    PostedCollective,
    PostedSend,
    Request,
    Source,
    StoreUsed,
    Withdrawn,
)
from ddpkit.simulate.engine.network import Network
from ddpkit.simulate.engine.posted import End
from ddpkit.text import count
from ddpkit.trace import Scalar

SHORT, LONG = 0.001, 0.02  # seconds between two looks at the awaited clocks


class Timekeeper(threading.Thread):
    """The thread that serves the ranks of one run; see the module's docstring."""

    def __init__(
        self,
        links: Links,
        speeds: Sequence[float],
        pages: Sequence[ClockPage],
        *,
        counted: bool = False,
        devices: Sequence[bool] = (),
    ) -> None:
        super().__init__(name="ddpkit-timekeeper", daemon=True)
        self._counted = counted  # True if compute is counted, so that clock pages show all time
        self.error: BaseException | None = None
        self._links, self._pages, self._speeds = links, pages, speeds
        self._network = Network(links)
        self._selector = selectors.DefaultSelector()
        self._connections: dict[tuple[int, bool], Connection] = {}
        self._operations = Operations(len(links))
        with_device = (rank for rank, has_one in enumerate(devices) if has_one)
        self._devices = Devices(with_device, self._network, self._operations)
        # operation -> ranks that have posted it, until all members have posted it
        self._here: dict[Hashable, list[int]] = {}
        # operation -> rank -> number and time of the post, until all members have posted
        self._posts: dict[Hashable, dict[int, tuple[int, int]]] = {}
        self._unmet: list[set[Hashable]] = [set() for _ in links]  # rank -> keys of `_here`
        # (group, ends, tag) -> numbers of sends and receives
        self._posted: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0])
        self.happened = 0  # number of past events
        self._stands = False  # True if all actors wait, and the network has no event
        self.has_more = False  # True if the network has an event to come
        self._begun = False  # True if an actor has begun since the last look at the clocks
        self._actors = Actors(len(pages))
        self._served = 0  # number of served ranks
        # actors to answer, and the ends of their operations
        self._known: list[tuple[Actor, int]] = []
        self._over = threading.Event()

    def serve(self, rank: int, pid: int, main: Connection, others: Connection) -> None:
        """Add a started rank to the ranks that the thread serves.

        Call this method before `start`.
        """
        speed = math.inf if self._counted else self._speeds[rank]
        self._actors.watch(rank, Watched(self._pages[rank], pid, speed))
        self._served += 1
        for connection, is_main in ((main, True), (others, False)):
            self._connections[rank, is_main] = connection
            self._selector.register(connection, selectors.EVENT_READ, (rank, connection))

    @property
    def facts(self) -> dict[str, Scalar]:
        """Facts about the emulation, by name, for the trace."""
        facts: dict[str, Scalar] = {"time": "emulated"}
        if speed := speed_text(self._speeds):
            facts["speed"] = speed
        if standstills := self._actors.standstills:
            facts["order"] = f"real time's, in {count(standstills, 'place')}"
        return facts

    @property
    def stands(self) -> bool:
        """True if all ranks wait, some ranks have devices, and the network has no event left."""
        return self._stands and bool(self._devices)

    def stop(self) -> None:
        """End the thread, and close its connections and pages."""
        self._over.set()
        if self.is_alive():
            self.join(5)
        self._selector.close()
        for connection in self._connections.values():
            connection.close()
        self._actors.close()
        for page in self._pages[self._served :]:  # pages of ranks that could not be started
            page.close()

    def run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            self.error = error

    def _serve(self) -> None:
        wait, idle_since = 0.2, time.monotonic()
        while not self._over.is_set() and self._selector.get_map():
            # Read the clocks first, then the posts: a rank tells of a post before the clock goes
            # on, so all posts before the read times have arrived.
            seen = self._actors.clocks() if wait < 0.2 else {}
            heard = self._read(0 if seen else wait)
            while self._read(0):
                heard = True
            self._actors.have_reached(seen)
            moved = self._go_on()
            self.has_more = self._network.next_ns < math.inf
            self._stands = self._actors.all_ask and not self.has_more
            now = time.monotonic()
            if heard or moved:
                idle_since, wait = now, SHORT
            elif not self._actors.held_up:
                wait = 0.2
            else:
                wait = min(LONG, max(SHORT, (now - idle_since) / 4))
                self._actors.leave_out_who_stands_still(now, [*map(bool, self._unmet)])
                if seen and self._read(wait):  # messages came: look again at once
                    idle_since, wait = now, 0

    # Messages of ranks

    def _read(self, seconds: float) -> bool:
        heard = False
        for key, _ in self._selector.select(seconds):
            rank, connection = key.data
            try:
                request: Request = connection.recv()
            except (EOFError, OSError):  # the rank has ended
                self._selector.unregister(connection)
                self._actors.ended(rank)
                continue
            self._actors.heard(rank)
            self._take(rank, request)
            heard = True
        return heard

    def _take(self, rank: int, request: Request) -> None:
        if isinstance(request, Launched):
            for item in request.items:
                self._devices.launch(rank, item)
        elif isinstance(request, Ask):
            actor = self._actors.ask(rank, request)
            if request.posted:
                self._operations.when_posted(
                    rank, request.after, lambda ns: self._know(actor, request, ns)
                )
                return
            if request.store:
                return
            # A forgotten operation was done long ago: by the time of the question at the latest.
            earliest = request.ns if self._operations.is_forgotten(rank, request.after) else 0
            self._operations.when_all_are_done(
                rank, request.after, lambda ns: self._know(actor, request, max(ns, earliest))
            )
        elif isinstance(request, AskTimes):
            self._send(rank, True, self._devices.all_times(rank, request.question))
        elif isinstance(request, Follow):
            self._follow(rank, request)
        elif isinstance(request, StoreUsed):
            self._store_used(rank, request)
        elif isinstance(request, Found):
            self._actors.has_found(rank, request)
        elif isinstance(request, Withdrawn):
            self._withdraw(rank, request.post)
        elif isinstance(request, Left):
            self._actors.left((rank, request.actor))
        else:
            operation = self._operations.posted(rank, request.number)
            self._meet(rank, request)
            self._operations.when_all_are_done(
                rank, request.after, lambda ns: self._post(rank, request, operation, ns)
            )

    def _meet(self, rank: int, post: PostedSend | PostedCollective) -> None:
        """Record a rank's post; gloo can end the operation once all members have posted it."""
        if isinstance(post, PostedCollective):
            key: Hashable = post.group, post.seq
            expected = self._running(post.members)
        elif post.peer is None:  # `_found` records this receive once the sender is known
            return
        else:
            ends = (post.peer, rank) if post.receives else (rank, post.peer)
            channel = self._posted[post.group, ends, post.tag]
            channel[post.receives] += 1
            key, expected = (post.group, ends, post.tag, channel[post.receives]), 2
        self._here.setdefault(key, []).append(rank)
        self._unmet[rank].add(key)
        self._posts.setdefault(key, {})[rank] = post.number, post.ns
        if len(self._here[key]) == expected:
            for each in self._here.pop(key):
                self._unmet[each].discard(key)
                self._actors.may_go_on(each)
            self._operations.meet(self._posts.pop(key))

    def _withdraw(self, rank: int, post: PostedSend | PostedCollective) -> None:
        """Remove all effects of a rank's post, because gloo has refused the operation."""
        operation = self._operations.withdraw(rank, post.number)
        for posted in (operation.end, *operation.stand_ins):
            if posted is not None:
                self._network.withdraw(posted)
        if isinstance(post, PostedCollective):
            key: Hashable = post.group, post.seq
            members = post.members
        else:
            assert post.peer is not None
            members = (post.peer, rank) if post.receives else (rank, post.peer)
            channel = self._posted[post.group, members, post.tag]
            key = post.group, members, post.tag, channel[post.receives]
            channel[post.receives] -= 1
        here = self._here.setdefault(
            key, [*members[: self._running(members)]]
        )  # `_here` has no entry for an operation that all members have posted
        here.remove(rank)
        self._unmet[rank].discard(key)
        for each in here:
            self._unmet[each].add(key)
        if not here:
            del self._here[key]
        self._posts.get(key, {}).pop(rank, None)
        if rank in self._devices:  # later items of the device must not wait for the operation
            self._operations.posted(rank, post.number).finish_at(post.ns)
            operation.finish_at(post.ns)

    def _post(
        self, rank: int, post: PostedSend | PostedCollective, operation: Pending, after_ns: int
    ) -> None:
        if operation.withdrawn:
            return
        # A late post counts from the present on: no event is undone.
        ns = max(after_ns, post.ns, self._network.now_ns)
        if rank in self._devices:
            operation.then.insert(0, partial(self._devices.note_times, rank, post.number, ns))
        if isinstance(post, PostedSend):
            message = self._message(rank, post, ns)
            operation.end, message.then = message, operation.finish
            if post.receives and post.peer is None:
                message.found = lambda end: self._found(rank, post, end.peer)
        else:
            part, *operation.stand_ins = enter(
                self._network, ns, rank, post, self._running(post.members)
            )
            operation.end, part.then = part, operation.finish

    def _found(self, rank: int, post: PostedSend, source: int) -> None:
        """Tell a rank the sender of its message; only then can the rank receive from it in gloo."""
        self._meet(rank, post._replace(peer=source))
        self._send(rank, False, Source(post.number, source))

    def _know(self, actor: Actor, ask: Ask, done_ns: int) -> None:
        if actor.asks is ask:
            self._known.append((actor, done_ns))

    def _follow(self, rank: int, follow: Follow) -> None:
        """Register an actor that begins at the end of an operation."""
        place = rank, follow.actor
        if not self._actors.will_come(place):
            return

        def begin(done_ns: int) -> None:
            self._begun |= self._actors.comes(place, done_ns)

        self._operations.when_all_are_done(rank, ((follow.number, 0),), begin)

    def _store_used(self, rank: int, used: StoreUsed) -> None:
        """End an actor's turn at a store; after a change, make all waiting actors check again."""
        self._actors.leaves_store((rank, used.actor))
        if used.changed:
            ns = self._actors.present_ns(self._network.now_ns) if used.ns is None else used.ns
            self._look_again(self._actors.wait_for_a_change(), ns)

    def _look_again(self, actors: Sequence[Actor], ns: int) -> None:
        """Answer actors that wait for a change of a store with the first reported change."""
        for actor in actors:
            if actor.asks is not None and all(actor is not each for each, _ in self._known):
                self._know(actor, actor.asks, max(actor.asks.ns, ns))

    def _running(self, members: Sequence[int]) -> int:
        """Return the number of members that run; the other members are absent copies."""
        return bisect_left(members, len(self._pages))  # members are sorted by rank

    def _message(self, rank: int, post: PostedSend, ns: int) -> End:
        if post.receives:
            return self._network.recv(ns, post.group, rank, post.peer, post.nbytes, post.tag)
        assert post.peer is not None
        return self._network.send(ns, post.group, rank, post.peer, post.nbytes, post.tag)

    # Time

    def _go_on(self) -> bool:
        """Advance time as far as possible; return True if an actor has got an answer."""
        network, moved = self._network, False
        self._look_again(self._actors.found_unseen(), self._actors.present_ns(network.now_ns))
        while True:
            while self._known:
                self._answer(*self._known.pop())
                moved = True
            actors = self._actors
            computing, limited = actors.first_that_computes(), actors.first_with_a_limit()
            limit = math.inf if limited is None else limited[0]
            while network.next_ns < computing and network.next_ns <= limit and not self._known:
                network.happen()
                self.happened += 1
                if self._begun:  # a callback began, which can post from this moment on
                    computing, self._begun = actors.first_that_computes(), False
            if self._known:
                continue
            if limited is None or limit >= computing:
                return moved
            if limit > actors.as_far_as_real_time(network.now_ns):
                return moved
            self._answer(limited[1], None)
            moved = True

    def _answer(self, actor: Actor, done_ns: int | None) -> None:
        asks = actor.asks
        assert asks is not None
        now_ns = self._actors.answer(actor, done_ns, self._network.now_ns)
        source = self._operations.source(actor.rank, asks.after)
        to_main = actor.number == MAIN
        times = self._devices.new_times(actor.rank) if to_main else None
        due = Due(asks.actor, asks.question, done_ns, now_ns, source, times)
        if not self._send(actor.rank, to_main, due):
            self._actors.unreachable(actor)

    def _send(self, rank: int, to_main: bool, message: Due | Source | DeviceTimes) -> bool:
        """Send a message to a rank; return False if the rank has ended."""
        try:
            self._connections[rank, to_main].send(message)
        except OSError:
            return False
        return True
