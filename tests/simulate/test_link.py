"""Links: texts, units, and the way of a message over two links."""

import math
import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit import Cluster, ClusterError, networks
from ddpkit.link import Hosts, Link, Links, duration_ns
from ddpkit.machine import named
from ddpkit.simulate.engine.prices import price_of
from tests.properties import examples


@pytest.mark.parametrize(
    ("text", "latency_ns", "bytes_per_s"),
    [
        ("1 Gbit/s, 200 us", 200_000, 125e6),
        ("200 us, 1 Gbit/s", 200_000, 125e6),
        ("50 MB/s", 0, 50e6),
        ("10 Gbit/s 1ms", 1_000_000, 1.25e9),
        ("100 Mbps 1.5 s", 1_500_000_000, 12.5e6),
        ("8 b/s", 0, 1.0),
        ("8 B/s", 0, 8.0),
        ("3 kbytes/s", 0, 3000.0),
        ("1 MiB/s", 0, 2**20),
        ("1 GiB/s", 0, 2**30),
        ("2 Tbit/s", 0, 250e9),
        ("2 kibit/s", 0, 256.0),
        ("1e3 bit/s", 0, 125.0),
        ("20 \u00b5s", 20_000, math.inf),  # micro sign
        ("20 \u03bcs", 20_000, math.inf),  # Greek mu
        ("7ns", 7, math.inf),
        ("unlimited", 0, math.inf),
    ],
)
def test_units(text: str, latency_ns: int, bytes_per_s: float) -> None:
    link = Link.parse(text)
    assert (link.latency_ns, link.bytes_per_s) == (latency_ns, pytest.approx(bytes_per_s))
    assert Link.parse(str(link)) == link


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "1",
        "1 Gbit",
        "-1 us",
        "1,000 us",
        "1 us 2 us",
        "1 B/s, 2 B/s",
        "nan us",
        "1 Pb/s",
        "1 Gbit/s, 1 us, 1 us",
        "inf B/s",
        "1 Gbit/s,, 1 us",
        "1 us1 ms",
    ],
)
def test_a_bad_text_is_one_sentence_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match='"1 Gbit/s, 200 us"') as caught:
        Link.parse(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_duration_is_a_text_or_seconds() -> None:
    assert [duration_ns(each) for each in ("20 ms", 0.02, "0 s", 0)] == [20_000_000] * 2 + [0, 0]


@pytest.mark.parametrize(
    "duration", ["20", -1, "-1 ms", "1 Gbit/s", "1 ms, 1 Gbit/s", None, [1], math.inf, math.nan]
)
def test_what_is_no_duration_is_called_so(duration: object) -> None:
    with pytest.raises(ValueError, match="is not a duration: ") as caught:
        duration_ns(duration)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"{duration!r} is not a duration: write ")
    assert "latency" not in str(caught.value)


def test_no_bandwidth_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="no message would arrive"):
        Link.parse("0 B/s")


def test_parts_are_texts_or_numbers() -> None:
    assert Link("200 us", "1 Gbit/s") == Link(latency=200e-6, bandwidth=125e6)
    assert Link(latency="1 ms") == Link(0.001, math.inf)
    for bad in [("1 Gbit/s",), (0, "1 us"), ("x",), (-1.0,), (math.inf,), (0, 0), (0, math.nan)]:
        with pytest.raises(ValueError, match='"200 us"|"1 Gbit/s"'):
            Link(*bad)


def test_any_link_can_be_written_and_read_again() -> None:
    rng = random.Random(1)
    for _ in range(200):
        link = Link(rng.randrange(10**7) / 1e9, rng.randrange(1, 10**6) * 10 ** rng.randrange(5))
        assert Link.parse(str(link)) == link
        assert pickle.loads(pickle.dumps(link)) == link


# Links of ranks


def test_one_link_for_all() -> None:
    links = Links.parse("1 Gbit/s, 200 us", 3)
    assert list(links) == [Link("200 us", "1 Gbit/s")] * 3
    assert links.equal
    assert links.slowest == links[0]
    assert str(links) == "1 Gbit/s, 200 us"
    assert Links.parse(links, 3) is links


def test_ranks_differ_from_the_default_in_what_they_name() -> None:
    spec = {"default": "1 Gbit/s, 200 us", 3: "100 Mbit/s", 1: "5 ms", 2: Link()}
    links = Links.parse(spec, 4)
    assert list(map(str, links)) == [
        "1 Gbit/s, 200 us",
        "1 Gbit/s, 5 ms",
        "unlimited",
        "100 Mbit/s, 200 us",
    ]
    assert not links.equal
    assert links.slowest == Link("5 ms", "100 Mbit/s")
    assert Links.parse(str(links), 4) == links


