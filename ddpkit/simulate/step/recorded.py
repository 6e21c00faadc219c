"""`Step`: the compute of one rank in a training step, without any communication."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from ddpkit.errors import TraceError
from ddpkit.simulate.step.buckets import Bucket, Gradient
from ddpkit.simulate.step.host_ahead import HostAhead
from ddpkit.simulate.step.models import ModelTable
from ddpkit.trace import Span, Trace, how_made
from ddpkit.trace.intervals import Interval, intersect, subtract, total, union
from ddpkit.trace.span import QUEUED, READY

MOST_READY = 100_000  # gradients of a span: a damaged number must not fill the memory
# number of steps: torch's DDP uses one bucket in the first step, and then rebuilds the buckets
WARM_UP = 3


@dataclass(frozen=True)
class Step:
    """The compute of one rank in one step: forward, backward with its gradients, optimizer.

    ``gradients`` are in the order in which they become ready; the backward's compute ends with the
    last gradient. ``finish_ns`` is the backward's work after the reduction of the buckets (DDP
    copies the buckets into the gradients). ``other_ns`` is time that is neither recorded compute
    nor a wait for communication: data, ``zero_grad``, Python. A replay puts this time before the
    forward. ``emulated`` is True for times of an emulated machine. ``host_ns`` is the time that a
    device's host needs to launch a step, if the host waits for nothing: a step takes at least this
    time.
    """

    forward_ns: int
    gradients: tuple[Gradient, ...]
    optimizer_ns: int = 0
    finish_ns: int = 0
    other_ns: int = 0
    emulated: bool = False
    host_ns: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gradients", tuple(self.gradients))
        ready = [gradient.ready_ns for gradient in self.gradients]
        if ready != sorted(ready):
            raise ValueError(
                "a step's gradients must be listed in the order in which they become ready"
            )
        if len({gradient.name for gradient in self.gradients}) < len(ready):
            raise ValueError("two gradients of a step have the same name")

    @property
    def begin_ns(self) -> int:
        """The time at which the backward begins, in ns from the start of the step."""
        return self.other_ns + self.forward_ns

    @property
    def backward_ns(self) -> int:
        """The compute time of the backward until its last gradient is ready, in ns."""
        return self.gradients[-1].ready_ns if self.gradients else 0

    @property
    def gaps_ns(self) -> list[int]:
        """The compute time in ns from each gradient of the backward to the next gradient.

        The first time counts from the start of the backward.
        """
        ready = [0, *(gradient.ready_ns for gradient in self.gradients)]
        return [after - before for before, after in pairwise(ready)]

    @property
    def compute_ns(self) -> int:
        """The time of the whole step without communication, as on one rank alone."""
        return self.begin_ns + self.backward_ns + self.finish_ns + self.optimizer_ns

    @property
    def bytes(self) -> int:
        """The sum of the bytes of all gradients."""
        return sum(gradient.bytes for gradient in self.gradients)

    def slowed(self, factor: float) -> "Step":
        """Return the step on a rank that takes ``factor`` times as long for all of its work."""
        return Step(
            round(self.forward_ns * factor),
            tuple(replace(g, ready_ns=round(g.ready_ns * factor)) for g in self.gradients),
            round(self.optimizer_ns * factor),
            round(self.finish_ns * factor),
            round(self.other_ns * factor),
            self.emulated,
            round(self.host_ns * factor),
        )

    def batch_of(self, times: float) -> "Step":
        """Return the step with a batch that is ``times`` as large.

        Forward and backward take ``times`` as long. The optimizer, and the work that finishes the
        backward, depend on the parameters and not on the batch, so their times stay. The number of
        launches stays too.
        """
        grown, finish_ns = self.slowed(times), self.finish_ns
        optimizer_ns, host_ns = self.optimizer_ns, self.host_ns
        return replace(grown, optimizer_ns=optimizer_ns, finish_ns=finish_ns, host_ns=host_ns)

    @classmethod
    def of_model(cls, model: ModelTable, compute_ns: int, optimizer_ns: int = 0) -> "Step":
        """Return a step of a model, with ``compute_ns`` divided among layers by multiplications.

        The backward takes two thirds of the compute, because it has two matrix products for each
        product in the forward. The gradients, 4 bytes a number, become ready from the last layer to
        the first. A tensor without multiplications, such as a bias, becomes ready with the tensor
        before it.
        """
        backward_ns, macs, done = compute_ns * 2 // 3, model.macs or 1, 0
        gradients = []
        for layer in reversed(model.layers):
            done += layer.macs
            gradients.append(Gradient(layer.name, 4 * layer.parameters, backward_ns * done // macs))
        return cls(compute_ns - backward_ns, tuple(gradients), optimizer_ns)

    @classmethod
    def of_trace(
        cls, trace: Trace, step: int = -1, rank: int = 0, sizes: Sequence[int] = ()
    ) -> "Step":
        """Return the step that a rank computed in a recorded or simulated trace.

        A span of kind "backward" ends when a gradient becomes ready. The gradient's bytes come from
        the first source that has them: ``sizes``, in order of readiness; the span; or an equal
        share of the bytes in the next all_reduce. If a step adds up gradients of several
        micro-batches, only the backward that sends the gradients counts as backward, and all work
        before it counts as forward. Time blocked on communication is left out. Raises TraceError if
        there is no such step, or no backward in the step.
        """
        return _StepReader(trace.step(step), rank).step(sizes)

    @classmethod
    def typical(
        cls,
        trace: Trace,
        rank: int = 0,
        sizes: Sequence[int] = (),
        among: Sequence[int] | None = None,
    ) -> "Step":
        """Return a step with the lower quartile of each part's times after the warm-up.

        If the trace has no steps after the warm-up, return its last step. Only steps with the same
        gradients as the last step count. ``among``: use only these steps.
        """
        chosen = after_warm_up(trace) if among is None else among
        steps = [cls.of_trace(trace, k, rank, sizes) for k in chosen]
        return cls.typical_of(steps or [cls.of_trace(trace, -1, rank, sizes)])

    @classmethod
    def typical_of(cls, steps: Sequence["Step"]) -> "Step":
        """Return a step with the lower quartile of each part's times in these steps of a rank."""
        names = [gradient.name for gradient in steps[-1].gradients]
        steps = [step for step in steps if [g.name for g in step.gradients] == names]
        # The times between gradients are compared, because one late layer delays all gradients
        # after it.
        gaps = map(undisturbed, zip(*(step.gaps_ns for step in steps), strict=True))
        ready = zip(steps[-1].gradients, accumulate(gaps), strict=True)
        return cls(
            undisturbed(step.forward_ns for step in steps),
            tuple(replace(gradient, ready_ns=ns) for gradient, ns in ready),
            undisturbed(step.optimizer_ns for step in steps),
            undisturbed(step.finish_ns for step in steps),
            undisturbed(step.other_ns for step in steps),
            steps[-1].emulated,
            undisturbed(step.host_ns for step in steps),
        )


