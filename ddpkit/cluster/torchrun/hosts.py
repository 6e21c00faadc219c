"""The hosts of a torchrun job: the ranks of each host, and the network interface for gloo."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddpkit.errors import ClusterError

if TYPE_CHECKING:
    import torch.distributed as dist

INTERFACE = "GLOO_SOCKET_IFNAME"  # gloo's network interface, set by the user or by `meet`
BOOT = Path("/proc/sys/kernel/random/boot_id")
SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface (netdevice(7))


@dataclass(frozen=True)
class Seat:
    """The host of a rank, and the rank's address in the network."""

    host: str
    boot: str  # the host's boot id: two machines may both be called "ubuntu"
    address: str  # IP address of the rank for all peers
    restarts: int = 0  # number of restarts of the job, counted by the host's torchrun

    @property
    def is_on_loopback(self) -> bool:
        """True if only ranks on the same host can reach the address."""
        return ipaddress.ip_address(self.address).is_loopback


def meet(store: dist.Store, rank: int, size: int) -> list[Seat]:
    """Return the host and the address of each rank, and choose gloo's network interface.

    The ranks exchange hosts and addresses over the job's store. By default, gloo listens on the
    address of the host's own name. On Debian this address is 127.0.1.1, which no second host can
    reach. So a rank takes the interface towards the job's master: this interface also leads to the
    remaining hosts. On the master itself, the interface may be loopback: then the master takes the
    interface towards a second host.

    Raises ClusterError if the user's choice of an interface leaves hosts without a connection.
    """
    master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    mine = _seat(master, port)
    seats = _exchange(store, "seat", rank, size, mine)
    away = [each.address for each in seats if not each.is_on_loopback]
    if len(by_host(seats)) > 1 and len(away) < size:
        if mine.is_on_loopback and away:
            mine = _seat(away[0], port)
        seats = _exchange(store, "seat again", rank, size, mine)
        for each, other in enumerate(seats):
            if other.is_on_loopback:
                raise ClusterError(_unreachable(each, other))
    if INTERFACE not in os.environ and (name := interface_with(mine.address)):
        os.environ[INTERFACE] = name
    return seats


def _seat(towards: str, port: int) -> Seat:
    """Return the host and the network address of the current process.

    The address belongs to the user's interface for gloo, or to the interface that leads to the host
    `towards`.
    """
    chosen = os.environ.get(INTERFACE, "").split(",")[0]
    address = (address_of(chosen) if chosen else None) or address_towards(towards, port)
    boot = BOOT.read_text().strip() if BOOT.exists() else ""
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return Seat(socket.gethostname(), boot, address, restarts)


def _exchange(store: dist.Store, key: str, rank: int, size: int, mine: Seat) -> list[Seat]:
    store.set(f"{key}{rank}", json.dumps(asdict(mine)))
    return [Seat(**json.loads(store.get(f"{key}{each}"))) for each in range(size)]


def by_host(seats: Sequence[Seat]) -> list[list[int]]:
    """Return the ranks of each host; the host of rank 0 first."""
    hosts: dict[tuple[str, str], list[int]] = {}
    for rank, each in enumerate(seats):
        hosts.setdefault((each.host, each.boot), []).append(rank)
    return list(hosts.values())


def _unreachable(rank: int, seat: Seat) -> str:
    return (
        f"rank {rank} on host {seat.host} would communicate through {seat.address}, an address "
        f"that other hosts cannot reach. Set {INTERFACE} on {seat.host} to the network interface "
        "that leads to the other hosts (`ip -brief address` lists all interfaces)."
    )


def address_towards(host: str, port: int) -> str:
    """Return the address of the local interface that leads to `host`. The probe sends no data."""
    family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)  # a datagram socket sends no packet here, and only looks up the route
        return str(probe.getsockname()[0])


def interface_with(address: str) -> str | None:
    """Return the name of the interface with an address; None if unknown, or outside Linux."""
    if not sys.platform.startswith("linux"):
        return None
    names = (name for _, name in socket.if_nameindex())
    return next((name for name in names if address_of(name) == address), None)


def address_of(interface: str) -> str | None:
    """Return the IPv4 address of an interface; None without an address, or outside Linux."""
    if not sys.platform.startswith("linux"):
        return None
    import fcntl

    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)[20:24])
    return None
