"""Refuses ways to exchange data outside torch.distributed: files, sockets, processes, a store.

A trace does not show bytes that are exchanged in these ways, so a check cannot count them. Checks
therefore refuse these ways, and other runs allow all of them. Python reports the use of files,
sockets and processes to an audit hook. C++ reports nothing to a hook, so this module replaces
torch's functions for files and for a store's values.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
import torch.distributed as dist

from ddpkit.rank.callers import below_the_user, compiles
from ddpkit.rank.where import user_call
from ddpkit.source import is_user_file
from ddpkit.torch_private import file_writer

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = {  # names of audit events, and verbs for messages
    "socket.connect": "connects a socket",
    "socket.bind": "binds a socket",
    "socket.sendto": "sends through a socket",
    "socket.sendmsg": "sends through a socket",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.exec": "starts a process",
    "os.fork": "forks",
    "os.forkpty": "forks",
    "os.mkdir": "makes a folder",
    "os.rename": "renames a file",
    "os.link": "links a file",
    "os.symlink": "links a file",
    "os.truncate": "writes a file",
    "os.chmod": "changes a file's attributes",
    "os.utime": "changes a file's attributes",
    "os.setxattr": "changes a file's attributes",
}
IMPORTS = "<frozen importlib._bootstrap>", "_find_and_load"  # an import's file and function
TEMPORARY = tempfile.__file__, "_get_default_tempdir"  # tries a folder by writing a file
STORES = ("set", "add", "append", "compare_set", "multi_set", "queue_push")


class SideChannel(RuntimeError):
    """Raised if the code of a rank could exchange data without torch.distributed."""

    def __init__(self, does: str) -> None:
        super().__init__(
            f"the code {does}, by which ranks could exchange data past torch.distributed"
        )


class _Listener:
    """The audit hook of this process: it is added once, and stays until the process ends."""

    def __init__(self) -> None:
        self.depth, self.added, self.lock = 0, False, threading.Lock()

    @contextmanager
    def on(self) -> Iterator[None]:
        with self.lock:
            if not self.added:
                sys.addaudithook(self.hear)
                self.added = True
            self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def hear(self, event: str, args: tuple[object, ...]) -> None:
        if self.depth and (event in EVENTS or event in ("open", "mmap.__new__")):
            frame = sys._getframe(1)
            does = EVENTS.get(event) or _of_a_file(event, args)
            if does and user_call(frame)[0][0] and not _of_python_or_torch(frame):
                raise SideChannel(does)


watch = _Listener()


def _of_a_file(event: str, args: tuple[object, ...]) -> str:
    if event == "mmap.__new__":
        return "maps a file" if args[0] != -1 else ""
    path, _, flags = args
    written = isinstance(flags, int) and flags & WRITING and path != os.devnull
    return "writes a file" if written else ""


def _of_python_or_torch(frame: FrameType | None) -> bool:
    """True if a write to a file comes from an import, from tempfile or from torch's compiler.

    Such writes are allowed, even if the user's code caused the import: an import writes bytecode,
    and the compiler writes files and starts processes.
    """
    return any(
        compiles(each) or (each.f_code.co_filename, each.f_code.co_name) in (IMPORTS, TEMPORARY)
        for each in below_the_user(frame)
    )


@contextmanager
def no_side_channels() -> Iterator[None]:
    """A block in which user code that uses a side channel, in any thread, raises SideChannel.

    The module's docstring lists the refused ways.
    """
    writer, storage, store = file_writer(), torch.UntypedStorage, dist.Store
    usual: list[tuple[object, str, object]] = [
        (writer, "__init__", _to_a_path(writer.__init__)),
        (torch, "from_file", _refused("maps a file")),
        (storage, "from_file", _refused("maps a file")),
        *((store, name, _by_hand(getattr(store, name))) for name in STORES if hasattr(store, name)),
    ]
    before = [
        (where, name, vars(where).get(name, getattr(where, name))) for where, name, _ in usual
    ]
    with watch.on():
        for where, name, instead in usual:
            setattr(where, name, instead)
        try:
            yield
        finally:
            for where, name, own in before:
                setattr(where, name, own)


def _to_a_path(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def made(self: object, *arguments: object, **named: object) -> None:
        if arguments and isinstance(arguments[0], str | os.PathLike):
            raise SideChannel("writes a file")
        init(self, *arguments, **named)

    return made


def _refused(does: str) -> Callable[..., object]:
    def refuse(*arguments: object, **named: object) -> object:
        raise SideChannel(does)

    return refuse


def _by_hand(method: Callable[..., object]) -> Callable[..., object]:
    """Return a store's method that raises SideChannel if user code calls the method.

    torch's own calls are allowed, because torch needs the store to make a group.
    """

    @functools.wraps(method)
    def written(*arguments: object, **named: object) -> object:
        if is_user_file(sys._getframe(1).f_code.co_filename):
            raise SideChannel("writes into a store")
        return method(*arguments, **named)

    return written
