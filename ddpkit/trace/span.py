"""`Span`: one thing that one rank did, from a time to a time."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import repeat
from operator import attrgetter
from typing import Any

from ddpkit.errors import TraceError

COMPUTE_KINDS = ("forward", "backward", "optimizer", "span")
KINDS = (*COMPUTE_KINDS, "comm", "copy", "step", "host")
ROW_OF = {kind: "compute" if kind in COMPUTE_KINDS else kind for kind in KINDS}
SENDS = ("send", "isend")
RECEIVES = ("recv", "irecv")
UNWAITED = (
    "unwaited"  # among a span's args: nobody has waited for the call, nor asked for its future
)
CHANGED = "changed"  # among a span's args: the code changed a tensor of the call before its wait

OPTIMIZER = "optimizer"  # an arg of the spans of a rank's second optimizer, and of later ones
READY = "ready"  # an arg of a backward's span: the number of gradients ready at the end
OPERATIONS = "operations"  # among a span's args: its compute lies outside all modules
# Among the args of spans on an emulated device: the host's time at the first launch, and the work.
LAUNCHED = "launched_ns"
OF_DEVICE = (LAUNCHED, "own_launches", "own_flops", "own_bytes")
QUEUE = "queue"  # among the args of a span on a side stream: the name of the stream
# Among the args of a collective on a device: the time at which the stream had reached the call.
QUEUED = "queued_ns"
LIMIT = "device_waits_ns"  # among the args of a stretch of the host in which the device waits

Scalar = str | int | float


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of one rank.

    Times are ``perf_counter_ns`` of the host, a clock that all its ranks share.

    kind      "forward", "backward", "optimizer", "span" (marked by the student, or operations
              outside modules): compute;
              "comm": communication; "copy": a copy between host and device, or on the device;
              "step": a whole training step, which only divides the trace;
              "host": launches of a device's host, and waits of the host.
    lane      "compute", "comm", "copy", "step" or "host": the row it is drawn in.
    name      for "comm" the function of torch.distributed: "all_reduce", "send", ...;
              for "copy" its direction: "host→device", ... (`copies.DIRECTIONS`).
    start_ns  for "comm" the moment it was posted; ``end_ns`` the moment it was done.
    ready_ns  for "comm" the moment every peer had posted it too: before it the operation waits for
              a peer, after it bytes move. None if unknown, or if it finished without its peers.
    blocked_ns  for "comm" the moment the rank's own thread began to wait for it (``start_ns`` of a
              blocking call, the ``wait()`` of an asynchronous one), None if it never did. From then
              to ``end_ns`` the rank computes nothing, even inside a compute span.
    collected_ns  for "comm" the moment a wait for it was over: later than ``end_ns`` where it was
              done before the rank came to wait, None if the rank never did.
    bytes     payload that this rank handed in (send, collectives), took out (recv) or copied.
    peer      send: the destination; recv: the source (ranks of the whole job).
    group, seq  the process group and the number of the operation in it: equal on all ranks of one
              collective.
    args      more facts, for people: {"bucket": 3, "group_size": 2, "tag": 0}; of what moves
              tensors {"dtype": "float16", "reduce": "SUM"}; of a collective that has a root,
              {"root": 0}, of the whole job; of a group that has a name,
              {"group_desc": "tp [0, 1]"}, a device mesh's dimension and the members; of a short
              message {"holds": "11"}, its different numbers; of a call that was under way when its
              rank was ended {"unended": 1}: then it ends there; of an asynchronous one that nobody
              has waited for {"unwaited": 1}; of a receive that named no source {"anybody": 1}; of
              operations outside all modules {"operations": 1}: the name is that of the operation
              that took the longest; of compute on an emulated device {"launched_ns": 5000}, the
              host's time at the first launch, {"own_launches": 3, "own_flops": 100,
              "own_bytes": 40} of the span alone, and {"queue": "stream 1"} on a side stream; of a
              collective there {"queued_ns": 7000}, since when only its communicator held it up.

    Raises TraceError for an unknown kind, and for a span that ends before it starts.
    """

    rank: int
    lane: str
    name: str
    kind: str
    start_ns: int
    end_ns: int
    bytes: int = 0
    peer: int | None = None
    group: str = ""
    seq: int | None = None
    ready_ns: int | None = None
    blocked_ns: int | None = None
    collected_ns: int | None = None
    args: Mapping[str, Scalar] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise TraceError(
                f"span {self.name!r}: kind {self.kind!r} is not one of {', '.join(KINDS)}"
            )
        if self.end_ns < self.start_ns:
            raise TraceError(f"span {self.name!r} of rank {self.rank} ends before it starts")

    @classmethod
    def of_columns(cls, number: int, columns: Mapping[str, Iterable[Any]]) -> "tuple[Span, ...]":
        """Return so many spans from a column of values for each field; no value is checked.

        A field without a column is None. A million spans take a fifth of the time of their
        constructor, which sets each field of a frozen object by a call from Python.
        """
        spans = tuple(map(cls.__new__, repeat(cls, number)))
        for each in fields(cls):
            setter = getattr(cls, each.name).__set__  # the slot's own, which is not frozen
            deque(map(setter, spans, columns.get(each.name, repeat(None))), maxlen=0)
        return spans

    def __reduce__(self) -> tuple[type["Span"], tuple[object, ...]]:
        # The dataclass's own way looks up the fields of each, and a run may send 100,000.
        return Span, _values(self)

    @property
    def is_compute(self) -> bool:
        """Whether it is compute: of torch's or marked by the student."""
        return self.kind in COMPUTE_KINDS

    @property
    def is_comm(self) -> bool:
        """Whether it is communication."""
        return self.kind == "comm"

    @property
    def is_copy(self) -> bool:
        """True for a copy between host and device, or on the device."""
        return self.kind == "copy"

    @property
    def is_send(self) -> bool:
        """Whether it sends a message."""
        return self.kind == "comm" and self.name in SENDS

    @property
    def is_recv(self) -> bool:
        """Whether it receives a message."""
        return self.kind == "comm" and self.name in RECEIVES

    @property
    def is_collective(self) -> bool:
        """Whether it is communication of a whole group."""
        return self.kind == "comm" and self.name not in SENDS and self.name not in RECEIVES

    @property
    def over_ns(self) -> int:
        """When it was over for the rank, in ns: collected if it ever was, else done."""
        return self.end_ns if self.collected_ns is None else max(self.end_ns, self.collected_ns)

    @property
    def duration_ns(self) -> int:
        """How long it took, in ns."""
        return self.end_ns - self.start_ns


TIMES = attrgetter("start_ns", "end_ns")  # the interval of a span
_values = attrgetter(*(each.name for each in fields(Span)))
