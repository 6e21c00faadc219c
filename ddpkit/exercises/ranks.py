"""Runs of an answer on real ranks, and the observed return values and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from ddpkit.cluster import Cluster, Run
from ddpkit.errors import LessonError
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.guard import NEVER_WAITED, Answer, Careless
from ddpkit.exercises.limit import seconds_left
from ddpkit.exercises.values import digest
from ddpkit.link import LinkSpec
from ddpkit.machine import MachineSpec
from ddpkit.protocol.per_rank import PerRank, pick
from ddpkit.protocol.ship import pack_result, unpack_result
from ddpkit.rank.emulation.machine import Machine, counted_machine
from ddpkit.rank.emulation.machine import current as emulated_machine
from ddpkit.rank.record.marks import span
from ddpkit.rank.record.recorder import current
from ddpkit.simulate.engine.claimed import program_ns
from ddpkit.text import count
from ddpkit.trace import Span, Trace, rounds
from ddpkit.trace.intervals import Interval
from ddpkit.trace.memory import inside

CALL = "a call of the answer"  # the span around each call, which a check removes from the trace
APART_NS = 1  # emulated time before and after each call
Arguments = Sequence[tuple[object, ...]]  # the arguments of one call, by rank


@dataclass(frozen=True)
class Did:
    """The observations of one call of an answer on all ranks."""

    returned: list[Any]  # return values, by rank
    kept: bool  # True if every rank left its arguments unchanged
    trace: Trace  # the trace of this call only
    programs: list[Any] = field(default_factory=list)  # see `simulate.engine.claimed`

    @property
    def peak(self) -> list[int]:
        """The most bytes that each rank of a modelled machine held, including the arguments.

        Bytes that were allocated and freed at one moment of emulated time count too. Arguments and
        results of earlier calls in the same run do not count.
        """
        return [self._peak(rank) for rank in self.trace.ranks]

    def _peak(self, rank: int) -> int:
        start, end = self.trace.window_of(rank)
        levels = inside(self.trace.memory.get(rank, ()), start - APART_NS, end + APART_NS)
        return max((level.total for level in levels), default=0)

    @property
    def bytes(self) -> list[int]:
        """The bytes that each rank sent in messages."""
        return [self.trace.traffic.sent(rank) for rank in self.trace.ranks]

    @property
    def handed_in(self) -> list[int]:
        """The bytes that each rank gave to torch.distributed, in messages and collectives."""
        return [handed_in(self.trace.of(rank)) for rank in self.trace.ranks]

    @property
    def messages(self) -> list[int]:
        """The number of messages that each rank sent.

        Empty messages do not count, because right answers may skip them.
        """
        sends = [one for one in self.trace.spans if one.is_send and one.bytes]
        return [sum(one.rank == rank for one in sends) for rank in self.trace.ranks]

    @property
    def to(self) -> str:
        """The pairs of sender and receiver, each pair once: "0→1 1→2", or "nobody"."""
        counts = sorted(self.trace.traffic.p2p.items())
        return " ".join(f"{a}→{b}" for (a, b), count in counts if count.bytes) or "nobody"

    @property
    def sent(self) -> str:
        """All messages, even empty ones, then collectives: "0→1 0→1 1→2 barrier", or "nothing"."""
        counts = sorted(self.trace.traffic.p2p.items())
        messages = [f"{a}→{b}" for (a, b), count in counts for _ in range(count.times)]
        return " ".join([*messages, *self.collectives]) or "nothing"

    @property
    def collectives(self) -> list[str]:
        """The collectives of torch.distributed that the call used."""
        return sorted({name for _, name in self.trace.traffic.collective})

    @cached_property
    def rounds(self) -> int | str:
        """The number of rounds of messages, in the one-port model (`ddpkit.trace.rounds`).

        Collectives take rounds too, so the names of used collectives follow the number: "2 and
        barrier".
        """
        of_messages = rounds(self.trace.spans)
        if not (of_messages and self.collectives):
            return of_messages
        return " and ".join([str(of_messages), *self.collectives])


def handed_in(spans: Iterable[Span]) -> int:
    """Return the bytes of a rank's messages and collectives."""
    return sum(one.bytes for one in spans if one.is_send or one.is_collective)


def within(spans: Iterable[Span], name: str) -> list[Span]:
    """Return the spans of a rank that begin inside a span named `name`."""
    spans = list(spans)
    windows = [(one.start_ns, one.end_ns) for one in spans if one.name == name]
    return [one for one in spans if any(a <= one.start_ns < b for a, b in windows)]


