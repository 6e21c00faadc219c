"""How a fault of the table must end, whoever has launched its ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ddpkit import Cluster
from ddpkit.errors import RunFailed, RunTimeout
from tests.cluster.faults import Fault


def ends_explained(fault: Fault, cluster: Cluster, launcher: str = "script") -> RunFailed:
    """The error that a fault ends with on a cluster: of its kind, with its words and fields."""
    with pytest.raises(fault.error) as caught:
        cluster.run(fault.function, timeout=fault.timeout or 60)
    if fault.timeout and "was still starting" in str(caught.value):  # on a machine under load
        return ends_explained(fault.slower(), cluster, launcher)
    assert type(caught.value) is fault.error
    assert not fault.missing(str(caught.value), launcher), str(caught.value)
    assert not fault.wrong_fields(caught.value), vars(caught.value)
    return caught.value


def out_of_time(cluster: Cluster, function: Callable[[], Any], timeout: float) -> RunTimeout:
    """The error of a run that never ends, on ranks that had begun by then."""
    with pytest.raises(RunTimeout) as caught:
        cluster.run(function, timeout=timeout)
    if "was still starting" in str(caught.value):  # on a machine under load
        return out_of_time(cluster, function, 2 * timeout)
    return caught.value