def test_without_a_default_other_ranks_are_unlimited() -> None:
    links = Links.parse({0: "10 Gbit/s", 3: "100 Mbit/s"}, 4)
    assert links[1] == links[2] == Link()
    assert Links.parse(str(links), 4) == links


@pytest.mark.parametrize(
    "spec",
    [
        {4: "1 us"},
        {-1: "1 us"},
        {"1": "1 us"},
        {0: "slow"},
        {"default": 3},
        7,
        "1 us; rank x: 1 us",
        "1 us; rank 4: 1 us",
        Links.parse("1 us", 3),
    ],
)
def test_bad_links_of_ranks_are_one_sentence(spec: object) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Links.parse(spec, 4)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@st.composite
def links_of_ranks(draw: st.DrawFn) -> Links:
    """Draw links of 1 to 6 ranks, which may differ, and may belong to hosts."""
    latencies = st.sampled_from((0, 1, 7_000, 200_000, 1_500_000, 2_000_000_000))
    rates = st.sampled_from((math.inf, 1.0, 12.5e6, 125e6, 1.25e9, 300e9))
    link = st.builds(lambda ns, rate: Link(ns / 1e9, rate), latencies, rates)
    each = draw(st.lists(link, min_size=1, max_size=6))
    hosts = st.builds(Hosts, st.integers(1, 7), link)
    return Links(tuple(each), draw(st.none() | hosts))


@examples(200)
@given(links=links_of_ranks())
def test_any_links_can_be_written_and_read_again(links: Links) -> None:
    assert Links.parse(str(links), len(links)) == links
    assert pickle.loads(pickle.dumps(links)) == links


@examples(50)
@given(
    size=st.integers(1, 5),
    inside=st.sampled_from(("300 GB/s, 3 us", "1 us", "unlimited")),
    between=st.sampled_from(("100 Gbit/s, 10 us", "1 Gbit/s", "unlimited")),
    own=st.dictionaries(st.integers(0, 4), st.sampled_from(("1 MB/s", "5 us", "2 B/s, 1 s"))),
)
def test_links_of_hosts_are_read_from_a_mapping(
    size: int, inside: str, between: str, own: dict[int, str]
) -> None:
    links = Links.parse({"hosts of": size, "inside": inside, "between": between, **own}, 5)
    assert links.hosts == Hosts(size, Link.parse(between))
    for rank in range(5):
        assert rank in own or links[rank] == Link.parse(inside)
    assert Links.parse(str(links), 5) == links


@pytest.mark.parametrize(
    "spec",
    [
        {"hosts of": 2, "inside": "1 GB/s"},
        {"inside": "1 GB/s", "between": "1 GB/s"},
        {"hosts of": 0, "inside": "1 GB/s", "between": "1 GB/s"},
        {"hosts of": True, "inside": "1 GB/s", "between": "1 GB/s"},
        {"hosts of": 2.0, "inside": "1 GB/s", "between": "1 GB/s"},
        {"hosts of": 2, "inside": "1 GB/s", "between": "slow"},
        {"hosts of": 2, "inside": "1 GB/s", "between": "1 GB/s", "default": "1 GB/s"},
        {"hosts of": 2, "inside": "1 GB/s", "between": "1 GB/s", 4: "1 GB/s"},
    ],
)
def test_bad_links_of_hosts_are_one_sentence(spec: dict[int | str, str]) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Links.parse(spec, 4)
    assert "\n" not in str(caught.value)


# Named networks


INFINIBAND = "376 GB/s, 9.6 us"  # 94 % of 8 x 50 GB/s


@pytest.mark.parametrize(
    ("text", "size", "inside", "between"),
    [
        ("hosts of 8 H100, InfiniBand 400 Gbit/s per GPU", 8, "370 GB/s, 3.4 us", INFINIBAND),
        ("8 x H100 hosts, 400 Gbit/s per GPU", 8, "370 GB/s, 3.4 us", INFINIBAND),
        ("hosts of h100, roce 400 gbps per gpu", 8, "370 GB/s, 3.4 us", INFINIBAND),
        ("hosts of 8 A100 80GB, 1.6 Tbit/s per host", 8, "232 GB/s, 3.4 us", "188 GB/s, 9.6 us"),
        (
            "hosts of 4 H100 PCIe, Ethernet 100 Gbit/s per host",
            4,
            "28 GB/s, 5.7 us",
            "5 GB/s, 30 us",
        ),
        ("hosts of GB200, 50 GB/s per GPU", 72, "722 GB/s, 3.4 us", "3384 GB/s, 9.6 us"),
    ],
)
def test_the_links_of_real_hosts_have_names(
    text: str, size: int, inside: str, between: str
) -> None:
    links = Links.parse(text, 144)
    assert links.hosts == Hosts(size, Link.parse(between))
    assert set(links) == {Link.parse(inside)}
    assert Links.parse(str(links), 144) == links


