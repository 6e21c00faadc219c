"""The emulated network: latencies and bandwidths, and how a message moves over two links.

A link of its own connects each rank to a switch. The link is full duplex: it has an outgoing and an
incoming side (`LinkSide`), and each side carries one message at a time, first come first served. A
message of B bytes from s to d:

    leaves     t  = max(sent, awaited - α, s's outgoing side free);  that side is busy for B/β_s
    arrives    its last byte is in at  max(`arrival_ns`, d's incoming side free) + B/β_d,
               and the incoming side is busy for those last B/β_d

If several messages could leave when a side is free, the side takes the message that was sent first.

`sent` is the time at which the sender posts the message, `awaited` the time at which the receiver
posts. So a message moves when both have posted, as NCCL's messages and MPI's large messages do. The
message's first byte travels before the receiver posts, so a late receiver does not wait for the
latency again. All other bytes wait at the sender until the receiver posts.

`arrival_ns` is t + α when the links are equal: the switch cuts through, so that B/β is paid once
and not once per link. Between unequal links each side is busy for its own B/β. If the sender is
faster, the switch buffers bytes. If the sender is slower, the receiver's B/β_d ends when the last
byte can be there, at t + α + B/β_s. α is the larger of the two latencies: a distant rank is distant
for all ranks.

Ranks may share hosts (`Hosts`). A message inside a host moves by the ranks' own links. A message
between two hosts moves by the links of the hosts, and all ranks of a host share the host's link.
`ddpkit.networks` has the numbers of real hosts by name.

`ddpkit.simulate.engine.network` moves all messages by these rules, for real and simulated ranks.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from ddpkit.networks import NETWORK_EXAMPLE, is_named, read_network

EXAMPLE = '"1 Gbit/s, 200 us"'
HOSTS_EXAMPLE = '{"hosts of": 4, "inside": "300 GB/s, 3 us", "between": "100 Gbit/s, 10 us"}'
_OF_HOSTS = ("hosts of", "inside", "between")
# Unicode has two signs for µ
_NS = {"ns": 1.0, "us": 1e3, "\u00b5s": 1e3, "\u03bcs": 1e3, "ms": 1e6, "s": 1e9}
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_BYTES = {"bit": 1 / 8, "bits": 1 / 8, "b": 1 / 8, "B": 1.0, "byte": 1.0, "bytes": 1.0}
_RATE = re.compile(r"((?i:[kmgt]i?)?)(bits?|bytes?|[bB])(?:/s|ps)")
_QUANTITY = r"(\d{1,15}(?:\.\d{0,15})?(?:[eE][+-]?\d{1,2})?)\s*([^\W\d]+(?:/s)?)"
_LINK = re.compile(rf"\s*{_QUANTITY}(?:(?:\s*,\s*|\s+){_QUANTITY})?\s*")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Link:
    """One rank's link: the latency of a message, and the rate of its bytes.

    ``Link("200 us", "1 Gbit/s")``, ``Link(latency=200e-6, bandwidth=125e6)`` (seconds, bytes per
    second) and ``Link.parse("1 Gbit/s, 200 us")`` are the same. A missing latency is 0, a missing
    bandwidth is unlimited. Raises ValueError, in one sentence, for values that are no link.
    """

    latency_ns: int
    bytes_per_s: float  # math.inf: unlimited

    def __init__(self, latency: str | float = 0.0, bandwidth: str | float = math.inf) -> None:
        if isinstance(latency, str):
            latency = _quantity(latency, "latency", '"200 us"')
        if isinstance(bandwidth, str):
            bandwidth = _quantity(bandwidth, "bandwidth", '"1 Gbit/s"')
        if not 0 <= latency < math.inf:
            raise ValueError(
                f'a latency must be 0 seconds or more, such as "200 us", not {latency!r}'
            )
        if not bandwidth > 0:
            raise ValueError(
                f'a bandwidth must be above 0 bytes/s, such as "1 Gbit/s", not {bandwidth!r}'
            )
        object.__setattr__(self, "latency_ns", round(latency * 1e9))
        object.__setattr__(self, "bytes_per_s", float(bandwidth))

    @classmethod
    def parse(cls, text: "str | Link") -> "Link":
        """Read "1 Gbit/s, 200 us": a bandwidth, a latency, or both in any order.

        "bit" and "b" are bits, "B" and "byte" are bytes. k, M, G and T are powers of ten, and Ki,
        Mi and Gi are powers of two.
        """
        return text if isinstance(text, Link) else _over(cls(), text)

    def wire_ns(self, nbytes: int) -> int:
        """Return the time for which ``nbytes`` occupy one side of the link: B/β, in ns."""
        return round(nbytes / self.bytes_per_s * 1e9)

    def arrival_ns(self, receiver: "Link", nbytes: int, leaves_ns: int) -> int:
        """Return the time, in ns, at which a message can begin to occupy the receiver's side."""
        # ns; above 0 if the sender's link is slower
        behind = max(0, self.wire_ns(nbytes) - receiver.wire_ns(nbytes))
        return leaves_ns + max(self.latency_ns, receiver.latency_ns) + behind

    def __str__(self) -> str:
        """Return text that `parse` reads: "1 Gbit/s, 200 us"."""
        parts = [_bandwidth_text(self.bytes_per_s)] if self.bytes_per_s < math.inf else []
        parts += [_latency_text(self.latency_ns)] if self.latency_ns else []
        return ", ".join(parts) or "unlimited"

    def __repr__(self) -> str:
        return f"<Link {self}>"


