"""Attacks of a notebook on kernel, machine and grader, and the things that it can find there.

One sandbox makes all attempts, in each way in which a sandbox can be made. The names of the tests
are the rows of the table of attacks in docs/teaching.md.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddpkit.grade import attempt, engine
from ddpkit.grade.inside import MIME
from ddpkit.grade.merge import PlannedCell
from ddpkit.grade.sandbox import bwrap, filter
from ddpkit.grade.sandbox.base import KEYCTL, SPARE_THREADS, Limits, Usage, copy_course
from tests.grade.conftest import needs_sandbox, running_in, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WAYS = ("another user", "oneself", "without filter")
TRIED = """
import ctypes, os, socket, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
seen = {"uid": os.getuid(), "fds": sorted(os.listdir("/proc/self/fd"))}
def opens(path, flags):
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK))
        return True
    except OSError:
        return False
def calls(name, *arguments):
    return libc.syscall(NUMBERS[name], *arguments) >= 0
seen["switches"] = [
    path for top, folders, names in os.walk("/proc") for path in (f"{top}/{name}" for name in names)
    if not top.split("/")[2:3] or not top.split("/")[2].isdigit()
    if opens(path, os.O_WRONLY)
]
seen["own /proc"] = [
    name for name in os.listdir("/proc/self") if opens(f"/proc/self/{name}", os.O_WRONLY)
]
seen["sysfs"] = os.path.exists("/sys/kernel")
seen["devices"] = sorted(os.listdir("/dev"))
seen["places"] = [
    f"/{top}" for top in ("", *"usr etc course dev proc job tmp home dev/shm".split())
    if os.access(f"/{top}", os.W_OK)
]
seen["root's"] = os.access("/etc/ssl/private", os.R_OK)
parent = os.getppid()
def listed(path):
    try:
        return os.listdir(path)
    except OSError:
        return []
seen["parent"] = [
    name for name in ("mem", "environ", "maps", "auxv")
    if opens(f"/proc/{parent}/{name}", os.O_RDONLY)
] + [
    path for path in (f"/proc/{parent}/fd/{name}" for name in listed(f"/proc/{parent}/fd"))
    if opens(path, os.O_WRONLY) or opens(path, os.O_RDONLY)
]
seen["environments"] = ""
for process in listed("/proc"):
    try:
        seen["environments"] += open(f"/proc/{process}/environ").read()
    except OSError:
        pass
families = []
for family in range(64):
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
        families.append(family)
    except OSError:
        pass
seen["families"] = families
protocols = []
for protocol in range(32):
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol).close()
        protocols.append(protocol)
    except OSError:
        pass
