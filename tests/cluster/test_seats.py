"""The network interface of a rank, and the error if no interface is suitable."""

import os
import sys

import pytest

from ddpkit.cluster.torchrun import hosts
from ddpkit.cluster.torchrun.hosts import INTERFACE, Seat
from ddpkit.errors import ClusterError

HERE, THERE = Seat("node1", "b1", "10.0.0.1"), Seat("node2", "b2", "10.0.0.2")
TRAPPED = Seat("node1", "b1", "127.0.1.1")  # Debian: the host's own name resolves to itself


@pytest.fixture
def ways(monkeypatch):
    """Let rank 0 on node1 see a table: destination -> own address towards this destination."""
    ways = {"node1": "127.0.1.1", "10.0.0.2": "10.0.0.1"}
    for name, value in {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(INTERFACE, "")  # monkeypatch restores the variable after the test
    monkeypatch.delenv(INTERFACE)
    monkeypatch.setattr(hosts, "_seat", lambda to, port: Seat("node1", "b1", ways[to]))
    monkeypatch.setattr(hosts, "interface_with", {"10.0.0.1": "eth7", "127.0.1.1": "lo"}.get)
    return ways


def others(monkeypatch, other):
    """Return a list for the seats that this rank announces; `other` is the other rank's seat."""
    told = []
    monkeypatch.setattr(
        hosts, "_exchange", lambda store, key, rank, size, mine: [told.append(mine) or mine, other]
    )
    return told


def test_the_way_to_another_host_is_taken(ways, monkeypatch):
    told = others(monkeypatch, THERE)
    assert hosts.meet(None, 0, 2) == [HERE, THERE]
    assert told == [TRAPPED, HERE]
    assert os.environ[INTERFACE] == "eth7"


def test_on_one_host_loopback_will_do(ways, monkeypatch):
    told = others(monkeypatch, TRAPPED)
    assert hosts.meet(None, 0, 2) == [TRAPPED, TRAPPED]
    assert told == [TRAPPED]
    assert os.environ[INTERFACE] == "lo"


def test_the_users_choice_stays_and_is_named_where_it_leads_nowhere(ways, monkeypatch):
    monkeypatch.setenv(INTERFACE, "lo")
    ways["10.0.0.2"] = "127.0.0.1"
    others(monkeypatch, THERE)
    with pytest.raises(ClusterError) as failed:
        hosts.meet(None, 0, 2)
    assert "rank 0 on host node1 would communicate through 127.0.0.1, an address that other" in str(
        failed.value
    )
    assert "Set GLOO_SOCKET_IFNAME on node1 to the network interface" in str(failed.value)
    assert os.environ[INTERFACE] == "lo"


def test_hosts_of_one_name_are_told_apart():
    twin = Seat("node1", "b2", "10.0.0.2")
    assert hosts.by_host([HERE, twin, HERE, THERE, twin]) == [[0, 2], [1, 4], [3]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for its interfaces")
def test_interfaces_and_addresses_of_this_machine():
    assert hosts.address_towards("127.0.0.1", 29500) == "127.0.0.1"
    assert hosts.interface_with("127.0.0.1") == "lo"
    assert hosts.address_of("lo") == "127.0.0.1"
    assert hosts.interface_with("203.0.113.7") is None, "an address of nobody (RFC 5737)"
    assert hosts.address_of("none-such") is None
