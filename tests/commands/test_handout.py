"""`ddpkit handout`: a class's archive installs, runs, and has no answer of a lab that is open."""

from __future__ import annotations

import functools
import gzip
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.authoring import make_answers, make_lab, parse, to_text
from ddpkit.authoring.lesson import Lesson
from ddpkit.commands import handout
from ddpkit.commands.main import main
from tests.project.source import PACKAGE, ROOT, lessons, sources

INVENTED = '''# %% [markdown]
# # Lab 97: far away

# %%
from ddpkit import check

# %% exercise="farthest"
def farthest(rank: int, world_size: int) -> int:
    """The rank that is half a ring away."""
    # BEGIN SOLUTION
    distance_around = world_size // 2
    return (rank + distance_around) % world_size
    # END SOLUTION

# %% check="farthest"
check(farthest)
'''

CHANCE = 30  # characters: shorter rows of lines may stand in any program


def make(folder: Path, opened: str) -> zipfile.ZipFile:
    result = CliRunner().invoke(main, ["handout", "--open", opened, "-o", str(folder / "c.zip")])
    assert result.exit_code == 0, result.output
    return zipfile.ZipFile(folder / "c.zip")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with an invented lab 97.

    The command makes its archives from the checkout.
    """
    root = tmp_path / "checkout"
    folders = ("ddpkit", "labs", "solutions", "docs", "binder", ".devcontainer", "tests/commands")
    for name in folders:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("_build"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, root)
    (root / "solutions" / "97_far.py").write_text(INVENTED)
    lesson = parse(root / "solutions" / "97_far.py")
    (root / "labs" / "97_far.ipynb").write_text(to_text(make_lab(lesson)))
    (root / "ddpkit" / "answers" / "lab97.py").write_text(make_answers(lesson))
    monkeypatch.setattr(handout, "CHECKOUT", root)
    return root


def code_of(lines: list[str]) -> list[str]:
    """Return the lines of code without quotes and commas of a notebook's JSON."""
    bare = [line.strip(' ",').removesuffix("\\n").strip() for line in lines]
    return [line for line in bare if line and not line.startswith("#")]


def _text(content: bytes) -> str:
    """Return the text of a file; a saved trace is unpacked."""
    packed = content.startswith(b"\x1f\x8b")
    return (gzip.decompress(content) if packed else content).decode()


def told(zipped: zipfile.ZipFile, lesson: Lesson) -> list[str]:
    """Return the matches of an archive with three lines of an answer in a row, or a whole shorter
    one.

    Fewer lines, such as `rank, world_size = ...`, are in many files by chance, and so is `try:
    yield finally:`.
    """
    found = []
    for cell in lesson.cells:
        answer = code_of(cell.answer)
        rows = min(3, len(answer))
        windows = {tuple(answer[n : n + rows]) for n in range(len(answer) - rows + 1)}
        secret = {lines for lines in windows if len("".join(lines)) >= CHANCE}
        for name, there in rows_of(zipped, rows).items() if secret else ():
            found += [f"{name}: {lines}" for lines in secret & there]
    return found


@functools.lru_cache(maxsize=3)  # one archive, and then the next
def rows_of(zipped: zipfile.ZipFile, count: int) -> dict[str, set[tuple[str, ...]]]:
    """Return, for each file of an archive, all sequences of `count` lines of code."""
    found = {}
    for name in zipped.namelist():
        if not name.endswith((".png", ".npz")):
            text = code_of(_text(zipped.read(name)).splitlines())
            found[name] = {tuple(text[n : n + count]) for n in range(len(text) - count + 1)}
    return found


def numbers(zipped: zipfile.ZipFile) -> list[str]:
    return re.findall(r"^ddpkit/answers/lab(\d\d)\.py$", "\n".join(zipped.namelist()), re.M)


@pytest.mark.slow
@pytest.mark.parametrize("opened", [path.name[:2] for path in sources()])
def test_answers_of_open_labs_are_nowhere_in_it(tmp_path: Path, opened: str) -> None:
    zipped = make(tmp_path, opened)
    assert numbers(zipped) == [each.number for each in lessons() if each.number < opened]
    assert [
        each for lesson in lessons() if lesson.number >= opened for each in told(zipped, lesson)
    ] == []


@pytest.mark.parametrize("opened", ["06", "97"])
def test_a_lab_with_a_number_beyond_nine(tmp_path: Path, checkout: Path, opened: str) -> None:
    zipped = make(tmp_path, opened)
    assert numbers(zipped) == [each.number for each in lessons() if each.number < opened]
    assert "labs/97_far.ipynb" in zipped.namelist()
    assert told(zipped, parse(checkout / "solutions" / "97_far.py")) == []


def test_the_search_for_answers_finds_them(tmp_path: Path) -> None:
    """A search that never finds an answer would prove nothing.

    Labs that are over have all answers.
    """
    zipped = make(tmp_path, "06")
    over = [lesson for lesson in lessons() if lesson.number < "06"]
    assert [lesson.number for lesson in over if told(zipped, lesson)] == numbers(zipped)


