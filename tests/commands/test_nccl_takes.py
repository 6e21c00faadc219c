"""Scripts that ask for NCCL may make calls that NCCL accepts and gloo refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddpkit import Cluster
from ddpkit.commands.run import launched
from tests.commands.test_run import SCRIPTS, on, ran

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


def test_calls_that_fail_with_nccl_fail_here_in_a_sentence(tmp_path: Path) -> None:
    done = ran("-n", "2", "--machine", "A100", SCRIPTS / "nccl_refuses.py", cwd=tmp_path)
    said = json.loads(done.stdout)
    works = ["bf16_hook", "sharded", "cpu().numpy", "all_reduce of the device"]
    works += ["objects", "complex", "new_subgroups"]
    assert [name for name, text in said.items() if not text] == works
    for name in ("numpy", "np.asarray"):
        assert said[name].startswith("TypeError: can't convert cuda:0 device type tensor to numpy")
    for name in ("all_reduce of the host", "broadcast of the host"):
        assert said[name].startswith("RuntimeError: No backend type associated with device type")
    for name in ("int16", "uint16"):
        assert f"of {name}: NCCL has no such type" in said[name]
    for name in ("ipc_handle", "rand", "offload"):
        assert "`ddpkit run` has no replacement for" in said[name]
