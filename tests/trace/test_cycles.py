"""Steps of programs with several optimizers."""

import pytest

from ddpkit.trace import OPTIMIZER, Span, Trace
from ddpkit.trace.cycles import period
from ddpkit.trace.work import step_work


def steps_of(program: str) -> Trace:
    """Return a trace of a rank: f is a forward, b a backward, a digit an optimizer's step."""
    spans = []
    for at, each in enumerate(program):
        kind = {"f": "forward", "b": "backward"}.get(each, "optimizer")
        args = {"flops": 10} | ({OPTIMIZER: int(each)} if each.isdigit() and each != "0" else {})
        spans.append(Span(0, "compute", each, kind, 10 * at, 10 * at + 10, args=args))
    return Trace(tuple(spans), 1)


@pytest.mark.parametrize(
    ("program", "steps", "first_end"),
    [
        ("fb0" * 4, 4, 30),
        ("fb01" * 4, 4, 40),  # Muon and AdamW
        ("fb0fb1" * 4, 4, 60),  # a GAN
        ("fb0fb0fb1" * 3, 3, 90),  # the critic steps twice, the generator once
        ("fb0" * 3 + "fb1" * 3, 6, 30),  # a second training after the first
        ("fb01", 1, 40),
        ("0000", 4, 10),
        ("fb0fb1fb0", 3, 30),  # the run is too short for a cycle
    ],
)
def test_a_step_has_all_optimizers_of_its_cycle(program: str, steps: int, first_end: int) -> None:
    trace = steps_of(program)
    assert trace.steps == steps
    assert trace.step_windows[0][0] == (0, first_end)


def test_the_work_of_a_step_is_that_of_all_optimizers() -> None:
    trace = steps_of("fb01" * 3)
    work = step_work(trace, 1)[0]
    assert (work.flops, dict(work.amounts)) == (20, {})


def test_the_shortest_cycle_counts() -> None:
    assert period("ababab") == 2
    assert period("aaaa") == 1
    assert period("abc") == 1
