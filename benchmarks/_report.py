"""Samples, figures and tables, which every benchmark prints."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version


@dataclass(frozen=True)
class Sample:
    """Repetitions of one measurement."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        return cls(tuple(values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def text(self, unit: str) -> str:
        """Return "0.081 s (0.079–0.085, max 0.1, n=20)": median, middle half, largest, number."""
        middle = f"{_digits(self.median)}{f' {unit}' if unit else ''}"
        if len(self.values) < 4:
            return f"{middle} (max {_digits(max(self.values))}, n={len(self.values)})"
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        most = _digits(max(self.values))
        return f"{middle} ({_digits(low)}–{_digits(high)}, max {most}, n={len(self.values)})"


@dataclass(frozen=True)
class Figure:
    """A row: one measurement, of ddpkit and of other tools for the same work. Less is better.

    A string in place of a sample is the reason why there is none. `goal` limits ddpkit's median.
    """

    name: str
    unit: str
    ours: Sample | str
    others: dict[str, Sample | str] = field(default_factory=dict)
    goal: float | None = None
    note: str = ""

    def verdict(self) -> str:
        """Return "≤ 0.2 ok" or "≤ 0.2 MISSED"; "" without a goal."""
        if self.goal is None:
            return ""
        if isinstance(self.ours, str):
            return f"≤ {self.goal:g}"
        return f"≤ {self.goal:g} {'ok' if self.ours.median <= self.goal else 'MISSED'}"

    def ratio(self, other: str) -> str:
        """Return the median of another tool divided by ddpkit's, as text."""
        theirs = self.others.get(other)
        if isinstance(self.ours, str) or not isinstance(theirs, Sample):
            return ""
        return f"{theirs.median / self.ours.median:.1f} ×"


def table(title: str, figures: Sequence[Figure], others: Sequence[str]) -> list[list[str]]:
    """Return rows of text, the header first; `others` name the columns beside ddpkit's."""
    header = [title, "goal", "ddpkit"]
    for other in others:
        header += [other, "÷ ddpkit"]
    rows = [[*header, "note"]]
    for figure in figures:
        row = [figure.name, figure.verdict(), _cell(figure.ours, figure.unit)]
        for other in others:
            row += [_cell(figure.others.get(other, ""), figure.unit), figure.ratio(other)]
        rows.append([*row, figure.note])
    return [list(row) for row in zip(*_used(rows), strict=True)]


def _used(rows: list[list[str]]) -> list[tuple[str, ...]]:
    """Return the columns that have any text under their header."""
    return [column for column in zip(*rows, strict=True) if any(column[1:])]


def as_text(rows: list[list[str]]) -> str:
    """Return aligned columns, with two spaces between columns and a rule under the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def as_markdown(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def machine() -> str:
    """Return the machine of the measurement in words, and its load."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    gpu = f" · {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return (
        f"{cores} cores, load average {load:.1f} at start · {platform.system()} "
        f"{platform.machine()} · Python {platform.python_version()} · torch {version('torch')}{gpu}"
    )


def _cell(value: Sample | str, unit: str) -> str:
    return value if isinstance(value, str) else value.text(unit)


def _digits(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.1 else f"{value:.3f}"


def options(doc: str | None) -> argparse.Namespace:
    """Return `quick` and `markdown` from the command line; `doc` is the text of --help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 ranks, twice each")
    parser.add_argument("--markdown", action="store_true", help="the table as for BENCHMARKS.md")
    return parser.parse_args()
