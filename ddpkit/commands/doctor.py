"""`ddpkit doctor`: checks whether this machine can run the labs, and names the repairs.

This module looks at the machine; `diagnosis` makes the sentences.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata

import click

from ddpkit.cluster.cores import cores
from ddpkit.cluster.torchrun.hosts import INTERFACE
from ddpkit.commands import diagnosis
from ddpkit.commands.diagnosis import Finding
from ddpkit.errors import DdpkitError
from ddpkit.text import count, sign

LIMIT = 60.0  # seconds for the ranks: a first import of torch from a slow disk takes long
PATIENCE = 5.0  # seconds for an answer of the name service
TORCHRUN_PORT = "29500"  # torchrun's default
NOTEBOOKS = ("jupyterlab", "ipywidgets", "matplotlib", "nbval")
# findings without which ranks fail, or wait for a long time
NEEDED = {"torch", "interface", "launcher"}


@click.command(epilog="Example: ddpkit doctor")
def doctor() -> None:
    """Check whether this machine can run the labs, and print how to repair each fault."""
    problems = 0
    for finding in examine():
        click.echo(f"{sign(finding.ok)} {finding.what:12} {finding.says}")
        if finding.mend:
            click.echo(f"  {'':12} {finding.mend}")
        problems += not finding.ok
    if problems:
        raise click.ClickException(f"{count(problems, 'problem')} to repair, see above.")
    click.echo("No problems found: open a lab with `ddpkit lab`.")


def examine() -> Iterator[Finding]:
    """Yield every finding, the quick ones first; raise no error."""
    broken = False
    for look in LOOKS:
        if look is _torch_inside and broken:
            continue
        finding = look()
        broken |= finding.what in NEEDED and not finding.ok
        yield finding
    if not broken:
        yield _ranks()


def _python() -> Finding:
    return diagnosis.python(sys.version_info[:3], platform.platform())


def _torch() -> Finding:
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:  # a broken install raises any exception, even OSError
        return diagnosis.broken_torch(error)
    if not dist.is_available():
        return diagnosis.torch(torch.__version__, None)
    names = ("gloo", "nccl", "mpi", "ucc")
    there = [name for name in names if getattr(dist, f"is_{name}_available")()]
    return diagnosis.torch(torch.__version__, there)


def _torch_inside() -> Finding:
    from ddpkit import torch_private
    from ddpkit.rank import compiler

    try:
        with compiler.absent():  # no probe needs the compiler, and loading takes seconds
            troubles = [(each.feature.harmless, each.trouble()) for each in torch_private.NAMES]
    except Exception as error:  # torch cannot be imported, or has no distributed
        return Finding("torch inside", False, f"cannot be probed: {error}")
    fails, works = (
        [says for mild, says in troubles if says and mild is kind] for kind in (False, True)
    )
    return diagnosis.private_names(len(troubles), fails, works)


def _jupyter() -> Finding:
    return diagnosis.jupyter({name: _version(name) for name in NOTEBOOKS})


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cores() -> Finding:
    return diagnosis.cores(cores(), os.cpu_count() or 1)


def _threads() -> Finding:
    return diagnosis.threads(os.environ, cores())


def _shared_memory() -> Finding:
    try:
        return diagnosis.shared_memory(shutil.disk_usage("/dev/shm").free)
    except OSError:
        return diagnosis.shared_memory(None)


def _gpus() -> Finding:
    try:
        import torch
        import torch.distributed as dist

        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except Exception as error:
        return Finding("gpus", True, f"none to be used ({error})")
    nccl = dist.is_available() and dist.is_nccl_available()
    driver = shutil.which("nvidia-smi") is not None
    return diagnosis.gpus(names, torch.__version__, nccl=nccl, driver=driver)


def _host_name() -> Finding:
    name = socket.gethostname()
    return diagnosis.host_name(name, _resolved(name))


def _resolved(name: str) -> Sequence[str]:
    """Return the addresses of a host; none if the name service does not answer in time."""
    found: list[str] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # UnicodeError: no host can have such a name
            return
        found.extend(dict.fromkeys(str(address[0]) for *_, address in answers))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return tuple(found)


def _interface() -> Finding:
    try:
        there = [name for _, name in socket.if_nameindex()]
    except OSError as error:
        return Finding("interface", True, f"cannot be listed here: {error}")
    return diagnosis.interface(os.environ.get(INTERFACE), there)


def _port() -> Finding:
    wanted = os.environ.get("MASTER_PORT", TORCHRUN_PORT)
    try:
        socket.create_server(("", int(wanted))).close()
    except (OSError, OverflowError, ValueError) as error:
        return diagnosis.port(wanted, getattr(error, "strerror", None) or str(error))
    return diagnosis.port(wanted, None)


def _launcher() -> Finding:
    return diagnosis.launcher(os.environ)


def _sandbox() -> Finding:
    try:
        from ddpkit.grade.sandbox import bwrap
    except ImportError as error:  # outside Linux, the module cannot be imported
        return diagnosis.sandbox(f"grading runs on Linux only ({error})")
    return diagnosis.sandbox(bwrap.trouble(), bwrap.lacks())


LOOKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _torch,
    _torch_inside,
    _jupyter,
    _cores,
    _threads,
    _shared_memory,
    _gpus,
    _host_name,
    _interface,
    _port,
    _launcher,
    _sandbox,
)


def _ranks() -> Finding:
    """Return the finding about a test run, in which two real ranks all-reduce their numbers."""
    from ddpkit.cluster import Cluster

    cluster = Cluster(2)
    try:
        run = cluster.run(_sum_of_ranks, timeout=LIMIT)
    except (DdpkitError, OSError) as error:
        return diagnosis.failed_run(str(error).strip() or type(error).__name__)
    if run.results != [3.0, 3.0]:
        return Finding("ranks", False, f"1 + 2 came out as {run.results}", "reinstall torch")
    return Finding("ranks", True, f"{cluster}: all_reduce works")


def _sum_of_ranks() -> float:
    import torch
    import torch.distributed as dist

    x = torch.tensor([1.0 + dist.get_rank()])
    dist.all_reduce(x)
    return x.item()
