"""The stop button: in any state of the ranks, the kernel becomes idle and names their lines."""

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.notebook.kernel import SET_UP, Cell, Notebook, gone

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Busy:
    source: str  # prints "ready" on each rank, and then runs forever
    says: tuple[str, str]  # texts of rank 0 and of rank 1; "{3}" stands for the cell's third line


BUSY = {
    "in an endless loop": Busy(
        'def f():\n    print("ready")\n    while True: pass\ncluster.run(f)',
        ("rank 0 was in {3}: while True: pass", "rank 1 was in {3}: while True: pass"),
    ),
    "computing": Busy(
        """
        def f():
            x = torch.rand(300, 300)
            print("ready")
            while True: x = (x @ x).tanh()
        cluster.run(f)
        """,
        ("rank 0 was in {4}: while True: x =", "rank 1 was in {4}: while True: x ="),
    ),
    "holding the GIL": Busy(
        """
        import ctypes
        def f():
            print("ready"); ctypes.PyDLL(None).sleep(10_000)
        cluster.run(f)
        """,
        ('rank 0 was in {3}: print("ready"); ctypes', 'rank 1 was in {3}: print("ready"); ctypes'),
    ),
    "waiting for a rank that sleeps": Busy(
        """
        def f():
            if dist.get_rank() == 0:
                dist.send(torch.zeros(3), dst=1)
                print("ready"); time.sleep(10_000)
            print("ready")
            for _ in range(2): dist.recv(torch.zeros(3), src=0)
        cluster.run(f)
        """,
        (
            'rank 0 was in {4}: print("ready"); time.sleep(10_000)',
            "rank 1 waits in recv(src=0)\n      {6}: for _ in range(2): dist.recv(",
        ),
    ),
    "with one rank done": Busy(
        """
        def f():
            print("ready")
            while dist.get_rank(): time.sleep(0.01)
        cluster.run(f)
        """,
        ("rank 0 had returned", "rank 1 was in {3}: while dist.get_rank()"),
    ),
    "catching every exception": Busy(
        """
        def f():
            print("ready")
            while True:
                try: time.sleep(0.01)
                except BaseException: pass
        cluster.run(f)
        """,
        ("rank 0 was in Cell", "rank 1 was in Cell"),
    ),
}


def until_ready(notebook: Notebook, source: str) -> Cell:
    cell = notebook.start(source)
    notebook.until(lambda: "[rank 0] ready" in cell.stream() and "[rank 1] ready" in cell.stream())
    return cell


def assert_stopped(notebook: Notebook, cell: Cell) -> None:
    """Check that the cell was interrupted and left no rank, and that the next cell works."""
    assert cell.error is not None
    assert cell.error["ename"] in ("KeyboardInterrupt", "Interrupted")
    assert notebook.ranks() == []
    assert notebook.ok("cluster.run(lambda: dist.get_rank()).results").result == "[0, 1]"


@pytest.mark.parametrize("busy", BUSY.values(), ids=BUSY)
def test_interrupted_while(notebook: Notebook, busy: Busy):
    cell = until_ready(notebook, busy.source)
    ranks = notebook.ranks()
    assert len(ranks) == 2

    notebook.interrupt()
    notebook.finish(cell, within=30)

    assert gone(ranks) == []
    shown = cell.stream("stderr") + cell.shown_error
    for text in busy.says:
        head, brace, tail = text.partition("{")
        assert head + (cell.line(int(tail[0])) + tail[2:] if brace else "") in shown
    assert_stopped(notebook, cell)


def test_interrupted_in_a_deadlock(notebook: Notebook):
    """The reader may stop the cell, or the cluster may find the deadlock: both are explained."""
    cell = until_ready(
        notebook,
        """
        def f():
            print("ready", flush=True); dist.recv(torch.zeros(3), src=1 - dist.get_rank())
        cluster.run(f)
        """,
    )

    notebook.interrupt()
    notebook.finish(cell, within=30)

    shown = cell.stream("stderr") + cell.shown_error
    assert f"rank 0 waits in recv(src=1)\n      {cell.line(2)}: print(" in shown
    assert f"rank 1 waits in recv(src=0)\n      {cell.line(2)}: print(" in shown
    assert notebook.ok("cluster.run(lambda: dist.get_rank()).results").result == "[0, 1]"


