"""Puts the stores of torch.distributed into emulated time, and reports the keys that ranks await.

The problem. All ranks can use a store at any moment: `store.wait(["x"])` blocks in C++ until
another rank, or another process, sets the key. On an emulated cluster each rank has its own clock.
A rank that blocked there would stop the time of all other ranks, which may have to wait for a
message before they set the key. And real time would decide if `store.check(["x"])` finds the key.

So each call takes place in emulated time, by three rules.

- A call takes place at its rank's time, when no rank can still act at an earlier time. Calls at
  equal times take place in the order of the ranks. A call takes no time, but polling costs a little
  time (`ThreadClock.poll`), so that a loop around `check`, `add` or `compare_set` ends.
- A rank that waits for a key checks the key once. If the key is missing, the rank waits for a
  change of the store, and checks again at the time of each change. So the waiting rank continues at
  the time at which another rank has set the key.
- A timeout counts in emulated time. A timeout of `ENDLESS` or more, such as the default, is
  ignored: the ranks then wait for each other, and the run ends in a `Deadlock` that names the key.

Some changes are not reported: a process that a rank has started, C++ code or a callback may set a
key. Then the waiting rank finds the key within `LOOK` seconds of real time, and continues at the
cluster's present time.

In real time the calls block in C++ as usual, and the agent reports the wait.
"""

from __future__ import annotations

import functools
import math
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ddpkit.protocol.call import Call
from ddpkit.rank.emulation import machine
from ddpkit.rank.emulation.machine import Machine
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.recorder import Recorder
from ddpkit.rank.where import user_call

KINDS = dist.FileStore, dist.TCPStore, dist.HashStore
ENDLESS = timedelta(minutes=5)  # torch's default, for calls without a limit
LOOK = 0.05  # real seconds between two looks for a key set outside of emulated time
# The methods by their effect: change a store, look at a store, or wait until a key is set.
CHANGES = ("set", "append", "multi_set", "queue_push", "delete_key")
LOOKS = ("check", "num_keys", "list_keys", "queue_len")
BOTH = ("add", "compare_set")
WAITS = ("get", "wait", "multi_get", "queue_pop")
HERE = "ddpkit/here"  # the key by which a TCPStore's ranks are counted
# Serving TCPStores, kept alive: a rank may drop the store, or return, before all ranks have looked.
_serving: list[object] = []


def _is_torchs(store: object) -> bool:
    """True if a store's class is torch's, in C++. A user's Python class keeps its own methods."""
    while type(store) is dist.PrefixStore:
        store = store.underlying_store
    return type(store) in KINDS


def _listed(method: str, key: str | Sequence[str]) -> tuple[str, ...]:
    """Return the keys for which a call of a store's method waits."""
    return tuple(map(str, key)) if method in ("wait", "multi_get") else (str(key),)


