"""The spans of a rank, made from a recording of torch.profiler.

On CPU, compute is the time inside operators (the outermost ones), and communication is gloo's own
annotations ("gloo:all_reduce"), which include the wait for slower ranks. With a GPU in the file,
communication is NCCL's kernels, and compute is all other kernels. A kernel belongs to forward,
backward or optimizer by the operator that launched it. Copies by the GPU are neither compute nor
communication.

The profiler does not record everything, so the spans have gaps too. A blocked thread is not
recorded (`Span.blocked_ns` is None). Python code between two operators does not count as compute.
An operation begins when it runs, not when it was posted.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from ddpkit.text import NAME
from ddpkit.trace.copies import direction, from_to
from ddpkit.trace.files import kineto
from ddpkit.trace.files.kineto import Event, Recording
from ddpkit.trace.intervals import Interval, union
from ddpkit.trace.span import READY, Span

_BACKWARD = re.compile(
    r"autograd::engine|torch(\.|::)distributed(\.ddp\.|::)reducer|\w+Backward\d*$"
)
_COLLECTIVE = re.compile(r"c10d::|record_param_comms|nccl:|gloo:")
# "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": the name of an
# operation is part of the function's name; RCCL has one "ncclDevKernel_Generic" for all operations.
_NCCL = re.compile(r"(?:void )?((?:nccl|rccl|msccl)\w*Kernel\w*)")
_IN_NAME = re.compile(
    "AllReduce|AllGatherV?|ReduceScatter|Broadcast|AllToAllv?|SendRecv|Send|Recv|Reduce|Gather|Scatter"
)
# names of copies, which may stand in the category of kernels; HTA counts such kernels as copies
_COPIES = re.compile("Memcpy|Memset|dma")
_ACCUMULATES = "torch::autograd::AccumulateGrad"  # autograd's operator with a finished gradient
_ANNOTATED = re.compile(r"nccl:_?(\w+)")
_STEP = "ProfilerStep#"
_OPTIMIZER = "Optimizer.step#"
# A GPU's step marks are ignored if they are shorter than this share of the CPU's step marks: on
# ROCm, the GPU's step marks last only 16 us.
_FAR_SHORTER = 0.1
_GLOO = "gloo:"
# name in c10d, NCCL and the profiler, in lower case without "_" -> torch.distributed's name
_NAMES = {
    "allgatherbase": "all_gather_into_tensor",
    "allgatherintotensor": "all_gather_into_tensor",
    "reducescatterbase": "reduce_scatter_tensor",
    "reducescattertensor": "reduce_scatter_tensor",
    "alltoallbase": "all_to_all_single",
    "alltoallv": "all_to_all",
    "allgatherv": "all_gather",
    "broadcastoop": "broadcast",
    "reduceoop": "reduce",
    **{
        name.replace("_", ""): name
        for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    },
}
_SIZES = {  # bytes of an element, by c10's name (NCCL's args) and by C++'s (record_shapes)
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "c10::half", "c10::bfloat16", "short int"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "complexfloat", "long int", "c10::complex<float>"), 8),
    **dict.fromkeys(("complexdouble", "c10::complex<double>"), 16),
}


def spans_of(recording: Recording) -> list[Span]:
    """Return the compute, communication and steps of one rank, in the order of their starts."""
    reader = _RankReader(recording)
    for thread in _by_thread(recording.events).values():
        for event, parents in _nested(thread):
            reader.on_cpu(event, parents)
    for event in recording.events:
        if event.cat in kineto.ON_GPU:
            reader.on_gpu(event)
    reader.on_gpu_ready()
    return sorted([*reader.spans, *reader.steps()], key=lambda span: (span.start_ns, -span.end_ns))


class _RankReader:
    """Reads the events of one rank, and makes the rank's spans from them."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.rank = recording.rank
        self.gpu = recording.has_gpu
        self.spans: list[Span] = []
        self.kinds: dict[str, str] = {}  # correlation of a launch -> the kernel's kind
        self.names: dict[str, str] = {}  # correlation of a launch -> the operation
        self.launches: list[tuple[int, str]] = []  # (moment, correlation) of each launch
        self.gradients: list[int] = []  # moments on the CPU at which a gradient was accumulated
        self.computes: dict[str, int] = {}  # correlation of a launch -> index in `spans`
        self.kernels: dict[str, Interval] = {}  # correlation of a launch -> time of its kernels

    def on_cpu(self, event: Event, parents: Sequence[Event]) -> None:
        operators = [parent for parent in parents if parent.cat == kineto.OPERATOR]
        if event.cat in kineto.LAUNCH and "correlation" in event.args:
            outermost, key = operators[0] if operators else event, _key(event.args["correlation"])
            self.kinds[key] = _kind(outermost, parents)
            self.launches.append((event.start_ns, key))
            for parent in parents:
                if named := _ANNOTATED.match(parent.name):
                    self.names[key] = named[1]
        elif self.gpu:
            if event.cat == kineto.OPERATOR and not operators and _is_gradient(event):
                self.gradients.append(event.end_ns)
        elif event.name.startswith(_GLOO):
            self._gloo(event, operators)
        elif event.cat == kineto.OPERATOR and not operators and not _COLLECTIVE.match(event.name):
            in_gloo = any(parent.name.startswith(_GLOO) for parent in parents)
            if not in_gloo:
                facts = {READY: 1} if _is_gradient(event) else {}
                self._compute(event, _kind(event, parents), event.name.split(": ")[-1], facts)

    def on_gpu(self, event: Event) -> None:
        key = _key(event.args.get("correlation"))
        start, end = self.kernels.get(key, (event.start_ns, event.end_ns))
        self.kernels[key] = min(start, event.start_ns), max(end, event.end_ns)
        if event.cat in kineto.COPY or _COPIES.match(event.name):
            self._copy(event)
        elif nccl := _NCCL.match(event.name):
            found = _IN_NAME.search(nccl[1])
            in_name = found[0] if found else ""
            vague = in_name in ("", "SendRecv")
            launched = self.names.get(key, "") if vague else ""
            self._nccl(event, launched or in_name or "nccl_operation")
        else:
            kind = self.kinds.get(key, "span")
            self.computes[key] = len(self.spans)
            self._compute(event, kind, re.split(r"[<(]", event.name.removeprefix("void "))[0])

    def steps(self) -> Iterator[Span]:
        """Yield the steps, one for each ``profiler.step()`` or, without these, for each optimizer.

        On a GPU, the step marks that the profiler records on the GPU give the time of a step. If a
        file has no such marks, or marks that are far shorter than the CPU's marks, the time of a
        step is the time of the kernels that were launched between the CPU's marks.
        """
        for start, end in self._marks(_STEP):
            yield self._step(start, end)
        if self.marked or not any(span.is_compute for span in self.spans):
            return
        start = min(span.start_ns for span in self.spans if span.is_compute or span.is_copy)
        for _, end in sorted(self._marks(_OPTIMIZER), key=itemgetter(1)):
            if end > start:
                yield self._step(start, end)
                start = end

    @property
    def marked(self) -> bool:
        """True if ``profiler.step()`` marked the steps."""
        return any(event.name.startswith(_STEP) for event in self._annotations())

    def _annotations(self, cat: str = "") -> list[Event]:
        wanted = (cat,) if cat else (kineto.ANNOTATION, kineto.GPU_ANNOTATION)
        return [event for event in self.recording.events if event.cat in wanted]

    def _marks(self, prefix: str) -> list[Interval]:
        """Return the times of annotations with this prefix: on the GPU, if the file has a GPU."""
        on_cpu, on_gpu = (
            [event for event in self._annotations(cat) if event.name.startswith(prefix)]
            for cat in (kineto.ANNOTATION, kineto.GPU_ANNOTATION)
        )
        cpu = [(event.start_ns, event.end_ns) for event in on_cpu]
        if not self.gpu:
            return cpu
        gpu = (
            _together(on_gpu) if prefix == _STEP else union((e.start_ns, e.end_ns) for e in on_gpu)
        )
        if gpu and not (cpu and _length(gpu) < _FAR_SHORTER * _length(cpu)):
            return gpu
        self.launches.sort()
        return [self._kernels_of(*each) for each in cpu]

    def _kernels_of(self, start: int, end: int) -> Interval:
        """Return the time from the first to the last kernel launched between `start` and `end`.

        Without such kernels, return (`start`, `end`).
        """
        moments = slice(*(bisect_left(self.launches, (at, "")) for at in (start, end)))
        keys = (key for _, key in self.launches[moments])
        times = [self.kernels[key] for key in keys if key in self.kernels]
        if not times:
            return start, end
        return min(first for first, _ in times), max(last for _, last in times)

    def _step(self, start: int, end: int) -> Span:
        return Span(self.rank, "step", "step", "step", start, end)

    def on_gpu_ready(self) -> None:
        """Record for spans of kernels how many gradients became ready with them.

        A gradient is counted for the last kernel that was launched for it. The number of kernels is
        not the number of gradients: a gradient has several kernels, or none.
        """
        backward = [
            (moment, self.computes[key])
            for moment, key in sorted(self.launches)
            if key in self.computes and self.kinds[key] == "backward"
        ]
        ready = Counter(bisect_left(backward, (moment, 0)) for moment in self.gradients)
        for place, number in ready.items():
            if place:
                at = backward[place - 1][1]
                self.spans[at] = replace(self.spans[at], args={READY: number})

    def _compute(
        self, event: Event, kind: str, name: str, facts: Mapping[str, int] | None = None
    ) -> None:
        self.spans.append(
            Span(
                self.rank, "compute", name[:NAME], kind, event.start_ns, event.end_ns,
                args=facts or {},
            )
        )  # fmt: skip

    def _copy(self, event: Event) -> None:
        self.spans.append(
            Span(
                self.rank, "copy", direction(event.name), "copy", event.start_ns, event.end_ns,
                _int(event.args.get("bytes")) or 0, args=from_to(event.name),
            )
        )  # fmt: skip

    def _gloo(self, event: Event, operators: Sequence[Event]) -> None:
        """Add the span of an operation of gloo.

        The surrounding operators of the same thread give the peer of a send or a receive.
        """
        name = _name(event.name.removeprefix(_GLOO))
        peer: int | None = None
        tag = 0
        if name in ("send", "recv"):
            inputs = operators[-1].args.get("Concrete Inputs") if operators else None
            # if there are several groups, the number may be a rank of a sub-group
            if self.recording.groups <= 1:
                peer, tag = _peer_and_tag(inputs)
        self._comm(event, name, _gloo_bytes(event), peer, "", None, {"tag": tag})

    def _nccl(self, event: Event, in_name: str) -> None:
        """Add the span of an operation of NCCL; the kernel's args give the peer and the bytes."""
        args = event.args
        name = _name(str(args.get("Collective name", "") or in_name))
        elements = _int(args.get("Out msg nelems" if name == "recv" else "In msg nelems")) or 0
        peer = _int(args.get({"send": "Dst Rank", "recv": "Src Rank"}.get(name, "")))
        group = str(args.get("Process Group Name", ""))[:NAME]
        size = _SIZES.get(str(args.get("dtype", "")).lower(), 0)
        collective = name not in ("send", "recv")
        seq = _int(args.get("Seq")) if collective else None
        of = _int(args.get("Group size"))
        extra = {"group_size": of} if of else {}
        self._comm(event, name, elements * size, peer, group, seq, extra)

    def _comm(
        self,
        event: Event,
        name: str,
        size: int,
        peer: int | None,
        group: str,
        seq: int | None,
        args: dict[str, int],
    ) -> None:
        args = {"group_size": self.recording.world_size, **args}
        self.spans.append(
            Span(
                self.rank, "comm", name, "comm", event.start_ns, event.end_ns, size, peer, group,
                seq, args=args,
            )
        )  # fmt: skip


