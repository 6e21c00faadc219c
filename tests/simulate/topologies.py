"""Links and steps that hypothesis draws."""

from hypothesis import strategies as st

from ddpkit.link import Link, Links, LinkSpec
from ddpkit.simulate import Gradient, Step


@st.composite
def a_link(draw: st.DrawFn) -> Link:
    latency = draw(st.sampled_from((0, 1e-6, 7e-6, 20e-6)))
    return Link(latency, draw(st.sampled_from((float("inf"), 1e8, 3.3e8, 1e9, 1.25e10))))


@st.composite
def a_topology(draw: st.DrawFn, hosts: bool = True) -> Links:
    n = draw(st.integers(1, 12))
    if hosts and draw(st.booleans()):
        spec: LinkSpec = {
            "hosts of": draw(st.integers(1, 5)),
            "inside": draw(a_link()),
            "between": draw(a_link()),
        }
        return Links.parse(spec, n)
    return Links(tuple(draw(st.lists(a_link(), min_size=n, max_size=n))))


@st.composite
def a_step(draw: st.DrawFn) -> Step:
    """Draw a step of one to six gradients, with compute before and after the gradients."""
    sizes = draw(st.lists(st.integers(0, 300_000), min_size=1, max_size=6))
    gaps = draw(st.lists(st.integers(0, 900_000), min_size=len(sizes), max_size=len(sizes)))
    ready = [sum(gaps[: i + 1]) for i in range(len(sizes))]
    gradients = [Gradient(f"p{i}", *each) for i, each in enumerate(zip(sizes, ready, strict=True))]
    before, after = draw(st.integers(0, 10**6)), draw(st.integers(0, 10**5))
    return Step(before, tuple(gradients), after, finish_ns=7, other_ns=11)
