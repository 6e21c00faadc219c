"""A run for which torchrun had too few ranks: no picture shows it, and no picture ends the job."""

from collections.abc import Callable
from typing import Any

import pytest

from ddpkit import TraceError, view
from ddpkit.trace import Trace
from tests.view import examples

SKIPPED = Trace((), 4, {**examples.FACTS, "skipped": "it needs 4 ranks, and torchrun started 2."})
WORDS = "No picture: the run was skipped."


@pytest.mark.parametrize(
    "picture",
    [
        view.show,
        lambda trace: view.show(trace, step=4),
        lambda trace: view.compare(trace, trace, step=4),
        lambda trace: view.compare(examples.ddp(2), trace),
        view.stack,
        view.heat_map,
    ],
)
def test_a_picture_says_so_in_a_sentence(
    picture: Callable[[Trace], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert picture(SKIPPED) is None
    assert capsys.readouterr().out == f"{WORDS}\n"


VIEWS = [view.play, view.explore, view.explore_buckets, view.explore_scaling, view.what_if]


@pytest.mark.parametrize("picture", VIEWS)
def test_a_view_says_so_and_has_no_figure(
    picture: Callable[[Trace], view.View[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = picture(SKIPPED)
    assert capsys.readouterr().out == f"{WORDS}\n"
    assert nothing.text() == nothing.table() == WORDS
    with pytest.raises(TraceError, match="skipped"):
        nothing.figure(step=3)


@pytest.mark.parametrize("picture", [view.play, view.what_if, view.heat_map])
def test_a_run_that_only_has_nothing_to_show_is_still_a_mistake(
    picture: Callable[[Trace], Any],
) -> None:
    with pytest.raises(TraceError):
        picture(Trace((), 4, examples.FACTS))
