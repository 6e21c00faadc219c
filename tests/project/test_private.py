"""torch's private names: all in one module, each with a probe; a missing name gives a sentence."""

import ast
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from tests.project.source import ROOT, modules

HOME = "ddpkit.torch_private"
# private names of Python in ddpkit
PYTHONS = {
    *("_asdict", "_bootstrap", "_children", "_config", "_current_frames", "_exit"),
    *("_find_and_load", "_forkserver", "_getframe", "_make", "_replace", "_run_exitfuncs"),
    *("_waiters", "_forkserver_address", "_forkserver_alive_fd", "_wait_for_tstate_lock"),
    *("_args", "_kwargs", "_popen", "_target"),  # multiprocessing.Process has these
}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name.isidentifier()


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for module, path in modules().items():
        if not module.startswith("ddpkit.answers.lab"):  # the release makes them from lessons
            yield module, ast.parse(path.read_text("utf-8"))


def _own_names() -> set[str]:
    """Return the private names that classes of the kit define, anew or over torch's methods."""
    own = set()
    for _, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
            for part in node.body if isinstance(node, ast.ClassDef) else ():
                targets = [part.target] if isinstance(part, ast.AnnAssign) else []
                targets += part.targets if isinstance(part, ast.Assign) else []
                own |= {target.id for target in targets if isinstance(target, ast.Name)}
                own |= {part.name} if isinstance(part, ast.FunctionDef) else set()
    return own


def _uses(tree: ast.Module, foreign: set[str], probed: set[str]) -> Iterator[str]:
    """Yield the lines with a private name, unless the name is the kit's own or Python's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            home = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in node.names:
                parts = f"{home}{name.name}".split(".")
                if parts[0] == "torch" and any(map(_is_private, parts)):
                    yield f"{node.lineno}: {'.'.join(parts)}"
        elif isinstance(node, ast.Attribute) and _is_private(node.attr):
            text = ast.unparse(node)
            operator = ast.unparse(node.value) in ("aten", "torch.ops.aten")
            torchs = text.startswith(("torch.", "dist.")) or node.attr in probed
            if not operator and (torchs or node.attr not in foreign):
                yield f"{node.lineno}: {text}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = node.value.split(".")
            torchs = parts[0] == "torch" and any(map(_is_private, parts))
            if torchs or node.value in probed:
                yield f"{node.lineno}: {node.value!r}"


def test_each_private_name_of_torch_is_in_one_module():
    from ddpkit.torch_private import NAMES

    probed = {private.short for private in NAMES} | {"_get_data"}
    foreign = _own_names() | PYTHONS
    elsewhere = {HOME, "ddpkit.grade.look"}  # `look` lists names of torch as text
    overridden = {"_source_rank"}  # c10d calls the method of the kit's works
    used = [
        f"{module}:{use}"
        for module, tree in _trees()
        if module not in elsewhere
        for use in _uses(tree, foreign, probed - overridden)
    ]
    assert used == []


@pytest.mark.parametrize(
    "line",
    [
        "from torch._C._distributed_c10d import Work",
        "import torch.utils._pytree",
        "torch._C._DisableTorchDispatch()",
        "dist.distributed_c10d._world.pg_map",
        "ddp.logger._set_comm_hook_name('')",
        "self._register_backend(device, kind, inner)",
        "getattr(tensor, '_local_tensor')",
        "sys.modules['torch._dynamo']",
        "module._parameters",
    ],
)
def test_a_new_use_of_a_private_name_would_be_found(line):
    from ddpkit.torch_private import NAMES

    probed = {private.short for private in NAMES}
    assert [*_uses(ast.parse(line), _own_names() | PYTHONS, probed)] != []


def test_each_private_name_is_there_and_behaves():
    from ddpkit import torch_private
    from ddpkit.rank import compiler

    with compiler.absent():
        troubles = [each.trouble() for each in torch_private.NAMES if not each.feature.harmless]
    assert [trouble for trouble in troubles if trouble] == []


# A torch without a name: LACKING becomes the module `sitecustomize`, which Python loads first

LACKING = """
    import importlib, sys
    from importlib.machinery import PathFinder

    class Torch:
        def find_spec(self, name, path, target=None):
            if name != "torch":
                return None
            sys.meta_path.remove(self)
            spec = PathFinder.find_spec(name, path, target)
            execute = spec.loader.exec_module
            def exec_module(torch):
                execute(torch)
                import torch.distributed
                import torch.utils._python_dispatch
                {change}
            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Torch())
"""
RUNS = """
    import torch
    import torch.distributed as dist
    from ddpkit import Cluster
    from ddpkit.errors import ClusterError

    def adds():
        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item()

    if __name__ == "__main__":
        for emulated in {}, {"link": "1 Gbit/s, 5 us"}, {"machine": "laptop core"}:
            try:
                print(Cluster(2, **emulated).run(adds).results)
            except ClusterError as error:
                print(f"{type(error).__name__}: {error}")
"""
NOTHING_DONE = "torch.distributed.ProcessGroup._set_default_backend = lambda self, kind: None"
ADDED = "[2.0, 2.0]"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("change", "says", "works"),
    [
        (
            "del torch.distributed.ProcessGroup._register_backend",
            "has no _register_backend: no run works",
            0,
        ),
        (
            "del torch.autograd.Variable._execution_engine",
            "has no _execution_engine: real-time runs work, emulated ones do not",
            1,
        ),
        (
            "del torch.utils._python_dispatch.TorchDispatchMode",
            "has no TorchDispatchMode: real-time runs and those with link= work, those with "
            "machine= do not",
            2,
        ),
        (NOTHING_DONE, "of torch {} raises RuntimeError (Could not find the default backend", 0),
    ],
)
def test_a_cluster_on_a_torch_that_lacks_a_name_says_what_works(tmp_path, change, says, works):
    """Run with missing names, and with a method without effect; c10d of torch 2.15 then raises."""
    import torch

    if change == NOTHING_DONE and torch.__version__ < "2.15":
        pytest.skip("torch before 2.15 asks no new group for its default backend")
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(LACKING).format(change=change))
    (tmp_path / "runs.py").write_text(textwrap.dedent(RUNS))
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, tmp_path / "runs.py"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:works] == [ADDED] * works
    assert len(lines) == 3
    for line in lines[works:]:
        assert line.startswith("UnsupportedTorch: ")
        assert torch.__version__ in line
        assert says.format(torch.__version__) in line
