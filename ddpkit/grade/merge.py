"""The cells of a submission in the order in which the grader runs them, with its questions.

The cells run from the top, and the questions of an exercise come at the exercise's check.

A submission runs in the order of Run All, so the grader grades the same code that passed for the
student. All of the student's own cells that define or change a name run in order. Cells without
effect are left out: the lab's demonstrations, and cells that only show a result (`show(run)`). An
error in a student's own cell costs no points, and `check` has no effect.

A notebook may have been written in another order. If the check of an exercise stands above the
answer, or above a name that the answer needs, the questions of the exercise come at the end.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ddpkit.grade.cellnames import STAR, CellNames, names_in, without
from ddpkit.grade.submission import Submission, SubmittedCell

# Frequent calls that change nothing on which an answer can depend.
ONLY_LOOK = {
    *("check", "ddpkit.check", "show", "print", "display", "len", "repr", "str", "int", "float"),
    *("list", "tuple", "dict", "set", "sorted", "range", "type", "isinstance", "sum", "min", "max"),
    *("enumerate", "zip", "abs", "round", "help", "dir", "Cluster", "Cluster().run", "torch.ones"),
    *("torch.zeros", "torch.arange", "torch.tensor", "torch.full"),
}


@dataclass(frozen=True)
class PlannedCell:
    """A cell that the grader runs. Questions come between such cells."""

    source: str
    label: str  # the cell's name in messages: an exercise, "given" or "helper"
    exercises: tuple[str, ...] = ()  # exercises that the cell answers
    is_needed: bool = True  # False if no answer uses a name that the cell binds or changes


@dataclass
class Merged:
    """The cells of a submission that the grader runs, and the exercises without a usable answer."""

    cells: list[PlannedCell] = field(default_factory=list)
    asked_after: dict[str, int] = field(
        default_factory=dict
    )  # exercise -> number of cells that run before its questions
    missing: list[str] = field(default_factory=list)  # exercises that no cell answers
    broken: dict[str, str] = field(default_factory=dict)  # exercise -> syntax error in its cell
    blank: set[str] = field(default_factory=set)  # exercises with the lab's cell unchanged
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Cell:
    """A cell of the submission, with the names in its code and its role in the lab."""

    source: str
    names: CellNames
    claims: frozenset[str]  # exercises that the cell's id or metadata name
    checks: frozenset[str]  # exercises that the cell checks, by a call or by its marks
    is_given: bool  # True for an unchanged cell of the lab
    is_demonstration: bool  # True for a demonstration of the lab with new numbers or arguments


def merge(lab: Sequence[SubmittedCell], names: Sequence[str], submission: Submission) -> Merged:
    """Return a submission merged into the code cells of its lab, with the exercises `names`."""
    merged = Merged(notes=list(submission.notes))
    cells = _without_stubs(_read(lab, names, submission), names)
    answers, asked_at = _answers(cells, names, merged)
    given = [cell.source for cell in lab if not cell.exercise and not cell.check]
    own, wanted = _running(cells, answers, given)
    needed = _needed(cells, set(answers.values()), given, set(answers))[1]
    plan = [PlannedCell(text, "given") for text in given if names_in(text).binds & wanted]
    count = [len(plan)]  # position in the submission -> number of planned cells before it
    running, bound = set(own), set[str]()  # names bound by the student's own cells above
    for position, cell in enumerate(cells):
        of = tuple(name for name, place in answers.items() if place == position)
        if position in running:
            bound |= cell.names.binds
            label = of[0] if of else "helper"
            is_needed = bool(of or (cell.names.binds | cell.names.changes) & needed)
            plan.append(PlannedCell(cell.source, label, of, is_needed))
        elif cell.is_given and _comes_again(cell, bound, wanted):
            plan.append(PlannedCell(cell.source, "given"))
        count.append(len(plan))
    merged.cells = plan
    binders = _by_name((n, cells[n].names.binds) for n in own)
    merged.asked_after = {
        name: count[_place(asked_at[name], answers[name], cells, own, binders) + 1]
        for name in answers
    }
    merged.blank = _blank(lab, cells, answers, own)
    if set(names) - {name for cell in cells for name in cell.checks}:
        merged.notes.append(
            "Check cells are missing or changed; the course's check cells were used."
        )
    return merged


def _read(
    lab: Sequence[SubmittedCell], names: Sequence[str], submission: Submission
) -> list[_Cell]:
    given = {cell.source.strip() for cell in lab if not cell.exercise and not cell.check}
    original = {
        cell.id: names_in(cell.source)
        for cell in lab
        if cell.id and not cell.exercise and not cell.check
    }
    exercises = set(names)
    found = []
    for cell in submission.cells:
        known = names_in(cell.source)
        claims = {cell.exercise, cell.id.removeprefix("answer-")} & exercises
        checks = ({cell.check, cell.id.removeprefix("check-")} | known.checks) & exercises
        is_given = cell.source.strip() in given
        found.append(
            _Cell(
                cell.source,
                known,
                frozenset(claims),
                frozenset(checks),
                is_given,
                not is_given and not claims and _does_no_more(known, original.get(cell.id)),
            )
        )
    return found


def _does_no_more(known: CellNames, original: CellNames | None) -> bool:
    """True if a cell calls and binds no names except those of the lab's cell with the same id."""
    if original is None:
        return False
    return known.calls <= original.calls and known.binds <= original.binds


