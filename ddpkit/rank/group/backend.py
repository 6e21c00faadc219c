"""Registers ddpkit's backends, "ddpkit_gloo" and "ddpkit_nccl", with torch.distributed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed import PrefixStore

from ddpkit.protocol.alike import Alike
from ddpkit.protocol.assignment import GROUP_TIMEOUT, Assignment
from ddpkit.rank.emulation import machine
from ddpkit.rank.group import absent, nccl
from ddpkit.rank.group.absent import Absent, GroupsMade
from ddpkit.rank.group.direct import Direct
from ddpkit.rank.group.emulated import EmulatedGroup
from ddpkit.rank.group.making import by_the_kit
from ddpkit.rank.group.of_host import HostOf
from ddpkit.rank.group.recorded import RecordedGroup
from ddpkit.rank.record.recorder import current
from ddpkit.torch_private import Feature, explain, meet, require

if TYPE_CHECKING:
    from ddpkit.rank.group.emulated import Start

_init_process_group = dist.init_process_group  # torch's own; scripts get a replacement
_times_joined = 1
_default_name = ""
_asked: str | None = None  # the backend that the user has asked for, while a group is made
_beside_nccl = False  # True while a script with NCCL as its default makes a group of gloo


@contextmanager
def asked_for(backend: str | None, default: str = "") -> Iterator[None]:
    """A block that makes a group; `backend` is the backend that the user has requested, or None.

    `default` is the backend of the default group.
    """
    global _asked, _beside_nccl
    _asked, _beside_nccl = backend, backend == "gloo" and "nccl" in default
    try:
        yield
    finally:
        _asked, _beside_nccl = None, False


def join(mine: Assignment, store: dist.Store, times: int = 1, name: str = "") -> None:
    """Join the default process group of the run, for the first time or after leaving the group.

    times  1 for the first time, 2 for the second, and so on
    name   the name of the default group in the records of calls; necessary if the group has fewer
           ranks than the run
    """
    global _times_joined, _default_name
    register()
    _times_joined, _default_name = times, name
    hook = sys.excepthook
    if mine.alike is not None:
        _let_few_meet(mine.alike)
    try:
        _init_process_group(
            f"ddpkit_{mine.backend}",
            store=store,
            rank=mine.rank,
            world_size=mine.world_size,
            timeout=GROUP_TIMEOUT,
        )
    except Exception as error:
        explain(error, Feature.RUNS)
        raise
    if (recorder := current()) is not None:
        recorder.has_joined = True
    # torch's call wraps the hook once more, and the wrapper would write "[rank0]:" before all lines
    sys.excepthook = hook


def _let_few_meet(alike: Alike) -> None:
    """Make each group, including the default group, wait only for its running ranks."""
    if absent.groups_made is None:
        absent.groups_made = made = GroupsMade(alike)
        meet(lambda: made.awaited)


def register() -> None:
    """Register the backends with torch. "ddpkit_nccl" runs calls with CUDA tensors on NCCL."""
    require(Feature.RUNS)
    if hasattr(dist.Backend, "DDPKIT_GLOO"):
        return
    for backend, make in (("gloo", _make_queues), ("nccl", partial(_make_queues, on_gpu=True))):
        dist.Backend.register_backend(
            f"ddpkit_{backend}", make, extended_api=True, devices=["cpu", "cuda"]
        )
    nccl.post_batches_as_one()  # once: under torchrun a process makes many runs


def _make_queues(options: Any, _: object = None, *, on_gpu: bool = False) -> RecordedGroup:
    """Return a recorded group. c10d calls this for the default group and for every `new_group`.

    A group with two backends contains a second group, for calls with tensors of the host.
    """
    group = _make(options, options.store, on_gpu=on_gpu)
    if _asked is not None and "," in _asked and not on_gpu:
        group.of_host = _make(options, PrefixStore("cpu", options.store), "cpu:gloo")
    return group


def _make(
    options: Any, store: dist.Store, described: str = "", *, on_gpu: bool = False
) -> RecordedGroup:
    """Return a recorded group of ranks that connect through `store`.

    `described` is the last part of the group's name.
    """
    recorder, emulated = current(), machine.current()
    assert recorder is not None, "ddpkit's backend works inside a run only"
    rank, size = options.group_rank, options.group_size
    alike = None if emulated is None else emulated.alike
    everybody = tuple(options.global_ranks_in_group)  # empty for the default group
    # While gloo waits for the members, `Agent` reads the variables `name` and `members` from here.
    members = everybody if alike is None else alike.running(everybody)
    name = str(options.group_id) if members else _default_name
    if name and _times_joined > 1:
        name += f" of time {_times_joined}"  # torch restarts the numbers of its groups
    name = f"{name} {described}".strip()
    everybody = everybody or tuple(range(size))
    if name:
        members = everybody if alike is None else alike.running(everybody)
    of_absent = None
    if alike is not None and alike.running(everybody) != everybody:
        of_absent = Absent(alike, everybody, rank)
        size = of_absent.present
    with by_the_kit(), emulated.clocks.mine.stopped() if emulated else nullcontext():
        if emulated is not None:
            emulated.meet(name, everybody)  # tells the agent of this wait
        inner = dist.ProcessGroupGloo(store, rank, size, options.timeout)
    if emulated is None:
        with by_the_kit():
            gpus = nccl.make(options) if on_gpu else None
        start = Direct(inner, gpus).start
        return RecordedGroup(inner, start, name, everybody, recorder, gpus, described=described)

    def of_callbacks() -> Start:
        apart = PrefixStore("callbacks", store)
        with by_the_kit():
            return started(dist.ProcessGroupGloo(apart, rank, size, options.timeout))

    def started(inner: dist.ProcessGroupGloo) -> Start:
        start = Direct(inner).start
        return start if of_absent is None else of_absent.around(start)

    of_host = emulated is not None and (described or _beside_nccl)
    own: Any = HostOf(emulated) if of_host else emulated
    return EmulatedGroup(
        *(inner, started(inner), name, everybody, recorder, own, of_callbacks, of_absent),
        described=described,
    )
