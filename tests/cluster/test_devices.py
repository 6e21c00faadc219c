"""The choice of devices and backend for the ranks, for machines that need not be present."""

import pytest

from ddpkit import Cluster
from ddpkit.cluster import devices
from ddpkit.cluster.devices import Place, choose
from ddpkit.errors import ClusterError

CHOICES = [  # device, ranks on the host, GPUs, NCCL: shown text
    ("cpu", 4, 8, True, "gloo · cpu"),
    ("cuda", 4, 4, True, "nccl · cuda"),
    ("cuda", 4, 8, True, "nccl · cuda"),
    ("cuda", 1, 1, True, "nccl · cuda"),
    ("cuda", 4, 1, True, "gloo · cuda, sharing 1 GPU"),
    ("cuda", 4, 2, True, "gloo · cuda, sharing 2 GPUs"),
    ("cuda", 2, 2, False, "gloo · cuda"),  # Windows
]


@pytest.mark.parametrize(("device", "ranks", "gpus", "nccl", "shown"), CHOICES)
def test_nccl_has_a_gpu_for_each_rank(device, ranks, gpus, nccl, shown):
    assert str(choose(device, ranks, gpus, nccl=nccl)) == shown


def test_a_gpu_that_is_not_there_is_an_error_and_no_silent_cpu():
    with pytest.raises(ClusterError, match="torch sees no GPU here .* Without device"):
        choose("cuda", 2, 0, nccl=False)
    with pytest.raises(ClusterError, match="device='gpu': ranks compute on"):
        Cluster(2, device="gpu")


def test_an_error_names_what_asked_for_the_gpu(monkeypatch: pytest.MonkeyPatch):
    """A cell that names no device fails, so the message must name the environment variable."""
    monkeypatch.setenv(devices.VARIABLE, "cuda")
    monkeypatch.setattr(devices, "_look", lambda: (0, False))
    with pytest.raises(ClusterError, match="^DDPKIT_DEVICE='cuda': .* Without DDPKIT_DEVICE the"):
        Cluster(2)
    with pytest.raises(ClusterError, match="^device='cuda': .* Without device the"):
        Cluster(2, device="cuda")


@pytest.mark.processes
def test_the_environment_speaks_for_cells_that_do_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(devices.VARIABLE, "cuda")
    monkeypatch.setattr(devices, "_look", lambda: (4, True))
    assert repr(Cluster(4)) == "4 ranks · nccl · cuda"
    assert repr(Cluster(4, device="cpu")) == "4 ranks · gloo · cpu"
    linked = Cluster(4, link="1 Gbit/s, 200 us")
    assert repr(linked).startswith("4 ranks · gloo · cpu · emulated: 1 Gbit/s")
    with pytest.raises(
        ClusterError, match="^device='cuda': .* is emulated, and computes on the CPU"
    ):
        Cluster(4, machine="A100", device="cuda")


@pytest.mark.processes
def test_the_cpu_is_what_nobody_needs_to_ask_for(monkeypatch: pytest.MonkeyPatch):
    """Counting GPUs imports torch, for which a notebook's first cell should not wait seconds."""
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    monkeypatch.setattr(devices, "_look", lambda: pytest.fail("asked"))
    assert Cluster(2).place == Place("cpu", "gloo")
