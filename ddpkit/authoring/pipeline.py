"""`release` makes the products of all lessons; `check` lists stale products."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpkit.authoring import stale
from ddpkit.authoring.answers import make_answers, make_index
from ddpkit.authoring.kernel import execute
from ddpkit.authoring.leaks import leaks
from ddpkit.authoring.lesson import FILE_NAME, Lesson, parse
from ddpkit.authoring.notebook import Notebook, load, make_lab, make_solution, to_text, with_results
from ddpkit.authoring.readme import make_course, make_readme
from ddpkit.authoring.rules import rule_problems
from ddpkit.authoring.start import make_start
from ddpkit.authoring.syllabus import make_syllabus
from ddpkit.errors import LessonError
from ddpkit.files import write_whole


@dataclass(frozen=True)
class Released:
    """The files written and removed by a release, as paths from the root.

    A product that was up to date is in neither list.
    """

    written: tuple[Path, ...]
    removed: tuple[Path, ...]


def release(root: Path, names: Collection[str] | None = None, *, force: bool = False) -> Released:
    """Make the products of all lessons in `root`/solutions, or only of the lessons in `names`.

    A name is "00", "00_ranks", "ranks" or a path that ends in solutions/00_ranks.py. A notebook is
    executed if the lesson's code changed, if the outputs have problems, or by `force`. A failed
    lesson keeps the earlier products, and the remaining lessons are still released. Then
    LessonError is raised, with a line for each failure. Products without a lesson are removed,
    unless `names` are given.
    """
    lessons, failures = _read(root)
    failures += _clashes(lessons)
    if failures:
        raise LessonError("\n".join(failures))
    shared = _shared(root, lessons)
    chosen = list(lessons) if names is None else lessons_named(lessons, names)
    written: list[Path] = []
    for lesson in chosen:
        try:
            written += _release_one(root, lesson, force)
        except LessonError as error:
            failures.append(str(error))
        # The index is written after each lesson, since a later lesson may carry an answer.
        written += _write(root, shared)
    if failures:
        raise LessonError("\n".join(failures))
    orphans = list(_orphans(root)) if names is None else []
    for orphan in orphans:
        orphan.unlink()
    return Released(tuple(written), tuple(path.relative_to(root) for path in orphans))


def check(root: Path) -> list[str]:
    """Return the problems of the lessons and products, a sentence for each problem.

    The check executes no notebook, writes no file, and takes seconds.
    """
    lessons, malformed = _read(root)
    problems = malformed + _clashes(lessons)
    for lesson in lessons:
        problems += rule_problems(lesson)
        problems += stale.lab_problems(root, lesson)
        problems += stale.solution_problems(root, lesson)
        problems += stale.answers_problems(root, lesson)
    if not malformed:  # the shared products need all lessons
        try:
            for path, text in _shared(root, lessons).items():
                problems += stale.text_problems(root, path, text, "the lessons make")
        except LessonError as error:
            problems.append(str(error))
    for path in _orphans(root):
        name = path.relative_to(root).as_posix()
        problems.append(f"{name} has no lesson in solutions/: delete it, or {stale.MEND}")
    return problems


def _release_one(root: Path, lesson: Lesson, force: bool) -> list[Path]:
    """Bring all products of a lesson up to date. A failure leaves all products unchanged."""
    lab = make_lab(lesson)
    products = {
        stale.lab_path(root, lesson): to_text(lab),
        stale.answers_path(root, lesson): make_answers(lesson),
    }
    for leak in leaks(lesson, lab):
        raise LessonError(
            f"{lesson.label}: the lab made from this lesson would show an answer, in {leak}"
        )
    if force or any(stale.solution_problems(root, lesson)):
        executed = (None if force else _as_executed(root, lesson)) or execute(lesson)
        wrong = [f"{lesson.label}: {what}" for what in stale.executed_problems(root, executed)]
        if wrong:
            raise LessonError("\n".join(wrong))
        products[stale.solution_path(root, lesson)] = to_text(executed)
    return _write(root, products)


def _as_executed(root: Path, lesson: Lesson) -> Notebook | None:
    """Return the solution notebook with the stored outputs; None if new outputs are needed.

    New outputs are needed if the code differs, or if the stored outputs have problems.
    """
    try:
        earlier = load(stale.solution_path(root, lesson))
    except LessonError:
        return None
    kept = with_results(make_solution(lesson), earlier)
    return kept if kept and not any(stale.executed_problems(root, kept)) else None


def _shared(root: Path, lessons: Sequence[Lesson]) -> dict[Path, str]:
    """Return the products of all lessons together: an index, pages with tables, the start page."""
    texts = {root / "ddpkit" / "answers" / "__init__.py": make_index(lessons)}
    readme = root / "README.md"
    if readme.exists():
        texts[readme] = make_readme(readme.read_text("utf-8"), lessons)
    teaching = root / "docs" / "teaching.md"
    if teaching.exists():
        texts[teaching] = make_syllabus(teaching.read_text("utf-8"), lessons)
    course = root / "docs" / "course.md"
    if course.exists():
        texts[course] = make_course(course.read_text("utf-8"), lessons)
    start = root / "solutions" / "start.md"
    if start.exists():
        page = make_start(start.read_text("utf-8"), lessons)
        texts[root / "labs" / "start.ipynb"] = to_text(page)
    return texts


def _read(root: Path) -> tuple[list[Lesson], list[str]]:
    """Return a repository's lessons by number, and a sentence for each malformed lesson."""
    lessons: list[Lesson] = []
    malformed: list[str] = []
    paths = sorted((root / "solutions").glob("*.py"))
    for path in paths:
        try:
            lessons.append(parse(path))
        except LessonError as error:
            malformed.append(str(error))
    return lessons, malformed if paths else ["solutions/ holds no lesson, NN_name.py."]


