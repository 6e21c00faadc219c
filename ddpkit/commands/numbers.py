"""The numbers of a command for other programs, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ddpkit.errors import TraceError

Row = Mapping[str, str | int | float | None]  # a line of a CSV file


def to_files(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --json and --csv, which set the parameters `as_json` and `as_csv`."""
    file = click.Path(path_type=Path, dir_okay=False)
    for name, help_text in (
        ("csv", "Write the rows of the table as CSV, with times in seconds."),
        ("json", "Write all numbers as JSON, with times in seconds."),
    ):
        option = click.option(f"--{name}", f"as_{name}", metavar="FILE", type=file, help=help_text)
        command = option(command)
    return command


def json_bytes(numbers: object) -> bytes:
    return (json.dumps(numbers, indent=1) + "\n").encode()


def csv_bytes(rows: Sequence[Row]) -> bytes:
    """Return rows as CSV with a header line; None is an empty field."""
    text = io.StringIO()
    names = [*dict.fromkeys(name for row in rows for name in row)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def write(content: bytes, path: Path) -> None:
    """Write a file whole, and print its path. Raises TraceError if it cannot be written."""
    from ddpkit.files import write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror}.") from None
    click.echo(f"wrote {path}", err=True)


def write_rows(
    as_json: Path | None, as_csv: Path | None, rows: Sequence[Row], **others: object
) -> None:
    """Write rows to the named files; the JSON file also has the values in `others`."""
    if as_json is not None:
        write(json_bytes({**others, "rows": [*map(dict, rows)]}), as_json)
    if as_csv is not None:
        write(csv_bytes(rows), as_csv)
