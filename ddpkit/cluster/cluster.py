"""`Cluster` starts real ranks from a notebook, sends them a function, and gathers the results.

Every run is a fresh job of fresh processes, so nothing leaks from one run into the next. A failed
run kills all its processes, because nothing else frees a rank that is stuck in gloo.
"""

from __future__ import annotations

import inspect
import reprlib
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ddpkit.cluster import devices
from ddpkit.cluster.afterwards import afterwards
from ddpkit.cluster.cores import cores
from ddpkit.cluster.local.launch import sweep, warm_up
from ddpkit.cluster.local.request import Request
from ddpkit.cluster.local.run import run_local
from ddpkit.cluster.speeds import speed_text, speeds_of
from ddpkit.cluster.stopped import check_timeout
from ddpkit.cluster.torchrun import job
from ddpkit.cluster.torchrun.run import run as run_in_place
from ddpkit.errors import CallError, ClusterError, RunFailed
from ddpkit.link import Links, LinkSpec
from ddpkit.machine import MachineSpec, machine_text, machines_of
from ddpkit.protocol.alike import Alike
from ddpkit.protocol.per_rank import PerRank
from ddpkit.protocol.ship import pack_call
from ddpkit.rank.record.recorder import current
from ddpkit.rank.script.launched import LaunchedScript
from ddpkit.text import count
from ddpkit.trace import Scalar, Trace, Traffic, how_made, join

if TYPE_CHECKING:
    import torch

Result = TypeVar("Result")

MANY = 16  # ranks; above this number, a warning tells the cost
TOO_MANY = 256
MOST_ALIKE = 4096  # ranks with `alike=`; at most `TOO_MANY` of them run


@dataclass(frozen=True)
class Run(Generic[Result]):
    """The outcome of a run of `world_size` ranks.

    results   the function's return values, by rank; None for a rank that did not return
    output    the ranks' printed lines, each with a label, in rank order
    trace     compute and communication of every rank (`ddpkit.show` draws it)
    traffic   bytes and messages of the whole run, by sender and receiver; the trace of a long run
              holds only the last steps (its fact "kept" says so)
    error     the error that ended the run, with `expect_error=True`; else None
    """

    results: list[Result]
    output: str
    trace: Trace
    error: RunFailed | None = None
    earlier: Traffic | None = None  # traffic of steps that the trace no longer holds

    @property
    def traffic(self) -> Traffic:
        """Bytes and messages of the whole run, by sender and receiver."""
        return self.trace.traffic + self.earlier if self.earlier else self.trace.traffic

    def __repr__(self) -> str:
        failed = f", {type(self.error).__name__}" if self.error else ""
        emulated = ", emulated" if how_made(self.trace.facts) == "emulated" else ""
        results = _Brief().repr(self.results)
        return f"<Run of {len(self.results)} ranks{emulated}{failed}: results {results}>"


