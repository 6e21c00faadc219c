"""Checks in a real kernel: cells, classes of cells, one silent output, the student's line."""

import pytest

pytestmark = pytest.mark.processes

nbformat = pytest.importorskip("nbformat")

TOY = """
from ddpkit.exercises import Case, carry, check, exercise

@exercise("toy", lab="99")
def cases(answer, rng):
    for n in (1, 2):
        yield Case(f"n = {n}", lambda n=n: {"result": answer(n)}, {"result": 2 * n})

cases = exercise("Toy", lab="99")(cases)
"""
DATACLASS = """
from dataclasses import dataclass

@dataclass
class Pair:
    left: int
    right: "int" = 0
"""
NEEDS_PAIR = """
def toy(n):
    return sum(vars(Pair(n, n)).values())

check(toy)
"""
A_CLASS = """
class Toy(int):
    def __new__(cls, n):
        return 2 * n
check(Toy)
"""


@pytest.fixture
def outputs(tmp_path):
    """Return a function that runs cells in one kernel, and returns the outputs of each cell."""
    from nbclient import NotebookClient

    def run(*sources):
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        notebook = nbformat.v4.new_notebook(cells=cells)
        client = NotebookClient(
            notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}, allow_errors=True
        )
        client.execute()
        return [cell.outputs for cell in notebook.cells]

    return run


def texts(cell_outputs):
    """Return all outputs of a cell, which must be text on stdout."""
    assert all((each.output_type, each.name) == ("stream", "stdout") for each in cell_outputs)
    return [each.text for each in cell_outputs]


def test_cells(outputs, tmp_path):
    toy, *rest = outputs(
        TOY,
        DATACLASS,
        NEEDS_PAIR,
        "def toy(n):\n    return n / 0\ncheck(toy)",
        A_CLASS,
        "carry('toy')(4), carry('Toy', quiet=True)(4)",
        "check('toy')",
        "%%time\ncheck(carry('toy', quiet=True))",
    )
    pair, green, red, green_class, carried, refused, again = rest
    assert toy == pair == []
    passed = "✓ n = 1\n✓ n = 2\n{}: passed, 2 of 2 cases. "
    kept = passed + "Your version is kept for later labs.\n"
    assert texts(green) == [kept.format("toy")]
    assert texts(green_class) == [kept.format("Toy")]
    assert texts(red) == [
        "✗ n = 1   ZeroDivisionError: division by zero\n"
        "✗ n = 2   ZeroDivisionError: division by zero\n"
        "    Cell In[4], line 2: return n / 0\n"
        "toy: not yet, 0 of 2 cases. Change your cell, run it, then this one.\n"
    ]
    assert carried[0].text == "toy: your own version, from .ddpkit/answers/toy.py.\n"
    assert carried[1].data["text/plain"] == "(8, 8)"
    assert refused[-1].output_type == "error"
    assert "write check(toy), without quotes" in "\n".join(refused[-1].traceback)
    assert again[0].text.startswith(kept.format("toy"))
    text = (tmp_path / ".ddpkit" / "answers" / "toy.py").read_text()
    assert DATACLASS.partition("dataclass\n\n")[2].strip() in text
    assert "from dataclasses import dataclass\n" in text
