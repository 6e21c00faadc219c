"""The expected end of a fault of the table, under every launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddpkit import Cluster
from ddpkit.errors import RunFailed, RunTimeout
from tests.cluster.faults import Fault


def ends_explained(fault: Fault, cluster: Cluster, launcher: str = "script") -> RunFailed:
    """Return the error with which a fault ends; check the error's class, words and fields."""
    with pytest.raises(fault.error) as caught:
        cluster.run(fault.function, timeout=fault.timeout or 60)
    if fault.timeout and "was still starting" in str(caught.value):  # on a busy machine
        return ends_explained(fault.slower(), cluster, launcher)
    assert type(caught.value) is fault.error
    assert not fault.missing(str(caught.value), launcher), str(caught.value)
    assert not fault.wrong_fields(caught.value), vars(caught.value)
    return caught.value


def out_of_time(cluster: Cluster, function: Callable[[], Any], timeout: float) -> RunTimeout:
    """Return the error of a run that never ends; all ranks must have begun before the timeout."""
    with pytest.raises(RunTimeout) as caught:
        cluster.run(function, timeout=timeout)
    if "was still starting" in str(caught.value):  # on a busy machine
        return out_of_time(cluster, function, 2 * timeout)
    return caught.value
