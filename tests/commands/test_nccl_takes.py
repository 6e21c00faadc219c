"""Scripts that ask for NCCL may make calls that NCCL takes and gloo refuses."""

from __future__ import annotations

from typing import Any

import pytest

from ddpkit import Cluster
from ddpkit.commands.run import launched
from tests.commands.test_run import SCRIPTS, on

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"link": "1 Gbit/s, 10 us"},
        {"machine": "A100", "link": "10 Gbit/s"},
        {"machine": "device of 1 TFLOP/s, 5 us", "link": "10 Gbit/s"},
    ],
    ids=["real", "link", "machine", "device"],
)
@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_what_nccl_takes(how: dict[str, Any], backend: str) -> None:
    run = on(2, "nccl_takes.py", backend, device="cpu", **how)
    of_lists = [span for span in run.trace.of(1) if span.name == "all_to_all_single"]
    # Rank 1 of 2 sends nothing to rank 0, and 2 x 2 numbers to itself.
    assert [span.bytes for span in of_lists] == [16] * 4
    assert "all_gather_into_tensor" in run.trace.traffic.collectives(0)


def test_a_script_that_asks_for_gloo_is_refused_what_gloo_refuses() -> None:
    cluster = Cluster(2, device="cpu")
    script = str(SCRIPTS / "nccl_takes.py")
    cluster.run(launched(script, ("gloo", "refuses"), False, cluster))