def _without_stubs(cells: Sequence[_Cell], names: Sequence[str]) -> list[_Cell]:
    """Return the cells, without each stub of an exercise that another cell defines."""
    stubs = _by_name((n, cell.names.blank) for n, cell in enumerate(cells))
    binds = _by_name((n, cell.names.binds) for n, cell in enumerate(cells))
    result = list(cells)
    given_up = {n: set[str]() for name in names for n in stubs.get(name, ())}
    for name in names:
        if len(stubs.get(name, ())) != len(binds.get(name, ())):
            for n in stubs.get(name, ()):
                given_up[n].add(name)
    for n, gone in given_up.items():
        if gone:
            source = without(result[n].source, gone)
            result[n] = replace(result[n], source=source, names=names_in(source))
    return result


def _answers(
    cells: Sequence[_Cell], names: Sequence[str], merged: Merged
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the positions of the answers' cells, and of the checks' cells, by exercise.

    The answer is the definition that the last check sees: the last definition above that check. If
    no cell defines the name, the cell's id and metadata decide.
    """
    answers: dict[str, int] = {}
    asked_at: dict[str, int] = {}
    for name in names:
        claimed = [n for n, cell in enumerate(cells) if name in cell.claims]
        binding = [
            n for n, cell in enumerate(cells) if name in cell.names.binds and not cell.is_given
        ]
        broken = [n for n in claimed if cells[n].names.error]
        found = binding or [n for n in claimed if n not in broken]
        if not found and broken:
            merged.broken[name] = cells[broken[-1]].names.error
        elif not found:
            merged.missing.append(name)
        else:
            checks = [n for n, cell in enumerate(cells) if name in cell.checks and n >= found[0]]
            asked_at[name] = checks[-1] if checks else len(cells) - 1
            answers[name] = max(n for n in found if n <= asked_at[name])
            if found[-1] > asked_at[name]:
                merged.notes.append(
                    f"{name} is defined again below its check; the definition above was graded."
                )
            if binding and broken:
                merged.notes.append(
                    f"The cell of {name} is not valid Python ({cells[broken[-1]].names.error}); "
                    f"another cell that defines {name} was graded."
                )
    return answers, asked_at


def _running(
    cells: Sequence[_Cell], answers: dict[str, int], given: Sequence[str]
) -> tuple[list[int], set[str]]:
    """Return the positions of the student's cells that run, and all names that they need."""
    bound = {name for cell in cells if not cell.is_given for name in cell.names.binds} - {*answers}
    codes = [cell.names for cell in cells] + [names_in(text) for text in given]
    clusters = {name for code in codes for name in code.clusters}
    doing = {
        n
        for n, cell in enumerate(cells)
        if _is_own(cell) and not _looks(cell, bound, clusters, answers)
    }
    return _needed(cells, doing | set(answers.values()), given, set(answers))


def _is_own(cell: _Cell) -> bool:
    return not cell.is_given and not cell.names.error and bool(cell.source.strip())


def _looks(cell: _Cell, bound: set[str], clusters: set[str], answers: Container[str]) -> bool:
    """True if a cell changes only the names that it binds, because its calls have no effect."""
    if cell.is_demonstration:
        return True
    if cell.names.acts:
        return False
    for call in cell.names.calls:
        root, _, method = call.partition(".")
        is_known = call in answers or (call in ONLY_LOOK and root not in bound)
        if not is_known and not (root in clusters and method == "run"):
            return False
    return True


def _needed(
    cells: Sequence[_Cell], running: set[int], given: Sequence[str], wanted: set[str]
) -> tuple[list[int], set[str]]:
    """Return the positions of the cells that must run, and all names that these cells need.

    running  positions of cells that run in any case
    wanted   names that must be bound
    """
    running = set(running)
    own = [(n, cell.names) for n, cell in enumerate(cells) if _is_own(cell)]
    makers = _by_name((n, names.binds | names.changes) for n, names in own)
    givers = _by_name((n, names_in(text).binds) for n, text in enumerate(given))
    wanted = wanted | {name for n in running for name in cells[n].names.needs}
    waiting = list(wanted)
    for name in waiting:  # the loop appends to the list
        running.update(makers.get(name, ()))
        needs = {each for n in makers.pop(name, ()) for each in cells[n].names.needs}
        needs |= {each for n in givers.pop(name, ()) for each in names_in(given[n]).needs}
        waiting += needs - wanted
        wanted |= needs
    return sorted(running), wanted


def _by_name(cells: Iterable[tuple[int, Iterable[str]]]) -> dict[str, list[int]]:
    """Return, for each name, the positions of the cells that have this name."""
    found: dict[str, list[int]] = {}
    for n, names in cells:
        for name in names:
            found.setdefault(name, []).append(n)
    return found


def _comes_again(cell: _Cell, bound: Container[str], wanted: set[str]) -> bool:
    """True if a cell of the lab must run a second time, at its place in the submission.

    All cells of the lab run before the student's cells. At its place in the submission, the cell
    finds names that only the student's cells bind, and overwrites names that these cells have
    bound.

    bound  the names that the student's own cells above bind
    """
    if not cell.names.binds & wanted:
        return False
    return STAR in bound or any(name in bound for name in cell.names.binds | cell.names.needs)


def _place(
    asked_at: int,
    answer: int,
    cells: Sequence[_Cell],
    own: Sequence[int],
    binders: Mapping[str, Sequence[int]],
) -> int:
    """Return the position of the cell after which the questions of an exercise come.

    The position is that of the exercise's check. If a cell below the check binds a name that the
    answer needs, the position is the end of the notebook.

    binders  name -> the cells of `own` that bind the name
    """
    needs, seen = set(cells[answer].names.needs), set[int]()
    waiting = list(needs)
    for name in waiting:  # the loop appends to the list
        fresh = set(binders.get(name, ())) - seen
        seen |= fresh
        more = {each for n in fresh for each in cells[n].names.needs} - needs
        needs |= more
        waiting += more
    above = {name for cell in cells[: asked_at + 1] for name in cell.names.binds}
    if STAR in above:
        return asked_at
    below = {name for n in own if n > asked_at for name in cells[n].names.binds}
    return len(cells) - 1 if needs & below - above else asked_at


def _blank(
    lab: Sequence[SubmittedCell],
    cells: Sequence[_Cell],
    answers: dict[str, int],
    own: Iterable[int],
) -> set[str]:
    """Return the exercises with cells that the student has not changed."""
    handed_out = {cell.exercise: cell.source.strip() for cell in lab if cell.exercise}
    same = {name for name, n in answers.items() if cells[n].source.strip() == handed_out.get(name)}
    return same - {name for n in own for name in cells[n].names.changes}