def _is_gradient(operator: Event) -> bool:
    return operator.name.endswith(_ACCUMULATES)


def _together(marks: Iterable[Event]) -> list[Interval]:
    """Return one interval for each mark, which a GPU records once on every stream."""
    streams: dict[str, list[Event]] = defaultdict(list)
    for event in marks:
        streams[event.name].append(event)
    return [(min(e.start_ns for e in s), max(e.end_ns for e in s)) for s in streams.values()]


def _length(marks: Iterable[Interval]) -> int:
    return sum(end - start for start, end in marks)


def _by_thread(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Return the events of the CPU, by thread."""
    threads: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event.cat in (kineto.OPERATOR, kineto.ANNOTATION, *kineto.LAUNCH):
            threads[event.thread].append(event)
    return threads


def _nested(events: Iterable[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Yield each event of a thread with the events that enclose it, the outermost first."""
    open_: list[Event] = []
    for event in sorted(events, key=lambda event: (event.start_ns, -event.end_ns)):
        while open_ and open_[-1].end_ns <= event.start_ns:
            open_.pop()
        yield event, open_
        open_.append(event)


def _kind(operator: Event, parents: Iterable[Event]) -> str:
    """Return the part of a step to which an outermost operator belongs; "span" if it is unknown."""
    annotations = [parent.name for parent in parents if parent.cat == kineto.ANNOTATION]
    if _BACKWARD.match(operator.name):
        return "backward"
    if any(name.startswith("Optimizer.") for name in annotations):
        return "optimizer"
    of_a_graph = "Sequence number" in operator.args  # autograd recorded the operator
    return "forward" if of_a_graph or any(n.endswith(".forward") for n in annotations) else "span"


def _name(raw: str) -> str:
    """Return torch.distributed's name of an operation: "AllReduce" becomes "all_reduce"."""
    plain = raw.lower().removesuffix("_coalesced").replace("_", "")
    return _NAMES.get(plain, raw.lower()[:40] or "unknown")


def _peer_and_tag(inputs: Any) -> tuple[int | None, int]:
    """Return the peer and the tag from the inputs of c10d::send or c10d::recv_.

    The inputs are tensors, group, peer and tag.
    """
    if not isinstance(inputs, list) or len(inputs) != 4:
        return None, 0
    return _int(inputs[2]), _int(inputs[3]) or 0


def _gloo_bytes(event: Event) -> int:
    """Return the bytes of all inputs together; 0 without ``record_shapes``."""
    dims, types = event.args.get("Input Dims"), event.args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return 0
    return sum(
        _elements(each) * _SIZES.get(str(type_).lower(), 0)
        for each, type_ in zip(dims, types, strict=False)
    )


def _elements(dims: Any) -> int:
    number = 1
    for length in dims if isinstance(dims, list) else [0]:
        is_length = isinstance(length, int) and length >= 0
        number = min(number * length, 2**62) if is_length else 0
    return number


def _int(value: object) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if 0 <= number < 2**62 else None


def _key(value: object) -> str:
    return str(value)[:40]