def _clashes(lessons: Sequence[Lesson]) -> list[str]:
    """Return a sentence for each number or exercise that two lessons share."""
    first: dict[str, Lesson] = {}
    clashes: list[str] = []
    for lesson in lessons:
        for what in (f"number {lesson.number}", *(f"exercise {name}" for name in lesson.exercises)):
            other = first.setdefault(what, lesson)
            if other is not lesson:
                both = f"{lesson.label}: {what} is also in {other.label}"
                clashes.append(f"{both}: rename one, then {stale.MEND}")
    return clashes


def lessons_named(lessons: Sequence[Lesson], names: Collection[str]) -> list[Lesson]:
    """Return the lessons with these names, in the order of `lessons`.

    The docstring of `release` lists the forms of a name.

    Raises LessonError if no lesson has one of the names.
    """
    wanted = {Path(name).stem if name.endswith((".py", ".ipynb")) else name for name in names}
    called = {lesson.stem: {lesson.stem, lesson.number, lesson.name} for lesson in lessons}
    for name in sorted(wanted.difference(*called.values())):
        raise LessonError(f"There is no lesson {name}; the lessons are: {', '.join(called)}.")
    return [lesson for lesson in lessons if called[lesson.stem] & wanted]


def _orphans(root: Path) -> Iterator[Path]:
    """Yield products without a lesson. Files with names of a different form are ignored."""
    sources = {path.stem for path in (root / "solutions").glob("*.py")}
    for folder in ("labs", "solutions"):
        for path in sorted((root / folder).glob("*.ipynb")):
            if FILE_NAME.fullmatch(path.stem) and path.stem not in sources:
                yield path
    numbers = {stem[:2] for stem in sources}
    for path in sorted((root / "ddpkit" / "answers").glob("lab*.py")):
        if re.fullmatch(r"lab\d\d", path.stem) and path.stem[3:] not in numbers:
            yield path


def _write(root: Path, products: dict[Path, str]) -> list[Path]:
    """Write the changed files, each file atomically. Return the paths of changed files."""
    changed: list[Path] = []
    for path, text in products.items():
        if path.exists() and path.read_bytes() == text.encode():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
        changed.append(path.relative_to(root))
    return changed
