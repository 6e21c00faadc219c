"""Before torch 2.4, a recording has times in Unix microseconds, with more digits than a float."""

from pathlib import Path

import pytest

from ddpkit.errors import TraceError
from ddpkit.trace import Trace
from tests.trace.recordings import event, of_rank, write

UNIX_US = 1_661_203_462_598_738  # 22 August 2022


def in_words(path: Path, **digits: str) -> Path:
    """Return the file with these words replaced by numbers of these digits."""
    text = path.read_text()
    for word, number in digits.items():
        text = text.replace(f'"{word}"', number)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("ts", "start_ns"),
    [
        (f"{UNIX_US}", UNIX_US * 1000),
        (f"{UNIX_US}.125", UNIX_US * 1000 + 125),
        (f"{UNIX_US}.126", UNIX_US * 1000 + 126),
        (f"{UNIX_US}.001", UNIX_US * 1000 + 1),
        (f"{UNIX_US}.0005", UNIX_US * 1000),
        ("1.661203462598738125e15", UNIX_US * 1000 + 125),
        (f"-{UNIX_US}.125", -UNIX_US * 1000 - 125),
    ],
)
def test_every_nanosecond_of_unix_time_is_kept(tmp_path: Path, ts: str, start_ns: int) -> None:
    (path,) = write(tmp_path, of_rank(0, 1, event("cpu_op", "aten::mm", "here", 5.25)))
    (span,) = Trace.load(in_words(path, here=ts)).spans
    assert (span.start_ns, span.duration_ns) == (start_ns, 5250)


def test_neighbours_that_touch_still_touch(tmp_path: Path) -> None:
    """Ten operators of 0.3 us follow each other: no gap and no overlap may appear."""
    words = [f"at{k}" for k in range(10)]
    events = [event("cpu_op", "aten::mm", word, 0.3) for word in words]
    (path,) = write(tmp_path, of_rank(0, 1, *events))
    digits = {f"at{k}": f"{UNIX_US + 3 * k // 10}.{3 * k % 10}" for k in range(10)}
    (part,) = Trace.load(in_words(path, **digits)).breakdown().values()
    assert (part.compute_ns, part.idle_ns) == (3000, 0)


def test_ranks_with_and_without_a_base_share_a_clock(tmp_path: Path) -> None:
    """Two ranks of one host have two versions of torch: their operators are 50 us apart."""
    old = of_rank(0, 2, event("cpu_op", "aten::mm", UNIX_US, 10))
    base = (UNIX_US - 1_000_000) * 1000
    new = {
        **of_rank(1, 2, event("cpu_op", "aten::mm", 1_000_050, 10)),
        "baseTimeNanoseconds": base,
    }
    trace = Trace.load(*write(tmp_path, old, new))
    assert trace.duration_ms == pytest.approx(0.06)
    assert [trace.of(rank)[0].start_ns - trace.start_ns for rank in (0, 1)] == [0, 50_000]


def test_a_saved_trace_of_unix_times_reads_back(tmp_path: Path) -> None:
    (path,) = write(tmp_path, of_rank(0, 1, event("cpu_op", "aten::mm", "here", 5.25)))
    trace = Trace.load(in_words(path, here=f"{UNIX_US}.125"))
    trace.save(tmp_path / "saved.json.gz")
    assert Trace.load(tmp_path / "saved.json.gz") == trace


@pytest.mark.parametrize("ts", [f"{UNIX_US}000", "1e16", "-1e300", "1e999", "NaN"])
def test_unix_nanoseconds_and_damaged_numbers_are_refused(tmp_path: Path, ts: str) -> None:
    (path,) = write(tmp_path, of_rank(0, 1, event("cpu_op", "aten::mm", "here", 5)))
    with pytest.raises(TraceError, match=r"event 0 \('aten::mm'\) has the ts .* is not a time"):
        Trace.load(in_words(path, here=ts))
