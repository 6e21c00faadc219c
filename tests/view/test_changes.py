"""`changes`: the differences of two runs, in numbers and in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpkit.errors import TraceError
from ddpkit.trace import Span, Trace, match_peers
from ddpkit.trace.base import RECORDED
from ddpkit.view.drawing.changes import beside, changes, signed
from tests.view import examples

MS = 1_000_000
NAMES = ("before", "after")


def run(reduce_ms: int, *, late: int = 0, ranks: int = 2, steps: int = 6) -> Trace:
    """Return steps of 100 ms of compute and an all_reduce without compute beside it.

    late  ms by which rank 1 computes longer
    """
    spans: list[Span] = []
    for step in range(steps):
        for rank in range(ranks):
            at = step * 1000 * MS
            end = at + (100 + late * (rank == 1)) * MS
            post = at + (100 + late) * MS
            done = post + reduce_ms * MS
            spans += [
                Span(rank, "compute", "Linear", "forward", at, at + 40 * MS),
                Span(rank, "compute", "Linear", "backward", at + 40 * MS, end),
                Span(rank, "comm", "all_reduce", "comm", end, done, 4000, group="0", seq=step),
                Span(rank, "step", "step", "step", at, done),
            ]
    return Trace(match_peers(spans), ranks, examples.FACTS)


def test_the_largest_change_is_named() -> None:
    found = changes((run(20), run(50)), NAMES)
    assert found.finding() == (
        "The step of the slowest rank is 1.25× longer than before: 120 ms → 150 ms.\n"
        "The largest change is exposed communication of rank 0, 20 ms → 50 ms (+30 ms)."
    )
    assert found.steps == (4, 4)  # the typical steps
    rows = [line.split("  ") for line in found.text().splitlines()]
    (zero,) = ([cell.strip() for cell in row if cell] for row in rows if row[0] == "rank 0")
    assert zero == [
        "rank 0",
        "120 ms → 150 ms",
        "100 ms",
        "0 ms",
        "20 ms → 50 ms",
        "0 ms",
        "0 ms",
    ]
    assert next(found.kind_rows()) == ["all_reduce", "20 ms → 50 ms", "+30 ms", "×1", "4 kB"]


def test_a_slower_rank_is_found_by_its_compute() -> None:
    found = changes((run(20), run(20, late=60)), NAMES)
    assert "The largest change is compute of rank 1, 100 ms → 160 ms (+60 ms)." in found.finding()
    assert changes((run(20), run(30, late=60)), NAMES).ranks[0].waits_ns == 60 * MS
    waits = {rank.rank: rank.waiting_ns for rank in found.ranks}
    assert waits == {0: (0, 60 * MS), 1: (0, 0)}


def test_the_part_of_a_change_that_waits_is_told() -> None:
    found = changes((run(20), run(200, late=60)), NAMES).finding()
    found = " ".join(found.split())
    assert "20 ms → 260 ms (+240 ms, of which +60 ms are waits for peers)." in found


def test_shorter_steps_and_equal_runs() -> None:
    shorter = changes((run(50), run(20)), NAMES).finding()
    assert "1.25× shorter than before: 150 ms → 120 ms" in shorter
    assert "50 ms → 20 ms (−30 ms)" in shorter
    same = changes((run(20), run(20)), NAMES)
    assert same.finding() == (
        "The step of the slowest rank is as long as before: 120 ms → 120 ms.\n"
        "No part of a rank's time changed by more than 1 % of it."
    )
    assert "→" not in "".join(same.row(same.ranks[0]))


def test_the_numbers_are_those_of_both_breakdowns() -> None:
    traces = examples.ddp(3, steps=6), examples.ddp(3, steps=6, seed=1)
    found = changes(traces, NAMES, 2)
    cut = [trace.step(2).breakdown() for trace in traces]
    rows = found.numbers()
    for rank in range(3):
        (row,) = (row for row in rows if (row["rank"], row["of"]) == (rank, "exposed comm"))
        before, after = (parts[rank].exposed_ns / 1e9 for parts in cut)
        assert (row["before_seconds"], row["after_seconds"]) == (before, after)
        assert row["change_seconds"] == pytest.approx(after - before)
        four = ("compute only", "overlapped", "exposed comm", "idle")
        of_rank = {row["of"]: row for row in rows if row["rank"] == rank}
        assert sum(of_rank[part]["change_seconds"] for part in four) == pytest.approx(
            of_rank["step"]["change_seconds"]
        )
    (kind,) = (row for row in rows if row["of"] == "all_reduce")
    assert (kind["times_before"], kind["bytes_before"]) == (5, 20_000_000)


def test_ranks_of_one_run_alone_are_named() -> None:
    text = changes((run(20, ranks=2), run(20, ranks=4)), NAMES).text()
    assert "Only in after: ranks 2 to 3." in text
    part = replace(run(20, ranks=4), facts={RECORDED: "1, 3"})
    spans = tuple(span for span in part.spans if span.rank in (1, 3))
    text = changes((run(20, ranks=4), replace(part, spans=spans)), NAMES).text()
    assert "Only in before: rank 0, 2." in text or "Only in before: ranks 0, 2." in text
    assert "rank 2  " not in text


def test_many_ranks_show_the_most_the_median_and_the_least() -> None:
    traces = examples.ddp(20, steps=5), examples.ddp(20, steps=5, seed=3)
    found = changes(traces, NAMES)
    short, full = found.text(every=False).splitlines(), found.text().splitlines()
    assert sum(line.startswith("rank ") for line in short) == 3
    assert sum(line.startswith("rank ") for line in full) == 20
    most = max(found.ranks, key=lambda each: abs(each.change_of("step_ns")))
    assert any(line.startswith(f"{most.name} ") for line in short)


def test_copies_and_whole_runs() -> None:
    copy = Span(0, "copy", "host→device", "copy", 0, 5 * MS, 100)
    bare = Trace([Span(0, "compute", "x", "span", 5 * MS, 10 * MS)], 1)
    found = changes((bare, replace(bare, spans=(*bare.spans, copy))), NAMES)
    assert found.steps == (None, None)
    assert "The run of the slowest rank is 2× longer" in found.finding()
    assert "copies of rank 0, 0 ms → 5.0 ms (+5.0 ms)" in found.finding()
    rows = {row[0]: row[1:] for row in found.kind_rows()}
    assert rows["host→device"] == ["0 ms → 5.0 ms", "+5.0 ms", "×0 → ×1", "0 B → 100 B"]
    assert rows["other compute"] == ["5.0 ms", "+0 ms", "×1", ""]


def test_nothing_in_common_and_nothing_at_all() -> None:
    first = replace(run(20), facts={RECORDED: "0"})
    second = replace(run(20), facts={RECORDED: "1"})
    one = replace(first, spans=tuple(s for s in first.spans if s.rank == 0))
    two = replace(second, spans=tuple(s for s in second.spans if s.rank == 1))
    assert "No rank is recorded in both runs." in changes((one, two), NAMES).text()
    empty = changes((Trace((), 1), Trace((), 1)), NAMES).text()
    assert "No part of a rank's time changed" in empty


def test_a_step_that_one_of_them_lacks_is_refused() -> None:
    with pytest.raises(TraceError, match="there is no step 5: this trace has steps 0 to 2"):
        changes((run(20), run(20, steps=3)), NAMES, 5)


def test_words() -> None:
    assert beside(12 * MS, 40 * MS) == "12 ms → 40 ms"
    assert beside(12 * MS, 12 * MS + 1) == "12 ms"
    assert signed(-2 * MS) == "−2.0 ms"
