"""The drawn moments: readable texts, and drawing fast enough to follow a slider."""

import time

import pytest

from ddpkit.simulate import ALGORITHMS, schedule, time_of
from ddpkit.view.player.figure import draw_moment
from ddpkit.view.player.recorded import playback_of_trace
from ddpkit.view.player.scheduled import playback_of_schedule
from tests.view import examples
from tests.view.readable import assert_readable, texts

LARGE = [pytest.param(ranks, marks=pytest.mark.slow) for ranks in (8, 16)]


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("ranks", [1, 2, 3, *LARGE])
def test_every_algorithm_is_readable(name: str, ranks: int) -> None:
    playback = playback_of_schedule(schedule(name, ranks, 123_456))
    for step in {playback.steps // 2, playback.steps}:
        assert_readable(draw_moment(playback, step))


@pytest.mark.parametrize("name", ["ring", "master_worker", "all_to_all"])
def test_a_run_is_readable(name: str) -> None:
    playback = playback_of_trace(time_of(schedule(name, 8, 123_456), "1 Gbit/s"))
    assert_readable(draw_moment(playback, 1))


def test_a_long_run_is_readable() -> None:
    playback = playback_of_trace(examples.token_ring(4, laps=50))
    assert_readable(draw_moment(playback, 99))


def test_it_says_step_bytes_and_chunks() -> None:
    playback = playback_of_schedule(schedule("ring", 4, 1000))
    words = {text for text, _ in texts(draw_moment(playback, 2))}
    assert {
        playback.title,
        playback.notice,
        playback.line(2),
        "+B",
        "rank 3",
        "2 kB",
        "step 2 of 6",
    } <= words


def test_a_redraw_follows_a_slider() -> None:
    playback = playback_of_schedule(schedule("ring", 8, 1000))
    draw_moment(playback, 1).canvas.draw()  # loads fonts and modules
    start = time.process_time()  # time of this process alone, because CI machines are shared
    draw_moment(playback, 9).canvas.draw()
    assert time.process_time() - start < 0.6  # 0.15 s on the developer's machine
