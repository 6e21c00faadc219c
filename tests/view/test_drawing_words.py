import pytest

from ddpkit.trace import Span, Trace
from ddpkit.view.drawing import words


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ms"),
        (1, "<0.01 ms"),
        (42_000, "0.042 ms"),
        (999_999, "1 ms"),
        (6_040_000, "6.0 ms"),
        (51_300_000, "51 ms"),
        (405_300_000, "405 ms"),
        (1_045_000_000, "1,045 ms"),
    ],
)
def test_ms(ns: int, text: str) -> None:
    assert words.ms(ns) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 10, "0%"), (0, 0, "0%"), (1, 1000, "<1%"), (1, 100, "1%"), (2, 3, "67%"), (5, 5, "100%")],
)
def test_percent(part: int, whole: int, text: str) -> None:
    assert words.percent(part, whole) == text


def test_an_attempt_after_a_restart_is_said() -> None:
    assert words.note({"restart": "1 of 2"}, compute=True, comm=True) == "After restart 1 of 2."


def test_what_a_long_run_has_kept_is_said() -> None:
    facts = {"kept": "the last 812 of 5,000 steps"}
    text = "Of this long run, the last 812 of 5,000 steps were kept."
    assert words.note(facts, compute=True, comm=True) == text


def test_several_hosts_are_said_with_the_error_of_their_clocks() -> None:
    facts = {"hosts": 2, "clock_error_ns": 56_599}
    assert words.note(facts, compute=True, comm=True) == (
        "2 hosts, whose clocks were compared: times are right to 0.057 ms."
    )


def operations(*spans: tuple[str, int]) -> str:
    return words.title(
        Trace([Span(0, "comm", name, "comm", 0, 1, size, 0) for name, size in spans], 1)
    )


@pytest.mark.parametrize(
    ("spans", "text"),
    [
        ([("all_reduce", 4), ("all_reduce", 4)], "2 all-reduces of 4 B"),
        ([("all_reduce", 4), ("all_reduce", 6)], "2 all-reduces (10 B)"),
        ([("send", 4), ("isend", 4), ("recv", 4)], "2 messages of 4 B"),
        ([("barrier", 0)], "1 barrier"),
        ([("all_gather_into_tensor", 4), ("all_gather_into_tensor", 4)], "2 all-gathers of 4 B"),
        ([("reduce_scatter_tensor", 8)], "1 reduce-scatter of 8 B"),
        (
            [("broadcast", 4), ("all_reduce", 9), ("send", 1)],
            "1 all-reduce of 9 B, 1 broadcast of 4 B, and more",
        ),
    ],
)
def test_titles_name_the_operations(spans: list[tuple[str, int]], text: str) -> None:
    assert operations(*spans) == f"Run on 1 rank, {text}"


def test_what_was_simulated_is_not_called_emulated() -> None:
    """Emulated runs have real ranks, but not the real machine's time."""
    facts = {"backend": "simulated", "emulated": "1 Gbit/s, 200 us"}
    assert words.title(Trace([], 2, facts)) == "Run on 2 ranks (simulated)"
    assert words.note(facts, compute=True, comm=True) == "Link: 1 Gbit/s, 200 us."
    facts["backend"] = "gloo"
    assert words.title(Trace([], 2, facts)) == "Run on 2 ranks (gloo, emulated link)"
    assert words.note(facts, compute=True, comm=True) == "Emulated link: 1 Gbit/s, 200 us."
    facts["time"] = "emulated"
    assert words.title(Trace([], 2, facts)) == "Run on 2 ranks (gloo, emulated)"
    said = "Emulated time. Links: 1 Gbit/s, 200 us."
    assert words.note(facts, compute=True, comm=True) == said
    facts |= {"speed": "1; rank 3: 0.5", "order": "real time's, in 2 places"}
    more = " Speed: 1; rank 3: 0.5. Order: real time's, in 2 places."
    assert words.note(facts, compute=True, comm=True) == said + more
