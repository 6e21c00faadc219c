"""`ddpkit release`: labs, executed solutions and answers, made from solutions/*.py."""

from __future__ import annotations

import click

from ddpkit.commands.waiting import said_if_long
from ddpkit.files import CHECKOUT
from ddpkit.text import count


@click.command(epilog="Example: ddpkit release 02")
@click.argument("names", nargs=-1)
@click.option(
    "--check", "only_check", is_flag=True, help="Change nothing; fail if a generated file is stale."
)
@click.option("--force", is_flag=True, help="Execute unchanged lessons too.")
def release(names: tuple[str, ...], only_check: bool, force: bool) -> None:
    """Make labs, executed solutions and answers from solutions/*.py (of all lessons, or NAMES).

    A lesson is executed if its code has changed. If only texts have changed, the outputs stay.
    """
    from ddpkit import authoring

    if not (CHECKOUT / "solutions").is_dir():
        raise click.ClickException(
            "`ddpkit release` works in a checkout of ddpkit only: run the checkout's own ddpkit."
        )
    if only_check:
        with said_if_long() as doing:
            doing("Comparing labs, solutions and answers with their sources.")
            problems = authoring.check(CHECKOUT)
        for problem in problems:
            click.echo(problem)
        if problems:
            raise click.ClickException(f"{count(len(problems), 'problem')} to repair.")
        click.echo("Labs, solutions and answers are fresh.")
        return
    released = authoring.release(CHECKOUT, names or None, force=force)
    for path in released.written:
        click.echo(f"wrote {path}")
    for path in released.removed:
        click.echo(f"removed {path}")
