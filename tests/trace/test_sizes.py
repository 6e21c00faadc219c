"""Large traces: the cost of a step does not grow with the run, and tables stay short."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.commands.main import main
from ddpkit.commands.waiting import reading, said_if_long
from ddpkit.errors import TraceError
from ddpkit.simulate import forecast
from ddpkit.trace import Span, Trace
from ddpkit.trace import base as trace_base
from ddpkit.trace.files import own
from ddpkit.view import timeline_model
from tests.properties import examples

MS = 1_000_000


def training(ranks: int, steps: int) -> Trace:
    """Return steps of 10 ms; the all_reduce of rank r is exposed for r / 100 ms longer."""
    spans = [span for rank in range(ranks) for k in range(steps) for span in _step(rank, k)]
    return Trace(tuple(spans), ranks, {"backend": "gloo", "device": "cpu"})


def _step(rank: int, k: int) -> Iterator[Span]:
    at, late = 10 * MS * k, rank * MS // 100
    yield Span(rank, "step", "step", "step", at, at + 9 * MS)
    yield Span(rank, "compute", "Linear", "forward", at, at + 2 * MS)
    yield Span(rank, "compute", "a", "backward", at + 2 * MS, at + 3 * MS, 400)
    yield Span(rank, "comm", "all_reduce", "comm", at + 3 * MS, at + 5 * MS + late, 400, seq=k)
    yield Span(rank, "compute", "SGD", "optimizer", at + 7 * MS, at + 9 * MS)


def test_a_prediction_looks_at_each_span_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each span was visited for all ranks and steps: minutes for 64 ranks."""
    looks = [0]
    overlaps = trace_base._overlaps

    def counted(span: Span, window: Any) -> bool:
        looks[0] += 1
        return overlaps(span, window)

    monkeypatch.setattr(trace_base, "_overlaps", counted)
    for ranks, steps in ((2, 10), (8, 40)):
        trace, looks[0] = training(ranks, steps), 0
        forecast(trace)
        assert looks[0] <= 3 * len(trace.spans)


TIMES = st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda t: (t[0], t[0] + t[1]))
MARKS = st.lists(TIMES, max_size=6)


@examples(200)
@given(marks=st.lists(MARKS, min_size=1, max_size=3), ops=st.lists(TIMES, max_size=12))
def test_a_step_has_every_span_that_reaches_into_it(marks: Any, ops: Any) -> None:
    """The steps may overlap or lie inside each other; spans may be moments or cover the run."""
    spans = [
        Span(rank, "step", "step", "step", *mark)
        for rank, each in enumerate(marks)
        for mark in each
    ]
    spans += [
        Span(k % len(marks), "compute", "x", "span", *times)
        for k, times in enumerate([*ops, (0, 90)])
    ]
    trace = Trace(tuple(spans), len(marks))
    for k in range(trace.steps):
        windows = {r: each[k] for r, each in trace.step_windows.items() if k < len(each)}
        expected = [
            span
            for span in spans
            if span.rank in windows and reaches_into(span, *windows[span.rank])
        ]
        assert list(trace.step(k).spans) == expected
        assert trace.step(k) == trace.step(k - trace.steps)


def reaches_into(span: Span, start: int, end: int) -> bool:
    if span.start_ns == span.end_ns:
        return start <= span.start_ns < end
    return span.start_ns < end and start < span.end_ns


@pytest.mark.parametrize(("ranks", "named"), [(16, False), (17, True)])
def test_many_ranks_are_the_worst_the_median_and_the_best(
    tmp_path: Path, ranks: int, named: bool
) -> None:
    path = tmp_path / "run.json"
    training(ranks, 2).save(path)
    text = CliRunner().invoke(main, ["trace", str(path)]).output
    rows = [line.split("  ")[0] for line in text.splitlines() if line.startswith("rank ")]
    if named:
        assert rows == ["rank 16 (worst)", "rank 8 (median)", "rank 0 (best)"]
    else:
        assert rows == [f"rank {rank}" for rank in range(16)]
    assert ("see every rank with --all" in text) == named
    every = CliRunner().invoke(main, ["trace", str(path), "--all"]).output
    assert every.startswith(timeline_model(Trace.load(path)).text)
    assert f"rank {ranks - 1}  " in every
    assert "with --all" not in every