@dataclass(slots=True)
class LinkSide:
    """One direction of a link: it carries one message at a time, first come first served."""

    link: Link
    free_ns: int = 0

    def take(self, earliest_ns: int, nbytes: int) -> tuple[int, int]:
        """Carry a message as soon as the side is free; return its start and end, in ns."""
        start = max(earliest_ns, self.free_ns)
        self.free_ns = start + self.link.wire_ns(nbytes)
        return start, self.free_ns


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts of ``size`` ranks, in the order of the ranks; a host has one link to other hosts."""

    size: int
    between: Link

    def of(self, rank: int) -> int:
        """Return the host of a rank."""
        return rank // self.size

    def __str__(self) -> str:
        return f"hosts of {self.size}, {self.between} between"


@dataclass(frozen=True, slots=True)
class Route:
    """The two links that a message takes, each with the number of its owner.

    Rank r owns its link under the number r, and host h under the number of ranks + h.
    """

    sender: int
    receiver: int
    out: Link
    into: Link


@dataclass(frozen=True, slots=True, repr=False)
class Links:
    """The links of all ranks; with hosts, ``links[rank]`` is the rank's link inside its host."""

    each: tuple[Link, ...]
    hosts: Hosts | None = None

    @classmethod
    def parse(cls, spec: "LinkSpec", world_size: int) -> "Links":
        """Return the links of all ranks, from a text, a link or a mapping.

        ``"1 Gbit/s, 200 us"``: one link for all ranks.
        ``{"default": "1 Gbit/s, 200 us", 3: "100 Mbit/s"}``: rank 3 differs only in bandwidth.
        Without a default, other ranks are unlimited.
        ``{"hosts of": 4, "inside": "300 GB/s, 3 us", "between": "100 Gbit/s, 10 us"}``: ranks 0 to
        3 share a host and its one link to other hosts, and so on. The function also reads the text
        of `str(links)`. ``"hosts of 8 H100, InfiniBand 400 Gbit/s per GPU"`` names the links of
        real hosts (`ddpkit.networks`). Raises ValueError, in one sentence.
        """
        if isinstance(spec, Links):
            if len(spec.each) != world_size:
                raise ValueError(
                    f"{len(spec.each)} links for {world_size} ranks: give one link for each rank"
                )
            return spec
        if isinstance(spec, str) and is_named(spec):
            return _named(spec, world_size)
        if isinstance(spec, str) and ";" in spec:
            spec = _ranks_own(spec)
        if not isinstance(spec, Mapping):
            return cls((Link.parse(spec),) * world_size)
        hosts = _hosts(spec)
        texts = {key: text for key, text in spec.items() if not isinstance(text, int)}
        if no_text := [key for key in spec if key not in texts and key != "hosts of"]:
            raise ValueError(f"cannot read the link {spec[no_text[0]]!r}: write it as {EXAMPLE}")
        default = Link.parse(texts.get("inside" if hosts else "default", Link()))
        each = [default] * world_size
        for rank in spec:
            if rank in (_OF_HOSTS if hosts else ("default",)):
                continue
            if not isinstance(rank, int) or not 0 <= rank < world_size:
                raise ValueError(
                    f"link={{{rank!r}: ...}}: a key is a rank from 0 to {world_size - 1}, or "
                    '"default"'
                )
            text = texts.get(rank, "")
            each[rank] = text if isinstance(text, Link) else _over(default, text)
        return cls(tuple(each), hosts)

    @property
    def equal(self) -> bool:
        """True if all messages move over equal links."""
        return len(set(self.each)) <= 1 and self.host_count == 1

    @property
    def host_count(self) -> int:
        """The number of hosts; 1 if the ranks have no hosts."""
        return 1 if self.hosts is None else math.ceil(len(self.each) / self.hosts.size)

    @property
    def slowest(self) -> Link:
        """A link with the largest latency and the smallest bandwidth of all links."""
        links = [*self.each, *([self.hosts.between] if self.hosts and self.host_count > 1 else [])]
        latency = max(link.latency_ns for link in links)
        return Link(latency / 1e9, min(link.bytes_per_s for link in links))

    def route(self, src: int, dst: int) -> Route:
        """Return the two links of a message from one rank to another."""
        if self.hosts is None or self.hosts.of(src) == self.hosts.of(dst):
            return Route(src, dst, self.each[src], self.each[dst])
        link = self.hosts.between
        return Route(self.host_of(src), self.host_of(dst), link, link)

    def host_of(self, rank: int) -> int:
        """Return the owner's number for the link of a rank's host (see `Route`)."""
        return len(self.each) + (self.hosts.of(rank) if self.hosts else 0)

    def __getitem__(self, rank: int) -> Link:
        return self.each[rank]

    def __len__(self) -> int:
        return len(self.each)

    def __iter__(self) -> Iterator[Link]:
        return iter(self.each)

    def __str__(self) -> str:
        """Return the links as text: "1 Gbit/s, 200 us; rank 3: 100 Mbit/s, 200 us"."""
        if not self.each:
            return ""
        ((common, _),) = Counter(self.each).most_common(1)
        own = [f"rank {rank}: {link}" for rank, link in enumerate(self.each) if link != common]
        return "; ".join([str(common), *([str(self.hosts)] if self.hosts else []), *own])

    def __repr__(self) -> str:
        return f"<Links of {len(self.each)} ranks: {self}>"


