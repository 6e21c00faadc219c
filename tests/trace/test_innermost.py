import random

import pytest

from ddpkit.trace import Span
from ddpkit.trace.innermost import innermost
from ddpkit.trace.intervals import Interval


def spans(rng: random.Random, number: int) -> list[Span]:
    starts = [rng.randrange(40) for _ in range(number)]
    return [Span(0, "compute", "x", "span", at, at + rng.randrange(15)) for at in starts]


@pytest.mark.parametrize("seed", range(200))
def test_each_moment_belongs_to_the_span_that_began_last(seed: int) -> None:
    rng = random.Random(seed)
    made = spans(rng, rng.randrange(8))
    inside: list[Interval] = [(s.start_ns, s.end_ns) for s in spans(rng, 4)]
    pieces = list(innermost(made, inside))
    assert pieces == sorted(pieces, key=lambda piece: piece[0])
    for at in range(60):
        running = [s for s in made if s.start_ns <= at < s.end_ns]
        wanted = bool(running) and any(start <= at < end for start, end in inside)
        found = [span for start, end, span in pieces if start <= at < end]
        assert len(found) == wanted
        if found:
            least = min((-s.start_ns, s.end_ns) for s in running)
            assert (-found[0].start_ns, found[0].end_ns) == least