def test_without_communication_idle_time_counts(tmp_path: Path) -> None:
    spans = [Span(r, "compute", "x", "forward", 0, (100 - r) * MS) for r in range(20)]
    text = timeline_model(Trace(tuple(spans), 20), short=True).text
    rows = [line.split("  ")[0] for line in text.splitlines() if line.startswith("rank ")]
    assert rows == ["rank 19 (worst)", "rank 10 (median)", "rank 0 (best)"]


def test_ranks_that_differ_in_messages_are_few_too() -> None:
    spans = [
        Span(r, "comm", "send", "comm", 0, MS + r, 8 + r, peer=(r + 1) % 20) for r in range(20)
    ]
    text = timeline_model(Trace(tuple(spans), 20), short=True).text
    sent = [line for line in text.splitlines() if "sent 1 message" in line]
    assert [line.split(":")[0] for line in sent] == ["rank 0", "rank 10", "rank 19"]


def test_long_work_is_named_once_and_short_work_never(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with said_if_long(patience_s=60) as doing:
        doing("Reading 1 file.")
    assert capsys.readouterr().err == ""
    with said_if_long(patience_s=0.001) as doing:
        printed = ""
        for work in ("Reading 1 file.", "Adding up."):
            doing(work)
            while work not in printed:  # the thread prints when it gets a turn
                time.sleep(0.001)
                printed += capsys.readouterr().err
    assert printed.splitlines() == ["Reading 1 file.", "Adding up."]


def test_nothing_is_named_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with said_if_long(patience_s=0.001) as doing:
        doing("Reading 1 file.")
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_the_thread_that_says_it_ends_with_the_work_also_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import threading

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    before = threading.active_count()
    with pytest.raises(TraceError), said_if_long():
        raise TraceError("damaged")
    assert threading.active_count() == before


def test_reading_says_how_much(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1500)
    assert reading([tmp_path / "a", tmp_path / "missing"]) == "Reading 2 files, 1.5 kB."


@examples(100)
@given(
    field=st.integers(0, 13),
    odd=st.sampled_from([None, True, -1, 1.5, "x", [], {}, {"a": []}, {"a": None}, 10**30, "comm"]),
    which=st.integers(0, 3),
)
def test_columns_and_single_rows_are_read_alike(field: int, odd: object, which: int) -> None:
    """Rows are read a column at a time; a single row gets the same verdict and span."""
    columns = own._columns(training(1, 1).spans)
    columns[own._FIELDS[field]][which] = odd
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    top = {"fields": [*own._FIELDS], "spans": rows}
    found: list[object] = []
    for read in (
        lambda: own._of_columns(columns, 1),
        lambda: own._of_rows(top, own._FIELDS, 1),
        lambda: _one_by_one(rows, own._FIELDS, 1),
    ):
        try:
            found.append(read())
        except TraceError as error:
            found.append(str(error))
    assert found[0] == found[1] == found[2]


def _one_by_one(rows: Any, names: Any, world_size: int) -> tuple[Span, ...]:
    return tuple(own._span(number, row, names, world_size) for number, row in enumerate(rows))


def test_rows_of_another_length_are_said() -> None:
    columns = own._columns(training(1, 1).spans)
    rows: list[Any] = [list(row) for row in zip(*columns.values(), strict=True)]
    for odd in (rows[0][:-1], {}, None):
        top = {"fields": [*own._FIELDS], "spans": [*rows[:2], odd]}
        with pytest.raises(TraceError, match="span 2 does not have 14 fields"):
            own._of_rows(top, own._FIELDS, 1)
