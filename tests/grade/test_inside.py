"""The code beside hostile code: `ddpkit.grade.inside`, and little of the rest of ddpkit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ddpkit.grade import freshness
from ddpkit.grade.attempt import _notebook
from ddpkit.grade.sandbox import base
from ddpkit.rank.compiler import PARTS
from tests.grade.conftest import wait_until
from tests.project.source import imports, modules

INSIDE = "ddpkit.grade.inside"
# the other modules of ddpkit that it needs: to run ranks, and to put errors into words
TAKEN = {
    "ddpkit.asked",
    "ddpkit.cluster.local.launch",
    "ddpkit.exercises",
    "ddpkit.exercises.explain",
    "ddpkit.exercises.guard",
    "ddpkit.exercises.limit",
    "ddpkit.exercises.raised",
    "ddpkit.exercises.tail",
    "ddpkit.exercises.values",
    "ddpkit.rank.compiler",
}


def ours() -> set[str]:
    return {name for name in modules() if f"{name}.".startswith(f"{INSIDE}.")}


def test_what_it_takes_from_the_rest_of_ddpkit_is_listed() -> None:
    taken = {each.imported for each in imports() if each.importer in ours()}
    assert {name for name in taken if name.startswith("ddpkit.")} - ours() == TAKEN


def test_what_it_loads_tells_nothing() -> None:
    """No grader, check, answer, lesson maker or command is loaded."""
    loaded, _ = freshness.reached_from(ours())
    told = ("ddpkit.grade.", "ddpkit.checks.lab", "ddpkit.answers.lab", "ddpkit.authoring.")
    telling = {name for name in loaded if f"{name}.".startswith((*told, "ddpkit.commands."))}
    assert telling - ours() == {"ddpkit.grade"}  # its docstring


@pytest.mark.parametrize("lab", ["00", "03", "06"])
def test_the_course_in_the_sandbox_has_no_other_part_of_the_grader(
    tmp_path: Path, lab: str
) -> None:
    course = base.copy_course(tmp_path, lab)
    there = {path.relative_to(course / "grade").as_posix() for path in course.glob("grade/**/*.py")}
    assert there == {"__init__.py", *(f"inside/{name}.py" for name in _files())}


@pytest.mark.processes
def test_the_plugin_comes_without_the_rest_of_ddpkit(tmp_path: Path) -> None:
    """The kernel's folder comes second in pytest's process, which holds the pipe to the grader."""
    course = base.copy_course(tmp_path, "00").parent
    environ = base.environment(1, course, tmp_path, tmp_path, tmp_path)
    bare, rest = environ["PYTHONPATH"].split(os.pathsep)
    assert rest == str(course)
    there = {path.relative_to(bare).as_posix() for path in Path(bare).rglob("*.py")}
    inside = {f"ddpkit/grade/inside/{name}.py" for name in _files()}
    assert there == {"ddpkit/__init__.py", "ddpkit/grade/__init__.py", *inside}
    code = (
        f"import sys; import {INSIDE}.plugin as plugin; plugin.pytest_configure(); import os\n"
        "print(*sorted(name for name in sys.modules if name.startswith('ddpkit')))\n"
        "print(os.environ['PYTHONPATH'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, cwd=tmp_path
    )
    loaded = f"ddpkit ddpkit.grade {INSIDE} {INSIDE}.plugin"
    assert done.stdout == f"{loaded}\n{course}\n", done.stderr


def _files() -> set[str]:
    return {name.removeprefix(f"{INSIDE}.") for name in ours() - {INSIDE}} | {"__init__"}


@pytest.mark.processes
def test_it_works_with_that_course_alone(tmp_path: Path) -> None:
    base.copy_course(tmp_path, "00")
    code = (
        "import sys; from ddpkit.grade.inside.asking import claimed; import ddpkit\n"
        "print(claimed(lambda: {'n': 3}), claimed(lambda: 1 / 0)['kinds'][0], ddpkit.__file__)\n"
        "print(*sorted(name for name in sys.modules if name.startswith('ddpkit.grade')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "course00")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    said, loaded = done.stdout.splitlines()
    assert said.startswith("{'seen': ['d', [[['s', 'n'], ['i', '0x3']]]], 'printed': []}")
    assert "ZeroDivisionError" in said
    assert str(tmp_path) in said
    assert set(loaded.split()) == {"ddpkit.grade", INSIDE, f"{INSIDE}.asking", f"{INSIDE}.claims"}


KERNEL = """
import ipykernel.kernelapp, os, signal, sys
from multiprocessing.forkserver import _forkserver