def test_what_is_in_it_and_what_is_not(tmp_path: Path, checkout: Path) -> None:
    for name in ("ddpkit/.secret.py", "ddpkit/answers/lab03.py~", "ddpkit/answers/old_lab03.py"):
        (checkout / name).write_text("return the_answer_itself")
    for name in ("ddpkit/__pycache__/x.py", "labs/.ddpkit/answers/ring.py", ".hidden/x.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("return the_answer_itself")
    zipped = make(tmp_path, "03")
    names = set(zipped.namelist())
    assert {"labs/06_overlap.ipynb", "ddpkit/checks/lab06/cases.py", "Makefile"} <= names
    assert {"ddpkit/data/digits.npz", "ddpkit/py.typed", "ddpkit/data/DIGITS.md"} <= names
    allowed = ("labs/", "ddpkit/", "docs/", "binder/", ".devcontainer/")
    assert {name for name in names if "/" in name and not name.startswith(allowed)} == set()
    assert [name for name in names if b"the_answer_itself" in zipped.read(name)] == []


def test_the_kit_is_whole(tmp_path: Path) -> None:
    """A file of a new kind in the package must not be missing."""
    tracked = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    names = {path.relative_to(ROOT).as_posix() for path in tracked}
    missing = names - set(make(tmp_path, "03").namelist())
    assert {
        name for name in missing if not re.fullmatch(r"ddpkit/answers/lab\d\d\.py", name)
    } == set()


@pytest.mark.slow
def test_the_bytes_depend_on_nothing_but_the_files(tmp_path: Path, checkout: Path) -> None:
    def written(folder: str) -> bytes:
        (tmp_path / folder).mkdir()
        make(tmp_path / folder, "03")
        return (tmp_path / folder / "c.zip").read_bytes()

    first = written("a")
    for path in checkout.rglob("*.py"):
        os.utime(path, (1, 1))
    (checkout / "ddpkit" / "scratch.txt").write_text("")
    assert written("b") == first
    with open(checkout / "Makefile", "a") as makefile:
        makefile.write("\n")
    assert written("c") != first


def test_links_of_its_pages_lead_somewhere(tmp_path: Path) -> None:
    make(tmp_path, "03").extractall(tmp_path / "class")
    pages = sorted((tmp_path / "class").rglob("*.md"))
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    ]
    assert len(links) > 10
    assert [
        (page.name, target) for page, target in links if not (page.parent / target).exists()
    ] == []


def test_its_readme_speaks_of_nothing_that_was_left_out(tmp_path: Path) -> None:
    readme = make(tmp_path, "03").read("README.md").decode()
    for name in ("solutions/", "tests/", "make test", "ddpkit grade", "ddpkit release", "<!--"):
        assert name not in readme
    for name in ("make lab", "ddpkit check", "labs/06_overlap.ipynb", "## Licence"):
        assert name in readme


WORK = """
from ddpkit import carry, check, errors
print(carry("token_ring", quiet=True).__module__, carry("reduce", quiet=True).__module__)
try:
    carry("ring")
except errors.LessonError as error:
    print(error)
def predict(algorithm, world_size, nbytes, latency, bandwidth):
    return 0.0
print(check(predict).passed)
"""


@pytest.mark.processes
def test_it_installs_and_works(tmp_path: Path) -> None:
    """The labs that are over run, an open lab can be checked, and a wheel can be built."""
    make(tmp_path, "03").extractall(tmp_path / "class")

    def python(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path / "class",
            env={**os.environ, "PYTHONPATH": str(tmp_path / "class"), "DDPKIT_PROGRESS": ""},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    carried, asked, *said = python("-c", WORK).splitlines()
    assert carried == "ddpkit.answers.lab00 ddpkit.answers.lab02"
    assert asked.startswith("There is no `ring` to carry over. Answer `ring` in lab 03;")
    assert said[0].startswith("✗ all_to_all ")
    assert said[-1] == "False"
    assert "06_overlap" in python("-m", "ddpkit", "lab", "--list")
    assert (tmp_path / "class" / "binder" / "postBuild").is_file()
    python("-m", "hatchling", "build", "-t", "wheel")


def refused(*words: str) -> str:
    result = CliRunner().invoke(main, ["handout", *words])
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    return result.output.strip().splitlines()[-1]


@pytest.mark.parametrize("wrong", ["99", "x", "", "-1", "0 3"])
def test_a_lab_that_is_not_there(tmp_path: Path, wrong: str) -> None:
    said = refused("--open", wrong, "-o", str(tmp_path / "c.zip"))
    assert said.startswith(f"Error: There is no lab {wrong!r}. The labs are: 00_ranks, 01_sgd")
    assert list(tmp_path.iterdir()) == []


def test_other_bad_input_gets_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Missing option '--open'" in refused()
    nowhere = tmp_path / "no" / "c.zip"
    assert refused("--open", "3", "-o", str(nowhere)) == (
        f"Error: {nowhere} cannot be written: No such file or directory."
    )
    assert "is a directory" in refused("--open", "3", "-o", str(tmp_path))
    monkeypatch.setattr(handout, "CHECKOUT", tmp_path)
    assert "works in a checkout of ddpkit only" in refused("--open", "3")


def test_a_lab_that_somebody_has_worked_in_is_not_handed_out(
    tmp_path: Path, checkout: Path
) -> None:
    lab = checkout / "labs" / "03_all_reduce.ipynb"
    lab.write_bytes((checkout / "solutions" / lab.name).read_bytes())
    said = refused("--open", "03", "-o", str(tmp_path / "c.zip"))
    assert "labs/03_all_reduce.ipynb" in said
    assert said.endswith("run `make release`.")
    assert not (tmp_path / "c.zip").exists()
