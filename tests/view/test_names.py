"""Ranks have the names that the reader gives them, in pictures and texts."""

import pytest

from ddpkit.errors import TraceError
from ddpkit.simulate import parameter_server
from ddpkit.trace import Trace, name_of, with_names
from ddpkit.view import compare, explore, show
from ddpkit.view.comparison.model import comparison
from ddpkit.view.timeline.model import timeline_model

LINK = "1 Gbit/s, 200 us"
TRACE = parameter_server(2, 1, 10**6, 20 * 10**6, LINK).trace
NAMES = {0: "server", 2: "worker 2"}


def words_of(figure):
    return [text.get_text() for text in figure.texts]


def test_a_picture_and_its_text_have_the_names(capsys):
    words = words_of(show(TRACE, names=NAMES))
    text = capsys.readouterr().out
    for name in ("server", "worker 2", "rank 1"):
        assert name in words
        assert name in text
    assert "rank 0" not in words
    assert "rank 2" not in text.partition("sent")[0].partition("traffic")[0].lower()


def test_the_run_itself_keeps_its_numbers():
    with_names(TRACE, NAMES)
    assert name_of(TRACE.facts, 0) == "rank 0"
    assert timeline_model(TRACE).rows[0].name == "rank 0"


def test_compare_and_explore_have_them_too():
    figure = compare(TRACE, TRACE, rank=2, names=NAMES)
    assert figure is not None
    both = [with_names(TRACE, NAMES)] * 2
    assert "server" in comparison(both, rank=None).text
    assert "server" in explore(TRACE, names=NAMES).model().text


def test_names_are_saved_with_a_trace(tmp_path):
    path = tmp_path / "served.json"
    with_names(TRACE, NAMES).save(path)
    assert name_of(Trace.load(path).facts, 0) == "server"


def test_a_long_name_fits_left_of_its_row():
    figure = show(TRACE, names={0: "the parameter server of all"})
    (name,) = [text for text in figure.texts if text.get_text().startswith("the parameter")]
    figure.canvas.draw()
    assert name.get_window_extent().x0 >= 0


@pytest.mark.parametrize(
    ("names", "says"),
    [({3: "server"}, "there is no rank 3"), ({0: 7}, "a name is a string"), ({0: ""}, "a name is")],
)
def test_what_is_no_name_is_refused(names, says):
    with pytest.raises(TraceError, match=says):
        show(TRACE, names=names)
