"""All messages of a cluster, moved in the order of time by the rules of `ddpkit.link`.

`ddpkit.link` has the rule for the time of a message, and this module applies the rule. A `Network`
has the two sides of every link and a queue of events. Callers post sends, receives and collectives,
each with its time, and call `advance` up to a time before which all posts are known. The simulator
knows all of a schedule at once; the timekeeper of real ranks (`cluster.local.timekeeper`) finds the
time before which no rank can still post. The first message to need a side gets the side. Messages
of all groups share the sides, and so do the ranks of a host.

A collective is a schedule of messages. Each member begins its own part when it has posted the
collective, and when its part of the previous collective in the same stream is done. The receives
are posted one by one, as if a program of sends and receives ran on that rank.

A rank may have a device, with places: compute, and engines that copy (`device`). A launch adds an
item to a place. The caller launches an item once the ends of all items that it follows are known.

Events of one time happen in this order: items end, posts count, items start, messages leave, and
messages arrive. If several messages could leave a free side, the message that was sent first leaves
first; if a rank sent them at one time, the message that was posted first. Messages that arrive at
one time are received in the order of their rounds and ranks; messages of one rank in the order in
which they left. So runs with equal posts have equal times, even if callers post for different ranks
in another order.
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

Action: TypeAlias = Callable[[int], None]  # runs at an event; gets the event's time in ns
# the order of events at one time; END and START are events of items
END, POST, START, MOVE, ARRIVAL = range(5)
AS_THEY_LEFT: Number = (0, 0)  # all arrivals have this number, so they stay in the order of leaving


class Network:
    """The links and devices of a cluster, and the messages and items on them."""

    def __init__(self, links: Links, *, keep_ends: bool = False) -> None:
        self.links, self._keep_ends = links, keep_ends
        self._out: dict[int, Sender] = {}
        self._into: dict[int, LinkSide] = {}
        self._routes: dict[tuple[int, int, int], tuple[Sender, LinkSide, int]] = {}
        # a heap of (time, `END` … `ARRIVAL`, round, rank, post's number, event's number, action)
        self._events: list[tuple[int, int, int, int, Number, int, Action]] = []
        self._numbers = count()
        # (stream, receiver, tag) -> sender -> messages
        self._channels: dict[Hashable, dict[int, Channel]] = {}
        self._anybody: dict[Hashable, deque[End]] = {}  # receives from any rank
        self._plays: dict[Hashable, Play] = {}
        self._last: dict[tuple[Hashable, int], Part] = {}  # (stream, rank) -> the newest part
        # rank and place -> state of the place
        self._on_devices: dict[tuple[int, str], DevicePlace] = {}
        self.now_ns = 0

    # Posts

    def send(self, ns: int, stream: Hashable, src: int, dst: int, nbytes: int, tag: int = 0) -> End:
        """Post a message from rank `src` to rank `dst` at `ns`; return the sender's end."""
        end, place = End(src, ns, nbytes, number=self._number(), peer=dst), (stream, dst, tag)
        self._posted(ns, src, end.number, lambda now: self._message_sent(now, end, place))
        return end

    def recv(
        self, ns: int, stream: Hashable, dst: int, src: int | None, nbytes: int, tag: int = 0
    ) -> End:
        """Post a receive at `ns`; with `src` None, a receive of the first message from any rank."""
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
        """Post a rank's part in collective `key` at `ns`. Earlier parts of the rank end first.

        ``together``: the collective ends for all ranks at once, with the last rank. ``after_all``:
        the collective ends for no rank before all ranks have posted it. ``present``: only the first
        `present` members take part, and the schedule is folded (`ddpkit.simulate.engine.folded`).
        """
        play = self._plays.get((stream, key))
        if play is None:
            size = present or len(members)
            play = Play((stream, key), members, schedule, itemsize, size, together, after_all)
            self._plays[stream, key] = play
        play.posted, play.last_ns = play.posted + 1, max(play.last_ns, ns)
        if play.after_all and play.posted == play.present:
            for each in play.done:  # parts that are done, and have waited for this last post
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
        """Launch an item that takes ``work_ns`` on a place of a rank's device, ready at `ns`.

        ``turn`` grows with the rank's launches. If items of one priority are ready at one time, the
        item that was launched first runs first.
        """
        at = self._on_devices.setdefault((rank, place), DevicePlace())
        item = Item(rank, work_ns, turn, priority)
        if ns > self.now_ns:
            self._posted(ns, rank, (turn, 0), partial(self._ready, item=item, place=at))
        else:
            self._ready(self.now_ns, item, at)
        return item

    def withdraw(self, posted: End | Part) -> None:
        """Take back a rank's post. The time of the post must still be in the future."""
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
        """Run a rank's `action` at `ns`; its posts are handled before messages move at `ns`."""
        self._posted(ns, rank, self._number(), action)

    # Time

    @property
    def next_ns(self) -> float:
        """The time of the next event, in ns; infinity if no event is left."""
        return self._events[0][0] if self._events else math.inf

    def advance(self, before_ns: float = math.inf) -> None:
        """Run all events before `before_ns`."""
        while self._events and self._events[0][0] < before_ns:
            self.happen()

    def happen(self) -> None:
        """Run the next event."""
        ns, *_, action = heapq.heappop(self._events)
        # A late post counts from now: no event is undone.
        self.now_ns = max(self.now_ns, ns)
        action(self.now_ns)

    def _number(self) -> Number:
        return next(self._numbers), 0

    def _posted(self, ns: int, rank: int, number: Number, action: Action, round: int = 0) -> None:
        self._at(ns, POST, round, rank, number, action)

    def _at(
        self, ns: int, kind: int, round: int, rank: int, number: Number, action: Action
    ) -> None:
        """Plan an action for the time `ns`. A message can have several events at one time."""
        event = next(self._numbers)
        heapq.heappush(self._events, (ns, kind, round, rank, number, event, action))

    # Devices

    def _ready(self, now: int, item: Item, place: DevicePlace) -> None:
        item.ready_ns = now
        place.add(item)
        self._look(now, item, place)

    def _look(self, now: int, item: Item, place: DevicePlace) -> None:
        """Plan a place's choice of its next item, after all items that are ready at `now`."""
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
            return  # the item was interrupted, and ends later
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
        door = now + self._route(end.rank, end.peer, end.peer)[2]  # earliest time of arrival
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
        """Take the message that reached the receiver first; if there is none yet, wait for one."""
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
        """Hand a message, at its earliest time of arrival, to a waiting receive from any rank."""
        waiting = self._anybody.get(place)
        if waiting and channel.sends and channel.sends[0] is end:
            receive = waiting.popleft()
            receive.find(end.rank)
            channel.sends.popleft()
            self._match(now, end, receive)

    def _door_ns(self, send: End) -> int:
        return send.posted_ns + self._route(send.rank, send.peer, send.peer)[2]

    def _match(self, now: int, send: End, receive: End) -> None:
        """Give a message, with send and receive posted, to the sender's side of the link."""
        out, into, latency = self._route(send.rank, send.peer, receive.rank)
        latency *= send.rounds
        receive.nbytes = send.nbytes
        patience = min(latency, out.link.wire_ns(send.nbytes))
        message = Matched(send, receive, out, into, latency, patience)
        # The side gets all messages of this time before one of them moves, and chooses among all.
        out.add(message)
        self._at(now, MOVE, 0, send.rank, send.number, partial(self._carry, out=out))

    def _carry(self, now: int, out: Sender) -> None:
        """Move the messages that are due on a sender's side; plan the time of the next choice."""
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
        # a message of merged rounds has a latency for each round; `arrives` has one so far
        arrives += message.latency_ns - message.latency_ns // send.rounds

        def arrive(now: int) -> None:
            receive.finish(into.take(now, send.nbytes)[1])

        self._at(arrives, ARRIVAL, send.round, send.rank, AS_THEY_LEFT, arrive)
        send.finish(max(through, now))  # a send ends only after the receive's post

    def _route(self, src: int, dst: int, receiver: int) -> tuple[Sender, LinkSide, int]:
        """Return both sides and the latency of a message; `receiver` is `dst` or its original."""
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
        """Plan the next step of a rank's part in a collective for the time `ns`."""
        self._posted(ns, part.rank, part.number, partial(self._take_steps, part=part), round)

    def _take_steps(self, now: int, part: Part) -> None:
        """Do the next steps of a rank's part in a collective, until a step has to wait."""
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
        """Return the function that does a part's next steps when a message is received.

        The function ends the part as soon as the end of the part's last step is known, even if this
        end is later than now. So two ranks with equal ends learn their ends at the same moment.
        """

        def received(end: End) -> None:
            if part.taken == len(part.steps):
                part.close(end.done_ns)
                return
            self._go_on_at(part, end.done_ns, end.round)

        return received

    def _part_done(self, part: Part) -> None:
        """End a rank's part in a collective; parts that must end together end with the last."""
        play = part.play
        play.done.append(part)
        everybody = len(play.done) == play.present
        if everybody:
            del self._plays[play.key]
            play.channels.clear()  # frees memory, even if a caller keeps the part
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
