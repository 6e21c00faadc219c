from hypothesis import given
from hypothesis import strategies as st

from ddpkit.trace import Span
from ddpkit.trace.innermost import innermost
from ddpkit.trace.intervals import Interval
from tests.properties import examples


def spans(most: int) -> st.SearchStrategy[list[Span]]:
    times = st.tuples(st.integers(0, 39), st.integers(0, 14))
    one = times.map(lambda at: Span(0, "compute", "x", "span", at[0], sum(at)))
    return st.lists(one, max_size=most)


@examples(200)
@given(made=spans(7), parts=spans(4))
def test_each_moment_belongs_to_the_span_that_began_last(
    made: list[Span], parts: list[Span]
) -> None:
    inside: list[Interval] = [(s.start_ns, s.end_ns) for s in parts]
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
