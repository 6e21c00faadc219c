"""README is true: its commands, paths, labs, hours and code exist and run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ddpkit.commands.main import main
from tests.project.source import ROOT

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PYTHON = [code for language, code in BLOCKS if language == "python"]
COMMANDS = "\n".join(
    [code for language, code in BLOCKS if language in {"sh", "bash", "console"}]
    + re.findall(r"`([^`\n]+)`", README)
)


def test_every_make_target_exists():
    named = set(re.findall(r"^make ([a-z]+)", COMMANDS, re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert named == targets, "README names every target of the Makefile, and no other"


def test_every_command_exists_and_stands_in_the_readme():
    named = set(re.findall(r"^ddpkit ([a-z]+)", COMMANDS, re.MULTILINE))
    assert isinstance(main, click.Group)
    assert named == set(main.commands)


@pytest.mark.parametrize(
    "option", sorted(set(re.findall(r"^ddpkit [^\n#]*?(--[a-z-]+)", COMMANDS, re.M)))
)
def test_every_option_exists(option: str):
    assert isinstance(main, click.Group)
    known = {"--help"} | {
        text
        for command in [main, *main.commands.values()]
        for parameter in command.params
        for text in parameter.opts
    }
    assert option in known


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_has_help(name: str):
    assert main.commands[name].help


def test_every_path_of_the_tree_exists():
    (tree,) = (code for language, code in BLOCKS if language == "text" and "ddpkit/" in code)
    assert [path for path in _paths(tree) if not (ROOT / path).exists()] == []


def _paths(tree: str) -> list[str]:
    """Return the full paths of an indented tree: two spaces a level, a name, then a description."""
    folders: list[str] = []
    paths = []
    for line in tree.splitlines():
        indent, name = re.match(r"( *)(\S+)", line).groups()
        folders[len(indent) // 2 :] = [name]
        paths.append("".join(folders))
    return paths


def test_links_lead_somewhere():
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_table_of_labs_is_the_labs():
    rows = re.findall(r"^\| \[(\d\d) [^\]]*\]\((labs/[^)]+)\) \|(.*)\|$", README, re.MULTILINE)
    there = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "labs").glob("[0-9]*.ipynb"))

    assert [path for _, path, _ in rows] == there
    for number, path, columns in rows:
        assert Path(path).name.startswith(number)
        assert re.fullmatch(r"[^|]+\| \d+ \| [^|]+", columns.strip()), "what | minutes | needs"


def test_minutes_of_the_labs_add_up_to_the_hours():
    minutes = [int(n) for n in re.findall(r"^\| \[\d\d .*\| (\d+) \| [^|]+\|$", README, re.M)]
    (said,) = re.findall(r"all labs take about (\d+) hours", README)
    assert round(sum(minutes) / 60) == int(said)
    assert "A lab takes between half an hour and three hours" in README
    assert min(minutes) == 30
    assert 150 < max(minutes) <= 180


@pytest.mark.parametrize("code", PYTHON)
def test_python_compiles(code: str):
    compile(code, "README.md", "exec")


@pytest.mark.processes
def test_first_code_prints_what_it_says(tmp_path: Path):
    """The first block runs as a script; `print(...)  # text` must print this text."""
    promised = re.findall(r"^print\(.*\)  # (.*)$", PYTHON[0], re.MULTILINE)
    ran = run(tmp_path / "first.py", PYTHON[0])
    assert ran.returncode == 0, ran.stderr
    assert promised
    assert [text for text in promised if text not in ran.stdout.splitlines()] == []


@pytest.mark.processes
def test_the_deadlock_prints_what_it_says(tmp_path: Path):
    """The second block, saved with the imports of the first, ends with the text below it."""
    imports, _, _ = PYTHON[0].partition("\n\n")
    ran = run(tmp_path / "swap.py", f"{imports}\n\n{PYTHON[1]}")
    (promised,) = (code for language, code in BLOCKS if language == "text" and "Deadlock" in code)
    assert ran.returncode == 1
    assert ran.stderr.endswith(promised)


def run(script: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code, saved as a script, in the script's folder."""
    script.write_text(code, "utf-8")
    return subprocess.run(
        [sys.executable, script.name],
        cwd=script.parent,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
