"""AGENTS.md, the page for AI assistants: every handout has it, and its commands exist."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import ddpkit
from ddpkit.commands.lab import handed_out
from ddpkit.commands.main import main
from tests.project.source import ROOT, sources

PAGE = (ROOT / "labs" / "AGENTS.md").read_text("utf-8")


def handout(folder: Path, *words: str) -> zipfile.ZipFile:
    archive = folder / "class.zip"
    result = CliRunner().invoke(main, ["handout", "-o", str(archive), *words])
    assert result.exit_code == 0, result.output
    return zipfile.ZipFile(archive)


@pytest.mark.parametrize("opened", [sources()[0].name[:2], sources()[-1].name[:2]])
def test_every_handout_has_the_page_where_assistants_look(tmp_path: Path, opened: str) -> None:
    zipped = handout(tmp_path, "--open", opened)
    assert zipped.read("AGENTS.md").decode() == PAGE
    assert zipped.read("labs/AGENTS.md").decode() == PAGE


def test_a_copy_of_the_labs_has_the_page() -> None:
    assert dict(handed_out())["AGENTS.md"].decode() == PAGE


def test_a_teacher_adds_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.md"
    rules.write_text("- No assistant before the first check.\n")
    zipped = handout(tmp_path, "--open", "01", "--rules", str(rules))
    for name in ("AGENTS.md", "labs/AGENTS.md"):
        text = zipped.read(name).decode()
        assert text.startswith(PAGE.rstrip())
        assert text.endswith(
            "## The rules of your teacher\n\n- No assistant before the first check.\n"
        )
    rules.write_bytes(b"\xff\xfe\xff")
    words = ["handout", "--open", "01", "--rules", str(rules), "-o", str(tmp_path / "b.zip")]
    said = CliRunner().invoke(main, words).output
    assert said == f"Error: {rules} is not text in UTF-8.\n"


def test_the_page_names_only_commands_that_exist() -> None:
    lines = re.findall(r"^ddpkit (.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
    assert {line.split()[0] for line in lines} == {"doctor", "check", "lab"}
    inline = [text for text in re.findall(r"`([^`\n]+)`", PAGE) if text.startswith("ddpkit ")]
    for line in [*lines, *(text.removeprefix("ddpkit ") for text in inline)]:
        command, *words = line.split()
        known = {option for each in main.commands[command].params for option in each.opts}
        assert {word for word in words if word.startswith("-")} <= known, line
    for name in re.findall(r"`(\w+)\([^`]*\)`", PAGE):
        assert hasattr(ddpkit, name), name


def test_the_page_names_only_files_that_a_class_has(tmp_path: Path) -> None:
    names = handout(tmp_path, "--open", sources()[-1].name[:2]).namelist()
    for path in re.findall(r"\b(?:docs|ddpkit)/[\w/.]*\w", PAGE):
        assert [name for name in names if name.startswith(path)], path
    assert (
        "How a lab works"
        in zipfile.Path(handout(tmp_path, "--open", "00"), "labs/start.ipynb").read_text()
    )
