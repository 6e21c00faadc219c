"""A copy of the tracked files, in which a test follows a section of CONTRIBUTING."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.project.source import ROOT, tracked_files


def section(heading: str) -> str:
    """Return the section of CONTRIBUTING below `heading`, up to the next heading."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition(f"\n### {heading}\n")[2]
    return page.partition("\n### ")[0]


def files(root: Path) -> dict[str, bytes]:
    """Return all files below a folder except bytecode, by their names relative to the folder."""
    found = (path for path in root.rglob("*") if path.is_file())
    paths = (path for path in found if path.parent.name != "__pycache__")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


@dataclass(frozen=True)
class Checkout:
    """A copy of the tracked files, with the commands of a section."""

    root: Path
    before: dict[str, bytes]
    commands: list[str]

    @classmethod
    def of(cls, root: Path, text: str) -> Checkout:
        """Copy the tracked files to `root`; the commands are in the one `sh` block of `text`."""
        for path in tracked_files():
            target = root / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        (commands,) = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        return cls(root, files(root), commands.splitlines())

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the section; `.venv/bin/` is the environment of this test."""
        programs = {".venv/bin/python": [], ".venv/bin/ddpkit": ["-m", "ddpkit"]}
        command = [sys.executable, *programs[words[0]], *words[1:]]
        ours = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
        paths = [str(self.root), ours.get("PYTHONPATH", "")]  # before the checkout's own install
        here = {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTEST_ADDOPTS": "-v -p no:cacheprovider",
        }
        return subprocess.run(
            command, cwd=self.root, env=ours | here, capture_output=True, text=True, timeout=400
        )

    def follow(self, command: str) -> str:
        """Return the output of the section's command `ddpkit WORD` or `pytest`; it must succeed."""
        (line,) = (line for line in self.commands if command in line)
        done = self.run(*shlex.split(line, comments=True))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
