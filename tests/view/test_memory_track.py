"""The memory of a modelled machine in the timeline: the drawing and the words."""

from ddpkit.trace import MemoryLevel, Span, Trace
from ddpkit.view.timeline.figure import draw_timeline
from ddpkit.view.timeline.memory import memory_track
from ddpkit.view.timeline.model import timeline_model

FACTS = {"emulated": "unlimited", "time": "emulated", "machine": "A100"}
SPANS = [Span(rank, "compute", "Linear", "forward", 0, 1000) for rank in (0, 1)]


def trace(*totals: int) -> Trace:
    """Return a trace: rank 1 holds these bytes for 100 ns each, and rank 0 holds one byte."""
    levels = tuple(MemoryLevel(100 * n, (total, 0, 0, 0, 1000)) for n, total in enumerate(totals))
    return Trace(SPANS, 2, FACTS, memory={0: (MemoryLevel(0, (1, 0, 0, 0, 0)),), 1: levels})


def test_the_fullest_rank_is_drawn_with_its_peak():
    track = memory_track(trace(1000, 5000, 2000), pixel_ns=1)
    assert track is not None
    assert (track.rank, track.peak.total) == (1, 6000)
    assert [(since, until, sum(parts)) for since, until, parts in track.steps] == [
        (0, 100, 2000),
        (100, 200, 6000),
        (200, 1000, 3000),
    ]


def test_a_pixel_shows_the_most_of_its_levels():
    track = memory_track(trace(*range(0, 10_000, 1000)), pixel_ns=250)
    assert track is not None
    assert len(track.steps) == 4
    assert max(sum(parts) for _, _, parts in track.steps) == track.peak.total == 10_000


def test_a_peak_at_the_very_end_has_its_dot():
    # the last level begins at the end of the window
    model = timeline_model(trace(*range(0, 11_000, 1000)))
    assert model.memory is not None
    assert model.memory.peak.ns == 1000
    assert model.memory.steps[-1][2] == model.memory.peak.nbytes
    drawn = [text.get_text() for text in draw_timeline(model).texts]
    assert "most: 11 kB" in drawn


def test_text_and_picture_say_what_was_held():
    model = timeline_model(trace(1000, 5000))
    said = " ".join(model.text.split())
    assert "Memory: rank 0 held at most 1 B: parameters 1 B." in said
    assert "rank 1 held at most 6 kB: parameters 5 kB, activations 1 kB." in said
    assert "Machine: A100." in said
    drawn = [text.get_text() for text in draw_timeline(model).texts]
    assert {"memory", "most: 6 kB", "parameters 5 kB"} <= set(drawn)


def test_ranks_that_hold_the_same_are_said_together():
    levels = (MemoryLevel(0, (1000, 0, 0, 0, 0)),)
    model = timeline_model(Trace(SPANS, 2, FACTS, memory={0: levels, 1: levels}))
    assert "Memory: each rank held at most 1 kB: parameters 1 kB." in model.text

    nearly = (MemoryLevel(0, (1000, 0, 0, 0, 20_000)),), (MemoryLevel(0, (1000, 0, 0, 0, 20_200)),)
    model = timeline_model(Trace(SPANS, 2, FACTS, memory=dict(enumerate(nearly))))
    assert (
        "Memory: each rank held at most 21 kB to 21.2 kB; rank 1: parameters 1 kB, activations "
        "20.2 kB."
    ) in " ".join(model.text.split())


def test_one_rank_alone_shows_its_own():
    model = timeline_model(trace(1000, 5000), rank=0)
    assert model.memory is not None
    assert model.memory.rank == 0


def test_without_memory_there_is_no_track():
    assert timeline_model(Trace(SPANS, 2, FACTS)).memory is None
