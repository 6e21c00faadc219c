"""Ranks run functions defined in cells, with the names they use, classes and redefinitions."""

import pytest

from tests.notebook.kernel import Notebook

pytestmark = pytest.mark.processes

FROM_CELLS = {
    "a function with the globals and the functions of other cells": """
        def shifted(x):
            return x + OFFSET

        def hello():
            return shifted(dist.get_rank())

        OFFSET = 10
        cluster.run(hello).results == [10, 11]
    """,
    "a lambda": "cluster.run(lambda: dist.get_rank() ** 2).results == [0, 1]",
    "a closure": """
        def scale(factor):
            def scaled(x):
                return factor * x + dist.get_rank()
            return scaled

        cluster.run(scale(3), 5).results == [15, 16]
    """,
    "a function that calls itself": """
        def factorial(n):
            return 1 if n == 0 else n * factorial(n - 1)

        cluster.run(factorial, 5).results == [120, 120]
    """,
    "a decorated function": """
        import functools

        def doubled(function):
            @functools.wraps(function)
            def wrapper(*args):
                return 2 * function(*args)
            return wrapper

        @doubled
        def rank():
            return dist.get_rank()

        cluster.run(rank).results == [0, 2]
    """,
    "a generator made on the rank": """
        def batches(n):
            for i in range(n):
                yield torch.full((2,), i)

        cluster.run(lambda: sum(int(b.sum()) for b in batches(4))).results == [12, 12]
    """,
    "a dataclass, there and back": """
        from dataclasses import dataclass

        @dataclass
        class Step:
            loss: float
            def halved(self):
                return Step(self.loss / 2)

        cluster.run(lambda step: step.halved(), Step(3.0)).results == [Step(1.5), Step(1.5)]
    """,
    "a method of an object": """
        class Counter:
            def __init__(self, start):
                self.start = start
            def count(self):
                return self.start + dist.get_rank()

        cluster.run(Counter(7).count).results == [7, 8]
    """,
    "a module with a parent and super()": """
        class Shifted(torch.nn.Linear):
            def forward(self, x):
                return super().forward(x) + 1

        model = Shifted(3, 2)
        x = torch.ones(3)
        outputs = cluster.run(lambda: model(x)).results
        all(torch.equal(output, model(x)) for output in outputs)
    """,
    "a global that a rank changes stays the notebook's": """
        log = []
        lengths = cluster.run(lambda: (log.append(1), len(log))[1]).results
        (lengths, log) == ([1, 1], [])
    """,
    "names that IPython made": """
        before = In
        cluster.run(lambda: type(before).__name__).results == ["list", "list"]
    """,
}


@pytest.mark.parametrize("source", FROM_CELLS.values(), ids=FROM_CELLS)
def test_from_cells(notebook: Notebook, source: str):
    assert notebook.ok(source).result == "True"


def test_arguments_per_rank(notebook: Notebook):
    cell = notebook.ok("""
        from ddpkit import PerRank
        cluster.run(lambda word, n: word * n, PerRank(["a", "b"]), n=2).results
    """)

    assert cell.result == "['aa', 'bb']"


def test_generator_as_argument_is_refused_by_name(notebook: Notebook):
    cell = notebook.run("""
        def total(numbers):
            return sum(numbers)

        cluster.run(total, (n * n for n in range(3)))
    """)

    assert cell.shown_error.startswith(
        "ClusterError: argument 0 of total is a generator, which cannot be sent to another process"
    )
    assert cell.shown_error.endswith(
        "Send the data that it is made from, and make it inside total."
    )


def test_unpicklable_global_is_named_with_the_way_to_it(notebook: Notebook):
    cell = notebook.run("""
        log = open(os.devnull, "w")

        def write():
            log.write("x")

        def train():
            write()

        cluster.run(train)
    """)

    assert "ClusterError: train calls write, which uses the variable 'log'" in cell.shown_error


def test_redefined_helper_is_what_runs(notebook: Notebook):
    notebook.ok("""
        def helper():
            return "old"

        def outer():
            return helper()
    """)
    assert notebook.ok("cluster.run(outer).results").result == "['old', 'old']"

    notebook.ok("def helper():\n    return NAME\n\nNAME = 'new'")
    assert notebook.ok("cluster.run(outer).results").result == "['new', 'new']"

    notebook.ok("NAME = 'newest'")
    assert notebook.ok("cluster.run(outer).results").result == "['newest', 'newest']"


