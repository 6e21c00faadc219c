"""The ends of training steps, derived from a rank's optimizers if the program marks no steps.

A training step may have several optimizers. For example, Muon for matrices and AdamW for the rest
step one after another, and each of a GAN's two optimizers steps after a backward of its own. The
optimizers step in a cycle that repeats, and the last optimizer of the cycle ends the training step.
"""

from bisect import bisect_left
from collections.abc import Sequence

from ddpkit.trace.span import OPTIMIZER, Span

LONGEST = 64  # most optimizers in a cycle
WORK = ("forward", "backward")


def ends_of_steps(spans: Sequence[Span]) -> list[int]:
    """Return the end of each step of a rank, in ns, in order."""
    marks = _marks(spans)
    length = period([kinds for kinds, _ in marks])
    return [end for _, end in marks][length - 1 :: length]


def period(kinds: Sequence[object]) -> int:
    """Return the length of the shortest cycle that repeats in a sequence; 1 if nothing repeats."""
    for length in range(1, min(len(kinds) // 2, LONGEST) + 1):
        if all(one == other for one, other in zip(kinds, kinds[length:], strict=False)):
            return length
    return 1


def _marks(spans: Sequence[Span]) -> list[tuple[tuple[str, ...], int]]:
    """Return each group of optimizer steps without other work in between.

    A group is given as the names of its optimizers, and the end of its last step in ns.
    """
    steps = sorted((s for s in spans if s.kind == "optimizer"), key=lambda s: s.end_ns)
    work = sorted(span.start_ns for span in spans if span.kind in WORK)
    marks: list[tuple[tuple[str, ...], int]] = []
    for step in steps:
        kind = f"{step.name} {step.args.get(OPTIMIZER, 0)}"
        if marks:
            kinds, end = marks[-1]
            if kind not in kinds and bisect_left(work, end) == bisect_left(work, step.start_ns):
                marks[-1] = (*kinds, kind), step.end_ns
                continue
        marks.append(((kind,), step.end_ns))
    return marks
