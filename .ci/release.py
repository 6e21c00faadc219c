"""Makes a release by the eight steps of RELEASING.md; a failed step leaves the tree as it was.

.venv/bin/python .ci/release.py 0.4.0            # an hour, mostly for the tests
.venv/bin/python .ci/release.py --notes 0.4.0    # prints the changelog's part of that version
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
VERSION = "ddpkit/__init__.py"
CITATION = "CITATION.cff"
CHANGELOG = "CHANGELOG.md"
CHANGES = "changes"
TOWNCRIER = (sys.executable, "-m", "towncrier", "build", "--yes")
PYTHON = sys.executable


class Failed(Exception):
    """A step that did not succeed: the sentence for the maintainer."""


def call(*command: str, **variables: str) -> str:
    """Run a command in the repository, and return its output."""
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise Failed(f"`{' '.join(command)}` ended with status {done.returncode}.")
    return done.stdout


def look_at_the_tree(version: str) -> None:
    if changed := call("git", "status", "--porcelain"):
        raise Failed(f"The tree has uncommitted changes:\n{changed}")
    if f"v{version}" in call("git", "tag").split():
        raise Failed(f"The tag v{version} exists already.")


def write_the_version(version: str) -> None:
    old = re.search(r'^__version__ = "(.+)"$', _read(VERSION), re.MULTILINE)
    if old is None:
        raise Failed(f"{VERSION} has no line `__version__ = ...`.")
    if _numbers(version) <= _numbers(old[1]):
        raise Failed(f"{version} does not come after {old[1]}.")
    _write(VERSION, _read(VERSION).replace(old[0], f'__version__ = "{version}"'))
    today = f'date-released: "{datetime.date.today()}"'
    cited = re.sub(r"^version: .*$", f"version: {version}", _read(CITATION), flags=re.MULTILINE)
    _write(CITATION, re.sub(r"^date-released: .*$", today, cited, flags=re.MULTILINE))


def close_the_changelog(version: str) -> None:
    """Put the files of changes/ into the changelog, and remove them."""
    if not any((ROOT / CHANGES).glob("*.md")):
        raise Failed(f"{CHANGES}/ has no file: no change was described.")
    call(*TOWNCRIER, "--version", version, "--date", str(datetime.date.today()))


def compare_generated_files(version: str) -> None:
    call(PYTHON, "-m", "ddpkit", "release", "--check")


def run_all_tests(version: str) -> None:
    call("make", "lint")
    call("make", "test")


def build(version: str) -> None:
    call(PYTHON, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", "dist")


def try_the_wheel(version: str) -> None:
    call("make", "test", "ARGS=tests/project/test_wheel.py", DDPKIT_ALL_LABS="1")


def commit_and_tag(version: str) -> None:
    call("git", "commit", "-qam", f"Release {version}")
    call("git", "tag", "-a", f"v{version}", "-m", f"ddpkit {version}")


STEPS: tuple[Callable[[str], None], ...] = (
    look_at_the_tree,
    write_the_version,
    close_the_changelog,
    compare_generated_files,
    run_all_tests,
    build,
    try_the_wheel,
    commit_and_tag,
)


def notes(changelog: str, version: str) -> str:
    """Return the entries of a version, without its heading; "" if there are none."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    return found[1].strip() if found else ""


def _numbers(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Failed(f"{version!r} is no version: write three numbers, as in 0.4.0.")
    return tuple(map(int, version.split(".")))


def _read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _write(name: str, text: str) -> None:
    (ROOT / name).write_text(text, "utf-8")


@click.command()
@click.argument("version")
@click.option("--notes", "only_notes", is_flag=True, help="Print the version's changelog, and end.")
def main(version: str, only_notes: bool) -> None:
    """Release ddpkit VERSION: three numbers, as in 0.4.0."""
    if only_notes:
        click.echo(notes(_read(CHANGELOG), version))
        return
    for number, step in enumerate(STEPS, start=1):
        click.echo(f"{number} of {len(STEPS)}: {step.__name__.replace('_', ' ')}")
        try:
            step(version)
        except Failed as error:
            if number > 1:
                call("git", "reset", "-q", "--hard")  # the first step found no uncommitted change
            raise click.ClickException(f"{error} Nothing is released.") from error
    click.echo(f"Done. To publish: git push --follow-tags, and upload dist/*{version}*.")


if __name__ == "__main__":
    main()
