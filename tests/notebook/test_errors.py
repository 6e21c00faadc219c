"""What a student reads when a run fails: the explanation alone, with the line of the cell."""

from dataclasses import dataclass

import pytest

from tests.notebook.kernel import Cell, Notebook

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Fault:
    source: str
    error: str
    says: tuple[str, ...]  # "{3}" stands for the way the cell's third line is named


FAULTS = {
    "exception": Fault(
        """
        def divide():
            by = dist.get_rank() - 1
            return 1 / by

        def work():
            dist.barrier()
            return divide()

        cluster.run(work)
        """,
        "RankError",
        (
            "rank 1 raised ZeroDivisionError: division by zero",
            "  {7}: return divide()  (in work)",
            "  {3}: return 1 / by  (in divide)",
        ),
    ),
    "exception in C++ below the cell": Fault(
        "def add():\n    torch.ones(2) @ torch.ones(3)\ncluster.run(add)",
        "RankError",
        ("ranks 0, 1 raised RuntimeError: ", "  {2}: torch.ones(2) @ torch.ones(3)  (in add)"),
    ),
    "one rank raises while the other waits for it": Fault(
        """
        def half():
            if dist.get_rank() == 1:
                raise ValueError("no batch")
            dist.all_reduce(torch.zeros(3))
        cluster.run(half)
        """,
        "RankError",
        ("rank 1 raised ValueError: no batch", '  {3}: raise ValueError("no batch")  (in half)'),
    ),
    "syntax error made on the rank": Fault(
        "def bad():\n    exec('1 +')\ncluster.run(bad)",
        "RankError",
        ("ranks 0, 1 raised SyntaxError",),
    ),
    "deadlock, both receive": Fault(
        """
        def swap():
            other = 1 - dist.get_rank()
            inbox = torch.zeros(3)
            dist.recv(inbox, src=other)
            dist.send(torch.ones(3), dst=other)
        cluster.run(swap)
        """,
        "Deadlock",
        (
            "rank 0 waits in recv(src=1)\n      {4}: dist.recv(inbox, src=other)",
            "rank 1 waits in recv(src=0)\n      {4}: dist.recv(inbox, src=other)",
            "Why: ranks 0, 1 each wait to receive before they send",
        ),
    ),
    "deadlock, one has returned": Fault(
        """
        def lonely():
            if dist.get_rank() == 0:
                dist.barrier()
        cluster.run(lonely)
        """,
        "Deadlock",
        (
            "rank 0 waits in barrier()\n      {3}: dist.barrier()",
            "rank 1 returned already",
            "Why: rank 0 waits for rank 1, which has returned without calling barrier.",
        ),
    ),
    "deadlock in a wait for an irecv": Fault(
        """
        def later():
            work = dist.irecv(torch.zeros(3), src=1 - dist.get_rank())
            work.wait()
        cluster.run(later)
        """,
        "Deadlock",
        ("rank 0 waits in wait() for the irecv(src=1) of line 2\n      {3}: work.wait()",),
    ),
    "mismatched shapes": Fault(
        """
        def uneven():
            mine = torch.zeros(2 + dist.get_rank())
            dist.all_reduce(mine)
        cluster.run(uneven)
        """,
        "Mismatch",
        (
            "rank 0 calls all_reduce(float32[2])\n      {3}: dist.all_reduce(mine)",
            "rank 1 calls all_reduce(float32[3])\n      {3}: dist.all_reduce(mine)",
            "Every rank must pass a tensor of the same shape.",
        ),
    ),
    "different collectives": Fault(
        """
        def disagree():
            if dist.get_rank() == 0:
                dist.all_reduce(torch.zeros(1))
            else:
                dist.broadcast(torch.zeros(1), src=0)
        cluster.run(disagree)
        """,
        "Mismatch",
        (
            "rank 0 calls all_reduce(float32[1])\n      {3}: dist.all_reduce(torch.zeros(1))",
            "rank 1 calls broadcast(float32[1], src=0)\n      {5}: dist.broadcast(",
        ),
    ),
    "timeout": Fault(
        """
        def slow():
            if dist.get_rank() == 0:
                dist.recv(torch.zeros(1), src=1)
            while True:
                pass
        cluster.run(slow, timeout=2)
        """,
        "RunTimeout",
        (
            "The run took longer than its timeout of 2 s.",
            "rank 0 waits in recv(src=1)\n      {3}: dist.recv(torch.zeros(1), src=1)",
            "rank 1 was in {",
        ),
    ),
    "os._exit": Fault(
        "def leave():\n    os._exit(3)\ncluster.run(leave)",
        "RankDied",
        ("rank 0 left with exit code 3", "rank 1 left with exit code 3", "{2}: os._exit(3)"),
    ),
    "sys.exit": Fault(
        "def leave():\n    sys.exit('enough')\ncluster.run(leave)",
        "RankDied",
        ("ranks 0, 1 called sys.exit(enough)", "{2}: sys.exit('enough')"),
    ),
    "segmentation fault": Fault(
        """
        import ctypes
        def crash():
            if dist.get_rank() == 1:
                ctypes.string_at(0)
            dist.barrier()
        cluster.run(crash)
        """,
        "RankDied",
        ("rank 1 was killed by SIGSEGV", "in {4}: ctypes.string_at(0)"),
    ),
    "killed from outside": Fault(
        """
        import signal
        def killed():
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.barrier()
        cluster.run(killed)
        """,
        "RankDied",
        ("rank 1 was killed by SIGKILL", "SIGKILL comes from outside"),
    ),
    "a result that cannot be sent": Fault(
        "def numbers():\n    return (n for n in range(3))\ncluster.run(numbers)",
        "RankError",
        ("the function returned a generator that cannot be sent back",),
    ),
}