def call(
    answer: Answer,
    *arguments: object,
    world_size: int,
    link: LinkSpec | None = None,
    machine: MachineSpec | None = None,
    files: bool = False,
) -> Did:
    """Call the answer once on every rank, and return the observations.

    An argument may be a `PerRank`. Without `files`, the answer may not write files, because ranks
    could use files to exchange data.
    """
    by_rank = [pick(arguments, rank) for rank in range(world_size)]
    return together(answer, [by_rank], link=link, machine=machine, files=files)[0]()


def together(
    answer: Answer,
    calls: Sequence[Arguments],
    *,
    link: LinkSpec | None = None,
    machine: MachineSpec | None = None,
    files: bool = False,
) -> list[Callable[[], Did]]:
    """Return a function for each call in `calls`; one run makes all calls, one after another.

    The run has as many ranks as a call has entries. Each function returns the observations of its
    call. The function that is called first starts the run. If the answer raises in this run, every
    function raises the error. One run for many calls saves a student's time. But a case in which
    many answers fail should have its own run, because its error would hide all other cases.
    """
    shared = _Shared(answer, calls, link, machine, files)
    return [partial(shared.did, number) for number in range(len(calls))]


# observed name -> name of an attribute of `Did`, or a function that takes a `Did`
Looks = Mapping[str, str | Callable[[Did], Any]]


def asked(
    answer: Answer,
    *arguments: object,
    world_size: int,
    see: Looks,
    link: LinkSpec | None = None,
    machine: MachineSpec | None = None,
    files: bool = False,
) -> Callable[[], Observed]:
    """Return a function for `Case.observe`: it calls the answer once, and returns values by `see`.

    asked(answer, PerRank(inputs), world_size=3, see={"gave": "returned", "to": "to"})
    """
    told = partial(call, answer, *arguments, world_size=world_size, link=link, machine=machine)
    return looked(partial(told, files=files), see)


def timed(observed: Observed, machine: MachineSpec, link: LinkSpec = "unlimited") -> Observed:
    """Return the observations with the time "ms" in place of "programs", for the `read` of a case.

    A case with the observations

    asked(answer, world_size=4, see={"programs": "programs"}, machine="laptop core", link="1 GB/s")

    needs ``read=partial(timed, machine="laptop core", link="1 GB/s")``. "ms" is the time that the
    programs take: all ranks begin at the same moment, and the time ends when the last rank ends.
    Raises LessonError if an observed value is not a program.
    """
    try:
        ns = program_ns(observed["programs"], machine, link)
    except (ValueError, TypeError, KeyError) as error:
        raise LessonError(f"the answer's time cannot be recomputed: {error}") from None
    rest = {name: value for name, value in observed.items() if name != "programs"}
    return {**rest, "ms": ns / 1e6}


def looked(told: Callable[[], Did], see: Looks) -> Callable[[], Observed]:
    """Return a function for `Case.observe` of a case that shares its run with other cases.

    `told` is a function that `together` has returned.
    """
    return partial(_look, told, see)


def _look(told: Callable[[], Did], see: Looks) -> Observed:
    did = told()
    return {
        name: getattr(did, what) if isinstance(what, str) else what(did)
        for name, what in see.items()
    }


def each_returned(name: str) -> Callable[[Did], list[Any]]:
    """Return a function for `see`, which gets the values of one key.

    The function returns the values under `name` in the dicts that the ranks returned.
    """
    return partial(_of_each, name)


def _of_each(name: str, did: Did) -> list[Any]:
    return [each[name] for each in did.returned]


def title(world_size: int, *more: object) -> str:
    """Return the title of a case: "1 rank", "3 ranks, int64[5]"."""
    return ", ".join([count(world_size, "rank"), *map(str, more)])


def who(ranks: Iterable[int]) -> str:
    """Return ranks as text: "rank 1", "ranks 0, 2 and 3"."""
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"


@dataclass
class _Shared:
    """One run of an answer, shared by several cases."""

    answer: Answer
    calls: Sequence[Arguments]
    link: LinkSpec | None
    machine: MachineSpec | None = None
    files: bool = False
    run: Run[list[AnswerCall]] | None = None
    error: Exception | None = None

    def did(self, number: int) -> Did:
        if self.error is not None:
            raise self.error
        if self.run is None:
            self.run = self._start()
        trace = self.run.trace
        by_rank = [calls[number] for calls in self.run.results]
        windows = {rank: _windows(trace.of(rank))[number] for rank in trace.ranks}
        spans = (one for one in trace.spans if _posted_in(one, windows[one.rank]))
        return Did(
            [unpack_result(each.returned) if each.packed else each.returned for each in by_rank],
            all(each.kept for each in by_rank),
            Trace(tuple(spans), trace.world_size, trace.facts, windows, trace.memory),
            [each.program for each in by_rank],
        )

    def _start(self) -> Run[list[AnswerCall]]:
        """Return a new run, on the CPU even if there is a GPU: a verdict is the same everywhere."""
        world_size = len(self.calls[0])
        mine = PerRank([[call[rank] for call in self.calls] for rank in range(world_size)])
        try:
            cluster = Cluster(world_size, link=self.link, machine=self.machine, device="cpu")
            return cluster.run(_call_each, self.answer, mine, self.files, timeout=seconds_left())
        except Exception as error:
            self.error = error
            raise


