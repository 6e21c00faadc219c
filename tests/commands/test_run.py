"""`ddpkit run`: unchanged scripts for torchrun on the ranks of a Cluster."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import zipapp
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from ddpkit import Cluster, Run, RunFailed
from ddpkit.commands.main import main
from ddpkit.commands.run import exit_code, explanation, launched, save
from ddpkit.trace import Trace
from tests.view import examples

pytestmark = pytest.mark.processes

SCRIPTS = Path(__file__).parent / "scripts"
COMMAND = [sys.executable, "-m", "ddpkit", "run"]


def ddpkit_run(
    *words: str | Path, cwd: Path = SCRIPTS, stdin: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=cwd,
        input=stdin,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=240,
    )


def ran(*words: str | Path, **how: object) -> subprocess.CompletedProcess[str]:
    """Run `ddpkit run`, and assert a return code of 0."""
    done = ddpkit_run(*words, **how)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def on(ranks: int, name: str, *args: str, **how: Any) -> Run[None]:
    """Run one of the scripts without the command, and so without a new forkserver."""
    cluster = Cluster(ranks, **how)
    return cluster.run(launched(str(SCRIPTS / name), args, False, cluster))


def test_a_script_runs_as_under_torchrun() -> None:
    done = ran("-n", "2", "ddp.py", "--epochs", "2", "-n", "128")
    first, second = done.stdout.splitlines()
    assert first.startswith("epoch 0: 2 ranks, loss 0.")
    assert second.startswith("epoch 1: 2 ranks, loss 0.")
    assert "Run on 2 ranks, 8 all-reduces of " in done.stderr
    assert "rank 1 " in done.stderr


@pytest.mark.parametrize("ranks", [1, 4])
def test_on_other_numbers_of_ranks(ranks: int) -> None:
    run = on(ranks, "ddp.py")
    assert run.trace.steps == 4 // ranks
    assert run.traffic.collectives(0)["all_reduce"].times == run.trace.steps


def test_emulated_time_says_so_and_changes_no_value(tmp_path: Path) -> None:
    trace = tmp_path / "run.json.gz"
    link = '{"hosts of": 1, "inside": "300 GB/s, 3 us", "between": "10 Gbit/s, 10 us"}'
    speed = ("--speed", "inf")
    done = ran("-n", "2", "--link", link, *speed, "--trace", trace, SCRIPTS / "ddp.py")
    assert done.stdout.startswith("epoch 0: 1 ranks, loss 0.")  # "1 ranks": on the rank's host
    assert "emulated" in done.stderr
    assert f"wrote {trace}" in done.stderr
    assert Trace.load(trace).facts["speed"] == "infinite"


@pytest.mark.parametrize("link", [None, "1 Gbit/s, 50 us"])
def test_a_script_joins_and_leaves_and_joins_again(link: str | None) -> None:
    run = on(3, "joins_twice.py", link=link)
    assert run.traffic.collectives(1)["all_reduce"].times == 2
    assert run.traffic.collectives(2)["all_reduce"].times == 1


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("exits with 3", 3, "rank 1 called sys.exit(3)"),
        ("exits with words", 1, "ranks 0, 1 called sys.exit(there is no data)"),
        ("leaves with 7", 7, "rank 0 left with exit code 7"),
        ("is killed", 137, "rank 1 was killed by SIGKILL\n  "),
        ("raises", 1, "rank 1 raised ValueError: a bad </script> batch\n  ends.py, line "),
        ("deadlock", 1, "Why: ranks 0, 1 each wait to receive before they send"),
        ("mismatch", 1, "Every rank must pass a tensor of the same shape."),
        ("one joins", 1, "rank 1, which has returned without calling\n  init_process_group."),
    ],
)
def test_an_end_is_explained_and_has_its_own_code(how: str, code: int, says: str) -> None:
    with pytest.raises(RunFailed) as failed:
        on(2, "ends.py", how)
    said = explanation(failed.value)
    assert (exit_code(failed.value), says in said) == (code, True), said
    assert "ends.py, line " in said or "somewhere in ends.py" in said
    assert "ddpkit" not in said


@pytest.mark.parametrize("how", ["exits with 0", "never joins", "leaves a pool open"])
def test_an_end_without_a_word(how: str) -> None:
    operations = [span.name for span in on(2, "ends.py", how).trace.spans]
    assert operations == ([] if how == "never joins" else ["barrier"] * 2)


def test_a_traceback_is_the_scripts() -> None:
    done = ddpkit_run("-n", "2", "ends.py", "raises")
    assert done.returncode == 1
    frames = [line for line in done.stderr.splitlines() if line.startswith('  File "')]
    assert all("ends.py" in frame for frame in frames)
    assert len(frames) == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json.gz", gzip.compress(b"{}", mtime=0)),
        ("null.py", b"\0"),
        ("latin.py", b"x = '\xe4'"),
    ],
)
def test_a_file_that_is_no_text_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (file := tmp_path / name).write_bytes(content)
    done = CliRunner().invoke(main, ["run", "-n", "2", str(file)])
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: '{file}' is not a Python script")


def test_a_folder_that_python_cannot_run_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["run", "-n", "2", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: The folder '{tmp_path}' has no __main__.py")


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_or_an_archive_that_python_runs(tmp_path: Path, packed: bool) -> None:
    (folder := tmp_path / "app").mkdir()
    (folder / "__main__.py").write_text("import other\nprint(other.name)\n")
    (folder / "other.py").write_text("name = 'of a folder'\n")
    if packed:
        zipapp.create_archive(folder, tmp_path / "app.pyz")
    done = ran("-n", "1", "app.pyz" if packed else "app", cwd=tmp_path)
    assert done.stdout == "of a folder\n"


def test_a_scripts_bad_syntax_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_text("import torch\ndef f(:\n    pass\n")
    with pytest.raises(RunFailed) as failed:
        on(1, str(script))
    said = explanation(failed.value).splitlines()
    assert said[:2] == ["On rank 0:", f'  File "{script}", line 2']
    assert said[-1] == "  train.py, line 2: def f(:"
    assert "ddpkit" not in "\n".join(said)


@pytest.mark.parametrize(
    ("number", "ignored", "by"),
    [
        (signal.SIGINT, (), "you"),
        (signal.SIGTERM, (), "SIGTERM"),
        (signal.SIGQUIT, (), "SIGQUIT"),
        (signal.SIGHUP, (), "SIGHUP"),
        # a background job of a shell, started with "&"
        (signal.SIGTERM, (signal.SIGINT, signal.SIGQUIT), "SIGTERM"),
        (signal.SIGTERM, (signal.SIGHUP,), "SIGTERM"),  # under nohup
    ],
)
def test_a_signal_ends_all_and_says_where(
    number: signal.Signals, ignored: tuple[signal.Signals, ...], by: str
) -> None:
    def ignore() -> None:
        signal.signal(number, signal.SIG_DFL)  # this process may run under nohup
        for each in ignored:
            signal.signal(each, signal.SIG_IGN)

    running = subprocess.Popen(
        [*COMMAND, "-n", "2", "ends.py", "sleeps"],
        preexec_fn=ignore,
        cwd=SCRIPTS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(2)] == ["asleep\n"] * 2
    children = psutil.Process(running.pid).children(recursive=True)
    assert len(children) >= 3
    for each in (*ignored, number):
        os.killpg(running.pid, each)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert said.startswith(f"{by} stopped the run. At that moment,\n  rank 0 was in ends.py, line ")
    assert "Traceback" not in said
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_a_module_its_folder_and_its_input(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").write_text("name = 'other'\n")
    (package / "main.py").write_text(
        "import os, sys\nfrom . import other\n"
        "if os.environ['RANK'] == '0':\n"
        "    print(__name__, other.name, sys.argv[1:], sys.stdin.read().upper())\n"
    )
    done = ran("-n", "2", "-m", "package.main", "--lr", "1", cwd=tmp_path, stdin="what is read")
    assert done.stdout == "__main__ other ['--lr', '1'] WHAT IS READ\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["-n", "2", "nothing.py"], 1, "There is no script 'nothing.py'."),
        (["-n", "2", "--device", "cuda", "ddp.py"], 1, "has no option --device"),
        (["-n", "2", "-m", "nothing.at_all"], 1, "There is no module 'nothing'"),
        (["-n", "0", "ends.py"], 1, "-n 0: give a number of ranks from 1 to 256."),
        (["-n", "300", "ends.py"], 1, "-n 300: give a number of ranks from 1 to 256."),
        (["-n", "2", "--link", "10 x", "ends.py"], 1, "cannot read the link '10 x'"),
        (["-n", "2", "--link", "{", "ends.py"], 1, "--link '{' is not JSON"),
        (["-n", "2", "--speed", "2", "ends.py"], 1, "speed= works in emulated time only"),
        (["-n", "2", "--speed", "a=2", "ends.py"], 1, "cannot read --speed a=2"),
        (["-n", "2", "--trace", "run.txt", "ends.py"], 1, "--trace run.txt: write FILE.json"),
        (["-n", "2", "--trace", "no/run.json", "ends.py"], 1, "the folder no is missing"),
        (["ends.py"], 2, "Missing option '-n'"),
    ],
)
def test_what_cannot_run_is_one_sentence(
    words: list[str], code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SCRIPTS)
    done = CliRunner().invoke(main, ["run", *words])
    assert done.exit_code == code
    assert says in done.output


def test_under_torchrun_it_says_that_it_starts_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    done = CliRunner().invoke(main, ["run", "-n", "2", str(SCRIPTS / "ends.py")])
    assert done.exit_code == 1
    assert "`ddpkit run` starts ranks" in done.output


@pytest.mark.parametrize(
    ("name", "holds"),
    [("all.chrome.json", '"traceEvents"'), ("own.json", '"ddpkit_trace"'), ("hta", "")],
)
def test_the_name_of_a_file_says_the_format(tmp_path: Path, name: str, holds: str) -> None:
    save(examples.ddp(2), tmp_path / name)
    if holds:
        assert holds in (tmp_path / name).read_text("utf-8")
    else:
        assert len(list((tmp_path / name).iterdir())) == 2


def test_what_a_script_leaves_open_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    on(2, "leaves_open.py")
    for rank in "01":
        assert (tmp_path / f"log{rank}").read_text() == "a line, a thread"
        assert (tmp_path / f"left{rank}").read_text() == "at the exit"


LINKS_OF_HOSTS = (
    {"hosts of": 2, "inside": "100 Gbit/s", "between": "1 Gbit/s"},
    {"hosts of": 4, "inside": "100 Gbit/s", "between": "1 Gbit/s"},
    "1 Gbit/s",
)
PLACES = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
)


@pytest.mark.parametrize("link", LINKS_OF_HOSTS, ids=["three hosts", "two hosts", "no hosts"])
def test_a_cluster_tells_ranks_the_places_that_a_script_is_told(link, tmp_path):
    """With five ranks, the last host has fewer ranks than the others."""

    def places():
        return [int(os.environ[name]) for name in PLACES]

    script = tmp_path / "places.py"
    script.write_text(
        "import os\n"
        f"found = [int(os.environ[name]) for name in {PLACES}]\n"
        "open(f'places{found[0]}', 'w').write(str(found))\n"
    )
    cluster = Cluster(5, link=link)
    in_a_cell = cluster.run(places).results
    done = ddpkit_run("-n", "5", "--link", json.dumps(link).strip('"'), script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [str(each) for each in in_a_cell] == [
        (tmp_path / f"places{rank}").read_text() for rank in range(5)
    ]
    host_size = link["hosts of"] if isinstance(link, dict) else 5
    assert [each[1] for each in in_a_cell] == [rank % host_size for rank in range(5)]
    assert [each[2] for each in in_a_cell] == [rank // host_size for rank in range(5)]
    assert in_a_cell[4][5] == (5 % host_size or host_size)


def test_the_numbers_of_a_run_that_fails_after_a_step_are_written(tmp_path: Path) -> None:
    """Once the command raised a bare ValueError after the script's error."""
    script = tmp_path / "fails.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(2, 2)\n"
        "torch.optim.SGD(model.parameters()).step()\nraise KeyError('mine')\n"
    )
    numbers = tmp_path / "numbers.json"
    done = ddpkit_run("-n", "1", "--machine", "A100", "--json", numbers, script, cwd=tmp_path)
    assert "KeyError: 'mine'" in done.stderr
    assert "max()" not in done.stderr
    assert json.loads(numbers.read_text())["ranks"] == 1
