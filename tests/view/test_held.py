"""Bytes of a rank over time: levels as steps, the limit, the cross, and the words."""

from types import SimpleNamespace

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ddpkit import TraceError
from ddpkit.trace import Trace
from ddpkit.trace.memory import MemoryLevel
from ddpkit.view import show_held
from ddpkit.view.held.figure import LOOKS, draw_held
from ddpkit.view.held.model import held_picture
from tests.view import examples
from tests.view.readable import assert_readable, luminance, texts

MB = 1_000_000


def _trace(*levels: tuple[int, int], parameters: int = 0) -> Trace:
    """Return a trace of rank 0 with these activations, as (us, MB)."""
    found = tuple(MemoryLevel(us * 1000, (parameters, 0, 0, 0, mb * MB)) for us, mb in levels)
    end = levels[-1][0] * 1000
    return Trace((), 1, examples.FACTS, {0: (0, end)}, {0: found})


KEPT = _trace((0, 1), (500, 20), (1000, 43), (2000, 0))
UNCOUNTED = Trace((), 1, examples.FACTS, {0: (0, 1)})
AGAIN = _trace((0, 1), (500, 5), (2500, 0))


def test_peaks_the_limit_and_its_moment_are_said() -> None:
    model = held_picture({"all kept": KEPT, "again": AGAIN}, limit=30e6)
    assert model.text.splitlines() == [
        "all kept: 43 MB at 1.0 ms, over the limit of 30 MB from 1.0 ms on",
        "again: 5 MB at 0.5 ms, within the limit of 30 MB",
    ]
    assert model.finding == "'all kept' holds up to 43 MB, and 'again' up to 5 MB."


def test_all_bytes_are_drawn_on_request() -> None:
    trace = _trace((0, 1), (10, 4), (20, 0), parameters=3 * MB)
    assert "4 MB" in held_picture({"a": trace}).text
    assert "7 MB" in held_picture({"a": trace}, kind=None).text


def test_a_line_goes_in_steps() -> None:
    (line,) = held_picture({"a": _trace((0, 1), (10, 4), (20, 0))}).lines
    us = [(ns // 1000, nbytes // MB) for ns, nbytes in line.corners]
    assert us == [(0, 0), (0, 0), (0, 1), (10, 1), (10, 4), (20, 4), (20, 0), (20, 0)]


def test_a_run_out_of_memory_ends_with_a_cross(capsys: pytest.CaptureFixture[str]) -> None:
    error = SimpleNamespace(raised={0: SimpleNamespace(type="OutOfMemoryError")})
    failed = SimpleNamespace(trace=_trace((0, 1), (700, 29)), error=error)
    figure = show_held({"small": failed, "again": AGAIN}, limit=30e6)
    assert isinstance(figure, Figure)
    said = capsys.readouterr().out
    assert "small: 29 MB at 0.7 ms, within the limit of 30 MB, out of memory at 0.7 ms" in said
    assert [line.get_marker() for line in figure.axes[0].lines].count("x") == 1
    assert "limit 30 MB" in {word for word, _ in texts(figure)}


@pytest.mark.parametrize(("gigabytes", "unit", "top"), [(1, "MB", 1000), (73, "GB", 73)])
def test_the_unit_of_the_axis_fits_the_bytes(gigabytes: int, unit: str, top: float) -> None:
    figure = draw_held(held_picture({"a": _trace((0, 1), (10, 1000 * gigabytes))}))
    assert unit in {word for word, _ in texts(figure)}
    assert max(figure.axes[0].lines[0].get_ydata()) == top


@pytest.mark.parametrize("runs", [1, 2, 6])
@pytest.mark.parametrize("limit", [None, 30e6, 300e6])
def test_every_picture_can_be_read(runs: int, limit: float | None) -> None:
    traces = {f"plan {n}, with a name that is rather long": KEPT for n in range(runs)}
    assert_readable(draw_held(held_picture(traces, ["plan 0"], limit=limit)))


def test_each_line_has_contrast_with_the_page_and_dashes_of_its_own() -> None:
    assert len({str(dashes) for _, dashes in LOOKS}) == len(LOOKS)
    for color, _ in LOOKS:
        assert 1.05 / (luminance(to_rgb(color)) + 0.05) >= 3, color  # WCAG 1.4.11


def test_runs_without_any_memory_levels_are_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_held({"a": UNCOUNTED}) is None
    assert capsys.readouterr().out.startswith("No picture: the runs have no memory levels.")


def test_runs_that_cannot_be_drawn_are_said() -> None:
    with pytest.raises(TraceError, match="'b' has no memory levels of rank 0"):
        show_held({"a": KEPT, "b": UNCOUNTED})
    with pytest.raises(TraceError, match="'a' has no memory levels of rank 3"):
        show_held({"a": KEPT}, rank=3)
    with pytest.raises(ValueError, match="1 to 6 runs, not 0"):
        show_held({})
    with pytest.raises(ValueError, match="the kinds of memory are parameters"):
        show_held({"a": KEPT}, kind="weights")
    with pytest.raises(ValueError, match="above 0"):
        show_held({"a": KEPT}, limit=0)
