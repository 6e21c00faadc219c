"""Notebooks run without a page, by nbclient, nbconvert and nbval, and from another folder."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat.v4 import new_code_cell, new_notebook

from tests.notebook.kernel import LIMIT, connection, environment, gone

pytestmark = pytest.mark.processes

SET_UP = """
import os, time
import torch.distributed as dist
from ddpkit import Cluster

cluster = Cluster(2)
""".strip()
WORK = """
def square():
    print("here")
    return dist.get_rank() ** 2
cluster.run(square).results
""".strip()


def make(path: Path, *cells: str) -> Path:
    code = [new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(cells)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(new_notebook(cells=code, metadata=kernel), path)
    return path


def client(path: Path, home: Path, **options: object) -> NotebookClient:
    return NotebookClient(
        nbformat.read(path, as_version=4),
        kernel_name="python3",
        config=connection(home),
        resources={"metadata": {"path": str(path.parent)}},
        **options,
    )


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h")


def command(*arguments: object, cwd: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=cwd,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_nbclient(tmp_path: Path, home: Path):
    done = client(make(tmp_path / "lesson.ipynb", SET_UP, WORK), home, timeout=LIMIT)
    done.execute(env=environment(home))

    stream, result = done.nb.cells[1].outputs
    assert stream.text == "[rank 0] here\n[rank 1] here\n"
    assert result.data["text/plain"] == "[0, 1]"


def test_nbclient_reports_the_explanation(tmp_path: Path, home: Path):
    fails = "def f():\n    raise ValueError('no batch')\ncluster.run(f)"
    failing = client(make(tmp_path / "lesson.ipynb", SET_UP, fails), home, timeout=LIMIT)

    with pytest.raises(CellExecutionError) as caught:
        failing.execute(env=environment(home))

    assert "Cell In[2], line 2: raise ValueError('no batch')  (in f)" in str(caught.value)
    assert "/ddpkit/" not in str(caught.value)


def hang(tmp_path: Path, home: Path, **options: object) -> tuple[NotebookClient, list[int]]:
    """Run a notebook with an endless last cell; return its client, and the processes it started."""
    report = tmp_path / "pids"
    hangs = f"""
def f():
    with open({str(report)!r}, "a") as file:
        file.write(f"{{os.getpid()}} {{os.getppid()}} ")
    time.sleep(10_000)
cluster.run(f)
""".strip()
    path = make(tmp_path / "lesson.ipynb", SET_UP, WORK, hangs)
    # The client waits for the whole limit. A warm forkserver forks the ranks long before.
    hanging = client(
        path, home, timeout_func=lambda cell: 5 if cell.source == hangs else LIMIT, **options
    )
    with pytest.raises((CellTimeoutError, CellExecutionError)):
        hanging.execute(env=environment(home))
    return hanging, sorted({int(pid) for pid in report.read_text().split()})


def test_nbclient_timeout_leaves_no_process(tmp_path: Path, home: Path):
    _, pids = hang(tmp_path, home)

    assert len(pids) == 3  # two ranks and the forkserver
    assert gone([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]) == []


def test_nbclient_timeout_with_interrupt_tells_where(tmp_path: Path, home: Path):
    """`interrupt_on_timeout` presses the stop button, for a program."""
    hanging, pids = hang(tmp_path, home, interrupt_on_timeout=True)

    shown = str(hanging.nb.cells[2].outputs)
    assert "rank 0 was in Cell In[3], line 4: time.sleep(10_000)" in shown
    assert gone([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]) == []


def test_nbconvert_execute(tmp_path: Path, home: Path):
    make(tmp_path / "lesson.ipynb", SET_UP, WORK)

    done = command(
        *("nbconvert", "--to", "notebook", "--execute", "lesson.ipynb", "--output", "done"),
        *("--KernelManager.transport=ipc", f"--KernelManager.connection_file={home / 'k.json'}"),
        cwd=tmp_path,
        home=home,
    )

    assert done.returncode == 0, done.stderr
    cell = nbformat.read(tmp_path / "done.ipynb", as_version=4).cells[1]
    assert cell.outputs[0].text == "[rank 0] here\n[rank 1] here\n"
    assert cell.outputs[1].data["text/plain"] == "[0, 1]"


def test_nbval_compares_what_ranks_print(tmp_path: Path, home: Path):
    """A grader may run notebooks by nbval: stored outputs pass, other outputs fail."""
    path = make(tmp_path / "lesson.ipynb", SET_UP, WORK, WORK)
    done = client(path, home, timeout=LIMIT)
    done.execute(env=environment(home))
    done.nb.cells[2].outputs[0].text = "[rank 0] here\n[rank 1] elsewhere\n"
    nbformat.write(done.nb, path)

    compared = command(
        *("pytest", "--nbval", "--nbval-current-env", "-q", "-p", "no:cacheprovider"),
        *("-c", os.devnull, "--rootdir", tmp_path, path),
        cwd=tmp_path,
        home=home,
    )

    assert "1 failed, 2 passed" in compared.stdout
    assert "elsewhere" in compared.stdout


def test_from_another_folder(tmp_path: Path, home: Path):
    """VS Code may start the kernel in the workspace's folder, with the notebook elsewhere."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "helpers.py").write_text("def ten():\n    return 10\n")
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs" / "local.py").write_text("def one():\n    return 1\n")
    work = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'labs')!r})\n"
        "import helpers, local\n"
        "cluster.run(lambda: helpers.ten() + local.one()).results"
    )
    away = client(make(tmp_path / "labs" / "lesson.ipynb", SET_UP, work), home, timeout=LIMIT)
    away.resources["metadata"]["path"] = str(tmp_path / "workspace")
    away.execute(env=environment(home))

    assert away.nb.cells[1].outputs[0].data["text/plain"] == "[11, 11]"
