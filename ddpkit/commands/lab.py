"""`ddpkit lab 00` opens a lab; `--copy DIR` copies the labs into a folder, and updates old copies.

A lab that a student has changed is never overwritten. The folder keeps a digest of each lab as it
was copied, in `.ddpkit/labs.json`, to tell a changed lab from an old copy.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ddpkit.errors import LessonError
from ddpkit.files import CHECKOUT, PACKAGE, write_whole

DUPLICATE = re.compile(r"-Copy\d+$")  # the end of a name made by Jupyter's Duplicate
TUTOR = "AGENTS.md"  # rules for an AI assistant, in the folder where assistants look for rules
# The pages that the start page links to, the pages that these link to, and a script.
GUIDES = ("pictures.md", "run.md", "emulation.md", "glossary.md", "real_sizes.md", "llama.py")


class _ForJupyter(click.Command):
    """A command that, after an unknown option, explains the place of options for jupyter."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        words = " ".join(args)
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            before, _, after = words.partition(error.option_name)
            where = f"ddpkit lab {before}-- {error.option_name}{after}"
            raise click.UsageError(
                f"{error.format_message()} Write -- before the options of jupyter: {where}",
                context,
            ) from None


def _completed(context: click.Context, option: click.Parameter, typed: str) -> list[str]:
    """Return the names of labs that begin with ``typed``, for completion in a shell."""
    return [path.stem for path in labs() if path.stem.startswith(typed)]


@click.command(cls=_ForJupyter, epilog="Example: ddpkit lab 00")
@click.argument("number", required=False, shell_complete=_completed)
@click.option("--list", "only_list", is_flag=True, help="List the labs without opening one.")
@click.option(
    "--copy",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Copy the labs to DIR without opening a lab; files changed by you are kept.",
    metavar="DIR",
)
@click.option("--opened", is_flag=True, hidden=True, help="Used by make lab, which opens the copy.")
@click.argument("jupyter", nargs=-1, type=click.UNPROCESSED)
def lab(
    number: str | None,
    only_list: bool,
    folder: Path | None,
    opened: bool,
    jupyter: tuple[str, ...],
) -> None:
    """Open JupyterLab on the start page, or on lab NUMBER ("0", "00", "00_ranks").

    Arguments after `--` go to jupyter: ddpkit lab 00 -- --no-browser --port 8899
    """
    there = labs()
    if not there:
        raise click.ClickException(f"There are no labs in {labs_folder()}: reinstall ddpkit.")
    if only_list:
        click.echo("\n".join(path.stem for path in there))
        return
    if folder is not None:
        for name, done in copy_labs(folder):
            click.echo(f"{name:25} {done}")
        if not opened:
            click.echo(f"Open them: {_jupyter()} lab {folder / start_page().name}")
        return
    if labs_folder().is_relative_to(PACKAGE):
        raise click.ClickException(
            "The labs are inside the installed package. Copy them to a folder of yours first: "
            "ddpkit lab --copy DIR"
        )
    target = start_page() if number is None else lab_named(number, there)
    from jupyterlab.labapp import main as jupyter_lab

    sys.argv[1:] = [str(target), *jupyter]
    os.environ["PATH"] = path_with_commands(os.environ.get("PATH", os.defpath))
    jupyter_lab()


def path_with_commands(path: str) -> str:
    """Return JupyterLab's PATH, with the folder of `ddpkit` and `torchrun`."""
    ours = str(Path(sys.executable).parent)
    return path if ours in path.split(os.pathsep) else os.pathsep.join([ours, path])


def _jupyter() -> str:
    """Return the command that starts this environment's jupyter: "jupyter", or a path."""
    ours = Path(sys.executable).with_name("jupyter")
    found = shutil.which("jupyter")
    if found is not None and os.path.realpath(found) == os.path.realpath(ours):
        return "jupyter"
    return str(ours.relative_to(Path.cwd()) if ours.is_relative_to(Path.cwd()) else ours)


def labs_folder() -> Path:
    """Return the folder of the kit's labs: beside the package in a checkout, else inside it."""
    inside = PACKAGE / "labs"
    return inside if inside.is_dir() else CHECKOUT / "labs"


def labs() -> list[Path]:
    """Return the kit's labs, in order."""
    return sorted(labs_folder().glob("[0-9][0-9]_*.ipynb"))


