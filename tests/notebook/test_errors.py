"""The text that a student reads after a failed run: only the explanation, with the cell's line."""

import pytest

from tests.cluster.faults import Fault, imports, met_by
from tests.notebook.kernel import Cell, Notebook

pytestmark = pytest.mark.processes


FAULTS = met_by("notebook")


@pytest.fixture(scope="module", autouse=True)
def imported(notebook: Notebook) -> None:
    notebook.ok(imports())


def run(notebook: Notebook, fault: Fault, options: str = "") -> Cell:
    return notebook.run(f"{fault.source()}\ncluster.run({fault.name}{options})")


@pytest.mark.parametrize("name", FAULTS)
def test_explanation_is_all_that_is_shown(notebook: Notebook, name: str):
    fault = FAULTS[name]
    cell = run(notebook, fault, f", timeout={fault.timeout}" if fault.timeout else "")

    assert cell.error is not None
    assert cell.error["ename"] == fault.error.__name__
    assert cell.shown_error == f"{fault.error.__name__}: {cell.error['evalue']}"
    assert [
        text for text in fault.says("notebook", cell.line) if text not in cell.shown_error
    ] == []
    for noise in ("Traceback", "/ddpkit/", "site-packages", "ipykernel_"):
        assert noise not in cell.shown_error
    assert cell.stream("stderr") == ""

    after = notebook.ok("cluster.run(lambda: dist.get_rank()).results")
    assert after.result == "[0, 1]"
    assert notebook.ranks() == []


def test_expect_error_prints_what_the_error_would_show(notebook: Notebook):
    fault = FAULTS["uneven_shapes"]
    failed = run(notebook, fault)
    told = run(notebook, fault, ", expect_error=True")

    assert told.error is None
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
    """A rank's message is text: the page shows the text as the rank wrote it."""
    cell = notebook.run("""
        def work():
            raise ValueError("<b>&amp; 100 %</b> {x}")

        cluster.run(work)
    """)

    assert "ranks 0, 1 raised ValueError: <b>&amp; 100 %</b> {x}" in cell.shown_error
