"""The owner of a file, and the name of a line for the reader."""

import functools
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from ddpkit import source
from ddpkit.exercises.explain import student_line
from ddpkit.rank.record.recorder import Recorder
from ddpkit.rank.where import user_call
from ddpkit.source import RANK_MAIN, add_user_code, is_user_file


@pytest.mark.parametrize(
    ("filename", "mine"),
    [
        ("/home/me/train.py", True),
        ("/tmp/ipykernel_1/123.py", True),
        ("<ipython-input-3-abc>", True),
        ("<stdin>", True),
        ("<timed exec>", True),
        ("<timed eval>", True),
        ("<magic-timeit>", True),
        ("<string>", False),
        ("<frozen importlib>", False),
        ("/x/.venv/lib/python3.11/site-packages/torch/nn.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("/home/me/my-packages/train.py", True),
        (threading.__file__, False),
        (sysconfig.__file__, False),
        (sys.modules[Recorder.__module__].__file__, False),
    ],
)
def test_whose_file_it_is(filename, mine):
    assert is_user_file(filename) is mine


@pytest.mark.parametrize(("name", "cell"), [("timed exec", "time"), ("magic-timeit", "timeit")])
def test_an_error_in_a_cell_under_a_magic_is_in_a_line_of_the_students(name, cell):
    """The magic compiles the cell under another file name, and the first line is the magic's."""
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("x = 1\nx / 0", f"<{name}>", "exec"), {})
    assert student_line(caught.value) == f"%%{cell} cell, line 3"


@pytest.fixture(autouse=True)
def forgets(monkeypatch):
    """Forget the code that a test has added to the reader's code."""
    monkeypatch.setattr(source, "_shipped", set())
    is_user_file.cache_clear()
    yield
    is_user_file.cache_clear()


def made(filename, text="def f():\n    return lambda: 1\n"):
    names = {"functools": functools}
    exec(compile(text, filename, "exec"), names)
    return names["f"]


WRAPPED = """
def f(g):
    @functools.wraps(g)
    def inner():
        return 1
    return inner
"""


@pytest.mark.parametrize(
    "shipped",
    [
        lambda f: f,
        lambda f: f(),  # the inner function
        lambda f: functools.partial(f, 1),
        lambda f: functools.partial(print, f),
        lambda f: lambda: f,  # a function in a closure
        lambda f: made("<wrapper>", WRAPPED)(f),
        lambda f: type("Callable", (), {"__call__": f})(),
        lambda f: type("Callable", (), {"method": f})().method,
    ],
)
def test_code_that_a_run_is_given_is_the_readers_whatever_its_file_is_called(shipped, forgets):
    assert not is_user_file("<my code>")
    add_user_code(shipped(made("<my code>")))
    assert is_user_file("<my code>")
    assert not is_user_file("<other code>")


def test_a_librarys_function_that_is_run_stays_the_librarys(forgets):
    add_user_code(pytest.raises, functools.wraps, len, 5, None, made("<frozen importlib>"))
    for file in (pytest.raises.__code__.co_filename, functools.__file__, "<frozen importlib>"):
        assert not is_user_file(file)


def test_a_library_in_a_folder_of_its_own_is_no_readers(forgets, tmp_path, monkeypatch):
    """Libraries of `pip install --target` are not the reader's code; a folder in PYTHONPATH is."""
    mine, theirs = tmp_path / "mine", tmp_path / "site [1]"
    (theirs / "numpy-2.0.dist-info").mkdir(parents=True)
    mine.mkdir()
    monkeypatch.syspath_prepend(mine)
    monkeypatch.syspath_prepend(theirs)
    is_user_file.cache_clear()
    assert is_user_file(f"{mine}/train.py")
    assert not is_user_file(f"{theirs}/numpy/core.py")


def test_what_started_a_rank_is_not_the_readers(forgets):
    """The forkserver is started by `python -c`, so its code has the file name "<string>" too.

    A rank that is starting is in no line of the reader.
    """
    code, names = "def f(*inner):\n    return inner[0](*inner[1:])\n", {}
    for name, file in (("string", "<string>"), ("main", RANK_MAIN), ("torchs", sysconfig.__file__)):
        exec(compile(code, file, "exec"), names)
        names[name] = names["f"]
    string, main, torchs = names["string"], names["main"], names["torchs"]
    add_user_code(string)
    look = functools.partial(sys._getframe, 0)
    assert is_user_file(RANK_MAIN) is False
    assert user_call(string(main, torchs, look))[0] == ("", 0)
    assert user_call(string(main, string, torchs, look))[0] == ("<string>", 2)
    assert Path(RANK_MAIN).is_file()


def test_a_questions_code_is_the_kits_although_it_lies_elsewhere_in_a_sandbox() -> None:
    assert not is_user_file("/teacher/ddpkit/checks/lab10/disk.py")
    assert is_user_file("/student/checks/lab10/disk.py")
