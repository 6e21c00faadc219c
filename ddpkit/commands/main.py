"""The command `ddpkit`; its subcommands are found in this folder: module `lab` has `ddpkit lab`."""

from __future__ import annotations

import atexit
import gc
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

import click

import ddpkit
from ddpkit import commands
from ddpkit.errors import DdpkitError

# nbformat imports jsonschema. jsonschema would build a parser of international web addresses, which
# takes a second of each command that reads a notebook, and no notebook needs this parser.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


class Commands(click.Group):
    """The group of ddpkit's commands; a DdpkitError is shown as a message without a traceback."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the whole first sentence of each help text, wrapped if long."""
        rows = [
            (name, found.get_short_help_str(limit=10_000))
            for name in self.list_commands(context)
            if (found := self.get_command(context, name)) and not found.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except DdpkitError as error:
            raise click.ClickException(str(error)) from error
        finally:
            gc.unfreeze()  # a longer process, such as a test, can collect its garbage again


@click.group(
    cls=Commands,
    epilog="Example: ddpkit lab 00",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(ddpkit.__version__, prog_name="ddpkit")
def main() -> None:
    """Learn distributed training on real ranks."""
    # Imports leave little garbage, but every thousand new objects start a search for garbage, and
    # the end of Python searches all objects: a third of the time of a command that needs torch.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


def _found() -> Iterator[click.Command]:
    """Yield the commands: each module of this folder may have a command of the module's name."""
    for name in sorted(module.name for module in pkgutil.iter_modules(commands.__path__)):
        if name != "main":
            found = getattr(importlib.import_module(f"{commands.__name__}.{name}"), name, None)
            if isinstance(found, click.Command):
                yield found


for _command in _found():
    main.add_command(_command)