class Cluster:
    """`world_size` real torch.distributed ranks: gloo on the CPU, or NCCL on GPUs.

    ```python
    cluster = Cluster(4)
    run = cluster.run(lambda: dist.get_rank() ** 2)
    run.results                                        # [0, 1, 4, 9]
    ```
    No process lives between runs, so there is nothing to close; `with Cluster(4) as cluster:` works
    too. After `close()`, the cluster refuses further runs. Under torchrun a cluster uses the first
    `world_size` ranks that torchrun started.

    `link="1 Gbit/s, 200 us"` gives each rank an emulated machine with a link of that bandwidth and
    latency. Then the ranks have emulated time instead of the laptop's: a rank's time is the CPU
    time of its compute, divided by its speed, plus the time of its messages. `time.perf_counter()`
    and `time.sleep()` inside a rank, traces and pictures all use emulated time, and waits cost no
    real time (docs/emulation.md). `link={"default": "10 Gbit/s", 3: "100 Mbit/s"}` gives ranks
    their own links. The ranks of a host share a link to the other hosts with
    `link={"hosts of": 4, "inside": "300 GB/s, 3 us", "between": "100 Gbit/s, 10 us"}`.
    Names stand for the links of real hosts: ``"hosts of 8 H100, InfiniBand 400 Gbit/s per GPU"``
    (`ddpkit.networks`).
    With `link="unlimited"` messages take no time (`ddpkit.link`). `speed=0.5` makes all machines
    half as fast as this computer, `speed={3: 0.5}` only rank 3's; with `speed=math.inf` compute
    takes no time.
    `machine="A100"` counts compute instead of measuring it: each operation takes the time that it
    would take on an A100, the same to the nanosecond in every run (docs/emulation.md lists the
    names). A machine can also be given by numbers, `machine="1 TFLOP/s, 100 GB/s, 64 MB, 5 us"`,
    by a file, `machine="mine.json"`, or for each rank, `machine={"default": "V100", 3: "K80"}`.
    Each named GPU has a host, which launches operations on the device without waiting for them;
    `machine="device of mine.json"` adds a host to the machine of a file. Without `link=` the
    network takes no time, as with `link="unlimited"`. `speed=` also scales a counted time:
    `speed=0.5` doubles the time of every operation. `values=False`, with `machine=`, counts
    operations on large tensors without computing them, so a model may be larger than this
    computer (docs/emulation.md, "Without values"). With `alike=8`, ranks 0 to 7 run, and rank r is
    a copy of rank r mod 8. `device="cuda"` gives every rank a GPU, moves the arguments of a run
    there, and makes the GPU the rank's default device. With at least as many GPUs as ranks, the
    backend is NCCL; with fewer, ranks share GPUs, and the backend is gloo. `DDPKIT_DEVICE=cuda` in
    the environment does the same for all cells, except for emulated clusters, which compute on the
    CPU. `record=False` leaves forward, backward and optimizer out of the trace. `strict=True` ends
    a run at the first line that uses a tensor in flight. Such a line changes a tensor between an
    isend, or a collective with async_op=True, and its wait(), or reads the tensor of an irecv
    before its wait(). With `strict=True`, all operations take three times as long. Without
    `strict=True`, a run prints at its end the changes that it has noticed.

    Raises ClusterError if `world_size` ranks cannot be started, if a link, a machine or a speed
    cannot be parsed, for a speed without a link or a machine, for `values=False` without a machine,
    for `alike=` with values or with different machines or links, for a missing device, for an
    emulated cluster on GPUs, and inside a rank.
    """

    def __init__(
        self,
        world_size: int,
        *,
        link: LinkSpec | None = None,
        machine: MachineSpec | None = None,
        speed: float | Mapping[int, float] = 1.0,
        values: bool = True,
        alike: int | None = None,
        device: str | None = None,
        record: bool = True,
        strict: bool = False,
    ) -> None:
        _check_world_size(world_size, alike)
        if current() is not None:
            raise ClusterError(
                "a rank cannot start ranks. Make the Cluster outside the function; in a module "
                'that ranks import, make it under `if __name__ == "__main__":`. If a script makes '
                "its own Cluster, run the script with `python`, not with `ddpkit run`"
            )
        self.world_size, self.record, self.values = world_size, record, values
        self.strict = strict
        if not values and machine is None:
            raise ClusterError(
                "values=False counts operations without computing them, and only a modelled "
                'machine knows their cost: give one, as in machine="A100"'
            )
        try:
            self.machines = () if machine is None else machines_of(machine, world_size)
            if machine is not None and link is None:
                link = "unlimited"
            self.links = None if link is None else Links.parse(link, world_size)
        except ValueError as error:
            raise ClusterError(str(error)) from None
        self.speeds = speeds_of(speed, world_size, emulated=self.links is not None)
        self.alike = self._alike(alike)
        self.tells = True  # False: print no texts about a finished run (`cluster.afterwards`)
        self._closed = False
        if job.active():
            here = job.job()
            if self.links is not None:
                given = {
                    "link=": True,
                    "machine=": machine is not None,
                    "speed=": set(self.speeds) != {1.0},
                    "values=": not values,
                    "alike=": alike is not None,
                }
                job.say_once(_said_under_torchrun([name for name, is_so in given.items() if is_so]))
                self.links, self.machines, self.values, self.alike = None, (), True, None
            ranks_here = len(here.on_this_host())
            self.place = here.agree(devices.place(device, ranks_here, emulated=False))
        else:
            self.place = devices.place(device, world_size, emulated=self.links is not None)
            sweep()
            warm_up()

    def _alike(self, present: int | None) -> Alike | None:
        """Return the running ranks and their copies; None if all ranks run.

        Raises ClusterError if a rank and its copies would have different machines or links.
        """
        if present is None:
            return None
        if self.values or self.links is None:
            raise ClusterError(
                f"alike={present} runs {present} of {self.world_size} ranks, so the other ranks "
                'have no values: add values=False and a machine, as in machine="A100"'
            )
        alike = Alike(self.world_size, present)
        try:
            alike.check(self.links, self.machines, self.speeds)
        except ValueError as error:
            raise ClusterError(str(error)) from None
        return None if present == self.world_size else alike

    @property
    def processes(self) -> int:
        """The number of running ranks: fewer than `world_size` with `alike=`."""
        return self.world_size if self.alike is None else self.alike.present

    def __repr__(self) -> str:
        emulated = "" if self.links is None else f" · emulated: {self.links}"
        if self.machines:
            emulated += f" · machine {machine_text(self.machines)}"
        if emulated and (speed := speed_text(self.speeds)):
            emulated += f" · speed {speed}"
        run = "" if self.alike is None else f", {self.alike.present} of them run"
        return f"{count(self.world_size, 'rank')}{run} · {self.place}{emulated}"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Cluster cannot be sent to a rank: a rank cannot start ranks")

    def close(self) -> None:
        """Refuse further runs.

        There is no process to close, because each run ends its own ranks.
        """
        self._closed = True

    def run(
        self,
        function: Callable[..., Result],
        *args: object,
        seed: int = 0,
        timeout: float | None = None,
        expect_error: bool = False,
        **kwargs: object,
    ) -> Run[Result]:
        """Call `function(*args, **kwargs)` on every rank, and wait for all ranks.

        The function can use torch.distributed at once, because the default process group exists. An
        argument wrapped as `PerRank([a, b, ...])` gives each rank its own item. Printed lines of
        the ranks are shown while they run. After the run, a line lists works (isend, async_op=True)
        without a wait().

        seed          rank r starts with torch, numpy and random seeded by `1000 * seed + r`
        timeout       seconds after which ddpkit ends the run; without a timeout a run may last
                      forever, but a deadlock is found and explained within seconds
        expect_error  True if the run is meant to fail: print the explanation, and return the error
                      as `run.error`

        Raises ClusterError if the function cannot be pickled or does not accept the arguments, or
        if the timeout is not a number above 0. Raises a RunFailed (RankError, RankDied, Deadlock,
        Mismatch, RunTimeout), with the failed rank and its line, if the run fails. In every case,
        all processes of the run are ended.
        """
        if self._closed:
            raise ClusterError("This cluster is closed: make a new one with Cluster(...)")
        check_timeout(timeout, "run")
        _check_call(function, args, kwargs, self.processes)
        request = Request(
            world_size=self.world_size,
            payload=pack_call(function, args, kwargs),
            function=_definition(function),
            place=self.place,
            threads=1 if self.links is not None else max(1, cores() // self.processes),
            seed=seed,
            timeout=timeout,
            record=self.record,
            links=self.links,
            speeds=() if self.links is None else self.speeds,
            script=isinstance(function, LaunchedScript),
            machines=self.machines,
            values=self.values,
            alike=self.alike,
            strict=self.strict,
        )
        if job.active():
            outcome = run_in_place(request, expect_error=expect_error)
        else:
            outcome = run_local(request)
        emulated = "" if self.links is None else str(self.links)
        known = {"backend": self.place.backend, "device": self.place.device, "emulated": emulated}
        facts: dict[str, Scalar] = {**known, **outcome.facts}
        if self.machines:
            facts["machine"] = machine_text(self.machines)
        if request.script:
            facts["seed"] = seed
        trace, earlier = join(outcome.spans, outcome.dropped, self.processes, facts, outcome.memory)
        run = Run(outcome.results, outcome.output, trace, outcome.error, earlier)
        if outcome.error is None:
            if self.tells and not job.active():
                for words in afterwards(trace, outcome):
                    print(words, file=sys.stderr if request.script else sys.stdout)
            return run
        outcome.error.run = run
        if not expect_error:
            raise outcome.error
        print(f"{type(outcome.error).__name__}: {outcome.error}")
        return run


class _Brief(reprlib.Repr):
    """A short `repr` of values, which shows a tensor as its dtype and shape."""

    def repr_Tensor(self, tensor: torch.Tensor, _: int) -> str:
        return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"

    repr_Parameter = repr_Tensor


def _definition(function: Callable[..., object]) -> tuple[str, str, int]:
    if isinstance(function, LaunchedScript):
        return function.definition
    name = getattr(function, "__name__", repr(function))
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (name, code.co_filename, code.co_firstlineno) if code else (name, "", 0)


def _said_under_torchrun(given: list[str]) -> str:
    """Return the warning for an emulated cluster under torchrun, where `given` has no effect."""
    what = " and ".join(filter(None, [", ".join(given[:-1]), given[-1]]))
    real, verb = "network and the machines are real", "are"
    if given == ["link="]:
        real, verb = "network is real", "is"
    return f"Under torchrun the {real}: {what} {verb} ignored, and times differ from predictions."


def _check_world_size(world_size: object, alike: object = None) -> None:
    if alike is not None:
        if not isinstance(alike, int) or isinstance(alike, bool):
            raise ClusterError(f"alike= takes a whole number of ranks, not {alike!r}")
        if isinstance(world_size, int) and world_size > MOST_ALIKE:
            raise ClusterError(
                f"Cluster({world_size}): with alike=, give at most {MOST_ALIKE} ranks"
            )
        _check_world_size(alike)
        return
    if not isinstance(world_size, int) or isinstance(world_size, bool):
        raise ClusterError(f"Cluster(world_size) takes a whole number of ranks, not {world_size!r}")
    if not 1 <= world_size <= TOO_MANY:
        raise ClusterError(f"Cluster({world_size}): give a number of ranks from 1 to {TOO_MANY}")
    if world_size > MANY and not job.active():
        links = world_size * (world_size - 1) // 2
        warnings.warn(
            f"Cluster({world_size}) starts {world_size} processes with {links} connections among "
            f"them on {cores()} cores: expect slow runs, and about {world_size * 80} MB of memory. "
            f"Up to {MANY} ranks show the same effects.",
            stacklevel=3,
        )


def _check_call(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    world_size: int,
) -> None:
    """Raise an error that every rank would raise, before the ranks are started."""
    if not callable(function):
        raise CallError(
            f"run() takes a function and its arguments, as in run(f, 1, 2), but the first argument "
            f"is {function!r}. If you wrote run(f(1, 2)), write run(f, 1, 2)"
        )
    name = getattr(function, "__name__", repr(function))
    for label, value in (*enumerate(args), *kwargs.items()):
        if isinstance(value, PerRank) and len(value.values) != world_size:
            raise ClusterError(
                f"argument {label!r} of {name}: PerRank has {count(len(value.values), 'item')} for "
                f"{count(world_size, 'rank')}; give one item for each rank"
            )
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # a built-in function has no signature: its call will raise
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CallError(
            f"{name}{signature} cannot be called with these arguments: {error}"
        ) from None