@pytest.mark.parametrize(("text", "ranks"), [("hosts of 8 H100", 8), ("hosts of TPU v5p", 64)])
def test_one_host_needs_no_network(text: str, ranks: int) -> None:
    links = Links.parse(text, ranks)
    assert links.hosts is None
    assert links.equal
    assert len(links) == ranks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "hosts of 8 H100",
            'add the network, as in "hosts of 8 H100, InfiniBand 400 Gbit/s per GPU"',
        ),
        ("hosts of 8 H10, 400 Gbit/s per GPU", 'did you mean "H100"?'),
        ("hosts of 8 zebras, 400 Gbit/s per GPU", "named are"),
        ("hosts of 8", 'that ddpkit knows, "8"'),
        ("hosts of 0 H100, 400 Gbit/s per GPU", "a host has 1 or more"),
        ("16 x H100 hosts, 400 Gbit/s per GPU", 'write "hosts of 8 H100"'),
        ("hosts of 8 H100, InfiniBand", 'write the network, its rate, and "per GPU"'),
        ("hosts of 8 H100, 400 Gbit/s", 'write the network, its rate, and "per GPU"'),
        ("hosts of 8 H100, Infinband 400 Gbit/s per GPU", 'did you mean "InfiniBand"?'),
        ("hosts of 8 H100, 400 Gbits per GPU", "'400 Gbits' in the link"),
        ("hosts of 8 H100, 3 us per GPU", "'3 us' in the link"),
        ("hosts of 8 H100, 0 Gbit/s per GPU", "'0 Gbit/s' in the link"),
    ],
)
def test_a_network_that_cannot_be_read_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Links.parse(text, 16)
    assert said in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ClusterError):
        Cluster(16, link=text)


def test_each_named_gpu_has_links_inside_a_host_and_each_number_a_source() -> None:
    gpus = {name for name, machine in named().items() if machine.has_device}
    assert set(networks.inside_hosts()) == gpus
    for network in networks.inside_hosts().values():
        assert set(network.source) == {"bandwidth", "latency_us"}
    for network in networks.between_hosts().values():
        assert set(network.source) == {"share", "latency_us"}
        assert 0 < network.share <= 1


def test_a_ring_of_two_named_hosts_reaches_the_bus_bandwidth() -> None:
    text = "hosts of 8 H100, InfiniBand 400 Gbit/s per GPU"
    nbytes = 8 << 30
    seconds = price_of("ring", 16, text)(nbytes) / 1e9
    assert 2 * 15 / 16 * nbytes / seconds == pytest.approx(370e9, rel=0.01)


# Messages


def test_bytes_take_their_time() -> None:
    assert Link(bandwidth="1 Gbit/s").wire_ns(125) == 1000
    assert Link(bandwidth="1 Gbit/s").wire_ns(0) == 0
    assert Link().wire_ns(10**12) == 0


@pytest.mark.parametrize(
    ("sender", "receiver", "begins", "last_byte"),
    [
        ("1 GB/s, 50 ns", "1 GB/s, 50 ns", 1050, 2050),  # cut through: 1000 ns once, not twice
        ("1 GB/s, 50 ns", "500 MB/s, 50 ns", 1050, 3050),  # the switch buffers
        ("500 MB/s, 50 ns", "1 GB/s, 50 ns", 2050, 3050),  # the last byte leaves at 3000
        ("1 GB/s, 50 ns", "1 GB/s, 9 us", 10_000, 11_000),  # the larger latency
        ("unlimited", "1 GB/s", 1000, 2000),
        ("1 GB/s", "unlimited", 2000, 2000),
    ],
)
def test_a_message_that_leaves_at_1000(
    sender: str, receiver: str, begins: int, last_byte: int
) -> None:
    out, into = Link.parse(sender), Link.parse(receiver)
    assert out.arrival_ns(into, 1000, 1000) == begins
    assert begins + into.wire_ns(1000) == last_byte