def test_error_in_a_redefined_function_names_its_newest_cell(notebook: Notebook):
    first = notebook.run("def step():\n    raise ValueError('first')\n\ncluster.run(step)")
    again = notebook.run("def step():\n    x = 1\n    raise ValueError('again')\n")
    runs = notebook.run("cluster.run(step)")

    assert f"{first.line(2)}: raise ValueError('first')" in first.shown_error
    assert f"{again.line(3)}: raise ValueError('again')" in runs.shown_error
    assert "first" not in runs.shown_error


def test_the_same_cell_run_twice_is_named_by_its_newest_number(notebook: Notebook):
    source = "def step():\n    raise ValueError('same text')\n\ncluster.run(step)"
    first, second = notebook.run(source), notebook.run(source)

    assert second.count == first.count + 1
    assert f"{second.line(2)}: raise ValueError('same text')" in second.shown_error


def test_run_is_short_beside_out(notebook: Notebook):
    cell = notebook.ok("run = cluster.run(lambda: torch.zeros(100, 100))\nrun")

    assert cell.result.startswith("<Run of 2 ranks: results [")
    assert len(cell.result) < 120
    assert "\n" not in cell.result


def test_inside_an_async_cell(notebook: Notebook):
    cell = notebook.ok("""
        import asyncio

        async def later():
            await asyncio.sleep(0.01)
            return cluster.run(lambda: dist.get_rank()).results

        first, second = await later(), await later()
        first + second
    """)

    assert cell.result == "[0, 1, 0, 1]"


def test_in_a_background_thread(notebook: Notebook):
    cell = notebook.ok("""
        import threading

        runs = []

        def work():
            runs.append(cluster.run(lambda: print("from", dist.get_rank()) or "done"))

        thread = threading.Thread(target=work)
        thread.start()
        here = cluster.run(lambda: dist.get_rank()).results
        thread.join()
        here + runs[0].results
    """)

    assert cell.result == "[0, 1, 'done', 'done']"
    assert {"[rank 0] from 0", "[rank 1] from 1"} <= set(cell.stream().splitlines())


@pytest.mark.parametrize(
    ("magic", "place"),
    [
        ("%%time", "  %%time cell, line 4  (in divide)"),
        ("%%timeit -n1 -r1", "  %%timeit cell"),
        # IPython counts the lines of the body
        ("%%capture", ", line 3: return 1 / nothing  (in divide)"),
    ],
)
def test_an_error_under_a_magic_has_its_line(notebook: Notebook, magic: str, place: str):
    """`%%time` compiles its cell under another file name, but the code is still the reader's."""
    cell = notebook.run(f"""
        {magic}
        def divide():
            nothing = 0
            return 1 / nothing

        cluster.run(divide)
    """)

    assert "ranks 0, 1 raised ZeroDivisionError: division by zero" in cell.shown_error
    assert place in cell.shown_error


def test_time_magic_shows_the_run_and_its_time(notebook: Notebook):
    cell = notebook.ok("%%time\ncluster.run(lambda: 1)")

    assert cell.result == "<Run of 2 ranks: results [1, 1]>"
    assert "Wall time" in cell.stream()


def test_a_module_beside_the_notebook_edited_and_reloaded(notebook: Notebook):
    """The ranks import the module themselves, and read the present file."""
    cell = notebook.run("""
        from pathlib import Path
        Path("mylib.py").write_text("def f():\\n    return 'old'\\n")
        import mylib
        cluster.run(mylib.f).results
    """)
    assert cell.result == "['old', 'old']"

    cell = notebook.run("""
        import importlib
        Path("mylib.py").write_text("def f():\\n    'edited'\\n    raise ValueError('new')\\n")
        importlib.reload(mylib)
        cluster.run(mylib.f)
    """)
    assert "  mylib.py, line 3: raise ValueError('new')  (in f)" in cell.shown_error


def test_working_directory_is_the_notebooks_of_now(notebook: Notebook, tmp_path):
    cell = notebook.ok(f"""
        was = os.getcwd()
        os.chdir({str(tmp_path)!r})
        try:
            there = cluster.run(os.getcwd).results
        finally:
            os.chdir(was)
        there == [{str(tmp_path)!r}] * 2 and cluster.run(os.getcwd).results == [was] * 2
    """)

    assert cell.result == "True"


def test_environment_is_the_notebooks_of_now(notebook: Notebook):
    cell = notebook.ok("""
        os.environ["COLOUR"] = "blue"
        cluster.run(lambda: os.environ["COLOUR"]).results
    """)

    assert cell.result == "['blue', 'blue']"
