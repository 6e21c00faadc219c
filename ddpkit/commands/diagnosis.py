"""What `ddpkit doctor` says of what it saw: a sentence, and what mends it.

Every function is pure: plain values of a machine in, one `Finding` out. The looking is `doctor`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpkit.cluster.torchrun.job import LAUNCHED
from ddpkit.text import count

PYTHON = (3, 11)
TORCH = (2, 6)
SHARED = 256 << 20  # bytes in /dev/shm; a container of Docker's has 64 MB unless told otherwise
PIP = "pip install -c constraints.txt"
PINS = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `mend` says what to do, where something is wrong or odd."""

    what: str
    ok: bool
    says: str
    mend: str = ""


def python(version: Sequence[int], system: str) -> Finding:
    """Whether this Python is new enough."""
    ok = tuple(version[:2]) >= PYTHON
    mend = "" if ok else "ddpkit needs Python 3.11 or newer: install one, then make lab again"
    return Finding("python", ok, f"{'.'.join(map(str, version[:3]))}, {system}", mend)


def torch(version: str, backends: Sequence[str] | None) -> Finding:
    """Whether torch can run ranks.

    backends  of torch.distributed, such as "gloo"; None where torch comes without it
    """
    mend = f"install it with the tested version: {PIP} torch"
    if backends is None:
        return Finding("torch", False, f"{version} without torch.distributed", mend)
    if "gloo" not in backends:
        return Finding("torch", False, f"{version} without gloo", mend)
    if _release(version) < TORCH:
        return Finding("torch", False, f"{version}, and ddpkit needs 2.6 or newer", mend)
    return Finding("torch", True, ", ".join([version, *backends]))


def broken_torch(error: Exception) -> Finding:
    """What is said of a torch that cannot be imported."""
    mend = f"install it with the tested version: {PIP} torch"
    return Finding("torch", False, f"cannot be imported: {error}", mend)


def _release(version: str) -> tuple[int, ...]:
    """Major and minor number of a version: (2, 13) of "2.13.0+cpu"."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def jupyter(versions: Mapping[str, str | None]) -> Finding:
    """Whether the packages that notebooks need are there; the version of an absent one is None."""
    if missing := [name for name, version in versions.items() if version is None]:
        says = f"not installed: {', '.join(missing)}"
        return Finding("jupyter", False, says, f"{PIP} {' '.join(missing)}")
    return Finding("jupyter", True, ", ".join(f"{name} {v}" for name, v in versions.items()))


def cores(count: int, in_machine: int) -> Finding:
    """How many cores this process may use, of all that the machine has."""
    of = f", of {in_machine} in the machine" if count < in_machine else ""
    mend = "" if count > 1 else "ranks will take turns on it: timelines show less overlap"
    return Finding("cores", True, f"{count} for this process{of}", mend)


def threads(environ: Mapping[str, str], cores: int) -> Finding:
    """Whether the variables of OpenMP make ranks slow.

    A rank gets its share of the cores whatever OMP_NUM_THREADS says; it counts in the notebook,
    and under torchrun.
    """
    for name in PINS:
        value = environ.get(name, "")
        if value.lower() not in ("", "false", "none", "disabled"):
            says = f"{name}={value} ties every rank to the same cores, so that they take turns"
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
    """What ranks can do with the GPUs that torch sees.

    driver  whether NVIDIA's is installed
    """
    if not names and driver:
        mend = f"none is needed; to use them, install a CUDA build of torch instead of {torch}"
        return Finding("gpus", True, "torch sees none, though NVIDIA's driver is here", mend)
    if not names:
        return Finding("gpus", True, "none, none needed")
    says = f"{len(names)} ({', '.join(sorted(set(names)))})"
    if nccl:
        return Finding("gpus", True, f"{says}, NCCL")
    mend = f"ranks will talk gloo; NCCL comes with torch's CUDA builds for Linux, not with {torch}"
    return Finding("gpus", True, f"{says}, but torch has no NCCL", mend)


def shared_memory(free: int | None) -> Finding:
    """Whether /dev/shm has room; `free` is in bytes, None where there is no such folder."""
    if free is None:
        return Finding("/dev/shm", True, "not on this system")
    says, mend = f"{free >> 20} MB free", ""
    if free < SHARED:
        mend = (
            "ranks do without, but workers of a DataLoader and NCCL need it: free some, or start "
            "the container with docker run --shm-size=1g"
        )
    return Finding("/dev/shm", True, says, mend)


def host_name(name: str, addresses: Sequence[str]) -> Finding:
    """Whether the host's own name leads to addresses."""
    if addresses:
        return Finding("host name", True, f"{name}, at {', '.join(addresses)}")
    mend = f"torchrun needs it: add the line `127.0.0.1 {name}` to /etc/hosts"
    return Finding("host name", True, f"{name} does not resolve", mend)


def interface(chosen: str | None, there: Sequence[str]) -> Finding:
    """Whether the interfaces that GLOO_SOCKET_IFNAME chooses are there."""
    if not chosen:
        return Finding("interface", True, "GLOO_SOCKET_IFNAME is not set, and need not be")
    says = f"GLOO_SOCKET_IFNAME={chosen}"
    if absent := [name for name in chosen.split(",") if name not in there]:
        says += f" names no interface of this machine: {', '.join(absent)}"
        mend = f"unset it, or choose from: {', '.join(there)}"
        return Finding("interface", False, says, mend)
    return Finding("interface", True, says)


def port(wanted: str, error: str | None) -> Finding:
    """Whether torchrun can have its port; `error` is why nobody can listen there now."""
    if error is None:
        return Finding("port", True, f"{wanted}, torchrun's, is free")
    mend = "use torchrun --standalone, which takes a free one, or name another: --master-port"
    return Finding("port", True, f"{wanted}, torchrun's, cannot be used: {error}", mend)


def launcher(environ: Mapping[str, str]) -> Finding:
    """Whether a launcher's variables make this process a rank, in which Cluster() joins others."""
    here = [f"{name}={environ[name]}" for name in LAUNCHED if name in environ]
    if len(here) < len(LAUNCHED):
        return Finding("launcher", True, "none: Cluster() starts ranks of its own")
    says = f"{' '.join(here)} are set, so Cluster() would wait for ranks that torchrun started"
    return Finding("launcher", False, says, f"in a notebook: unset {' '.join(LAUNCHED)}")


def sandbox(trouble: str, lacks: str = "") -> Finding:
    """Which sandbox grading could use; self-study needs none.

    trouble  why bwrap cannot be used, or ""
    """
    if trouble:
        return Finding(
            "sandbox", True, f"none: {trouble}", "only grading others' notebooks needs it"
        )
    if lacks:
        return Finding("sandbox", True, f"bwrap, with {lacks}", "it grades, behind fewer walls")
    return Finding("sandbox", True, "bwrap")


def failed_run(error: str) -> Finding:
    """What is said when two ranks could not add, and what usually helps, by the failure's words."""
    if "resolve" in error or "hostname" in error:
        mend = "this machine's own name does not resolve: add it to /etc/hosts, after 127.0.0.1"
    elif "No space left" in error or "Cannot allocate memory" in error:
        mend = "free some memory or disk space (also in /dev/shm and the temporary folder)"
    else:
        mend = "please report it with this whole output"
    return Finding("ranks", False, f"two ranks could not add: {error}", mend)
