"""A submission is data, and may be hostile."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner
from nbformat.v4 import new_code_cell

from ddpkit.commands.main import main
from ddpkit.errors import GradeError
from ddpkit.grade import store
from ddpkit.grade.course import lab_of
from ddpkit.grade.found import find
from ddpkit.grade.submission import MOST_BYTES, Refused, read
from tests.grade.attacks import ROOT

REFUSED = {
    "empty": (b"", "empty"),
    "no JSON": (b"\x89PNG", "not JSON"),
    "a list": (b"[]", "not a notebook"),
    "nested": (b"[" * 10_000 + b"]" * 10_000, "nested too deep"),
    "nested in cells": (b'{"cells":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, "too deep"),
    "format 3": (b'{"nbformat": 3, "worksheets": []}', "nbformat 3"),
    "format 4.5 as text": (b'{"nbformat": "4", "cells": []}', "nbformat 4"),
    "many cells": (b'{"nbformat": 4, "cells": [' + b"0," * 5000 + b"0]}", "5001 cells"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path: Path, name: str) -> None:
    data, says = REFUSED[name]
    (path := tmp_path / "lab.ipynb").write_bytes(data)
    with pytest.raises(Refused, match=says):
        read(path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with open(path := tmp_path / "lab.ipynb", "wb") as stream:
        stream.truncate(200_000_000)
    with pytest.raises(Refused, match="200 MB, but the grader reads at most 16 MB"):
        read(path)
    assert MOST_BYTES < 200_000_000


def test_links_pipes_and_folders_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "link.ipynb").symlink_to(ROOT / "solutions" / "00_ranks.ipynb")
    os.mkfifo(tmp_path / "pipe.ipynb")
    for name, says in (("link", "symbolic link"), ("pipe", "not a regular file")):
        with pytest.raises(Refused, match=says):
            read(tmp_path / f"{name}.ipynb")


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """A file in a folder that nobody may enter is refused too, with as little information."""
    with pytest.raises(Refused, match="cannot be opened: File name too long"):
        read(tmp_path.joinpath(*["d" * 250] * 17, "lab.ipynb"))


def test_cells_of_any_form_are_read(tmp_path: Path) -> None:
    cells = [0, None, {}, {"cell_type": "code"}, {"cell_type": "code", "metadata": [], "id": 3}]
    cells += [{"cell_type": "code", "source": ["a\n", 1], "metadata": {"ddpkit": {"check": []}}}]
    (path := tmp_path / "lab.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    assert [cell.source for cell in read(path).cells] == ["", "", "a\n1"]


def test_submissions_are_found_by_name(tmp_path: Path) -> None:
    for name in ("b/läb.ipynb", "a/lab.ipynb", "a/.ipynb_checkpoints/lab.ipynb", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "a" / "lab (1).ipynb").write_text("")  # both files of the student are graded
    names = ["a/lab (1).ipynb", "a/lab.ipynb", "b/läb.ipynb"]
    assert [task.name for task in find([tmp_path])] == names
    assert len({store.file_of(tmp_path, name) for name in names}) == 3
    with pytest.raises(GradeError, match="Two submissions are called lab.ipynb"):
        find([tmp_path / "a" / "lab.ipynb", tmp_path / "a" / ".ipynb_checkpoints" / "lab.ipynb"])
    with pytest.raises(GradeError, match="no notebooks"):
        find([])


@pytest.mark.parametrize("name", ["../../evil.ipynb", "/etc/passwd", "..", "", "a\n/b", "x" * 500])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    assert store.file_of(tmp_path, name).resolve().parent == tmp_path / "results"


def test_the_lab_is_known_by_its_answers() -> None:
    for path in sorted((ROOT / "labs").glob("[0-9]*.ipynb")):
        assert lab_of(read(path)) == path.name[:2]


def test_a_variable_called_as_another_labs_exercise_changes_no_lab(tmp_path: Path) -> None:
    """The names of answers show the lab even if the marks of cells are lost."""
    notebook = nbformat.read(ROOT / "labs" / "00_ranks.ipynb", as_version=4)
    notebook.cells += [new_code_cell("sgd_step = train = batches = 1") for _ in range(30)]
    nbformat.write(notebook, tmp_path / "lab.ipynb")
    assert lab_of(read(tmp_path / "lab.ipynb")) == "00"

    unmarked = nbformat.read(ROOT / "labs" / "03_all_reduce.ipynb", as_version=4)
    for number, cell in enumerate(unmarked.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.NotebookNode()
    nbformat.write(unmarked, tmp_path / "lab.ipynb")
    assert lab_of(read(tmp_path / "lab.ipynb")) == "03"


def test_a_secret_that_is_not_there_is_not_made(tmp_path) -> None:
    """A misspelt name of the secret would otherwise grade with other inputs."""
    (tmp_path / "lab.ipynb").write_text("{}")
    command = ["grade", str(tmp_path / "lab.ipynb"), "--lab", "00"]
    done = CliRunner().invoke(
        main, [*command, "--out", str(tmp_path / "out"), "--secret", str(tmp_path / "secrte")]
    )
    assert done.exit_code == 1
    assert "There is no file" in done.output
    assert not (tmp_path / "secrte").exists()
