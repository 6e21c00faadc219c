"""The benchmark of large traces makes traces of the named sizes, and prints each command."""

import sys
from pathlib import Path

import pytest

from benchmarks import traces
from benchmarks.traces import DEEP, WIDE, Size
from ddpkit.trace import Trace


@pytest.mark.parametrize("size", [Size(3, 2, 6), Size(2, 3, 20, 10)])
def test_a_trace_has_the_size_that_it_names(tmp_path: Path, size: Size) -> None:
    trace = Trace.load(traces.made(size, tmp_path))
    assert (trace.world_size, trace.steps, len(trace.spans)) == (
        size.ranks,
        size.steps,
        size.spans,
    )
    assert all(part.overlapped_ns and part.exposed_ns for part in trace.breakdown().values())


def test_the_largest_sizes_are_those_of_the_goals() -> None:
    assert (WIDE[-1].ranks, WIDE[-1].steps, WIDE[-1].spans) == (64, 200, 217_600)
    assert DEEP[-1].spans >= 1_000_000
    for sizes in (WIDE, DEEP):
        assert sizes[-1].spans == pytest.approx(4 * sizes[0].spans, rel=0.05)


def test_a_goal_that_is_missed_is_said() -> None:
    assert traces.verdict("trace", 4.0, 10**9, 4.0)[1].endswith("ok")
    for seconds, held, growth in ((6.0, 10**9, 4.0), (4.0, 3 * 10**9, 4.0), (4.0, 10**9, 16.0)):
        assert traces.verdict("trace", seconds, held, growth)[1].endswith("MISSED")


@pytest.mark.processes
def test_the_benchmark_prints_each_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(traces, "WIDE", [Size(2, steps, 6) for steps in (4, 8)])
    monkeypatch.setattr(traces, "DEEP", [])
    monkeypatch.setattr(traces, "GOAL_S", {"trace": 60.0, "predict": 60.0})
    monkeypatch.setattr(sys, "argv", ["benchmarks.traces"])
    traces.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("2 ranks")]
    assert [row.split()[7] for row in rows] == ["trace", "predict"] * 2
    assert all(float(row.split()[8]) > 0 for row in rows)
    assert all("≤ 60 s" in row for row in rows[2:])


@pytest.mark.processes
def test_a_command_that_fails_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(RuntimeError, match=r"ddpkit trace failed on no\.json: .*neither"):
        traces.cost("trace", tmp_path / "no.json")
