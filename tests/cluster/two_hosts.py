"""Two hosts on this machine: Linux namespaces, joined by a virtual network cable.

Each host has a network, a name, and an /etc/hosts with Debian's trap (the host's own name is
127.0.1.1). The clock of the second host is a day ahead. A host lives as long as a process in its
namespaces, which ends when its standard input is closed. So nothing is left behind, even if pytest
is killed.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATHS = {  # `torchrun` and `ddpkit` come from this Python and this checkout
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
}
DAY = 86_400  # seconds
NAMESPACES = ("--net", "--uts", "--mount", "--time")
HOLD = (
    'echo "$1" > /proc/sys/kernel/hostname && mount --bind "$2" /etc/hosts && echo $$ && exec cat'
)


class NoHosts(Exception):
    """The reason why there can be no hosts here."""


@dataclass
class Host:
    name: str
    address: str
    pid: int  # pid of the process that keeps the namespaces
    jobs: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *command: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command on this host, and keep its output."""
        inside = ["nsenter", f"--target={self.pid}", *NAMESPACES, *command]
        job = subprocess.Popen(
            inside,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, **PATHS, **environ},
        )
        self.jobs.append(job)
        return job

    def cable(self, state: str) -> None:
        """Pull the network cable ("down"), or plug it in again ("up")."""
        _ip(self.pid, "link", "set", "eth0", state)

    def end_jobs(self) -> None:
        for job in self.jobs:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
        self.jobs.clear()


@dataclass(frozen=True)
class Ended:
    """The end of a command on both hosts: exit code and output on each host."""

    codes: tuple[int, int]
    stdout: tuple[str, str]
    stderr: tuple[str, str]


def on_both(hosts: tuple[Host, Host], *command: str, limit: float = 100, **environ: str) -> Ended:
    """Run a command on both hosts to its end.

    Raises TimeoutExpired if the command takes longer than `limit` seconds.
    """
    jobs = [host.start(*command, **environ) for host in hosts]
    try:
        said = [job.communicate(timeout=limit) for job in jobs]
    finally:
        for host in hosts:
            host.end_jobs()
    (out1, err1), (out2, err2) = said
    return Ended((jobs[0].returncode, jobs[1].returncode), (out1, out2), (err1, err2))


@contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Host, Host]]:
    """Yield the hosts "node1" and "node2". Raises NoHosts if the system does not allow them."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise NoHosts("network namespaces need Linux and root")
    holders: list[subprocess.Popen[str]] = []
    try:
        left = _host("node1", "10.77.0.1", folder, holders, ahead=0)
        right = _host("node2", "10.77.0.2", folder, holders, ahead=DAY)
        one, other = (["eth0", "netns", str(host.pid)] for host in (left, right))
        _run("ip", "link", "add", *one, "type", "veth", "peer", "name", *other)
        for host in (left, right):
            _ip(host.pid, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip(host.pid, "link", "set", "lo", "up")
            host.cable("up")
        yield left, right
    finally:
        for holder in holders:
            holder.communicate()  # closes the standard input of the process, which then ends


def _host(
    name: str, address: str, folder: Path, holders: list[subprocess.Popen[str]], *, ahead: int
) -> Host:
    known = folder / f"hosts-{name}"
    known.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n10.77.0.1 node1\n10.77.0.2 node2\n")
    unshare = ["unshare", *NAMESPACES, f"--monotonic={ahead}", "--fork"]
    try:
        holder = subprocess.Popen(
            [*unshare, "sh", "-c", HOLD, "sh", name, str(known)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except FileNotFoundError:
        raise NoHosts("unshare is not installed (util-linux)") from None
    holders.append(holder)
    assert holder.stdout is not None
    said = holder.stdout.readline().strip()
    if not said.isdigit():
        raise NoHosts(f"no namespaces here: {said}")
    return Host(name, address, int(said))


def _ip(pid: int, *command: str) -> None:
    _run("nsenter", f"--target={pid}", "--net", "ip", *command)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise NoHosts(f"{command[0]} is not installed (iproute2)") from None
    except subprocess.CalledProcessError as error:
        raise NoHosts(f"{' '.join(command)}: {error.stderr.strip()}") from None