def expected(fault: Fault, cell: Cell) -> list[str]:
    lines = {str(n): cell.line(n) for n in range(20)}
    texts = []
    for text in fault.says:
        head, brace, tail = text.partition("{")
        if brace and tail[:1].isdigit():
            text = head + lines[tail[0]] + tail[2:]
        elif brace:  # any line of this cell
            text = f"{head}Cell In[{cell.count}], line "
        texts.append(text)
    return texts


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_explanation_is_all_that_is_shown(notebook: Notebook, fault: Fault):
    cell = notebook.run(fault.source)

    assert cell.error is not None
    assert cell.error["ename"] == fault.error
    assert cell.shown_error == f"{fault.error}: {cell.error['evalue']}"
    for text in expected(fault, cell):
        assert text in cell.shown_error
    for noise in ("Traceback", "/ddpkit/", "site-packages", "ipykernel_"):
        assert noise not in cell.shown_error
    assert cell.stream("stderr") == ""

    after = notebook.ok("cluster.run(lambda: dist.get_rank()).results")
    assert after.result == "[0, 1]"
    assert notebook.ranks() == []


def test_expect_error_prints_what_the_error_would_show(notebook: Notebook):
    source = FAULTS["mismatched shapes"].source
    failed = notebook.run(source)
    told = notebook.ok(source.replace("(uneven)", "(uneven, expect_error=True)"))

    assert told.stream().rstrip("\n") == failed.shown_error.replace(failed.line(3), told.line(3))
    assert told.result == "<Run of 2 ranks, Mismatch: results [None, None]>"


def test_the_ranks_exception_is_the_cause(notebook: Notebook):
    cell = notebook.ok("""
        from ddpkit import RankError

        class BadBatch(Exception):
            def __init__(self, size):
                super().__init__(f"batch of {size}")
                self.size = size
            def __reduce__(self):
                return BadBatch, (self.size,)

        def work(kind):
            raise kind(7)

        causes = []
        for kind in (KeyError, BadBatch):
            try:
                cluster.run(work, kind)
            except RankError as error:
                causes.append(error.__cause__)
                where = error.rank, error.ranks, error.run.results
        [type(cause) for cause in causes] == [KeyError, BadBatch], causes[-1].size, where
    """)

    assert cell.result == "(True, 7, (0, (0, 1), [None, None]))"


def test_an_error_raised_from_it_shows_both(notebook: Notebook):
    cell = notebook.run("""
        try:
            cluster.run(lambda: [][1])
        except Exception as error:
            raise RuntimeError("the experiment failed") from error
    """)

    assert cell.error["ename"] == "RuntimeError"
    assert "ranks 0, 1 raised IndexError: list index out of range" in cell.shown_error
    assert "direct cause" in cell.shown_error
    assert cell.shown_error.rstrip().endswith("RuntimeError: the experiment failed")


def test_output_before_the_error_is_shown_and_kept(notebook: Notebook):
    cell = notebook.run("""
        def work():
            print("batch", dist.get_rank())
            raise ValueError

        cluster.run(work)
    """)
    kept = notebook.ok("sys.last_value.run.output.splitlines()")

    assert cell.stream().splitlines() == ["[rank 0] batch 0", "[rank 1] batch 1"]
    assert kept.result == "['[rank 0] batch 0', '[rank 1] batch 1']"


def test_message_cannot_smuggle_colours_or_markup(notebook: Notebook):
    """A rank's message is text: it is shown as the rank wrote it, with no page of ours around."""
    cell = notebook.run("""
        def work():
            raise ValueError("<b>&amp; 100 %</b> {x}")

        cluster.run(work)
    """)

    assert "ranks 0, 1 raised ValueError: <b>&amp; 100 %</b> {x}" in cell.shown_error