def duration_ns(duration: str | float) -> int:
    """Return a duration in ns; the argument is text such as "20 ms", or a number of seconds.

    Raises ValueError, in one sentence, for a value that is no duration.
    """
    try:
        return Link(latency=duration).latency_ns
    except (TypeError, ValueError):
        raise ValueError(
            f'{duration!r} is not a duration: write "20 ms", or 0.02 in seconds'
        ) from None


LinkSpec: TypeAlias = str | Link | Mapping[int | str, str | Link | int] | Links


def _hosts(spec: Mapping[int | str, str | Link | int]) -> Hosts | None:
    """Return the hosts in a mapping; None without hosts."""
    named = [key for key in _OF_HOSTS if key in spec]
    if not named:
        return None
    if len(named) < len(_OF_HOSTS) or "default" in spec:
        raise ValueError(
            'a link with hosts needs exactly the keys "hosts of", "inside" and "between", as in '
            f"{HOSTS_EXAMPLE}; the keys given are {', '.join(map(repr, spec))}"
        )
    size = spec["hosts of"]
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f'"hosts of" is the number of ranks on a host, 1 or more, not {size!r}')
    return Hosts(size, Link.parse(spec["between"]))  # type: ignore[arg-type]  # refused by `parse`


def _named(text: str, world_size: int) -> Links:
    """Return the links of a named network, at the rates that real messages reach."""
    found = read_network(text, world_size)
    inside = Link(found.inside.latency_us / 1e6, found.inside.bandwidth or math.inf)
    if found.between is None:
        return Links((inside,) * world_size)
    try:
        rate = _quantity(found.rate, "bandwidth", NETWORK_EXAMPLE)
    except ValueError:
        raise ValueError(
            f"{found.rate!r} in the link {text!r} is not a bandwidth: write it as in "
            f"{NETWORK_EXAMPLE}"
        ) from None
    rate *= found.between.share * (found.size if found.is_for_each_gpu else 1)
    reached = Link(found.between.latency_us / 1e6, round(rate))
    return Links((inside,) * world_size, Hosts(found.size, reached))


