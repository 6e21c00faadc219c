"""A rank's part in a run: join the group, call the function, and pack its result.

Two launchers start ranks. ddpkit's own forks a fresh process for each rank (`rank.main`). Under
torchrun, each rank runs the whole script, and a run is a call in it (`cluster.torchrun.run`). The
launcher passes in the differences: the store in which the ranks find each other, the source of the
function, the watcher, and the destination of the output.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ddpkit.protocol.assignment import Assignment
from ddpkit.protocol.per_rank import pick
from ddpkit.protocol.ship import pack_result
from ddpkit.rank import compiler, device
from ddpkit.rank.record.recorder import Recorder, activate, now_of_run
from ddpkit.rank.record.threads import note_starts
from ddpkit.rank.report import UnsendableResultError

if TYPE_CHECKING:  # needs torch, which a launcher need not have
    import torch.distributed as dist

    from ddpkit.protocol.ship import Part, UnpackedCall
    from ddpkit.rank.emulation.machine import Machine


def live(
    mine: Assignment,
    recorder: Recorder,
    *,
    store: dist.Store,
    read_call: Callable[[], UnpackedCall],
    begin: Callable[[], None],
    machine: Machine | None = None,
    output: AbstractContextManager[object] | None = None,
) -> list[Part]:
    """Live through the run on this rank; return its result, packed by `ship.pack_result`.

    store      the store of torch.distributed in which the run's ranks find each other
    read_call  returns the function and its arguments; called after the rank has joined
    begin      called when all ranks have joined, just before the function
    machine    the emulated machine of the rank, if there is one
    output     a context manager for the rank's output, entered while the function runs

    Raises the function's exception, and UnsendableResultError if its result cannot be pickled.
    """
    activate(recorder)
    note_starts(now_of_run)
    _seed_all(mine.seed, mine.rank)
    with (
        compiler.absent(),  # only a forkserver has already delayed the compiler's import
        device.used(mine, recorder),
        machine.shown(recorder) if machine else nullcontext(),
        _joined(mine, store),
        _stores_seen(recorder),
        _rpc_met(machine),
    ):
        function, args, kwargs = read_call()
        args, kwargs = pick(args, mine.rank), pick(kwargs, mine.rank)
        if not mine.script:
            _start_together()
        begin()
        with (
            _compute_watched(mine, recorder),
            output or nullcontext(),
            machine.running(recorder) if machine else nullcontext(),
            _in_flight_watched(mine, recorder),
            _replicas_watched(mine, recorder, machine),
            _models_told_apart(mine, recorder),
        ):
            result = function(*args, **kwargs)
        recorder.finish()
        if machine:
            machine.left()
    activate(None)
    try:
        return pack_result(result)
    except Exception as error:
        raise UnsendableResultError(function, result, error) from None


def _seed_all(seed: int, rank: int) -> None:
    """Seed torch, numpy and random with `1000 * seed + rank`.

    Forked ranks inherit the same random state, so without seeding all ranks would draw the same
    numbers. Without a GPU, only the CPU's generator is seeded: `torch.manual_seed` would format a
    traceback for each kind of accelerator.
    """
    import torch

    if torch.accelerator.is_available():
        torch.manual_seed(1000 * seed + rank)
    else:
        torch.default_generator.manual_seed(1000 * seed + rank)
    random.seed(1000 * seed + rank)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed((1000 * seed + rank) % 2**32)


def _stores_seen(recorder: Recorder) -> AbstractContextManager[None]:
    """A block in which the agent can report the rank's waits in stores."""
    from ddpkit.rank.stores import Stores

    return Stores(recorder).seen()


def _rpc_met(machine: Machine | None) -> AbstractContextManager[None]:
    """A block in which a rank that joins RPC does not stop the emulated time of other ranks."""
    from torch.distributed import rpc

    if machine is None or not rpc.is_available():
        return nullcontext()
    from ddpkit.rank.rpc import met_in_emulated_time

    return met_in_emulated_time()


@contextmanager
def _joined(mine: Assignment, store: dist.Store) -> Iterator[None]:
    """A block in which the rank is a member of the run's default group.

    A script joins the group itself, in this block.
    """
    if mine.script:
        from ddpkit.rank.script.joining import let_join

        with let_join(mine, store):
            yield
        return
    from ddpkit.rank.group.asked import AskedGroups, default_backend
    from ddpkit.rank.group.backend import join

    join(mine, store)
    backend = default_backend(mine)
    with AskedGroups(backend, {"gloo", backend}).in_place():
        yield


def _start_together() -> None:
    """Wait for all ranks, without a record, so that a timeline begins with the function."""
    import torch.distributed as dist

    group: Any = dist.group.WORLD
    group._inner.barrier().wait()


def _compute_watched(mine: Assignment, recorder: Recorder) -> AbstractContextManager[object]:
    """A block in which compute is recorded, if the run has `record=True`."""
    if not mine.record:
        return nullcontext()
    from ddpkit.rank.record.compute import watch

    return watch(recorder)


@contextmanager
def _in_flight_watched(mine: Assignment, recorder: Recorder) -> Iterator[None]:
    """A block in which a use of a tensor between post and wait raises, if the run is strict."""
    if not mine.strict:
        yield
        return
    from ddpkit.rank.group.in_flight import InFlight

    recorder.watch = watch = InFlight(mine.rank, users_only=True)
    with watch:
        yield
    recorder.watch = None


def _replicas_watched(
    mine: Assignment, recorder: Recorder, machine: Machine | None
) -> AbstractContextManager[None]:
    """A block in which models' fingerprints are taken, if the run has values and several ranks."""
    if mine.world_size == 1 or not mine.values:
        return nullcontext()
    from ddpkit.rank.record.replicas import Replicas

    replicas = Replicas(recorder, machine)
    recorder.replicas = replicas.found
    return replicas.watched()


def _models_told_apart(mine: Assignment, recorder: Recorder) -> AbstractContextManager[None]:
    """A block in which calls of DDP's reducers record their model, if there are several ranks."""
    if mine.world_size == 1:
        return nullcontext()
    from ddpkit.rank.record.models import watched

    return watched(recorder)
