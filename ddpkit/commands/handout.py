"""`ddpkit handout --open 03`: the archive for a class, made from the teacher's checkout.

The archive holds all labs, blank, and the kit with all checks. No check contains a right answer as
code (a test searches for the answers' lines). The archive holds no solutions, no tests, no answers
of open labs, and no part of README about these. All files of the archive are named here, so that no
file goes in by chance.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click

from ddpkit.commands.lab import TUTOR, lab_named
from ddpkit.errors import LessonError
from ddpkit.files import CHECKOUT, write_whole

# Beside labs/ and ddpkit/: the files that install the kit, and the pages linked from README.
PAGES = [
    *(
        "labs/start.ipynb",
        "README.md",
        "LICENSE",
        "Makefile",
        "pyproject.toml",
        "constraints.txt",
        "environment.yml",
    ),
    *(
        "docs/where.md",
        "docs/clusters.md",
        "docs/emulation.md",
        "docs/run.md",
        "docs/real_sizes.md",
        "docs/llama.py",
        "docs/pictures.md",
        "docs/glossary.md",
        "docs/pictures/*.png",
        "docs/pictures/*.svg",
    ),
    *(".devcontainer/devcontainer.json", "binder/environment.yml", "binder/postBuild"),
]
KINDS = {
    ".py",
    ".js",
    ".css",
    ".j2",
    ".json",
    ".gz",
    ".mplstyle",
    ".npz",
    ".md",
    ".typed",
}  # endings of files in ddpkit/
ANSWERS = re.compile(r"lab(\d\d)\.py")
TEACHERS = re.compile(r"<!-- for teachers -->\n.*?<!-- for all -->\n", re.DOTALL)  # in README
NEED_A_CHECKOUT = re.compile(r"(make test|ddpkit (grade|report|handout|slides|release)) .*\n?")
SAME_DAY = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip can hold


@click.command(epilog="Example: ddpkit handout --open 05")
@click.option(
    "--open",
    "opened",
    required=True,
    metavar="NUMBER",
    help="The first open lab: the answers of this lab and of later labs stay out.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("class.zip"),
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--rules",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page with rules of yours, put at the end of AGENTS.md, the page for AI assistants.",
)
def handout(opened: str, output: Path, rules: Path | None) -> None:
    """Write the archive for a class: the labs and the kit, without the answers of open labs."""
    if not (CHECKOUT / "solutions").is_dir():
        raise click.ClickException(
            "`ddpkit handout` works in a checkout of ddpkit only: run the checkout's own ddpkit."
        )
    labs = blank_labs(CHECKOUT)
    number = lab_named(opened, labs).name[:2]
    try:
        own = rules.read_text("utf-8") if rules else ""
        write_whole(output, archive(CHECKOUT, labs, number, own))
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{rules} is not text in UTF-8.") from error
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}.") from error
    over = [path.name[:2] for path in labs if path.name[:2] < number]
    click.echo(f"wrote {output}: {len(labs)} labs, with answers of {', '.join(over) or 'none'}")


def blank_labs(root: Path) -> list[Path]:
    """Return the labs of a checkout, after a check that they equal the labs made from lessons.

    Raises LessonError if a lab differs, for example because somebody has worked in it.
    """
    from ddpkit.authoring import stale
    from ddpkit.authoring.lesson import parse

    lessons = [parse(path) for path in sorted((root / "solutions").glob("*.py"))]
    for lesson in lessons:
        for problem in stale.lab_problems(root, lesson):
            raise LessonError(problem)
    return [stale.lab_path(root, lesson) for lesson in lessons]


def archive(root: Path, labs: list[Path], opened: str, rules: str = "") -> bytes:
    """Return the archive as a zip; equal files give equal bytes. `opened` is a lab, as "03".

    `rules` are added to the page for AI assistants. The page lies in two folders, because an
    assistant looks only in the folder that the student has opened, and `make lab` copies labs/.
    """
    tutor = _tutor(root, rules)
    paths = [*labs, *_kit(root, opened), *(path for each in PAGES for path in root.glob(each))]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path in sorted([*paths, root / TUTOR, root / "labs" / TUTOR]):
            name = path.relative_to(root).as_posix()
            if path.name == TUTOR:
                path = root / "labs" / TUTOR
            entry = zipfile.ZipInfo(name, SAME_DAY)
            entry.create_system = 3  # Unix, because the entries have Unix modes on any system
            entry.external_attr = (0o100755 if path.stat().st_mode & 0o100 else 0o100644) << 16
            content = tutor if path.name == TUTOR else path.read_bytes()
            if name == "README.md":
                content = for_students(content.decode()).encode()
            zipped.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _tutor(root: Path, rules: str) -> bytes:
    """Return labs/AGENTS.md with the teacher's rules at its end."""
    text = (root / "labs" / TUTOR).read_text("utf-8")
    if rules.strip():
        text = f"{text.rstrip()}\n\n## The rules of your teacher\n\n{rules.strip()}\n"
    return text.encode()


def _kit(root: Path, opened: str) -> Iterator[Path]:
    """Yield the files of the package, without the answers of lab `opened` and of later labs."""
    known = _tracked(root)
    for path in (root / "ddpkit").rglob("*"):
        if known is not None and path not in known:
            continue
        parts = path.relative_to(root).parts
        hidden = any(part.startswith((".", "__pycache__")) for part in parts)
        if path.suffix not in KINDS or hidden or not path.is_file():
            continue
        if parts[1] == "answers" and path.name != "__init__.py":
            answers = ANSWERS.fullmatch(path.name)
            if answers is None or answers[1] >= opened:
                continue
        yield path


def _tracked(root: Path) -> set[Path] | None:
    """Return the files that git knows, to leave a teacher's notes out; None without git."""
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "ls-files", "-z", "ddpkit"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return {root / os.fsdecode(name) for name in listed.split(b"\0") if name}


def for_students(readme: str) -> str:
    """Return README without the parts about pages and folders that a class does not get."""
    return NEED_A_CHECKOUT.sub("", TEACHERS.sub("", readme))
