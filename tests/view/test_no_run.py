"""Arguments that are neither a run nor a trace: every picture refuses them in a sentence."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddpkit import Cluster, TraceError, view
from tests.view import examples

CLUSTER = Cluster.__new__(Cluster)  # a cluster without processes
RUN = SimpleNamespace(trace=examples.token_ring(), results=[0, 1])
ONE = [
    *(view.show, view.heat_map, view.play, view.explore),
    *(view.explore_buckets, view.explore_scaling, view.what_if),
]
SEVERAL = [view.compare, view.stack, view.show_pipeline]


@pytest.mark.parametrize("picture", [*ONE, *SEVERAL])
@pytest.mark.parametrize(
    ("given", "kind"),
    [(5, "an int"), (RUN.results, "a list"), (CLUSTER, "a Cluster"), (print, "a builtin_")],
)
def test_a_picture_says_what_it_takes(
    picture: Callable[..., Any], given: object, kind: str
) -> None:
    with pytest.raises(TraceError) as caught:
        picture(given)
    said = str(caught.value)
    assert said.startswith(f"{picture.__name__}() takes a ")
    assert f"a run or its trace, not {kind}" in said
    assert said.endswith(": give it the result of cluster.run(...)")


@pytest.mark.parametrize("picture", [view.show, view.heat_map, view.compare, view.what_if])
def test_nothing_is_no_run(picture: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match=r"takes a run or its trace, not None: "):
        picture(None)


@pytest.mark.parametrize("picture", SEVERAL)
def test_who_takes_several_says_how_a_list_is_given(picture: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match=rf"not a list: .*{picture.__name__}\(\*runs\)"):
        picture([RUN, RUN])
    with pytest.raises(TraceError, match="takes a run or its trace, not None"):
        picture(RUN, None)


@pytest.mark.parametrize("picture", ONE)
def test_who_takes_one_says_that_a_list_has_several(picture: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match="not a list: give one of its items"):
        picture([RUN, RUN])


@pytest.mark.parametrize("path", ["run.json.gz", Path("run.json.gz")])
def test_a_file_is_loaded_first(path: str | Path) -> None:
    with pytest.raises(TraceError, match=r"show\(Trace\.load\(path\)\)"):
        view.show(path)  # type: ignore[arg-type]
