"""The forkserver has imported what a rank needs, so that a run begins in a tenth of a second."""

import subprocess
import sys

import pytest
import torch

from ddpkit import Cluster
from ddpkit.exercises.ranks import call
from tests.project.source import ROOT

pytestmark = pytest.mark.processes


def loaded() -> list[str]:
    return list(sys.modules)


def test_a_rank_imports_no_module_of_the_kit_itself():
    """An import that only the forkserver's file names looks unused, and a linter takes it out."""
    code = "import sys, ddpkit.rank.preload; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    later = {"torch._dynamo", "sympy", "mpmath"}  # the slices, each with all that it needs
    (of_a_check,) = call(loaded, world_size=1).returned
    in_rank = {*Cluster(1).run(loaded).results[0], *of_a_check}
    kits = {name for name in in_rank if name.startswith("ddpkit.")}
    assert sorted(kits - set(done.stdout.split())) == []
    assert "torch.distributed.distributed_c10d" in done.stdout.split()
    assert not later & set(done.stdout.split())


def watched() -> bool:
    """Compute under the modes with which a check and a modelled machine look at operations."""
    from ddpkit.rank.emulation.counted import OperationCount
    from ddpkit.rank.group.in_flight import InFlight

    with InFlight(0), OperationCount() as operations:
        torch.ones(2).add_(1)
    assert operations.number == 2
    return "torch._dynamo" in sys.modules


def test_no_compiler_is_loaded_to_look_at_operations():
    """It would take a second in each rank."""
    code = "from tests.rank.test_preload import watched; print(watched())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False\n", done.stderr


def test_a_compiled_function_leaves_the_modes_out():
    """The modes are there first: their methods must not be compiled when the compiler comes."""
    code = "from tests.rank.test_preload import compiled; compiled()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def compiled() -> None:
    from ddpkit.rank.emulation.counted import OperationCount

    with OperationCount() as operations:
        x = torch.ones(2)  # before the compiler is there
        doubled = torch.compile(lambda x: torch.relu(2 * x), backend="eager")
        doubled(x)
    print(operations.number)