def notebooks() -> list[Path]:
    """Return the notebooks of a reader: the start page, then the labs."""
    page = start_page()
    return [*([page] if page.is_file() else []), *labs()]


def handed_out() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of a reader's folder.

    The files are the notebooks, the guides with their pictures, and a page for the reader's AI
    assistant.

    JupyterLab opens no file outside its folder, so docs/ lies inside the reader's folder.
    JupyterLab writes the kernel's language info into a notebook and then calls the notebook
    changed, so the notebooks contain the language info already.
    """
    language = _json({"name": "python"}), _json(_language_info())
    for path in notebooks():
        yield path.name, path.read_bytes().replace(b"](../docs/", b"](docs/").replace(*language)
    tutor = labs_folder() / TUTOR
    if tutor.is_file():
        yield TUTOR, tutor.read_bytes()
    for path in (labs_folder().parent / "docs" / name for name in GUIDES):
        if path.is_file():
            yield f"docs/{path.name}", path.read_bytes()
    for path in sorted((labs_folder().parent / "docs" / "pictures").glob("*.svg")):
        yield f"docs/pictures/{path.name}", path.read_bytes()


def _language_info() -> dict[str, object]:
    """Return the language info of this Python's kernel, without ipykernel's slow import."""
    return {
        "codemirror_mode": {"name": "ipython", "version": sys.version_info[0]},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": sys.version.split()[0],
    }


def _json(language_info: dict[str, object]) -> bytes:
    """Return the metadata of a notebook as written in its file."""
    text = json.dumps({"metadata": {"language_info": language_info}}, indent=1, sort_keys=True)
    return "\n".join(text.splitlines()[2:-2]).encode()


def start_page() -> Path:
    """Return the notebook with the map of the course; without the file, the labs' folder."""
    page = labs_folder() / "start.ipynb"
    return page if page.is_file() else labs_folder()


def lab_named(number: str, labs: Sequence[Path]) -> Path:
    """Return the lab of `labs` with this `number`: "0", "00" or "00_ranks".

    A number never selects a duplicate that Jupyter made; the duplicate's own name selects it.

    Raises ClickException if there is no such lab, or if there are several.
    """
    wanted = number.zfill(2) if number else number
    found = [path for path in labs if path.stem.startswith(f"{wanted}_") and wanted.isdigit()]
    found = [path for path in found if not DUPLICATE.search(path.stem)]
    found = [path for path in labs if path.stem == number] or found
    if len(found) > 1:
        several = ", ".join(path.stem for path in found)
        raise click.ClickException(f"Several notebooks are lab {number!r}: {several}. Name one.")
    if not found:
        known = ", ".join(path.stem for path in labs)
        raise click.ClickException(f"There is no lab {number!r}. The labs are: {known}.")
    return found[0]


def copy_labs(folder: Path) -> Iterator[tuple[str, str]]:
    """Copy labs and guides into `folder`; yield each file's name, and "new" or another outcome.

    Raises LessonError, in one sentence, if the folder cannot be made or written to.
    """
    try:
        for inside in (".ddpkit", "docs/pictures"):
            (folder / inside).mkdir(parents=True, exist_ok=True)
        copied = _read(folder)
        for name, content in handed_out():
            yield name, _copy(content, folder / name, copied)
            write_whole(folder / ".ddpkit" / "labs.json", json.dumps(copied, indent=1).encode())
    except OSError as error:
        raise LessonError(
            f"The labs cannot be copied to {folder}: {error.strerror or error}. "
            "Name a folder that you may write to."
        ) from error


def _copy(new: bytes, target: Path, copied: dict[str, str]) -> str:
    if not os.path.lexists(target):
        with target.open("xb") as file:
            file.write(new)
        done = "new"
    elif not target.is_file():
        return "not copied: a folder or a link already has this name"
    elif (old := target.read_bytes()) == new:
        done = "there already"
    elif _digest(old) == copied.get(target.name):
        write_whole(target, new)
        done = "updated: the kit's file is newer, and you had not changed yours"
    else:
        return "kept, because you have changed it (for a fresh copy, rename it and copy again)"
    copied[target.name] = _digest(new)
    return done


def _read(folder: Path) -> dict[str, str]:
    """Return the digests of the last copies, by name; a file without a digest counts as changed."""
    try:
        known = json.loads((folder / ".ddpkit" / "labs.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
