"""Named networks: the links of real hosts, with the bandwidths that real programs reach.

`"hosts of 8 H100, InfiniBand 400 Gbit/s per GPU"` names the GPUs of a host and the network between
hosts. The links inside a host follow from the GPU (NVLink, PCIe and so on); the number of GPUs may
be left out if the hosts of this GPU have a usual size. `"8 x H100 hosts"` is another way to write
`"hosts of 8 H100"`. The network is InfiniBand (also if the text names none), RoCE or Ethernet (TCP
sockets). The rate is the rate of the adapters of one GPU ("per GPU"), or of a whole host.

The numbers are in data/networks.json, each with its source. Each bandwidth is a bus bandwidth: the
rate at which each rank sends in a ring of large messages.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

NAMED_FILE = Path(__file__).with_name("data") / "networks.json"
NETWORK_EXAMPLE = '"hosts of 8 H100, InfiniBand 400 Gbit/s per GPU"'
_DEFAULT = "InfiniBand"
_HOSTS = re.compile(
    r"(?:hosts\s+of\s+(?:(\d+)\s*x?\s+)?(.+?)|(\d+)\s*x\s+(.+?)(?:\s+hosts?)?)", re.IGNORECASE
)
_BETWEEN = re.compile(
    r"(?:([a-z]\w*)\s+)?(\d[\d.]*(?:e\d+)?\s*\S+)\s+per\s+(gpu|host)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class NamedLinks:
    """The links inside a host, or between hosts: rates in bytes/s, latencies in us.

    bandwidth  inside a host: the rate that each GPU reaches; None between hosts
    share      between hosts: the fraction of the adapters' rate that messages reach
    size       inside a host: the usual number of GPUs; None: any number
    source     for each number, the place where it was published
    """

    title: str
    latency_us: float
    source: Mapping[str, str]
    bandwidth: float | None = None
    share: float = 1.0
    size: int | None = None


@dataclass(frozen=True, slots=True)
class NamedHosts:
    """The parts of a network's text: ``rate`` is "400 Gbit/s", for each GPU or for a host."""

    size: int
    inside: NamedLinks
    between: NamedLinks | None = None
    rate: str = ""
    is_for_each_gpu: bool = False


def is_named(text: str) -> bool:
    """True if a text names real hosts, and does not give the bandwidth and latency of a link."""
    return ";" not in text and _HOSTS.fullmatch(text.split(",")[0].strip()) is not None


def read_network(text: str, world_size: int) -> NamedHosts:
    """Return the parts of a network's text. Raises ValueError, in one sentence."""
    hosts, comma, between = (part.strip() for part in text.partition(","))
    match = _HOSTS.fullmatch(hosts)
    if match is None:
        raise ValueError(
            f"cannot read the hosts in the link {text!r}: write it like {NETWORK_EXAMPLE}"
        )
    number, name = match[1] or match[3], (match[2] or match[4]).strip()
    inside = _inside(name, text)
    size = int(number) if number else inside.size or world_size
    if size < 1:
        raise ValueError(f"the link {text!r} has hosts of {size} GPUs: a host has 1 or more")
    if match[3] and inside.size and size > inside.size:
        raise ValueError(
            f'the number before "x" in the link {text!r} counts the GPUs of one host, and hosts of '
            f'{name} have {inside.size}: write "hosts of {inside.size} {name}", or "hosts of '
            f'{size} {name}" if a host has {size} GPUs'
        )
    if not comma:
        if size < world_size:
            raise ValueError(
                f"the link {text!r} names no network between hosts, but a host has {size} GPUs, "
                f"and the run has {world_size} ranks: add the network, as in "
                f'"{text}, {_DEFAULT} 400 Gbit/s per GPU"'
            )
        return NamedHosts(size, inside)
    found = _BETWEEN.fullmatch(between)
    if found is None:
        raise ValueError(
            f"cannot read {between!r} in the link {text!r}: write the network, its rate, and "
            f'"per GPU" or "per host", as in {NETWORK_EXAMPLE}'
        )
    network = _named(found[1] or _DEFAULT, between_hosts(), "network", text)
    return NamedHosts(size, inside, network, found[2], found[3].lower() == "gpu")


@cache
def inside_hosts() -> Mapping[str, NamedLinks]:
    """Return the links inside a host, by the name of the machine."""
    return MappingProxyType(
        {
            machine: NamedLinks(**{key: value for key, value in found.items() if key != "machines"})
            for found in _numbers()["inside"]
            for machine in found["machines"]
        }
    )


@cache
def between_hosts() -> Mapping[str, NamedLinks]:
    """Return the networks between hosts, by name."""
    found = _numbers()["between"].items()
    return MappingProxyType({name: NamedLinks(title=name, **facts) for name, facts in found})


def _inside(name: str, text: str) -> NamedLinks:
    return _named(name, inside_hosts(), "machine with links inside a host", text)


def _named(name: str, known: Mapping[str, NamedLinks], kind: str, text: str) -> NamedLinks:
    """Return the links with this name; case does not matter. Raises ValueError if unknown."""
    lower = {each.lower(): each for each in known}
    if name.lower() in lower:
        return known[lower[name.lower()]]
    near = get_close_matches(name.lower(), lower, 1, 0.6)
    hint = f'did you mean "{lower[near[0]]}"?' if near else f"named are {', '.join(known)}"
    raise ValueError(f'the link {text!r} names no {kind} that ddpkit knows, "{name}": {hint}')


def _numbers() -> Any:
    return json.loads(NAMED_FILE.read_text("utf-8"))