def _ranks_own(text: str) -> dict[int | str, str | Link | int]:
    """Return the mapping for text such as "1 Gbit/s, 200 us; rank 3: 100 Mbit/s, 200 us"."""
    default, *others = text.split(";")
    own: dict[int | str, str | Link | int] = {"default": default}
    for other in others:
        if match := re.fullmatch(r"\s*hosts of (\d+), (.*) between", other):
            del own["default"]
            own = {"hosts of": int(match[1]), "inside": default, "between": match[2], **own}
            continue
        match = re.fullmatch(r"\s*rank (\d+):(.*)", other)
        if match is None:
            raise ValueError(
                f'cannot read {other.strip()!r} in the links {text!r}: write "rank 3: 1 Gbit/s"'
            )
        own[int(match[1])] = Link.parse(match[2])
    return own


def _over(default: Link, text: str) -> Link:
    """Return the link that a text describes; missing parts come from `default`."""
    if isinstance(text, str) and text.strip() == "unlimited":
        return Link()
    parts = _quantities(text)
    return Link(
        parts.get("latency", default.latency_ns / 1e9),
        parts.get("bandwidth", default.bytes_per_s),
    )


def _quantity(text: str, part: str, example: str) -> float:
    """Return the latency in s, or the bandwidth in bytes/s, of a text with one quantity."""
    try:
        (found,) = _quantities(text).items()
    except ValueError:
        found = ("", 0.0)
    if found[0] != part:
        raise ValueError(f"{text!r} is not a {part}: write it like {example}")
    return found[1]


def _quantities(text: str) -> dict[str, float]:
    """Return the "latency" in seconds and the "bandwidth" in bytes/s that a text names."""
    match = _LINK.fullmatch(text) if isinstance(text, str) else None
    parts: dict[str, float] = {}
    quantities = [] if match is None else [match.group(1, 2), match.group(3, 4)]
    for number, unit in quantities:
        if unit is None:
            continue
        part, scale = _unit(unit)
        if part in parts:  # the text has two latencies, or two bandwidths
            part = ""
        parts[part] = float(Fraction(number) * Fraction(scale))
    if not parts or "" in parts:
        raise ValueError(
            f"cannot read the link {text!r}: give a bandwidth and a latency, like {EXAMPLE}"
        )
    if parts.get("bandwidth") == 0:
        raise ValueError(
            f"the link {text!r} has a bandwidth of 0, so no message would arrive: give a larger "
            "bandwidth"
        )
    return parts


def _unit(unit: str) -> tuple[str, float]:
    """Return the quantity of a unit ("" if unknown), and its factor in s or bytes/s."""
    if unit in _NS:
        return "latency", _NS[unit] / 1e9
    if match := _RATE.fullmatch(unit):
        return "bandwidth", _PREFIX[match[1].lower()] * _BYTES[match[2]]
    return "", 0.0


def _latency_text(ns: int) -> str:
    unit = next(unit for unit in ("s", "ms", "us", "ns") if ns >= _NS[unit])
    return f"{ns / _NS[unit]:.10g} {unit}"


def _bandwidth_text(bytes_per_s: float) -> str:
    bits = bytes_per_s * 8
    prefix = next((p for p in "TGMk" if bits >= _PREFIX[p.lower()]), "")
    return f"{bits / _PREFIX[prefix.lower()]:.10g} {prefix}bit/s"
