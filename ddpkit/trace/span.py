"""`Span`: one operation of one rank, with its start and end."""

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
# Keys of a span's args (`Span.args`):
UNWAITED = "unwaited"  # the program never waited for the call, nor asked for its future
CHANGED = "changed"  # the code changed a tensor of the call before the call's wait

OPTIMIZER = "optimizer"  # key for the spans of a rank's second and later optimizers
READY = "ready"  # key for a backward's span: the number of gradients ready at the end
OPERATIONS = "operations"  # key for compute that lies outside all modules
# keys for spans on an emulated device: the host's time at the first launch, and the work
LAUNCHED = "launched_ns"
OF_DEVICE = (LAUNCHED, "own_launches", "own_flops", "own_bytes")
QUEUE = "queue"  # key for a span on a side stream: the name of the stream
# key for a collective on a device: the time at which the stream had reached the call
QUEUED = "queued_ns"
LIMIT = "device_waits_ns"  # key for a stretch of the host in which the device waits

Scalar = str | int | float


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of one rank.

    Times are ``perf_counter_ns`` of the host, a clock shared by all its ranks.

    kind      "forward", "backward", "optimizer", "span" (marked by the student, or operations
              outside modules): compute;
              "comm": communication; "copy": a copy between host and device, or on the device;
              "step": a whole training step, which only divides the trace;
              "host": launches and waits of the host of a device.
    lane      "compute", "comm", "copy", "step" or "host": the row of the span in a picture.
    name      for "comm" the function of torch.distributed: "all_reduce", "send", ...;
              for "copy" the direction: "host→device", ... (`copies.DIRECTIONS`).
    start_ns  for "comm" the moment of the post; ``end_ns`` the end of the operation.
    ready_ns  for "comm" the moment at which every peer had posted too: until then the operation
              waits for a peer, then bytes move. None if unknown, or if the operation ended without
              its peers.
    blocked_ns  for "comm" the start of the wait by the rank's main thread: ``start_ns`` of a
              blocking call, the ``wait()`` of an asynchronous call, None without a wait. From
              then to ``end_ns`` the rank computes nothing, even inside a compute span.
    collected_ns  for "comm" the end of the rank's wait, later than ``end_ns`` if the operation
              ended before the wait began; None without a wait.
    bytes     the bytes that this rank sent, gave to a collective, received or copied.
    peer      send: the destination; recv: the source (ranks of the whole job).
    group, seq  the process group and the number of the operation in the group: equal on all
              ranks of a collective.
    args      more facts by name: {"bucket": 3, "group_size": 2, "tag": 0}. Further keys:
              "dtype", "reduce" of an operation on tensors: {"dtype": "float16", "reduce": "SUM"};
              "root" of a collective with a root: a rank of the whole job;
              "group_desc" of a named group: a device mesh's dimension and the members, "tp [0, 1]";
              "holds" of a short message: the different values in it, "11";
              "unended": 1 for a call that was under way when its rank was killed;
              "unwaited": 1 for an asynchronous call without a wait;
              "anybody": 1 for a receive from any rank;
              "operations": 1 for operations outside all modules, named after the longest of them;
              "launched_ns" of compute on an emulated device: the host's time at the first launch;
              "own_launches", "own_flops", "own_bytes" of the span without the spans inside it;
              "queue" of a span on a side stream: "stream 1";
              "queued_ns" of a collective on a device: the time since which only the communicator
              held it up.

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
        """Return `number` spans from columns, one for each field. The values are not checked.

        A field without a column is None. For a million spans, this method takes a fifth of the
        time of the constructor, which calls a function in Python for each field.
        """
        spans = tuple(map(cls.__new__, repeat(cls, number)))
        for each in fields(cls):
            setter = getattr(cls, each.name).__set__  # the slot's setter works for a frozen class
            deque(map(setter, spans, columns.get(each.name, repeat(None))), maxlen=0)
        return spans

    def __reduce__(self) -> tuple[type["Span"], tuple[object, ...]]:
        # The dataclass's own method is slow: a run may send 100,000 spans, and the method looks up
        # the fields for each span.
        return Span, _values(self)

    @property
    def is_compute(self) -> bool:
        """True for compute, recorded from torch or marked by the student."""
        return self.kind in COMPUTE_KINDS

    @property
    def is_comm(self) -> bool:
        """True for communication."""
        return self.kind == "comm"

    @property
    def is_copy(self) -> bool:
        """True for a copy between host and device, or on the device."""
        return self.kind == "copy"

    @property
    def is_send(self) -> bool:
        """True if the span sends a message."""
        return self.kind == "comm" and self.name in SENDS

    @property
    def is_recv(self) -> bool:
        """True if the span receives a message."""
        return self.kind == "comm" and self.name in RECEIVES

    @property
    def is_collective(self) -> bool:
        """True for communication of a whole group."""
        return self.kind == "comm" and self.name not in SENDS and self.name not in RECEIVES

    @property
    def over_ns(self) -> int:
        """The time, in ns, at which the rank was done: the end of its wait, or else ``end_ns``."""
        return self.end_ns if self.collected_ns is None else max(self.end_ns, self.collected_ns)

    @property
    def duration_ns(self) -> int:
        """The length of the span, in ns."""
        return self.end_ns - self.start_ns


TIMES = attrgetter("start_ns", "end_ns")  # the interval of a span
_values = attrgetter(*(each.name for each in fields(Span)))
