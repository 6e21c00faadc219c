"""`ddpkit doctor` on a sound machine, and on machines with one fault or oddity each."""

import socket
import threading

import pytest

from ddpkit.commands import diagnosis, doctor
from ddpkit.commands.diagnosis import Finding

SOUND = {
    "python": diagnosis.python((3, 12, 1), "Linux"),
    "torch": diagnosis.torch("2.13.0+cpu", ["gloo"]),
    "oldest torch": diagnosis.torch("2.7.1a0+git1", ["gloo", "nccl"]),
    "jupyter": diagnosis.jupyter({"jupyterlab": "4.6.6", "nbval": "0.11.0"}),
    "cores": diagnosis.cores(2, 2),
    "threads": diagnosis.threads({}, 2),
    "threads, as many as cores": diagnosis.threads({"OMP_NUM_THREADS": "2"}, 2),
    "threads, not bound": diagnosis.threads({"OMP_PROC_BIND": "FALSE"}, 2),
    "gpus": diagnosis.gpus([], "2.13.0+cpu", nccl=False, driver=False),
    "gpus with NCCL": diagnosis.gpus(["H100"] * 2, "2.11.0+cu130", nccl=True, driver=True),
    "/dev/shm": diagnosis.shared_memory(1 << 30),
    "no /dev/shm": diagnosis.shared_memory(None),
    "host name": diagnosis.host_name("node1", ["10.0.0.1"]),
    "interface": diagnosis.interface("eth0,lo", ["lo", "eth0"]),
    "no interface": diagnosis.interface(None, ["lo"]),
    "port": diagnosis.port("29500", None),
    "launcher": diagnosis.launcher({"RANK": "0", "MASTER_PORT": "29500"}),
    "sandbox": diagnosis.sandbox(""),
}

BROKEN = [  # doctor fails for each of these; with words of the sentence and of the remedy
    (diagnosis.python((3, 10, 13), "Linux"), "3.10.13, Linux", "3.11 or newer"),
    (diagnosis.torch("2.7.0", ["gloo"]), "2.7.0, but ddpkit needs 2.7.1 or newer", "torch"),
    (
        diagnosis.private_names(38, ["torch 2.16.0 has no _x: no run works"], []),
        "torch 2.16.0 has no _x: no run works",
        "install a torch that ddpkit was tested with",
    ),
    (diagnosis.torch("2.13.0", None), "without torch.distributed", "torch"),
    (diagnosis.torch("2.13.0", ["nccl"]), "without gloo", "torch"),
    (diagnosis.broken_torch(OSError("no libc")), "cannot be imported: no libc", "torch"),
    (
        diagnosis.jupyter({"jupyterlab": "4.6.6", "nbval": None, "ipywidgets": None}),
        "not installed: nbval, ipywidgets",
        "constraints.txt nbval ipywidgets",
    ),
    (
        diagnosis.threads({"OMP_PROC_BIND": "close"}, 8),
        "OMP_PROC_BIND=close ties every rank to the same cores",
        "unset OMP_PROC_BIND",
    ),
    (diagnosis.threads({"OMP_NUM_THREADS": "all"}, 8), "=all is not a number", "unset it"),
    (diagnosis.threads({"OMP_NUM_THREADS": "0"}, 8), "=0 is not a number", "unset it"),
    (
        diagnosis.interface("eth0,eth7", ["lo", "eth0"]),
        "GLOO_SOCKET_IFNAME=eth0,eth7 names no interface of this machine: eth7",
        "choose from: lo, eth0",
    ),
    (
        diagnosis.launcher(dict.fromkeys(diagnosis.LAUNCHED, "1")),
        "RANK=1 WORLD_SIZE=1 MASTER_ADDR=1 MASTER_PORT=1 are set",
        "unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT",
    ),
    (diagnosis.failed_run("cannot resolve vm"), "add: cannot resolve vm", "/etc/hosts"),
    (diagnosis.failed_run("No space left on device"), "No space left", "/dev/shm"),
    (diagnosis.failed_run("?"), "two ranks could not add: ?", "report this"),
]

ODD = [  # the labs run; doctor names the slow or missing parts
    (diagnosis.cores(1, 8), "1 for this process, of 8 in the machine", "share this core"),
    (diagnosis.threads({"OMP_NUM_THREADS": "16"}, 2), "OMP_NUM_THREADS=16, on 2 cores", "unset"),
    (diagnosis.shared_memory(64 << 20), "64 MB free", "--shm-size=1g"),
    (diagnosis.host_name("vm", []), "vm does not resolve", "line `127.0.0.1 vm` to /etc/hosts"),
    (diagnosis.port("29500", "Address already in use"), "29500", "--standalone"),
    (diagnosis.gpus(["T4"], "2.13.0", nccl=False, driver=True), "1 (T4), but", "use gloo"),
    (diagnosis.gpus([], "2.13.0+cpu", nccl=False, driver=True), "sees no GPU", "CUDA build"),
    (diagnosis.sandbox("bwrap is not installed: apt-get"), "not installed: apt-get", "to grade"),
    (
        diagnosis.sandbox("", "no filter: apt-get"),
        "bwrap, with no filter: apt-get",
        "less protection",
    ),
    (diagnosis.sandbox("bwrap is refused here: no"), "none: bwrap is refused here: no", "to grade"),
]


@pytest.mark.parametrize("name", SOUND)
def test_of_a_sound_machine_there_is_nothing_to_mend(name):
    assert SOUND[name].ok
    assert SOUND[name].mend == ""


@pytest.mark.parametrize(("finding", "says", "mend"), BROKEN)
def test_what_is_broken_comes_with_its_mend(finding: Finding, says: str, mend: str):
    assert not finding.ok
    assert says in finding.says
    assert mend in finding.mend


@pytest.mark.parametrize(("finding", "says", "mend"), ODD)
def test_what_is_odd_is_told_and_does_not_fail(finding: Finding, says: str, mend: str):
    assert finding.ok
    assert says in finding.says
    assert mend in finding.mend


# the facts that doctor finds


def test_a_port_that_is_taken_and_one_that_is_none(monkeypatch):
    with socket.create_server(("", 0)) as server:
        monkeypatch.setenv("MASTER_PORT", str(server.getsockname()[1]))
        assert "in use" in doctor._port().says
    assert doctor._port().mend == "", "free again"
    for wrong in ("lots", "70000"):
        monkeypatch.setenv("MASTER_PORT", wrong)
        assert f"torchrun's port {wrong} cannot be used" in doctor._port().says


def test_a_name_that_nobody_knows(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    assert doctor._host_name().says == "no-such-host.invalid does not resolve"
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert "127.0.0.1" in doctor._host_name().says


def test_a_name_service_that_does_not_answer(monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait(60) and [])
    monkeypatch.setattr(doctor, "PATIENCE", 0.01)
    assert "does not resolve" in doctor._host_name().says
    answers.set()


def test_ranks_are_not_tried_where_they_would_wait_for_others(monkeypatch):
    for name in diagnosis.LAUNCHED:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(doctor, "LOOKS", (doctor._launcher,))
    assert [finding.what for finding in doctor.examine()] == ["launcher"]


@pytest.mark.processes
def test_every_look_finds_something_here():
    names = [look().what for look in doctor.LOOKS]
    assert len(set(names)) == len(names)
    assert set(names) >= doctor.NEEDED
    assert max(map(len, names)) <= 12, "as wide as the command's column"
