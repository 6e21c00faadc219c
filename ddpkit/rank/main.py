"""The main function of a rank's process, which our launcher has started.

A rank joins the process group, calls the function, sends back what it returned and stays, sockets
open, until the launcher ends it: a rank that left early would make its peers fail with "connection
closed by peer", which hides the cause. Nothing is torn down; a dead process has leaked nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

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


def main(mine: Assignment, settings: ProcessSettings, pipes: RankPipes) -> None:
    """Live through a run, reply, and wait for the end. Never returns."""
    pid, parts = os.getpid(), compiler.loaded_parts()
    process.set_up(mine, settings, pipes)
    box = BlackBox(settings.folder / f"rank{mine.rank}")
    recorder = Recorder(mine.rank, box, Past(settings.folder / f"past{mine.rank}"))
    if hasattr(os, "register_at_fork"):  # what a child computes is not the rank's
        os.register_at_fork(after_in_child=recorder.keep_no_more)
    agent = Agent(recorder, box)
    agent.start()
    raised, result = None, []
    try:
        result = _live(mine, settings, pipes, recorder, agent)
    except BaseException as error:
        raised = report(error)
    if os.getpid() != pid:  # a fork that has come back from the function: not the rank
        _leave(raised)
    agent.phase = "returned"
    box.write_status(agent.status())
    _flush()
    spans, dropped = recorder.spans(), recorder.log.dropped()
    imported = compiler.loaded_parts() > parts
    send_reply(pipes.reply, Reply(spans, dropped, raised, result, recorder.memory, imported))
    threading.Event().wait()  # until the launcher ends this process


def _leave(raised: Raised | None) -> NoReturn:
    """End a child of the rank, as the script that it believes to be would end."""
    if raised is not None:
        sys.stderr.write(raised.traceback)
    _flush()
    os._exit(0 if raised is None else 1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the user's code may have closed it
            stream.flush()


def _live(
    mine: Assignment,
    settings: ProcessSettings,
    pipes: RankPipes,
    recorder: Recorder,
    agent: Agent,
) -> list[Any]:
    """What the function returned, packed."""
    import torch
    from torch.distributed import FileStore

    from ddpkit.rank.emulation.desk import Desk
    from ddpkit.rank.emulation.machine import Machine

    torch.set_num_threads(settings.threads)
    machine = None
    if settings.emulated:
        assert pipes.main is not None
        assert pipes.others is not None
        page = ClockPage(settings.folder / f"clock{mine.rank}")
        page.agent = agent.native_id or 0
        desk = Desk(pipes.main, pipes.others)
        machine = Machine(mine.speed, page, desk, settings.epoch_ns, mine.machine, mine.rank)
    return live(
        mine,
        recorder,
        store=FileStore(str(settings.folder / "store"), mine.world_size),
        read_call=partial(read_call, settings.folder / "call"),
        begin=agent.begin,
        machine=machine,
    )
