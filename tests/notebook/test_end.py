"""No process outlives its kernel, in whatever way the kernel ends."""

from pathlib import Path

import psutil
import pytest

from tests.notebook.kernel import SET_UP, Cell, Notebook, alive, gone

pytestmark = pytest.mark.processes

HOLDS_THE_GIL = """
import ctypes, subprocess

def f():
    if dist.get_rank() == 1:
        subprocess.Popen(["sleep", "10000"])  # a rank's own child, such as a DataLoader's worker
    print("ready")
    ctypes.PyDLL(None).sleep(10_000)

cluster.run(f)
"""
DEADLOCKED_SOON = """
def f():
    print("ready")
    if dist.get_rank() == 0:
        time.sleep(10_000)
    dist.barrier()

cluster.run(f)
"""


def running(notebook: Notebook, source: str) -> tuple[Cell, list[psutil.Process]]:
    """Return a cell with ranks that are busy, and all processes of the kernel at this time."""
    notebook.ok(SET_UP)
    cell = notebook.start(source)
    notebook.until(lambda: cell.stream().count("ready") == 2)
    processes = notebook.processes()
    assert len(processes) >= 4  # the forkserver, the tracker of multiprocessing, two ranks
    return cell, processes


@pytest.mark.parametrize("source", [HOLDS_THE_GIL, DEADLOCKED_SOON], ids=["gil", "waiting"])
def test_killed_kernel_leaves_no_process(fresh: Notebook, source: str):
    _, processes = running(fresh, source)

    fresh.kernel.kill()

    assert gone([fresh.kernel, *processes]) == []


def test_killed_while_idle(fresh: Notebook):
    fresh.ok(SET_UP)
    fresh.ok("cluster.run(lambda: 1)")
    processes = fresh.processes()
    assert processes

    fresh.kernel.kill()

    assert gone(processes) == []


def test_shut_down_while_ranks_run(fresh: Notebook):
    """The notebook is closed: a busy kernel does not read the request to shut down."""
    _, processes = running(fresh, HOLDS_THE_GIL)

    fresh.manager.shutdown_kernel()

    assert gone(processes) == []


def test_a_kernel_that_is_shut_down_ends_by_itself(fresh: Notebook, tmp_path: Path):
    """A kernel with children that do not end on request would be killed seconds later."""
    fresh.ok(SET_UP)
    fresh.ok("cluster.run(lambda: 1)")
    said = tmp_path / "said"
    fresh.ok(f"import atexit, pathlib; atexit.register(pathlib.Path({str(said)!r}).touch)")
    waited_for = fresh.ok("print(get_ipython().kernel._process_children())")

    fresh.manager.shutdown_kernel()

    assert waited_for.stream() == "[]\n"
    assert said.exists()


def test_shut_down_while_idle(fresh: Notebook):
    fresh.ok(SET_UP)
    fresh.ok("cluster.run(lambda: 1)")
    processes = fresh.processes()

    fresh.manager.shutdown_kernel()

    assert gone(processes) == []


def test_restart(fresh: Notebook):
    """The restart button while ranks run: no rank is left, and the new kernel works."""
    _, processes = running(fresh, DEADLOCKED_SOON)

    fresh.manager.restart_kernel(now=True)
    fresh.client.wait_for_ready(timeout=60)
    fresh.kernel = psutil.Process(fresh.manager.provisioner.pid)

    assert gone(processes) == []
    fresh.ok(SET_UP)
    assert fresh.ok("cluster.run(lambda: dist.get_rank()).results").result == "[0, 1]"


def test_thread_that_runs_a_cluster_ends_with_the_kernel(fresh: Notebook):
    """A cell calls exit() while a thread waits for ranks that would run forever."""
    fresh.ok(SET_UP)
    cell = fresh.start("""
        import threading

        def f():
            print("ready")
            time.sleep(10_000)

        threading.Thread(target=cluster.run, args=(f,), daemon=True).start()
    """)
    fresh.until(lambda: cell.stream().count("ready") == 2)
    processes = fresh.processes()

    fresh.start("exit()")

    assert gone(processes) == []
    assert not alive(fresh.kernel)
