"""The command `ddpkit`: doctor, lab, check, trace, script, grade, report, release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import ddpkit
from ddpkit.commands.grade import grade, report
from ddpkit.commands.trace import trace
from ddpkit.errors import DdpkitError
from ddpkit.files import CHECKOUT, PACKAGE
from ddpkit.text import count, sign


class Commands(click.Group):
    """Shows errors made for the reader as one message, without a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except DdpkitError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(ddpkit.__version__, prog_name="ddpkit")
def main() -> None:
    """Learn distributed training on real ranks."""


@main.command()
def doctor() -> None:
    """Look whether this machine can run the labs, and say how to mend what is wrong."""
    from ddpkit.commands import doctor as examination

    problems = 0
    for finding in examination.examine():
        click.echo(f"{sign(finding.ok)} {finding.what:12} {finding.says}")
        if finding.mend:
            click.echo(f"  {'':12} {finding.mend}")
        problems += not finding.ok
    if problems:
        raise click.ClickException(f"{count(problems, 'thing')} to mend, see above.")
    click.echo("All is well: open a lab with `ddpkit lab`.")


@main.command()
@click.argument("number", required=False)
@click.option("--list", "only_list", is_flag=True, help="List the labs, open nothing.")
@click.option(
    "--copy",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Copy the labs to DIR, over nothing that you have changed; open nothing.",
    metavar="DIR",
)
@click.argument("jupyter", nargs=-1, type=click.UNPROCESSED)
def lab(number: str | None, only_list: bool, folder: Path | None, jupyter: tuple[str, ...]) -> None:
    """Open JupyterLab on the labs, or on lab NUMBER ("0", "00", "00_ranks").

    What follows `--` goes to jupyter: ddpkit lab 00 -- --no-browser --port 8899
    """
    from ddpkit.commands import copy as copy_labs

    labs = copy_labs.labs()
    if not labs:
        raise click.ClickException(f"There are no labs in {copy_labs.labs_folder()}.")
    if only_list:
        click.echo("\n".join(path.stem for path in labs))
        return
    if folder is not None:
        for name, done in copy_labs.copy_labs(folder):
            click.echo(f"{name:24} {done}")
        click.echo(f"Open them: jupyter lab {folder}")
        return
    if copy_labs.labs_folder().is_relative_to(PACKAGE):
        raise click.ClickException(
            "The labs are inside the installed package. Copy them to a folder of yours first: "
            "ddpkit lab --copy DIR"
        )
    target = copy_labs.labs_folder() if number is None else _lab_named(number, labs)
    from jupyterlab.labapp import main as jupyter_lab

    sys.argv[1:] = [str(target), *jupyter]
    jupyter_lab()


def _lab_named(number: str, labs: list[Path]) -> Path:
    wanted = number.zfill(2)
    found = [path for path in labs if path.stem == number or path.stem.startswith(f"{wanted}_")]
    if len(found) != 1:
        known = ", ".join(path.stem for path in labs)
        raise click.ClickException(f"There is no lab {number!r}. The labs are: {known}.")
    return found[0]


@main.command()
@click.argument("notebook", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--timeout", default=300, show_default=True, help="Seconds that one cell may take.")
def check(notebook: Path, timeout: int) -> None:
    """Run your NOTEBOOK from the top and list which of its exercises pass.

    It runs with your rights, like Run All in Jupyter; your file is left as it is.
    """
    from ddpkit.commands.selfcheck import run_checks

    results = run_checks(notebook, timeout)
    width = max((len(result.name) for result in results), default=0)
    for result in results:
        click.echo(f"{sign(result.passed)} {result.name:{width}}  {result.says}")
    passed = sum(result.passed for result in results)
    click.echo(f"{passed} of {len(results)} exercises pass.")
    if passed < len(results):
        sys.exit(1)


main.add_command(trace)
main.add_command(grade)
main.add_command(report)


@main.command()
@click.argument("number")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; without it, one of the lab's name in this folder.",
)
def script(number: str, output: Path | None) -> None:
    """Write lab NUMBER as a plain script with your answers in it, for python and for torchrun.

    They come from your notebook, in this folder or in labs/, and where it is blank, from the
    versions that its checks have kept. A script that you have changed is not overwritten.
    """
    from ddpkit.commands.copy import labs_folder
    from ddpkit.commands.script import make_script, write_script

    folders = (labs_folder(), Path("labs"), Path())  # a nearer one wins
    labs = {path.stem: path for folder in folders for path in folder.glob("[0-9][0-9]_*.ipynb")}
    notebook = _lab_named(number, sorted(labs.values(), key=lambda path: path.stem))
    made, output = make_script(notebook), output or Path(f"{notebook.stem}.py")
    write_script(made, output)
    click.echo(f"wrote {output} from {notebook}")
    for what, names in made.answers.items():
        if names:
            click.echo(f"{what}: {', '.join(names)}")


@main.command()
@click.argument("names", nargs=-1)
@click.option(
    "--check", "only_check", is_flag=True, help="Change nothing; fail if all is not fresh."
)
@click.option("--force", is_flag=True, help="Execute also the lessons that have not changed.")
def release(names: tuple[str, ...], only_check: bool, force: bool) -> None:
    """Make labs, executed solutions and answers from solutions/*.py (of all lessons, or NAMES)."""
    from ddpkit import authoring as releasing

    if not (CHECKOUT / "solutions").is_dir():
        raise click.ClickException("`ddpkit release` works in a checkout of ddpkit only.")
    if only_check:
        problems = releasing.check(CHECKOUT)
        for problem in problems:
            click.echo(problem)
        if problems:
            raise click.ClickException(f"{count(len(problems), 'thing')} to mend.")
        click.echo("Labs, solutions and answers are fresh.")
        return
    released = releasing.release(CHECKOUT, names or None, force=force)
    for path in released.written:
        click.echo(f"wrote {path}")
    for path in released.removed:
        click.echo(f"removed {path}")
