"""The map of the course: all labs, and the number of solved exercises in each lab."""

from __future__ import annotations

import html
from dataclasses import dataclass

from ddpkit import answers
from ddpkit.exercises import progress

BAR = "height: 0.6em; border-radius: 0.3em"
FULL = "#0072b2"  # the colour of compute in a timeline


@dataclass(frozen=True)
class LabProgress:
    """A lab on the map, with the number of its exercises and of those that are solved."""

    stem: str
    minutes: str
    solved: int
    exercises: int

    @property
    def title(self) -> str:
        """The lab's name on the map: "03 all_reduce"."""
        return self.stem.replace("_", " ", 1)

    @property
    def is_solved(self) -> bool:
        """True if every exercise is solved."""
        return self.solved == self.exercises


@dataclass(frozen=True)
class CourseMap:
    """All labs in order; a notebook shows the map as a table with links."""

    labs: tuple[LabProgress, ...]
    notes: tuple[str, ...] = ()

    @property
    def next(self) -> LabProgress | None:
        """The first lab with an unsolved exercise; None if all are solved."""
        return next((lab for lab in self.labs if not lab.is_solved), None)

    @property
    def headline(self) -> str:
        """A sentence about the student's progress."""
        solved, all_ = sum(x.solved for x in self.labs), sum(x.exercises for x in self.labs)
        if self.next is None:
            return f"All {all_} exercises are solved."
        start = "Start with" if not solved else "Next:"
        return f"{solved} of {all_} exercises solved. {start} {self.next.title}."

    def __repr__(self) -> str:
        rows = [
            f"{lab.title:18} {_dots(lab):12} {lab.solved} of {lab.exercises:<3} "
            f"{lab.minutes:>3} min"
            for lab in self.labs
        ]
        return "\n".join([*rows, self.headline, *self.notes])

    def _repr_html_(self) -> str:
        rows = "".join(_row(lab, lab is self.next) for lab in self.labs)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        head = '<tr><th style="text-align: left">lab</th><th></th><th>solved</th><th>minutes</th>'
        return f"<table>{head}</tr>{rows}</table><p>{html.escape(self.headline)}</p>{notes}"


def course() -> CourseMap:
    """Return the map of all labs, with your solved exercises in each lab.

    `check` keeps results in the folder `.ddpkit` beside the notebook, or in the folder that
    `DDPKIT_PROGRESS` names. course() runs no code of yours.
    """
    results, notes = progress.read()
    solved = {name for name, result in results.items() if result.passed}
    labs = []
    for number, (stem, minutes) in answers.TITLES.items():
        exercises = {name for name, lab in answers.LABS.items() if lab == number}
        labs.append(LabProgress(stem, minutes, len(exercises & solved), len(exercises)))
    if not results:
        notes += _not_here()
    return CourseMap(tuple(labs), tuple(notes))


def _not_here() -> list[str]:
    """Return a sentence about results in an outer folder, or about a missing folder."""
    here = progress.folder().absolute()
    if above := progress.of_a_parent("progress/*.json"):
        return [f"Results are in {above}, and this notebook looks in {here}."]
    return [f"ddpkit keeps results in {here}, and this folder does not exist yet."] * (
        progress.is_new()
    )


def _dots(lab: LabProgress) -> str:
    return "●" * lab.solved + "○" * (lab.exercises - lab.solved)


def _row(lab: LabProgress, is_next: bool) -> str:
    share = lab.solved / max(1, lab.exercises)
    bar = (
        f'<div style="{BAR}; width: 10em; background: rgba(128, 128, 128, 0.25)">'
        f'<div style="{BAR}; width: {share:.0%}; background: {FULL}"></div></div>'
    )
    link = f'<a href="{lab.stem}.ipynb">{html.escape(lab.title)}</a>'
    name = f"<b>{link}</b>" if is_next else link
    return (
        f'<tr><td style="text-align: left">{name}</td><td>{bar}</td>'
        f"<td>{lab.solved} of {lab.exercises}</td><td>{lab.minutes}</td></tr>"
    )
