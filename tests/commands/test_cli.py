"""The command line for a person: exit codes, and sentences instead of tracebacks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

import ddpkit
from ddpkit.commands.main import main

pytestmark = pytest.mark.processes

ROOT = Path(ddpkit.__file__).parent.parent


def ddpkit_command(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ddpkit", *args],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **environ},
    )


def test_version_and_help():
    assert ddpkit_command("--version").stdout.strip().endswith(ddpkit.__version__)
    result = ddpkit_command("--help")
    assert result.returncode == 0
    for name in ("doctor", "lab", "check", "release"):
        assert f"  {name} " in result.stdout
        assert ddpkit_command(name, "--help").returncode == 0


def test_each_file_of_the_folder_is_a_command():
    files = {path.stem for path in Path(ddpkit.__file__).parent.glob("commands/[a-z]*.py")}
    shared = {"beside", "diagnosis", "summary", "numbers", "waiting"}  # modules without a command
    assert set(main.commands) == files - {"main"} - shared


def test_unknown_command_is_an_error():
    result = ddpkit_command("docter")
    assert result.returncode == 2
    assert "docter" in result.stderr


# doctor


def test_doctor_of_a_sound_machine():
    result = ddpkit_command("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    for what in ("python", "torch", "jupyter", "cores", "gpus", "interface", "sandbox", "ranks"):
        assert f"✓ {what} " in result.stdout
    assert "2 ranks · gloo · cpu: all_reduce works" in result.stdout


def test_doctor_without_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch_cpu.so: cannot open')")
    result = ddpkit_command("doctor", PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    assert "✗ torch        cannot be imported: libtorch_cpu.so: cannot open" in result.stdout
    assert "pip install -c constraints.txt torch" in result.stdout
    assert "1 problem to repair" in result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert " ranks    " not in result.stdout  # checks that need torch are not tried


def test_doctor_without_gloo(monkeypatch):
    monkeypatch.setattr("torch.distributed.is_gloo_available", lambda: False)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "without gloo" in result.output


def test_doctor_with_an_interface_that_does_not_exist():
    result = ddpkit_command("doctor", GLOO_SOCKET_IFNAME="eth99")
    assert result.returncode == 1
    assert "GLOO_SOCKET_IFNAME=eth99 names no interface of this machine: eth99" in result.stdout
    assert "unset it, or choose from: " in result.stdout
    assert " ranks    " not in result.stdout  # the ranks would fail for the same reason


def test_doctor_says_what_a_failed_run_says(monkeypatch):
    def run(*_, **__):
        raise ddpkit.RankDied("rank 1 was killed by SIGILL", ranks=(1,))

    monkeypatch.setattr("ddpkit.cluster.Cluster.run", run)
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "two ranks could not add: rank 1 was killed by SIGILL" in result.output


# lab


@pytest.mark.parametrize("words", [["00", "--no-browser"], ["00", "--port=8899", "-y"]])
def test_an_option_of_jupyters_is_told_where_it_goes(words):
    done = CliRunner().invoke(main, ["lab", *words])
    assert done.exit_code == 2
    assert done.output.splitlines()[-1].startswith("Error: No such option")
    assert (
        f"Write -- before the options of jupyter: ddpkit lab 00 -- {' '.join(words[1:])}"
        in done.output
    )


def test_labs_are_listed():
    result = ddpkit_command("lab", "--list")
    labs = sorted((ROOT / "labs").glob("[0-9]*.ipynb"))
    assert result.stdout.split() == [path.stem for path in labs]


@pytest.mark.parametrize("name", ["99", "ranks of", "0_"])
def test_a_lab_that_is_not_there(name):
    result = ddpkit_command("lab", name)
    assert result.returncode == 1
    assert f"There is no lab {name!r}. The labs are: 00_ranks, 01_sgd" in result.stderr


# check


def notebook(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


RIGHT = """
import torch
def minibatches(n, batch_size, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return list(order.split(batch_size))
"""


def test_check_tells_right_from_wrong_and_leaves_the_file_alone(tmp_path):
    path = notebook(
        tmp_path / "lab.ipynb",
        "from ddpkit import check",
        RIGHT,
        "check(minibatches)",
        "def sgd_step(*args):\n    raise NotImplementedError('your code here: about 6 lines')",
        "check(sgd_step)",
        "1 / 0",
        "check(accumulate)",
    )
    before = path.read_bytes()
    result = ddpkit_command("check", str(path))
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("✓ minibatches  passed, 5 of 5 cases")
    assert lines[1].startswith("✗ sgd_step     not answered yet")
    assert lines[2].startswith("✗ accumulate   NameError: name 'accumulate' is not defined")
    assert lines[3] == "1 of 3 exercises pass."
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]  # no file of progress, no kept answer


def test_check_of_a_kernel_that_dies(tmp_path):
    path = notebook(tmp_path / "x.ipynb", "import os; os._exit(1)", "check(minibatches)")
    result = ddpkit_command("check", str(path))
    assert result.returncode == 1
    assert "✗ minibatches  not run" in result.stdout


def test_check_stops_a_cell_that_takes_too_long(tmp_path):
    path = notebook(
        tmp_path / "x.ipynb",
        # on a busy machine the import alone exceeded a check's limit for a cell
        "import cloudpickle, torch",
        "while True: pass",
        "from ddpkit import check",
        RIGHT,
        "check(minibatches)",
    )
    result = ddpkit_command("check", "--timeout", "5", str(path))
    assert "✓ minibatches" in result.stdout
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "is not a notebook"), ("[]", "is not a notebook"), ("{", "is not a notebook")],
)
def test_check_of_what_is_no_notebook(tmp_path, content, says):
    path = tmp_path / "x.ipynb"
    path.write_text(content)
    result = ddpkit_command("check", str(path))
    assert result.returncode == 1
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_check_of_a_notebook_without_checks(tmp_path):
    result = ddpkit_command("check", str(notebook(tmp_path / "x.ipynb", "1 + 1")))
    assert result.returncode == 1
    assert "has no cell with check(...)" in result.stderr


# release


def test_release_check_of_this_tree():
    result = ddpkit_command("release", "--check")
    assert result.returncode == 0, result.stdout
    assert "are fresh" in result.stdout


def test_release_check_fails_on_a_stale_lab(tmp_path, monkeypatch):
    for folder in ("labs", "solutions"):
        (tmp_path / folder).mkdir()
        for path in (ROOT / folder).glob("00_*"):
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    answers = tmp_path / "ddpkit" / "answers"
    answers.mkdir(parents=True)
    lab = tmp_path / "labs" / "00_ranks.ipynb"
    content = json.loads(lab.read_text())
    content["cells"][0]["source"] = ["# Another title\n"]
    lab.write_text(json.dumps(content))
    monkeypatch.setattr("ddpkit.commands.release.CHECKOUT", tmp_path)
    result = CliRunner().invoke(main, ["release", "--check"])
    assert result.exit_code == 1
    assert "labs/00_ranks.ipynb" in result.output
    assert "make release" in result.output


def test_no_command_makes_a_parser_of_web_addresses():
    """nbformat's checks would make the parser in a second, for a format of no notebook"""
    names = "'jsonschema' in sys.modules, 'lark' in sys.modules"
    code = f"import ddpkit.commands.main, nbformat, sys; print({names})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "True False\n", done.stderr