class Stores:
    """The stores that a rank uses during a run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        store: Any = dist.Store
        self._torchs = {name: getattr(store, name) for name in dir(store) if name[0] != "_"}

    @contextmanager
    def seen(self) -> Iterator[None]:
        """A block in which ddpkit's functions replace the methods of stores."""
        with ExitStack() as undo:
            for names, act in (
                ((*CHANGES, *LOOKS, *BOTH), self._at_once),
                (WAITS, self._waiting),
                (("barrier",), self._barrier),
            ):
                for name in names:
                    if name in self._torchs:
                        self._replace(undo, dist.Store, name, act)
            self._replace(undo, dist.TCPStore, "__init__", self._made)
            yield

    def _replace(
        self, undo: ExitStack, home: object, name: str, act: Callable[..., object]
    ) -> None:
        original = getattr(home, name)

        @functools.wraps(original)
        def method(store: object, *args: object, **kwargs: object) -> object:
            return act(name, original, store, *args, **kwargs)

        undo.callback(setattr, home, name, original)
        setattr(home, name, method)

    @staticmethod
    def _emulated() -> Machine | None:
        """Return the rank's machine if the calling thread is in emulated time, or None."""
        emulated = machine.current()
        return emulated if emulated is not None and emulated.runs else None

    def _at_once(
        self,
        name: str,
        original: Callable[..., object],
        store: dist.Store,
        *args: object,
        **kwargs: object,
    ) -> object:
        """Call a store's method that does not wait, in the thread's turn at the store."""
        emulated = self._emulated()
        if emulated is None or not _is_torchs(store):
            return original(store, *args, **kwargs)
        with emulated.turn_at_store(changes=name not in LOOKS):
            found = original(store, *args, **kwargs)
        if name not in CHANGES:
            emulated.clocks.mine.poll()
        return found

    def _waiting(
        self,
        name: str,
        original: Callable[..., object],
        store: Any,
        key: Any,
        *args: Any,
        **kwargs: Any,
    ) -> object:
        """Wait until keys are set, or until a queue has a value; then call the store's method."""
        if name == "queue_pop" and not _blocks(*args, **kwargs):
            return self._at_once(name, original, store, key, *args, **kwargs)
        call = functools.partial(original, store, key, *args, **kwargs)
        if not _is_torchs(store):
            return call()
        given = args[0] if args and name == "wait" else kwargs.get("timeout")
        limit = given if isinstance(given, timedelta) else store.timeout
        keys = _listed(name, key)
        emulated = self._emulated()
        if emulated is None or emulated.clocks.mine.is_later:
            with self._said_to_wait(name, keys, limit):
                return call()
        if name == "queue_pop":
            is_there = functools.partial(self._has_queued, store, key)
        else:
            is_there = functools.partial(self._torchs["check"], store, [*keys])
        self._until(emulated, is_there, name, keys, limit)
        with emulated.turn_at_store(changes=name == "queue_pop"):
            found = call()
        emulated.clocks.mine.poll()
        return found

    def _has_queued(self, store: dist.Store, key: str) -> bool:
        return bool(self._torchs["queue_len"](store, key) > 0)

    def _barrier(
        self,
        name: str,
        original: Callable[..., object],
        store: Any,
        key: str,
        world_size: int,
        *args: object,
        **kw: object,
    ) -> None:
        """Wait for `world_size` ranks.

        torch's own barrier would wait in C++, outside emulated time.
        """
        given = args[0] if args else kw.get("timeout")
        limit = given if isinstance(given, timedelta) else store.timeout
        emulated = self._emulated()
        if emulated is None or emulated.clocks.mine.is_later or not _is_torchs(store):
            with self._said_to_wait(name, (key,), limit):
                original(store, key, world_size, *args, **kw)
            return
        self._meet(emulated, store, f"{key}/{HERE}", world_size, name, limit)

    def _meet(
        self, emulated: Machine, store: object, key: str, size: int, name: str, limit: timedelta
    ) -> None:
        add = self._torchs["add"]
        with emulated.turn_at_store(changes=True):
            everybody = -(-int(add(store, key, 1)) // size) * size  # the count when all have come
        is_there = lambda: bool(add(store, key, 0) >= everybody)  # noqa: E731
        self._until(emulated, is_there, name, (key.removesuffix(f"/{HERE}"),), limit)

    def _until(
        self,
        emulated: Machine,
        is_there: Callable[[], bool],
        name: str,
        keys: tuple[str, ...],
        limit: timedelta,
    ) -> None:
        """Wait in emulated time. Raises DistStoreError at the timeout, as torch does."""
        with self._said_to_wait(name, keys, ENDLESS):
            seconds = math.inf if limit >= ENDLESS else limit.total_seconds()
            if not emulated.wait_for_store(is_there, seconds, LOOK):
                ms = round(limit.total_seconds() * 1000)
                raise dist.DistStoreError(f"{name} timeout after {ms}ms, keys: {', '.join(keys)}")

    @contextmanager
    def _said_to_wait(self, name: str, keys: tuple[str, ...], limit: timedelta) -> Iterator[None]:
        """A block in which the agent can report the keys for which the thread waits.

        A wait with a timeout is not reported, because it ends by itself and is no deadlock.
        """
        thread, recorder = threading.get_ident(), self._recorder
        if limit < ENDLESS or thread in recorder.waits:
            yield
            return
        where, via = user_call(sys._getframe())
        call = Call(name, where=where, via="" if via == name else via, keys=keys)
        recorder.waits[thread] = RecordedCall(call)
        try:
            yield
        finally:
            recorder.wait_over(thread)

    # A TCPStore: `dist.TCPStore(...)` waits for all ranks

    def _made(
        self,
        _: str,
        original: Callable[..., object],
        store: dist.Store,
        *args: object,
        **kwargs: Any,
    ) -> None:
        emulated = self._emulated()
        if emulated is None or emulated.clocks.mine.is_later:
            original(store, *args, **kwargs)
            return
        names = ("host_name", "port", "world_size", "is_master", "timeout", "wait_for_workers")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        rest = args[len(names) :]
        limit, master = given.get("timeout", ENDLESS), bool(given.get("is_master"))
        waits, size = given.get("wait_for_workers", True), given.get("world_size")
        given["wait_for_workers"] = False
        where = str(given["host_name"]), int(given["port"])
        at = f"{where[0]}:{where[1]}"
        if not master:
            is_there = functools.partial(_is_reached, *where)
            self._until(emulated, is_there, "TCPStore", (at,), limit)
        with emulated.turn_at_store(changes=True):
            if rest:
                original(store, *[given[name] for name in names], *rest)
            else:
                original(store, **given)
        if master:
            _serving.append(store)
        if waits and size:
            self._counted(emulated, store, size, master=master, limit=limit, at=at)

    def _counted(
        self,
        emulated: Machine,
        store: object,
        size: int,
        *,
        master: bool,
        limit: timedelta,
        at: str,
    ) -> None:
        """Count the ranks that have opened a store.

        The rank that serves the store waits for all of them.
        """
        add = self._torchs["add"]
        with emulated.turn_at_store(changes=True):
            add(store, HERE, 1)
        if master:
            is_there = lambda: bool(add(store, HERE, 0) >= size)  # noqa: E731
            self._until(emulated, is_there, "TCPStore", (at,), limit)


def _blocks(block: bool = True) -> bool:
    """Return the argument `block` of a call of `queue_pop`."""
    return block


def _is_reached(host: str, port: int) -> bool:
    """True if a server listens at the port `port` of `host`."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