@dataclass(frozen=True)
class AnswerCall:
    """One call of the answer on one rank."""

    returned: Any
    kept: bool
    program: object
    packed: bool = False  # True if `returned` is packed by `pack_result`


def _call_each(
    answer: Answer, calls: list[tuple[object, ...]], files: bool = False
) -> list[AnswerCall]:
    """Make the calls one after another on a rank, with a barrier between two calls.

    The barriers keep messages of different calls apart. If memory is counted, a call must not keep
    the arguments and results of earlier calls in memory. So the list of calls is emptied, and
    results are packed as bytes.
    """
    import torch.distributed as dist

    counted, done = counted_machine(), list[AnswerCall]()
    while calls:
        arguments = calls.pop(0)
        before = digest(arguments)
        if done or counted:
            dist.barrier()
        _let_a_moment_pass()
        with (
            span(CALL),  # marks the call's begin and end in the trace, by the clock of the messages
            _noted(counted) as program,
            _held_to_rules(files),
        ):
            returned = answer(*arguments)
        _let_a_moment_pass()
        called = AnswerCall(returned, digest(arguments) == before, program)
        done.append(called if counted is None else _packed(called, counted))
        del arguments, returned, called
    return done


def _let_a_moment_pass() -> None:
    """Let emulated time pass, so that the trace tells calls of zero duration apart."""
    if (emulated := emulated_machine()) is not None:
        emulated.clocks.main.pass_by(APART_NS)


def _packed(called: AnswerCall, counted: Machine) -> AnswerCall:
    """Return the call with its result packed; unchanged if the result cannot be packed.

    A result that cannot be packed makes the run fail at its end, with the usual message.
    """
    with counted.clocks.main.stopped():  # the answer is not charged for the packing
        try:
            parts = [bytes(part) for part in pack_result(called.returned)]
        except Exception:
            return called
    return replace(called, returned=parts, packed=True)


def _noted(counted: Machine | None) -> AbstractContextManager[list[Any]]:
    """Return a context manager that records the call's program if compute is counted."""
    return nullcontext([]) if counted is None else counted.noting()


@contextmanager
def _held_to_rules(files: bool) -> Iterator[None]:
    """Raise `Careless` if an answer breaks a rule while the `with` block runs.

    The rules forbid a Work without a wait, a tensor that is used before its wait, a process group
    outside the trace, any exchange of data that bypasses torch.distributed (`files` allows files),
    and code that hides operations from the kit's dispatch modes. Without a wait, a message may or
    may not arrive: gloo drops the message as soon as its Work is deleted.
    """
    recorder = current()
    if recorder is None:
        yield
        return
    from ddpkit.rank.group.hidden import HiddenGroup, no_hidden_groups
    from ddpkit.rank.group.in_flight import InFlight, TouchedInFlight, started
    from ddpkit.rank.modes_on import ModesOff, modes_stay_on
    from ddpkit.rank.side_channels import SideChannel, no_side_channels

    no_files = nullcontext() if files else no_side_channels()
    watch = recorder.watch = InFlight(recorder.rank)
    try:
        with watch, no_hidden_groups(), no_files, modes_stay_on():
            yield
    except TouchedInFlight as error:
        says = f"{started(error.what)} {NEVER_WAITED}" if error.dropped else str(error)
        raise Careless(says).with_traceback(error.__traceback__) from None
    except (HiddenGroup, ModesOff, SideChannel) as error:
        raise Careless(str(error)).with_traceback(error.__traceback__) from None
    finally:
        recorder.watch = None
    for what in watch.left():
        raise Careless(f"{started(what)} {NEVER_WAITED}")


def _windows(spans: Sequence[Span]) -> list[Interval]:
    """Return the time of each call on a rank: from its start until just before its end.

    If a call ends with an operation of zero duration, the time is extended so that it contains the
    operation.
    """
    posted = {one.start_ns for one in spans if one.is_comm}
    calls = [(one.start_ns, one.end_ns) for one in spans if one.name == CALL]
    return [(start, end + APART_NS if end in posted else end) for start, end in calls]


def _posted_in(one: Span, window: Interval) -> bool:
    return one.name != CALL and window[0] <= one.start_ns < window[1]
