"""The number of cores that this process may use, which its ranks share."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")  # Linux: files with a container's share of the machine


def cores() -> int:
    """Return the number of cores that this process may use, limited by its container's quota.

    A container on a large machine (Binder's, a pod) sees all cores, but the system halts the
    container when it has used its quota of CPU time. A thread for each core would make the
    container slower.
    """
    if hasattr(os, "sched_getaffinity"):
        bound = len(os.sched_getaffinity(0))
    else:
        bound = os.cpu_count() or 1
    quota = _quota(CGROUPS)
    return bound if quota is None else max(1, min(bound, math.ceil(quota)))


def _quota(cgroups: Path) -> float | None:
    """Return the limit of the process's control groups in cores; None if there is no limit."""
    with suppress(OSError, ValueError):  # version 2 of control groups; "max 100000": no limit
        quota, period = map(int, (cgroups / "cpu.max").read_text().split())
        return quota / period
    with suppress(OSError, ValueError):  # version 1 of control groups; -1: no limit
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota, period = (int((cgroups / "cpu" / name).read_text()) for name in names)
        return quota / period if quota > 0 else None
    return None