def test_what_was_printed_before_is_shown(notebook: Notebook):
    cell = until_ready(
        notebook,
        """
        def f():
            sys.stdout.write("ready\\nhalf a line")  # at once: one is not seen without the other
            sys.stdout.flush()
            while True: time.sleep(0.01)
        cluster.run(f)
        """,
    )

    notebook.interrupt()
    notebook.finish(cell, within=30)

    assert sorted(cell.stream().splitlines()) == [
        f"[rank {rank}] {text}" for rank in (0, 1) for text in ("half a line", "ready")
    ]


def test_only_the_report_is_shown(notebook: Notebook):
    """Ten frames of ddpkit and multiprocessing below the report would push it off the screen."""
    cell = until_ready(notebook, BUSY["in an endless loop"].source)

    notebook.interrupt()
    notebook.finish(cell, within=30)

    for noise in ("Traceback", "/ddpkit/", "multiprocessing", "site-packages"):
        assert noise not in cell.shown_error
    assert "KeyboardInterrupt" in cell.shown_error


def test_impatient_reader_gets_the_report_too(notebook: Notebook):
    """Press stop three times: the ranks end, and the first press still gets its report.

    A press after the report goes to IPython, which then hides the report; therefore the test tries
    three times.
    """
    told = []
    for _ in range(3):
        cell = until_ready(notebook, BUSY["waiting for a rank that sleeps"].source)
        ranks = notebook.ranks()
        for _ in range(3):
            notebook.interrupt()
            time.sleep(0.02)
        notebook.finish(cell, within=30)
        assert gone(ranks) == []
        assert notebook.ok("cluster.run(lambda: dist.get_rank()).results").result == "[0, 1]"
        told.append("rank 0 was in" in cell.stream("stderr") + cell.shown_error)

    assert any(told)


def test_stopped_check_says_where_the_answer_was(notebook: Notebook, tmp_path: Path):
    """check() hides an answer's output, but names the line in which the reader stopped it."""
    for rank in range(4):
        (tmp_path / str(rank)).touch()
    cell = notebook.start(f"""
        import os
        from ddpkit import check

        def token_ring(token):
            os.remove({str(tmp_path)!r} + f"/{{dist.get_rank()}}")  # a check allows no new file
            while True: pass

        check(token_ring)
    """)
    # Wait for rank 0, the last rank: on busy cores another rank may begin long before.
    notebook.until(lambda: not (tmp_path / "0").exists())

    notebook.interrupt()
    notebook.finish(cell, within=30)

    assert f"rank 0 was in {cell.line(6)}: while True: pass" in cell.shown_error
    assert_stopped(notebook, cell)


def test_interrupted_before_the_first_ranks_are_up(fresh: Notebook):
    """The forkserver still imports torch when the reader presses stop."""
    fresh.ok(SET_UP)
    (forkserver,) = [p for p in fresh.processes() if "forkserver" in " ".join(p.cmdline())]
    cell = fresh.start("print('begin')\ncluster.run(lambda: time.sleep(10_000))")
    fresh.until(lambda: "begin" in cell.stream())

    fresh.interrupt()
    fresh.finish(cell, within=30)

    assert "/multiprocessing/" not in cell.stream("stderr") + cell.shown_error
    assert "rank 0 was still starting" in cell.stream("stderr") + cell.shown_error
    assert gone(fresh.ranks()) == []
    assert fresh.ok("cluster.run(lambda: dist.get_rank()).results").result == "[0, 1]"
    assert forkserver in fresh.processes(), "torch had to be imported once more"


def test_interrupt_between_runs_leaves_the_cluster_alone(notebook: Notebook):
    cell = notebook.start("print('begin')\ntime.sleep(10_000)")
    notebook.until(lambda: "begin" in cell.stream())
    before = notebook.processes()

    notebook.interrupt()
    notebook.finish(cell, within=30)

    assert notebook.processes() == before
    assert_stopped(notebook, cell)
