"""Lab 10: traces of steps in which ranks work and wait, made from each rank's work times."""

from __future__ import annotations

from collections.abc import Sequence

from ddpkit.trace import Span, Trace

MS = 1_000_000  # ns
Work = Sequence[Sequence[float]]  # [step][rank], ms


def of_steps(
    work: Work, late: Sequence[float] = (), nbytes: int = 4096, *, early: int | None = None
) -> Trace:
    """Return the trace of steps: forward, backward, and an all_reduce after the last rank is ready.

    As in DDP, a rank waits within its backward, and computes nothing while it waits. The all_reduce
    takes 2 ms. On a rank with a slow link, it takes `late` ms longer (by rank). The rank `early`
    sends at the beginning of its backward, and computes meanwhile.
    """
    ranks = range(len(work[0]))
    late = late or [0.0] * len(ranks)
    spans, begin = [], [0.0 for _ in ranks]
    for number, of_step in enumerate(work):
        posted = [begin[rank] + of_step[rank] * 0.9 for rank in ranks]
        ready = max(posted)
        for rank in ranks:
            end = ready + 2.0 + late[rank]
            over = end + of_step[rank] * 0.1
            at = [round(ms * MS) for ms in (begin[rank], posted[rank], end, over, ready)]
            third = at[0] + (at[1] - at[0]) // 3
            spans += [
                Span(rank, "step", "step", "step", at[0], at[3]),
                Span(rank, "compute", "forward", "forward", at[0], third),
                Span(rank, "compute", "backward", "backward", third, at[2]),
                Span(
                    *(rank, "comm", "all_reduce", "comm"),
                    *(third if rank == early else at[1], at[2], nbytes),
                    group="0",
                    seq=number,
                    ready_ns=at[4],
                    blocked_ns=at[1],
                    collected_ns=at[2],
                ),
                Span(rank, "compute", "optimizer", "optimizer", at[2], at[3]),
            ]
            begin[rank] = over
        begin = [max(begin)] * len(ranks)  # all ranks load their next batch, and begin together
    return Trace(tuple(spans), len(ranks), {"backend": "made"})
