"""`ddpkit doctor`: can this machine run the labs, and if not, what mends it?"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata

from ddpkit.errors import DdpkitError

LIMIT = 60.0  # seconds, for the ranks: a first import of torch from a slow disk takes long


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `mend` says what to do, where something is wrong or odd."""

    what: str
    ok: bool
    says: str
    mend: str = ""


def examine() -> Iterator[Finding]:
    """Look at everything, the quick things first; never raises."""
    looks: tuple[Callable[[], Finding], ...] = (_python, _torch, _jupyter, _cores, _gpus, _sandbox)
    broken = False
    for look in looks:
        finding = look()
        broken |= finding.what == "torch" and not finding.ok
        yield finding
    if not broken:
        yield _ranks()


def _python() -> Finding:
    ok = sys.version_info >= (3, 11)
    mend = "" if ok else "ddpkit needs Python 3.11 or newer: install one, then make lab again"
    return Finding("python", ok, f"{platform.python_version()}, {platform.platform()}", mend)


def _torch() -> Finding:
    mend = "install it with the tested version: pip install -c constraints.txt torch"
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:  # a broken install raises anything, OSError included
        return Finding("torch", False, f"cannot be imported: {error}", mend)
    if not dist.is_available():
        return Finding("torch", False, f"{torch.__version__} without torch.distributed", mend)
    if not dist.is_gloo_available():
        return Finding("torch", False, f"{torch.__version__} without gloo", mend)
    also = [name for name in ("nccl", "mpi", "ucc") if getattr(dist, f"is_{name}_available")()]
    return Finding("torch", True, ", ".join([torch.__version__, "gloo", *also]))


def _jupyter() -> Finding:
    names = ("jupyterlab", "ipywidgets", "matplotlib", "nbval")
    missing = []
    for name in names:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        mend = f"pip install -c constraints.txt {' '.join(missing)}"
        return Finding("jupyter", False, f"not installed: {', '.join(missing)}", mend)
    return Finding("jupyter", True, ", ".join(f"{name} {metadata.version(name)}" for name in names))


def _cores() -> Finding:
    from ddpkit.cluster.cluster import cores

    count = cores()
    mend = "" if count > 1 else "ranks will take turns on it: timelines show less overlap"
    return Finding("cores", True, f"{count} for this process", mend)


def _gpus() -> Finding:
    try:
        import torch

        count = torch.cuda.device_count()
    except Exception as error:
        return Finding("gpus", True, f"none to be used ({error})")
    names = sorted({torch.cuda.get_device_name(i) for i in range(count)})
    return Finding("gpus", True, f"{count} ({', '.join(names)})" if count else "none, none needed")


def _sandbox() -> Finding:
    """What grading could use; self-study needs none."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        mend = "only for grading others' notebooks: apt-get install bubblewrap"
        return Finding("sandbox", True, "none: bwrap is not installed", mend)
    command = [bwrap, "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("sandbox", True, f"none: bwrap does not work here ({error})")
    if tried.returncode:
        return Finding("sandbox", True, f"none: bwrap is refused ({tried.stderr.strip()[:120]})")
    return Finding("sandbox", True, "bwrap")


def _ranks() -> Finding:
    """The proof: two real ranks, and a sum over both."""
    from ddpkit.cluster import Cluster

    cluster = Cluster(2)
    try:
        run = cluster.run(_sum_of_ranks, timeout=LIMIT)
    except (DdpkitError, OSError) as error:
        text = str(error).strip() or type(error).__name__
        return Finding("ranks", False, f"two ranks could not add: {text}", _mend_for(text))
    if run.results != [3.0, 3.0]:
        return Finding("ranks", False, f"1 + 2 came out as {run.results}", "reinstall torch")
    return Finding("ranks", True, f"{cluster}: all_reduce works")


def _sum_of_ranks() -> float:
    import torch
    import torch.distributed as dist

    x = torch.tensor([1.0 + dist.get_rank()])
    dist.all_reduce(x)
    return x.item()


def _mend_for(text: str) -> str:
    """What usually helps, by what the failure says."""
    name = os.environ.get("GLOO_SOCKET_IFNAME")
    if name and name in text:
        return f"GLOO_SOCKET_IFNAME={name} names no interface of this machine: unset it"
    if "resolve" in text or "hostname" in text:
        return "this machine's own name does not resolve: add it to /etc/hosts, after 127.0.0.1"
    if "No space left" in text or "Cannot allocate memory" in text:
        return "free some memory or disk space (also in /dev/shm and the temporary folder)"
    return "please report it with this whole output"