def serve():
    import ddpkit

    running = lambda pid: open(f"/proc/{pid}/cmdline").read()
    server = _forkserver._forkserver_pid
    os.kill(server, signal.SIGUSR2)  # a run that asks for the compiler while it has no handler yet
    from ddpkit.rank import compiler
    print(*sorted(compiler.loaded_parts()), running(server) == running(os.getpid()))
    found = ddpkit.Cluster(2).run(lambda: (os.getppid(), compiler.is_loaded())).results
    print(found == [(server, True)] * 2, server)

ipykernel.kernelapp.launch_new_instance = serve
from ddpkit.grade.inside.kernel import main
main()
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no forkserver")
@pytest.mark.parametrize(
    ("cell", "question", "parts"),
    [
        ("x = 1", b"torch", []),
        ("x = '\ud800'", b"torch", []),
        ("Optimizer()", b"\x8c\x05torch\x94\x8c\x05optim\x94", []),
        ("x = 1", b"\x8c\x08backward\x94", [PARTS[0]]),  # the question of lab 12, with a gradient
        ("torch.compile(f)", b"\x8c\x08backward\x94", sorted(PARTS)),
        ("x = 1", b"\x8c\x05torch\x94\x8c\x07DTensor\x94", sorted(PARTS)),
    ],
)
def test_ranks_come_from_a_fork_of_the_kernel_that_ends_with_it(
    tmp_path: Path, cell: str, question: bytes, parts: list[str]
) -> None:
    """So torch is imported only once, and the compiler too if a cell or a question may need it.

    In other cases the compiler is imported when a run asks for it.
    """
    (tmp_path / "SlicedMLP.0").write_bytes(question)
    (tmp_path / "labels.json").write_text(json.dumps({cell: "helper"}))
    done = subprocess.run(
        [sys.executable, "-c", KERNEL],
        env={**os.environ, "DDPKIT_QUESTIONS": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    *said, server = done.stdout.split()
    assert said == [*parts, "True", "True"]
    wait_until(lambda: not Path("/proc", server).exists(), 10)


SHUFFLES = """
def pytest_collection_modifyitems(items):
    items.reverse()
"""


def begun() -> list[int]:
    """Return the cells of a notebook in order of begin, with a shuffling pytest plugin."""
    # a short path, because the kernel's sockets lie in it
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        course, job = base.copy_course(folder, "00").parent, folder / "job"
        (course / "shuffles.py").write_text(SHUFFLES)
        (installed := course / "shuffles-1.dist-info").mkdir()
        (installed / "METADATA").write_text("Name: shuffles\nVersion: 1\n")
        (installed / "entry_points.txt").write_text("[pytest11]\nshuffles = shuffles\n")
        (job / "questions").mkdir(parents=True)
        (job / "questions" / "labels.json").write_text("{}")
        (job / "graded.ipynb").write_text(json.dumps(_notebook(["x = 1", "y = 2"])))
        reading, writing = os.pipe()
        command = base.command_line(job, base.Limits())
        environ = base.environment(writing, course, job, folder, folder)
        subprocess.run(command, env=environ, cwd=job, pass_fds=[writing], timeout=100)
        os.close(writing)
        with os.fdopen(reading) as lines:
            entries = [json.loads(line) for line in lines]
    return [entry["begins"] for entry in entries if "begins" in entry]


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="grading is for Linux")
def test_no_plugin_that_is_installed_puts_the_cells_in_disorder() -> None:
    """pytest-randomly would change the order."""
    assert begun() == [0, 1]
