"""`ddpkit lab --copy` copies the labs, later also newer labs, and loses no changed file."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.authoring.notebook import to_text
from ddpkit.commands import lab as lab_command
from ddpkit.commands.main import main

SHIPPED = dict(lab_command.handed_out())
FIRST = min(SHIPPED)
LINK = re.compile(r"\]\((?!https://)([^)#]+)\)")  # a link in Markdown, to a file


def copy(folder: Path) -> str:
    result = CliRunner().invoke(main, ["lab", "--copy", str(folder)])
    assert result.exit_code == 0, result.output
    return result.output


def there(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and ".ddpkit" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def said_of(name: str, output: str) -> str:
    (line,) = (line for line in output.splitlines() if line.startswith(name))
    return line.removeprefix(name).strip()


def test_labs_come_into_a_new_folder_and_a_second_time_changes_nothing(tmp_path):
    folder = tmp_path / "a" / "my labs"
    assert said_of(FIRST, copy(folder)) == "new"
    assert there(folder) == SHIPPED
    assert said_of(FIRST, copy(folder)) == "there already"
    assert there(folder) == SHIPPED


@pytest.mark.processes
def test_jupyterlab_finds_in_a_copy_what_its_kernel_says():
    """JupyterLab writes missing facts about the kernel into an opened notebook, which is then
    unsaved."""
    from ipykernel.ipkernel import IPythonKernel

    for name, content in SHIPPED.items():
        if name.endswith(".ipynb"):
            notebook = json.loads(content)
            assert notebook["metadata"]["language_info"] == IPythonKernel.language_info
            assert to_text(notebook).encode() == content


def test_where_jupyter_is_no_command_its_path_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # far away from the environment
    ours = Path(sys.executable).with_name("jupyter")
    monkeypatch.setenv("PATH", str(ours.parent))
    assert copy(tmp_path).endswith(f"\nOpen them: jupyter lab {tmp_path / 'start.ipynb'}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"\nOpen them: {ours} lab " in copy(tmp_path)
    monkeypatch.chdir(ours.parents[1])
    assert "\nOpen them: bin/jupyter lab " in copy(tmp_path)


def test_who_opens_the_labs_is_not_told_how(tmp_path):
    said = CliRunner().invoke(main, ["lab", "--copy", str(tmp_path), "--opened"])
    assert said.exit_code == 0
    assert "Open them" not in said.output


def test_all_that_a_copy_links_to_is_in_it(tmp_path):
    copy(tmp_path)
    pages = [tmp_path / "start.ipynb", *(tmp_path / "docs").glob("*.md")]
    links = [(page, link) for page in pages for link in LINK.findall(page.read_text("utf-8"))]
    assert {"docs/pictures.md", "docs/run.md", "docs/emulation.md"} <= {link for _, link in links}
    assert [each for each in links if not (each[0].parent / each[1]).is_file()] == []


def test_a_changed_lab_is_kept_and_a_deleted_one_comes_back(tmp_path):
    copy(tmp_path)
    (tmp_path / FIRST).write_text("my work")
    (tmp_path / max(SHIPPED)).unlink()
    output = copy(tmp_path)
    assert said_of(FIRST, output).startswith("kept, because you have changed it")
    assert there(tmp_path) == {**SHIPPED, FIRST: b"my work"}


def test_an_untouched_old_copy_is_renewed_and_a_touched_one_is_not(tmp_path, monkeypatch):
    old = tmp_path / "old kit"
    old.mkdir()
    (old / "00_a.ipynb").write_text("version 1")
    (old / "01_b.ipynb").write_text("version 1")
    monkeypatch.setattr(lab_command, "labs_folder", lambda: old)
    mine = tmp_path / "mine"
    copy(mine)
    (mine / "01_b.ipynb").write_text("my work")
    for lab in old.iterdir():
        lab.write_text("version 2")
    output = copy(mine)
    assert said_of("00_a.ipynb", output).startswith("updated")
    assert said_of("01_b.ipynb", output).startswith("kept")
    assert there(mine) == {"00_a.ipynb": b"version 2", "01_b.ipynb": b"my work"}


def test_without_its_memory_a_differing_file_counts_as_changed(tmp_path):
    copy(tmp_path)
    (tmp_path / ".ddpkit" / "labs.json").write_text("[1, broken")
    (tmp_path / FIRST).write_text("an old copy, or my work?")
    assert said_of(FIRST, copy(tmp_path)).startswith("kept")
    assert json.loads((tmp_path / ".ddpkit" / "labs.json").read_text())


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), lambda p: p.symlink_to("/nowhere/at/all")])
def test_what_is_no_file_is_left_alone(tmp_path, make):
    make(tmp_path / FIRST)
    assert said_of(FIRST, copy(tmp_path)).startswith("not copied")
    assert (tmp_path / max(SHIPPED)).is_file()


def test_a_folder_that_cannot_be_made_gets_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(main, ["lab", "--copy", str(tmp_path / "file" / "labs")])
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert "The labs cannot be copied to" in result.output


@pytest.mark.processes
def test_the_commands_of_the_labs_are_found_in_the_terminals_of_jupyterlab(monkeypatch):
    """The environment of ddpkit need not be activated, for example with `make lab`."""
    found: list[str | None] = []
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr("sys.argv", ["ddpkit"])
    monkeypatch.setattr("jupyterlab.labapp.main", lambda: found.append(os.environ["PATH"]) or None)
    assert CliRunner().invoke(main, ["lab", "00"]).exit_code == 0
    here = str(Path(sys.executable).parent)
    assert found == [os.pathsep.join([here, "/usr/bin"])]
    assert shutil.which("ddpkit", path=found[0]) is not None
    assert lab_command.path_with_commands(found[0]) == found[0]
