"""torch's compiler is present for programs that compile, and costs other programs nothing."""

import subprocess
import sys
import warnings

import pytest

from ddpkit.rank import compiler
from tests.project.source import ROOT

pytestmark = pytest.mark.processes

START = """
import sys, warnings
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from ddpkit.rank import compiler

def trains():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
    for name in OPTIMIZERS:
        some = [each for each in model.parameters() if name != "Muon" or each.ndim == 2]
        optimizer = getattr(torch.optim, name)(some)
        optimizer.zero_grad()
        for _ in range(2):
            model(torch.rand(3, 2)).square().sum().backward()
            optimizer.step(lambda: torch.ones(()))
            optimizer.param_groups[0]["lr"] /= 2
    dist.destroy_process_group()
    return optimizer


OPTIMIZERS = [
    name for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and name not in ("Optimizer", "SparseAdam")
]
"""


def printed(code: str) -> str:
    """Return the output of a new Python that runs `code`."""
    done = subprocess.run(
        [sys.executable, "-c", START + code], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_who_only_trains_loads_none_of_it():
    code = """
assert compiler.put_off() and not compiler.put_off()
before = set(sys.modules)
trains()
print(len(OPTIMIZERS) > 10, compiler.loaded_parts(), compiler.is_loaded())
print([name for name in sorted(set(sys.modules) - before) if "_dynamo" in name])
"""
    assert printed(code) == "True set() False\n[]\n"


def test_the_stand_in_answers_as_the_compiler_does():
    """DDP asks the compiler, and would behave differently if the stand-in answered differently."""
    code = """
compiler.put_off()
early = sys.modules["torch._dynamo"]
answers = lambda compiler: [
    compiler.utils.get_optimize_ddp_mode(),
    compiler.graph_break(),
    compiler.trace_rules.clear_lru_cache(),
]
said = answers(early)
print(compiler.is_loaded(), hasattr(early, "__file__"))
late = compiler.load()
print(compiler.is_loaded(), late is torch._dynamo is sys.modules["torch._dynamo"], late is early)
print(said == answers(late))
print(early.config is late.config, early.utils.counters is late.utils.counters)
print(any("ddpkit" in str(each) for each in sys.meta_path))
"""
    assert printed(code) == "False False\nTrue True False\nTrue\nTrue True\nFalse\n"


COMPILED = """
optimizer = trains()
excluded = torch.optim.Optimizer.zero_grad.__wrapped__
before = getattr(excluded, "__dynamo_disable")
x = torch.ones(2)
torch._dynamo.config.suppress_errors = False
function = torch.compile(lambda x: torch.relu(2 * x) + 1, backend="eager")
stepping = torch.compile(optimizer.zero_grad, backend="eager")
stepping()
after = getattr(excluded, "__dynamo_disable")
print(function(x).tolist(), compiler.is_loaded(), after._torchdynamo_disable is True)
print(before is excluded)
"""


def test_what_was_excluded_before_it_came_stays_excluded():
    put_off = printed("compiler.put_off()\n" + COMPILED).splitlines()
    without = printed(COMPILED).splitlines()
    assert put_off[0] == without[0] == "[3.0, 3.0] True True"
    assert (put_off[1], without[1]) == ("True", "False")


@pytest.mark.parametrize("name", ["config", "eval_frame", "backends.registry", "nothing_of_it"])
def test_a_module_below_it_is_imported_once_and_after_it(name):
    code = f"""
compiler.put_off()
name = "torch._dynamo.{name}"
try:
    __import__(name)
except ModuleNotFoundError as error:
    print(error.name)
else:
    found, parent = sys.modules[name], torch._dynamo
    for part in name.split(".")[2:]:
        parent = getattr(parent, part)
    spec = found.__spec__
    print(found is parent, compiler.is_loaded(), spec.name == name, type(spec.loader).__name__)
"""
    missing = "torch._dynamo.nothing_of_it\n"
    assert printed(code) == (missing if "nothing" in name else "True True True SourceFileLoader\n")


def test_a_function_that_a_user_excludes_is_excluded_by_the_compiler_itself():
    code = """
compiler.put_off()
excluded = torch.compiler.disable(lambda x: x + 1)
print(excluded(1), excluded._torchdynamo_disable, compiler.is_loaded())
"""
    assert printed(code) == "2 True True\n"


def test_a_block_without_it_leaves_nothing_behind():
    """A check trains in the reader's own process, which must stay unchanged."""
    code = """
before = [*sys.meta_path]
with compiler.absent():
    with compiler.absent():
        trains()
    print("torch._dynamo" in sys.modules, compiler.is_loaded())
print("torch._dynamo" in sys.modules, "_dynamo" in vars(torch), sys.meta_path == before)
trains()
print(compiler.is_loaded())
with compiler.absent():
    print(compiler.is_loaded())
print(compiler.is_loaded())
"""
    assert printed(code) == "True False\nFalse False True\nTrue\nTrue\nTrue\n"


def test_a_block_in_which_it_is_loaded_after_all_keeps_it():
    code = """
with compiler.absent():
    trains()
    import torch._dynamo.utils
excluded = torch.optim.Optimizer.zero_grad.__wrapped__
print(compiler.is_loaded(), excluded.__dynamo_disable._torchdynamo_disable)
"""
    assert printed(code) == "True True\n"


def of_a_rank() -> tuple[set[str], list[float], bool]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    parts = compiler.loaded_parts()
    with warnings.catch_warnings(category=UserWarning, action="ignore"):  # a modelled machine warns
        made = torch.compile(lambda x: torch.relu(2 * x), backend="eager")
    return parts, made(torch.ones(2)).tolist(), compiler.is_loaded()


@pytest.mark.parametrize("options", [{}, {"link": "1 Gbit/s, 50 us", "machine": "A100"}])
def test_a_rank_trains_without_it_and_may_compile(options):
    """The launcher finds torch's compiler in this module's code.

    COMPILES = () prevents an early import.
    """
    code = f"""
from ddpkit import Cluster
from tests.rank.test_compiler import of_a_rank
from ddpkit.cluster.local import launch
launch.COMPILES = ()
print(*Cluster(2, **{options}).run(of_a_rank).results)
"""
    assert printed(code) == f"{(set(), [2.0, 2.0], True)} {(set(), [2.0, 2.0], True)}\n"
