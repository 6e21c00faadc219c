"""The main function of a rank's process, started by ddpkit's launcher.

A rank joins the process group, calls the function, sends its result, and stays with open sockets
until the launcher ends it. A rank that left early would make its peers fail with "connection closed
by peer", which hides the cause. Nothing is torn down, because a dead process leaks nothing.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ddpkit import asked
from ddpkit.protocol.assignment import Assignment, ProcessSettings, RankPipes
from ddpkit.protocol.blackbox import BlackBox
from ddpkit.protocol.emulation import ClockPage
from ddpkit.protocol.past import Past
from ddpkit.protocol.raised import Raised
from ddpkit.protocol.reply import Reply, send_reply
from ddpkit.protocol.ship import read_call
from ddpkit.rank import compiler, process
from ddpkit.rank.agent import Agent
from ddpkit.rank.life import live
from ddpkit.rank.record.recorder import Recorder
from ddpkit.rank.report import report

if TYPE_CHECKING:
    from ddpkit.protocol.ship import Part, UnpackedCall


def main(mine: Assignment, settings: ProcessSettings, pipes: RankPipes) -> None:
    """Live through a run, send the result, and wait for the launcher's kill. Never returns."""
    asked.ask(mine.asked)
    pid, parts = os.getpid(), compiler.loaded_parts()
    process.set_up(mine, settings, pipes)
    box = BlackBox(settings.folder / f"rank{mine.rank}")
    recorder = Recorder(mine.rank, box, Past(settings.folder / f"past{mine.rank}"), groups=[])
    if hasattr(os, "register_at_fork"):  # compute of a child process is not compute of the rank
        os.register_at_fork(after_in_child=recorder.keep_no_more)
    agent = Agent(recorder, box)
    agent.start()
    raised, result = None, []
    try:
        result = _live(mine, settings, pipes, recorder, agent)
    except BaseException as error:
        raised = report(error)
    if os.getpid() != pid:  # a child that the function forked, and that returned from the function
        _leave(raised)
    agent.phase = "returned"
    box.write_status(agent.status())
    _flush()
    spans, dropped = recorder.spans(), recorder.log.dropped()
    imported = compiler.loaded_parts() > parts
    reply = Reply(
        *(spans, dropped, raised, result, recorder.memory, imported),
        reads=recorder.reads,
        has_joined=recorder.has_joined,
        replicas=recorder.replicas,
        limit=recorder.limit,
        timed=recorder.timed(),
    )
    send_reply(pipes.reply, reply)
    threading.Event().wait()  # the launcher ends this process


def _processes(mine: Assignment) -> int:
    """Return the number of running ranks."""
    return mine.world_size if mine.alike is None else mine.alike.present


def _leave(raised: Raised | None) -> NoReturn:
    """End a child process that the rank's function has forked, as the end of a script would."""
    if raised is not None:
        sys.stderr.write(raised.traceback)
    _flush()
    os._exit(0 if raised is None else 1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the user's code may have closed the stream
            stream.flush()


def _read_call(file: Path) -> UnpackedCall:
    """Return the function and its arguments; make the cell's functions and classes known to pickle.

    pickle sends functions and classes by name, and a peer looks for the name in `__main__`: for a
    remote procedure call of a cell's function, or an object of a cell's class in all_gather_object.
    """
    function, args, kwargs = read_call(file)
    main = sys.modules["__main__"]
    inner = inspect.unwrap(getattr(function, "func", function))
    for name, value in getattr(inner, "__globals__", {}).items():
        if getattr(value, "__module__", "") == "__main__" and not hasattr(main, name):
            setattr(main, name, value)
    return function, args, kwargs


def _live(
    mine: Assignment,
    settings: ProcessSettings,
    pipes: RankPipes,
    recorder: Recorder,
    agent: Agent,
) -> list[Part]:
    """Join the run, call the function, and return its packed result."""
    import torch
    from torch.distributed import FileStore

    from ddpkit.rank.emulation.desk import Desk
    from ddpkit.rank.emulation.machine import Machine

    torch.set_num_threads(settings.threads)
    # The forkserver imported torch before the user set TORCH_DISTRIBUTED_DEBUG, perhaps in a cell.
    torch.distributed.set_debug_level_from_env()
    machine = None
    if settings.emulated:
        assert pipes.main is not None
        assert pipes.others is not None
        page = ClockPage(settings.folder / f"clock{mine.rank}")
        page.agent = agent.native_id or 0
        desk = Desk(pipes.main, pipes.others)
        machine = Machine(
            *(mine.speed, page, desk, settings.epoch_ns, mine.machine, mine.rank),
            values=mine.values,
            alike=mine.alike,
        )
    return live(
        mine,
        recorder,
        store=FileStore(str(settings.folder / "store"), _processes(mine)),
        read_call=partial(_read_call, settings.folder / "call"),
        begin=agent.begin,
        machine=machine,
    )
