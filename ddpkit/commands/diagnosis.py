"""The findings of `ddpkit doctor`: each finding has a sentence, and perhaps a repair.

Every function is pure: plain values of a machine in, one `Finding` out. `doctor` reads the values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpkit.cluster.torchrun.job import LAUNCHED
from ddpkit.text import count

PYTHON = (3, 11)
TORCH = (2, 7, 1)  # the oldest version in `make versions`
TORCH_NEWEST = (2, 15)  # the newest version in `make versions`
SHARED = 256 << 20  # bytes in /dev/shm; Docker gives a container 64 MB by default
PIP = "pip install -c constraints.txt"
PINS = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


@dataclass(frozen=True)
class Finding:
    """The result of one examination; `mend` is the repair or a remark, if there is one."""

    what: str
    ok: bool
    says: str
    mend: str = ""


def python(version: Sequence[int], system: str) -> Finding:
    """Return the finding about the version of Python."""
    ok = tuple(version[:2]) >= PYTHON
    mend = "" if ok else "ddpkit needs Python 3.11 or newer: install one, then make lab again"
    return Finding("python", ok, f"{'.'.join(map(str, version[:3]))}, {system}", mend)


def torch(version: str, backends: Sequence[str] | None) -> Finding:
    """Return the finding about torch, and about its ability to run ranks.

    backends  the backends of torch.distributed, such as "gloo"; None without torch.distributed
    """
    mend = f"install it with the tested version: {PIP} torch"
    if backends is None:
        return Finding("torch", False, f"{version} without torch.distributed", mend)
    if "gloo" not in backends:
        return Finding("torch", False, f"{version} without gloo", mend)
    if _release(version) < TORCH:
        oldest = ".".join(map(str, TORCH))
        return Finding("torch", False, f"{version}, but ddpkit needs {oldest} or newer", mend)
    newer = _release(version)[:2] > TORCH_NEWEST
    newest = ".".join(map(str, TORCH_NEWEST))
    mend = f"newer than {newest}, the newest that ddpkit was tested with" if newer else ""
    return Finding("torch", True, ", ".join([version, *backends]), mend)


def broken_torch(error: Exception) -> Finding:
    """Return the finding about a torch that cannot be imported."""
    mend = f"install it with the tested version: {PIP} torch"
    return Finding("torch", False, f"cannot be imported: {error}", mend)


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: (2, 13, 0) for "2.13.0+cpu"."""
    numbers = re.match(r"\d+(\.\d+){0,2}", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def private_names(names: int, troubles: Sequence[str], harmless: Sequence[str]) -> Finding:
    """Return the finding on the private names of torch.

    troubles  a sentence for each missing or changed name without which a feature fails
    harmless  a sentence for each missing or changed name with a substitute in the kit
    """
    if troubles:
        mend = f"install a torch that ddpkit was tested with: {PIP} torch"
        return Finding("torch inside", False, "; ".join(troubles), mend)
    return Finding("torch inside", True, f"{names} private names probed", "; ".join(harmless))


def jupyter(versions: Mapping[str, str | None]) -> Finding:
    """Return the finding about the notebooks' packages; an absent package has version None."""
    if missing := [name for name, version in versions.items() if version is None]:
        says = f"not installed: {', '.join(missing)}"
        return Finding("jupyter", False, says, f"{PIP} {' '.join(missing)}")
    return Finding("jupyter", True, ", ".join(f"{name} {v}" for name, v in versions.items()))


def cores(count: int, in_machine: int) -> Finding:
    """Return the finding about the cores that this process may use."""
    of = f", of {in_machine} in the machine" if count < in_machine else ""
    mend = "" if count > 1 else "all ranks share this core, so timelines show less overlap"
    return Finding("cores", True, f"{count} for this process{of}", mend)


def threads(environ: Mapping[str, str], cores: int) -> Finding:
    """Return the finding about OpenMP's variables, which can make ranks slow.

    A rank started by `Cluster` gets its share of the cores whatever OMP_NUM_THREADS says; the
    variable counts in the notebook and under torchrun.
    """
    for name in PINS:
        value = environ.get(name, "")
        if value.lower() not in ("", "false", "none", "disabled"):
            says = f"{name}={value} ties every rank to the same cores, so the ranks take turns"
            return Finding("threads", False, says, f"unset {name}")
    told = environ.get("OMP_NUM_THREADS")
    if told is None:
        return Finding("threads", True, "OMP_NUM_THREADS is not set, and need not be")
    says = f"OMP_NUM_THREADS={told}"
    if not told.isdigit() or int(told) < 1:
        mend = "unset it, or give a number of threads"
        return Finding("threads", False, f"{says} is not a number of threads", mend)
    if int(told) > cores:
        mend = "unset it; under torchrun, OMP_NUM_THREADS × ranks should not exceed the cores"
        return Finding("threads", True, f"{says}, on {count(cores, 'core')}", mend)
    return Finding("threads", True, says)


def gpus(names: Sequence[str], torch: str, *, nccl: bool, driver: bool) -> Finding:
    """Return the finding about the GPUs that torch sees.

    driver  True if NVIDIA's driver is installed
    """
    if not names and driver:
        mend = (
            f"the labs need no GPU; to use yours, install a CUDA build of torch instead of {torch}"
        )
        return Finding("gpus", True, "torch sees no GPU, though NVIDIA's driver is installed", mend)
    if not names:
        return Finding("gpus", True, "none; the labs need none")
    says = f"{len(names)} ({', '.join(sorted(set(names)))})"
    if nccl:
        return Finding("gpus", True, f"{says}, NCCL")
    mend = f"ranks will use gloo; NCCL comes with torch's CUDA builds for Linux, not with {torch}"
    return Finding("gpus", True, f"{says}, but torch has no NCCL", mend)


def shared_memory(free: int | None) -> Finding:
    """Return the finding about /dev/shm; `free` is in bytes, or None without such a folder."""
    if free is None:
        return Finding("/dev/shm", True, "not on this system")
    says, mend = f"{free >> 20} MB free", ""
    if free < SHARED:
        mend = (
            "ranks do not need it, but NCCL and workers of a DataLoader do: free some, or start "
            "the container with docker run --shm-size=1g"
        )
    return Finding("/dev/shm", True, says, mend)


def host_name(name: str, addresses: Sequence[str]) -> Finding:
    """Return the finding about the host's own name, which should resolve to an address."""
    if addresses:
        return Finding("host name", True, f"{name}, at {', '.join(addresses)}")
    mend = f"torchrun needs it: add the line `127.0.0.1 {name}` to /etc/hosts"
    return Finding("host name", True, f"{name} does not resolve", mend)


def interface(chosen: str | None, there: Sequence[str]) -> Finding:
    """Return the finding about the network interfaces that GLOO_SOCKET_IFNAME chooses."""
    if not chosen:
        return Finding("interface", True, "GLOO_SOCKET_IFNAME is not set, and need not be")
    says = f"GLOO_SOCKET_IFNAME={chosen}"
    if absent := [name for name in chosen.split(",") if name not in there]:
        says += f" names no interface of this machine: {', '.join(absent)}"
        mend = f"unset it, or choose from: {', '.join(there)}"
        return Finding("interface", False, says, mend)
    return Finding("interface", True, says)


def port(wanted: str, error: str | None) -> Finding:
    """Return the finding about torchrun's port; `error` is None if the port is free."""
    if error is None:
        return Finding("port", True, f"torchrun's port {wanted} is free")
    mend = "use torchrun --standalone, which chooses a free port, or name one with --master-port"
    return Finding("port", True, f"torchrun's port {wanted} cannot be used: {error}", mend)


def launcher(environ: Mapping[str, str]) -> Finding:
    """Return the finding about torchrun's variables, with which Cluster() waits for other ranks."""
    here = [f"{name}={environ[name]}" for name in LAUNCHED if name in environ]
    if len(here) < len(LAUNCHED):
        return Finding("launcher", True, "none: Cluster() starts its own ranks")
    says = f"{' '.join(here)} are set, and make Cluster() wait for torchrun's ranks"
    return Finding("launcher", False, says, f"in a notebook: unset {' '.join(LAUNCHED)}")


def sandbox(trouble: str, lacks: str = "") -> Finding:
    """Return the finding about the grader's sandbox; self-study needs none.

    trouble  the reason why bwrap cannot be used, or ""
    lacks    the protection that bwrap lacks on this machine, or ""
    """
    if trouble:
        return Finding(
            "sandbox", True, f"none: {trouble}", "only needed to grade other people's notebooks"
        )
    if lacks:
        return Finding(
            "sandbox", True, f"bwrap, with {lacks}", "grading works, with less protection"
        )
    return Finding("sandbox", True, "bwrap")


def failed_run(error: str) -> Finding:
    """Return the finding about a failed test run of two ranks, with the usual repair."""
    if "resolve" in error or "hostname" in error:
        mend = "the name of this machine does not resolve: add it to /etc/hosts, after 127.0.0.1"
    elif "No space left" in error or "Cannot allocate memory" in error:
        mend = "free memory or disk space, also in /dev/shm and in the temporary folder"
    else:
        mend = "please report this failure with the whole output"
    return Finding("ranks", False, f"two ranks could not add: {error}", mend)