def after_warm_up(trace: Trace) -> range:
    """Return the numbers of the steps after the warm-up; for a short trace, of the last step."""
    return range(WARM_UP if trace.steps > WARM_UP else max(trace.steps - 1, 0), trace.steps)


def undisturbed(times: Iterable[int]) -> int:
    """Return the lower quartile of times.

    Other work on a machine makes times longer, never shorter, so low times are closer to the truth.
    """
    times = sorted(times)
    return times[len(times) // 4]


def last_of_each(order: Sequence[str], buckets: Sequence[Bucket]) -> list[int]:
    """Return, for each bucket, the index of the gradient after which a rank can post the bucket.

    The index counts in `order`; it is -1 if no gradient is needed.
    """
    place = {name: i for i, name in enumerate(order)}
    if missing := [name for bucket in buckets for name in bucket.gradients if name not in place]:
        raise ValueError(f"the buckets name a gradient {missing[0]!r} that the step does not have")
    last, found = -1, []
    for bucket in buckets:
        last = max([last, *(place[name] for name in bucket.gradients)])
        found.append(last)
    return found


def recorded_buckets(
    trace: Trace, step: int = -1, rank: int = 0, sizes: Sequence[int] = ()
) -> tuple[Bucket, ...]:
    """Return the buckets in which a recorded step reduced its gradients; see `Step.of_trace`."""
    return _StepReader(trace.step(step), rank).buckets(sizes)


class _StepReader:
    """Reads one rank's compute and gradients from a trace that was cut to one step."""

    def __init__(self, cut: Trace, rank: int) -> None:
        spans, self.window = cut.of(rank), cut.window_of(rank)
        activity = cut.activity(rank)
        # A GPU's copies count as work of the rank: another network does not change their time.
        work = union([*activity.compute, *activity.copies])
        host = HostAhead.of(spans, self.window)
        self.host_ns, starved = host.ns, [stretch for stretch, _ in host.starved]
        parts = [(*part, 1.0) for part in subtract(work, starved)]
        for stretch, share in host.starved:  # the device computes in this share of the stretch
            parts += [(*part, share) for part in intersect(work, [stretch])]
        parts.sort()
        self.starts = [start for start, _, _ in parts]
        self.ends = [end for _, end, _ in parts]
        self.shares = [share for _, _, share in parts]
        lengths = (round(share * (end - start)) for start, end, share in parts)
        self.before = [*accumulate(lengths, initial=0)]  # work before each interval, in ns
        blocked = ((s.blocked_ns, s.end_ns) for s in spans if s.blocked_ns is not None)
        self.nothing = subtract([self.window], [*work, *blocked, *starved])
        calls = backward_calls(spans)
        if not calls:
            raise TraceError(
                f"there is no backward in this step of rank {rank}, so the step cannot be "
                "replayed: take a step with a backward"
            )
        self.emulated = how_made(cut.facts) == "emulated"
        self.end = max(span.end_ns for call in calls for span in call)
        # Micro-batches before the first bucket only add to the gradients, as in `no_sync`.
        posted = (calls[0][0].start_ns, self._last_post(cut, spans))
        self.reduced = bucket_spans(spans, posted)
        until = posted_at(self.reduced[0]) if self.reduced else self.end
        first = max(i for i, call in enumerate(calls) if call[0].start_ns <= until)
        self.begin = calls[first][0].start_ns
        backward = sorted(
            (span for call in calls[first:] for span in call), key=lambda span: span.end_ns
        )
        said = [s for s in backward if s.bytes or "gradient" in s.args]
        said = said or [s for s in backward for _ in range(ready_of(s))]
        # the last span is the work after the gradients
        self.gradients = said or backward[:-1] or backward

    def _last_post(self, cut: Trace, spans: Sequence[Span]) -> int:
        """Return the latest moment, in ns, at which an all_reduce of gradients can begin.

        An operation begins at its post, in the backward. In a profiler's recording, a kernel begins
        when it runs, and the last all_reduce runs after the backward's last kernel.
        """
        if cut.facts.get("recorded_by") != "torch.profiler":
            return self.end
        later = [s.start_ns for s in spans if s.kind == "optimizer" and s.start_ns >= self.end]
        return min(later, default=self.window[1])

    def step(self, sizes: Sequence[int]) -> Step:
        if sizes and len(sizes) != len(self.gradients):
            raise TraceError(
                f"{len(sizes)} sizes for {len(self.gradients)} gradients in the trace: give one "
                "size for each gradient"
            )
        begin = self._until(self.begin)
        ready = [max(0, self._until(span.end_ns) - begin) for span in self.gradients]
        names = [str(s.args.get("gradient", f"gradient {i}")) for i, s in enumerate(self.gradients)]
        rows = zip(names, sizes or self.sizes(), ready, strict=True)
        start, end = self.window
        return Step(
            self.computed(start, self.begin),
            tuple(Gradient(*row) for row in rows),
            self.computed(self.end, end),
            self.computed(self.begin, self.end) - ready[-1],
            total(self.nothing),
            self.emulated,
            self.host_ns,
        )

    def buckets(self, sizes: Sequence[int]) -> tuple[Bucket, ...]:
        gradients, shared = self.step(sizes).gradients, share(self.gradients, self.reduced)
        return tuple(
            Bucket(tuple(gradients[i].name for i in members), bucket.bytes)
            for bucket, members in shared
        )

    def computed(self, start: int, end: int) -> int:
        """Return the compute time between the moments `start` and `end`, in ns."""
        return max(0, self._until(end) - self._until(start))

    def _until(self, ns: int) -> int:
        k = bisect_right(self.starts, ns)
        if not k:
            return 0
        return self.before[k] - round(self.shares[k - 1] * max(0, self.ends[k - 1] - ns))

    def sizes(self) -> list[int]:
        """Return the bytes of each gradient, from its span or from its bucket."""
        if any(span.bytes for span in self.gradients):
            return [span.bytes for span in self.gradients]
        sizes = [0] * len(self.gradients)
        for bucket, members in share(self.gradients, self.reduced):
            # the remainder of the division goes to the first gradients
            for n, i in enumerate(members):
                sizes[i] = bucket.bytes // len(members) + (n < bucket.bytes % len(members))
        return sizes


def ready_of(span: Span) -> int:
    """Return the number of gradients that became ready in a span of a profiler's recording."""
    number = span.args.get(READY, 0)
    return min(max(number, 0), MOST_READY) if isinstance(number, int) else 0


def backward_calls(spans: Sequence[Span]) -> list[list[Span]]:
    """Return the spans of each backward of a rank, as a list of lists.

    A forward between two spans separates two backwards.
    """
    forwards = sorted(span.start_ns for span in spans if span.kind == "forward")
    calls: list[list[Span]] = []
    for span in sorted((s for s in spans if s.kind == "backward"), key=lambda s: s.start_ns):
        before, until = (calls[-1][-1].end_ns if calls else 0), span.start_ns
        if not calls or bisect_left(forwards, before) < bisect_left(forwards, until):
            calls.append([])
        calls[-1].append(span)
    return calls


def bucket_spans(spans: Sequence[Span], backward: Interval) -> list[Span]:
    """Return the all_reduces that a rank posted during a backward, in order."""
    start, end = backward
    posted = (s for s in spans if s.is_collective and s.name.startswith("all_reduce"))
    inside = (span for span in posted if start <= span.start_ns <= end)
    return sorted(inside, key=lambda span: span.start_ns)


def posted_at(call: Span) -> int:
    """Return the time in ns at which the rank posted a call.

    On a device the span of a call may begin later, because a communicator does its calls one after
    another.
    """
    return int(call.args.get(QUEUED, call.start_ns))


def share(gradients: Sequence[Span], buckets: Sequence[Span]) -> list[tuple[Span, list[int]]]:
    """Pair each all_reduce with the gradients that became ready since the all_reduce before it.

    The gradients of a pair are given as indices in `gradients`.

    ``gradients`` must be sorted by their ends. The result has neither gradients after the last
    all_reduce nor all_reduces without gradients.
    """
    pairs, first = [], 0
    ends = [gradient.end_ns for gradient in gradients]
    for bucket in buckets:
        last = bisect_right(ends, posted_at(bucket), first)
        if last > first:
            pairs.append((bucket, [*range(first, last)]))
            first = last
    return pairs
