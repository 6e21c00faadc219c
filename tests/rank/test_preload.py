"""The forkserver has imported what a rank needs, so that a run begins in a tenth of a second."""

import subprocess
import sys

import pytest

from ddpkit import Cluster

pytestmark = pytest.mark.processes


def loaded() -> list[str]:
    return list(sys.modules)


def test_a_rank_imports_no_module_of_the_kit_itself():
    """An import that only the forkserver's file names looks unused, and a linter takes it out."""
    code = "import sys, ddpkit.rank.preload; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    later = {"torch._dynamo", "sympy", "mpmath"}  # the slices, each with all that it needs
    in_rank = {name for name in Cluster(1).run(loaded).results[0] if name.startswith("ddpkit.")}
    assert sorted(in_rank - set(done.stdout.split())) == []
    assert "torch.distributed.distributed_c10d" in done.stdout.split()
    assert not later & set(done.stdout.split())
