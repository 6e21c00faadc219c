"""All messages of a cluster, moved in the order of time by the rules of `ddpkit.link`.

There is one statement of what a message costs, and this is where it is carried out. A `Network` has
the two sides of every link and a queue of events. Whoever uses it posts sends, receives and
collectives, each at a time, and lets it `advance`: as far as all posts are known. The simulator
knows all of a schedule at once; the timekeeper of real ranks (`cluster.local.timekeeper`) asks what
no rank can post any more. A side belongs to whoever needs it first, so messages of all groups share
it, as do the ranks of a host.

A collective is a schedule of messages. Each member begins its own part when it posts the
collective and its part of the one before, in the same `Stream`, is done. Its receives are posted as
it comes to them, as if a program of sends and receives ran on that rank.

A rank may have a device, with places of its own: compute, and engines that copy (`device`). What
is launched there is an item, which is ready at a time and ends at another; whoever launches it has
awaited what it follows.

At one time items end first; then counts what is posted, and what becomes ready; then items start;
then messages move. Of the messages that could leave when a side is free, the one that was sent
first leaves, of those that a rank sent at one time the one of its earlier post. Those that arrive
at one time come in by round and rank, a rank's as they have left. So a run with the same posts has
the same times, in whatever order the network was told of them, if it was told of each rank's in
their order.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from itertools import count
from typing import TypeAlias

from ddpkit.link import Links, LinkSide
from ddpkit.simulate.engine.device import DevicePlace, Item
from ddpkit.simulate.engine.posted import UNKNOWN, Channel, End, Matched, Number, Part, Play, Sender
from ddpkit.simulate.messages.schedules import Schedule, Send, elements

Action: TypeAlias = Callable[[int], None]  # what happens at an event; gets its time in ns
END, POST, START, MOVE, ARRIVAL = range(5)  # what comes first at one time; of items END and START
AS_THEY_LEFT: Number = (0, 0)  # one for all of them: then the events' own numbers decide


class Network:
    """The links of a cluster, and what moves on them."""

    def __init__(self, links: Links, *, keep_ends: bool = False) -> None:
        self.links, self._keep_ends = links, keep_ends
        self._out: dict[int, Sender] = {}
        self._into: dict[int, LinkSide] = {}
        self._routes: dict[tuple[int, int, int], tuple[Sender, LinkSide, int]] = {}
        # When, `END` … `ARRIVAL`, round, rank, number, which event, and what to do.
        self._events: list[tuple[int, int, int, int, Number, int, Action]] = []
        self._numbers = count()
        self._channels: dict[Hashable, dict[int, Channel]] = {}  # (stream, dst, tag) -> by src
        self._anybody: dict[Hashable, deque[End]] = {}  # receives from anybody
        self._plays: dict[Hashable, Play] = {}
        self._last: dict[tuple[Hashable, int], Part] = {}  # a stream's on a rank
        self._on_devices: dict[tuple[int, str], DevicePlace] = {}  # of devices, by rank
        self.now_ns = 0

    # What users of it post

    def send(self, ns: int, stream: Hashable, src: int, dst: int, nbytes: int, tag: int = 0) -> End:
        """Post a message at `ns`."""
        end, place = End(src, ns, nbytes, number=self._number(), peer=dst), (stream, dst, tag)
        self._posted(ns, src, end.number, lambda now: self._message_sent(now, end, place))
        return end

    def recv(
        self, ns: int, stream: Hashable, dst: int, src: int | None, nbytes: int, tag: int = 0
    ) -> End:
        """Post a receive at `ns`; without a source, from whoever's message comes first."""
        end = End(dst, ns, nbytes, number=self._number())
        place = (stream, dst, tag)
        if src is None:
            self._posted(ns, dst, end.number, lambda now: self._awaited_from_any(now, end, place))
        else:
            end.peer = src
            self._posted(ns, dst, end.number, lambda now: self._awaited(now, end, place))
        return end

    def enter(
        self,
        ns: int,
        stream: Hashable,
        key: Hashable,
        rank: int,
        members: tuple[int, ...],
        schedule: Schedule,
        itemsize: int = 1,
        *,
        together: bool = False,
        after_all: bool = False,
        present: int | None = None,
    ) -> Part:
        """Post a rank's part in the collective `key` at `ns`; it begins after the one before.

        ``together``: it is done for all ranks at one time, the last one's. ``after_all``: for no
        rank before all have posted it. ``present``: only so many of the members take part, the
        first ones, and the schedule is a folded one (`ddpkit.simulate.engine.folded`).
        """
        play = self._plays.get((stream, key))
        if play is None:
            size = present or len(members)
            play = Play((stream, key), members, schedule, itemsize, size, together, after_all)
            self._plays[stream, key] = play
        play.posted, play.last_ns = play.posted + 1, max(play.last_ns, ns)
        if play.after_all and play.posted == play.present:
            for each in play.done:  # on their ranks; they have waited for this one
                self._end_part(each, max(each.until_ns, play.last_ns))
        me = members.index(rank)
        part = Part(rank, ns, self._number(), schedule.of(me), play, me, ended=self._part_done)
        before = part.before = self._last.get((stream, rank))
        self._last[stream, rank] = part
        if before is not None and before.done_ns == UNKNOWN:
            before.following = part
        else:
            self._go_on_at(part, ns if before is None else max(ns, before.done_ns))
        return part

    def launch(
        self, ns: int, rank: int, place: str, work_ns: int, turn: int, priority: int = 0
    ) -> Item:
        """Launch an item of ``work_ns`` on a place of a rank's device, where it is ready at `ns`.

        ``turn`` grows with the rank's launches; of items that are ready at one time the one that
        was launched first is served first, in each priority.
        """
        at = self._on_devices.setdefault((rank, place), DevicePlace())
        item = Item(rank, work_ns, turn, priority)
        if ns > self.now_ns:
            self._posted(ns, rank, (turn, 0), partial(self._ready, item=item, place=at))
        else:
            self._ready(self.now_ns, item, at)
        return item

    def withdraw(self, posted: End | Part) -> None:
        """Take back what a rank has posted at a time that has not passed yet."""
        posted.withdrawn = True
        if isinstance(posted, End):
            return
        play, before = posted.play, posted.before
        last = play.key[0], posted.rank
        if before is None:
            del self._last[last]
        else:
            self._last[last], before.following = before, None
        play.posted -= 1
        if not play.posted:
            del self._plays[play.key]

    def call(self, ns: int, rank: int, action: Action) -> None:
        """Let a rank's program go on at `ns`: what it posts then counts before what moves then."""
        self._posted(ns, rank, self._number(), action)

    # Time

    @property
    def next_ns(self) -> float:
        """When the next thing happens, in ns; infinity if nothing more does."""
        return self._events[0][0] if self._events else math.inf

    def advance(self, before_ns: float = math.inf) -> None:
        """Let happen all that happens before a time."""
        while self._events and self._events[0][0] < before_ns:
            self.happen()

    def happen(self) -> None:
        """Let the next event happen."""
        ns, *_, action = heapq.heappop(self._events)
        # A post that was told late counts from now: nothing is undone.
        self.now_ns = max(self.now_ns, ns)
        action(self.now_ns)

    def _number(self) -> Number:
        return next(self._numbers), 0

    def _posted(self, ns: int, rank: int, number: Number, action: Action, round: int = 0) -> None:
        self._at(ns, POST, round, rank, number, action)

    def _at(
        self, ns: int, kind: int, round: int, rank: int, number: Number, action: Action
    ) -> None:
        """Do something at a time; a message can have several events at one."""
        event = next(self._numbers)
        heapq.heappush(self._events, (ns, kind, round, rank, number, event, action))

    # Devices

    def _ready(self, now: int, item: Item, place: DevicePlace) -> None:
        item.ready_ns = now
        place.add(item)
        self._look(now, item, place)

    def _look(self, now: int, item: Item, place: DevicePlace) -> None:
        """Let a place look for its next item, once all are known that are ready at this time."""
        if place.looks_ns != now:
            place.looks_ns = now
            begin: Action = partial(self._begin, place=place)
            self._at(now, START, 0, item.rank, (item.turn, 0), begin)

    def _begin(self, now: int, place: DevicePlace) -> None:
        place.looks_ns = UNKNOWN
        item = place.next_item(now)
        if item is not None:
            end: Action = partial(self._end_item, item=item, run=item.runs, place=place)
            self._at(item.until_ns, END, 0, item.rank, (item.turn, 0), end)

    def _end_item(self, now: int, item: Item, run: int, place: DevicePlace) -> None:
        if run != item.runs or place.running is not item:
            return  # it was interrupted
        place.running = None
        if place.ready:
            self._look(now, item, place)
        item.finish(now)

    # Messages

    def _channel(self, place: Hashable, src: int) -> Channel:
        return self._channels.setdefault(place, {}).setdefault(src, Channel())

    def _message_sent(self, now: int, end: End, place: tuple[Hashable, int, int]) -> None:
        if end.withdrawn:
            return
        channel = self._channel(place, end.rank)
        if channel.receives:
            self._match(now, end, channel.receives.popleft())
            return
        channel.sends.append(end)
        door = now + self._route(end.rank, end.peer, end.peer)[2]
        at_the_door: Action = partial(self._at_the_door, end=end, channel=channel, place=place)
        self._posted(door, end.rank, end.number, at_the_door)

    def _awaited(self, now: int, end: End, place: tuple[Hashable, int, int]) -> None:
        if end.withdrawn:
            return
        channel = self._channel(place, end.peer)
        if channel.sends:
            self._match(now, channel.sends.popleft(), end)
        else:
            channel.receives.append(end)

    def _awaited_from_any(self, now: int, end: End, place: tuple[Hashable, int, int]) -> None:
        """Take the message that came to the door first, if one is there."""
        there = [
            (door, src, channel)
            for src, channel in self._channels.get(place, {}).items()
            if channel.sends and (door := self._door_ns(channel.sends[0])) <= now
        ]
        if not there:
            self._anybody.setdefault(place, deque()).append(end)
            return
        _, src, channel = min(there, key=lambda found: found[:2])
        end.find(src)
        self._match(now, channel.sends.popleft(), end)

    def _at_the_door(
        self, now: int, end: End, channel: Channel, place: tuple[Hashable, int, int]
    ) -> None:
        """A message that nobody has awaited by name has come: for who receives from anybody."""
        waiting = self._anybody.get(place)
        if waiting and channel.sends and channel.sends[0] is end:
            receive = waiting.popleft()
            receive.find(end.rank)
            channel.sends.popleft()
            self._match(now, end, receive)

    def _door_ns(self, send: End) -> int:
        return send.posted_ns + self._route(send.rank, send.peer, send.peer)[2]

    def _match(self, now: int, send: End, receive: End) -> None:
        """Move a message, both ends of which are posted."""
        out, into, latency = self._route(send.rank, send.peer, receive.rank)
        latency *= send.rounds
        receive.nbytes = send.nbytes
        patience = min(latency, out.link.wire_ns(send.nbytes))
        message = Matched(send, receive, out, into, latency, patience)
        # At once, so that the side sees all that it can choose from when it moves the first.
        out.add(message)
        self._at(now, MOVE, 0, send.rank, send.number, partial(self._carry, out=out))

    def _carry(self, now: int, out: Sender) -> None:
        """Let a side take what it can take by now, and come back for what it can take later."""
        while (message := out.take_due(now)) is not None:
            self._move(now, message)
            out.find_soonest()
        if (first := out.soonest()) is None:
            return
        if not now < out.looks_ns <= first.due_ns:
            out.looks_ns, look = first.due_ns, partial(self._carry, out=out)
            self._at(first.due_ns, MOVE, 0, first.send.rank, first.send.number, look)

    def _move(self, now: int, message: Matched) -> None:
        send, receive, into = message.send, message.receive, message.into
        earliest = max(send.posted_ns, receive.posted_ns - message.latency_ns)
        leaves, through = message.out.take(earliest, send.nbytes)
        arrives = message.out.link.arrival_ns(into.link, send.nbytes, leaves)
        arrives += message.latency_ns - message.latency_ns // send.rounds  # for further rounds

        def arrive(now: int) -> None:
            receive.finish(into.take(now, send.nbytes)[1])

        self._at(arrives, ARRIVAL, send.round, send.rank, AS_THEY_LEFT, arrive)
        send.finish(max(through, now))  # a send is not over before its receive is posted

    def _route(self, src: int, dst: int, receiver: int) -> tuple[Sender, LinkSide, int]:
        """The two sides and the latency of a message to `dst`, for which `receiver` may stand."""
        found = self._routes.get((src, dst, receiver))
        if found is None:
            route = self.links.route(src, dst)
            out = self._out.setdefault(route.sender, Sender(route.out))
            owner = receiver if route.receiver == dst else self.links.host_of(receiver)
            into = self._into.setdefault(owner, LinkSide(route.into))
            latency = max(route.out.latency_ns, route.into.latency_ns)
            found = self._routes[src, dst, receiver] = out, into, latency
        return found

    # Collectives

    def _go_on_at(self, part: Part, ns: int, round: int = 0) -> None:
        """Let a rank take the next of its steps at a time."""
        self._posted(ns, part.rank, part.number, partial(self._take_steps, part=part), round)

    def _take_steps(self, now: int, part: Part) -> None:
        """Take a rank's steps until one has to wait."""
        if part.withdrawn:
            return
        part.before = None
        play, members, me = part.play, part.play.members, part.place
        while part.taken < len(part.steps):
            step = part.steps[part.taken]
            part.taken += 1
            nbytes = elements(step.part) * play.itemsize
            peer, number = members[step.peer], (part.number[0], part.taken)
            end = End(part.rank, now, nbytes, step.round, number, peer, rounds=step.rounds)
            other = step.peer % play.present
            if self._keep_ends:
                part.ends.append((step, end))
            channel = play.channel(*((me, other) if isinstance(step, Send) else (other, me)))
            if isinstance(step, Send):
                part.open += 1
                end.then = part.closes
                if channel.receives:
                    self._match(now, end, channel.receives.popleft())
                else:
                    channel.sends.append(end)
                continue
            end.then = self._goes_on(part)
            if channel.sends:
                self._match(now, channel.sends.popleft(), end)
            else:
                channel.receives.append(end)
            return
        part.close(now)

    def _goes_on(self, part: Part) -> Callable[[End], None]:
        """Take the part's next steps when the message is in that it waits for.

        After the last one nothing is posted: its end is told as soon as it is known, like that of a
        message. So two ranks that are done at one time are both told, and go on side by side.
        """

        def received(end: End) -> None:
            if part.taken == len(part.steps):
                part.close(end.done_ns)
                return
            self._go_on_at(part, end.done_ns, end.round)

        return received

    def _part_done(self, part: Part) -> None:
        """End a rank's part; where all go on together, end all parts when the last one is done.

        Where it is not over before all have posted theirs, the last post ends it (`enter`).
        """
        play = part.play
        play.done.append(part)
        everybody = len(play.done) == play.present
        if everybody:
            del self._plays[play.key]
            play.channels.clear()  # somebody may keep the part
        if not play.together:
            if not play.after_all:
                self._end_part(part, part.until_ns)
            elif play.posted == play.present:
                self._end_part(part, max(part.until_ns, play.last_ns))
        elif everybody:
            last = max(each.until_ns for each in play.done)
            for each in play.done:
                self._end_part(each, last)

    def _end_part(self, part: Part, ns: int) -> None:
        part.done_ns, following = ns, part.following
        if part.then is not None:
            part.then(part)
        if following is not None:
            self._go_on_at(following, max(following.posted_ns, part.done_ns))