seen["netlink"] = protocols
seen["namespaces"] = [
    hex(flag) for flag in FLAGS if calls("unshare", flag)
] + ["setns"] * calls("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)
path = ctypes.create_string_buffer(b"/tmp")
one, none = ctypes.create_string_buffer(4096), ctypes.c_void_p()
session = ctypes.c_long(-3)
seen["calls"] = [name for name, arguments in {
    "mount": (b"none", b"/tmp", b"tmpfs", 0, none), "umount2": (b"/job", 2),
    "chroot": (b"/tmp",), "pivot_root": (b"/tmp", b"/tmp"), "fsopen": (b"tmpfs", 0),
    "open_tree": (-100, b"/tmp", 1), "ptrace": (16, parent, none, none),
    "process_vm_readv": (parent, one, 1, one, 1, 0), "bpf": (0, one, 64),
    "perf_event_open": (one, 0, -1, -1, 0), "userfaultfd": (1,), "io_uring_setup": (4, one),
    "memfd_create": (b"m", 0), "memfd_secret": (0,), "shmget": (0, 4096, 0o1600),
    "msgget": (0, 0o1600), "keyctl": (0, session, 1), "add_key": (b"user", b"d", b"x", 1, session),
    "personality": (0x0040000,), "swapon": (b"/tmp", 0), "syslog": (3, one, 10),
    "name_to_handle_at": (-100, b"/tmp", one, one, 0), "kcmp": (os.getpid(), parent, 2, 0, 0),
    "fanotify_init": (0, 0), "quotactl": (0, none, 0, none), "reboot": (0, 0, 0, none),
    "sethostname": (b"x", 1), "settimeofday": (one, none), "acct": (none,), "iopl": (3,),
}.items() if name in NUMBERS and calls(name, *arguments)]
for number, argument in ((10, b"ddpkit-test"),):
    if "keyctl" in NUMBERS:
        seen["key"] = calls("keyctl", number, session, b"user", argument, 0)
        seen["asked"] = calls("request_key", b"user", argument, none, 0)
seen["status"] = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
seen["oom"] = open("/proc/self/oom_score_adj").read().strip()
get_ipython().display_pub.publish({MIME: {"seen": seen}})
"""


def numbers() -> dict[str, int]:
    """Return the numbers of system calls on this machine, according to libseccomp."""
    library = ctypes.CDLL("libseccomp.so.2")
    names = [name for names in filter.REFUSED.values() for name in names.split()]
    found = {name: library.seccomp_syscall_resolve_name(name.encode()) for name in names}
    return {name: number for name, number in found.items() if number >= 0}


def try_all(folder: Path) -> dict[str, Any]:
    """Return the results of all attempts, from the notebook's claim; most attempts should fail."""
    course = copy_course(folder, "00")
    given = f"NUMBERS, MIME, FLAGS = {numbers()!r}, {MIME!r}, {filter.NEW_NAMESPACES!r}"
    plan = [PlannedCell(f"{given}\n{TRIED}", "helper")]
    (folder / "box").mkdir()
    job = attempt._job(folder / "box", plan)
    outcome = engine.run(course, job, Limits(), 1 + len(plan))
    assert outcome.why == "", outcome.log
    assert not outcome.errors
    seen: dict[str, Any] = json.loads(outcome.claims[1])["seen"]
    return seen


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    needs_sandbox()
    if why := filter.trouble():
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "another user" and (why := bwrap.why_root_stays()):
            pytest.skip(why)
        if request.param != "another user":
            patch.setattr(bwrap, "why_root_stays", lambda: "it is tried")
        if request.param == "without filter":
            patch.setattr(filter, "trouble", lambda: "it is tried")
        yield request.param


@pytest.fixture(scope="module")
def seen(way: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the attempts' results, while the grader holds a key in its session's keyring."""
    libc = ctypes.CDLL(None)
    if number := KEYCTL.get(os.uname().machine):
        libc.syscall(number, 1, None)
        libc.syscall(number - 2, b"user", b"ddpkit-test", b"x", 1, -3)  # add_key
    os.environ["DDPKIT_TEST_TOKEN"] = "a token of the grader"
    return try_all(tmp_path_factory.mktemp(way.replace(" ", "-")))


def test_procsys_no_switch_of_the_kernel_opens(seen: dict[str, Any]) -> None:
    assert seen["switches"] == []
    assert not seen["sysfs"]
    assert not {"mem", "kmem", "kmsg", "fuse", "kvm", "vsock", "net"} & {*seen["devices"]}


def test_procsys_root_is_left(seen: dict[str, Any], way: str) -> None:
    assert (seen["uid"] >= 20_000) == (way == "another user")
    assert way != "another user" or not seen["root's"]
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(seen["status"][name], 16) == 0, name
    assert seen["status"]["NoNewPrivs"].strip() == "1"
    assert (seen["status"]["Seccomp"].strip() == "2") == (way != "without filter")


def test_procsys_nothing_of_the_machine_is_open_for_writing(seen: dict[str, Any]) -> None:
    assert seen["places"] == ["/job", "/tmp", "/home", "/dev/shm"]
    assert seen["own /proc"] == []
    # if the machine's memory is full, the kernel kills the sandbox first
    assert seen["oom"] == "1000"


def test_p10_m01_the_record_cannot_be_opened(seen: dict[str, Any]) -> None:
    """Nor can any other file that the grader's process holds."""
    assert seen["parent"] == []


def test_the_graders_environment_is_not_there(seen: dict[str, Any]) -> None:
    """Nor in the sandbox's first process: it may hold tokens, and the course's secret."""
    assert "a token of the grader" not in seen["environments"]
    assert "DDPKIT_QUESTIONS" in seen["environments"]  # the sandbox's own environment is readable


def test_m10_the_graders_keys_are_not_there(seen: dict[str, Any]) -> None:
    assert not seen.get("key")
    assert not seen.get("asked")


def test_m11_sockets_of_few_families(seen: dict[str, Any], way: str) -> None:
    if way == "without filter":
        assert socket.AF_PACKET not in seen["families"]  # docs/teaching.md names this gap
    else:
        assert {*seen["families"]} <= {*filter.FAMILIES}
        assert seen["netlink"] == [filter.NETLINK_ROUTE]


def test_m11_no_namespace_and_no_wide_door(seen: dict[str, Any], way: str) -> None:
    assert "0x10000000" not in seen["namespaces"]  # a user namespace
    if way == "without filter":
        assert not {"mount", "bpf", "ptrace", "perf_event_open", "reboot"} & {*seen["calls"]}
    else:
        assert seen["namespaces"] == []
        assert seen["calls"] == []


def test_a_fork_bomb_is_held_by_the_kernel_and_ended_by_the_watch(tmp_path: Path) -> None:
    """The bomb never has more processes than its user may have, and ends soon after a look."""
    needs_sandbox()
    most: list[int] = []

    class Watched(bwrap.Bwrap):
        def usage(self) -> Usage:
            now = super().usage()
            most.append(now.processes)
            return now

    limits = Limits(processes=40, threads=200)
    course = copy_course(tmp_path, "00")
    (tmp_path / "box").mkdir()
    job = attempt._job(
        tmp_path / "box", [PlannedCell("import os\nwhile True:\n    os.fork()", "x")]
    )
    outcome = engine.run(course, job, limits, 2, Watched)
    assert (outcome.why, outcome.stopped_at) == ("processes", 1), outcome.log
    if os.geteuid() == 0 and not bwrap.why_root_stays():
        assert max(most) <= limits.threads + SPARE_THREADS
    assert most[-2] <= limits.processes < most[-1]  # ended at the first look that saw too many
    wait_until(lambda: not running_in(tmp_path), 10)


def test_who_is_refused_by_a_traceback_is_told_what_was_raised() -> None:
    needs_sandbox()
    why = bwrap._refused(bwrap.AS_ONESELF, [sys.executable, "-c", "import no_such_module"])
    assert why == "bwrap is refused here: ModuleNotFoundError: No module named 'no_such_module'"
