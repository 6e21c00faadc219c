"""A teacher's ways to publish the results of many students, through the commands."""

from __future__ import annotations

import csv
import io
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

from ddpkit.commands.main import main
from ddpkit.errors import GradeError
from ddpkit.grade import store
from ddpkit.grade.publish.overrides import read_overrides
from ddpkit.grade.publish.roster import read_roster
from ddpkit.grade.score import Score
from ddpkit.grade.store import Result

EVIL = "=1+1<script>alert(1)</script>"
OWN = 'id,name,folder\nada,Ada Lovelace,\nbob,"Bob, B.",b?b*\ncy,Cy,\n'
CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,Lab 00 (77),Lab 01: SGD (78),Current Score\n"
    "    Points Possible,,,,,4,8,(read only)\n"
    '"Lovelace, Ada",1001,s1,ada,"A, B",,,\nBob,1002,s2,bob,A,,,\nCy,1003,s3,cy,A,,,\n'
)
MOODLE = (
    "\ufeffIdentifier,Full name,Email address,Status,Grade,Maximum Grade,"
    "Last modified (grade),Feedback comments\n"
    'Participant 31,Ada Lovelace,ada@x.org,Submitted,,100.00,"Sunday, 3 May 2026, 9:00 AM",\n'
    "Participant 32,Bob,bob@x.org,No submission,,100.00,-,\n"
)


def scored(earned: float, *cases: tuple[str, str, str]) -> Score:
    return Score("token_ring", "pass" if earned == 2 else "fail", 2, earned, (EVIL,), cases)


def result(name: str, lab: str, earned: float | None, when: float = 0.0, **more: object) -> Result:
    ones = () if earned is None else (scored(min(earned, 2), ("3 ranks", "fail", "own x")),)
    status = "infra_error" if earned is None else "graded"
    return Result(name, "k", status, lab, "bwrap", 4.0, earned, 1.0, ones, (), when, **more)


RESULTS = [
    result("ada/00_ranks.ipynb", "00", 4.0, 1e9),
    result("ada/00_again.ipynb", "00", 1.0, 2e9),
    result("ada/01_sgd.ipynb", "01", 3.0, answers=(("sgd_step", "x = 1"),),
           written=(("**Predict:** what?", EVIL),)),
    result("b0b_00.ipynb", "00", None),
    Result("cy/01_sgd.ipynb", "", "refused", notes=("Refused: it is empty.",)),
    result("dan/00_ranks.ipynb", "00", 2.0),
]  # fmt: skip


@pytest.fixture
def grades(tmp_path: Path) -> Path:
    for each in RESULTS:
        store.save(tmp_path / "grades", each)
    (tmp_path / "roster.csv").write_text(OWN)
    return tmp_path / "grades"


def report(grades: Path, form: str, *more: str | Path) -> Done:
    return CliRunner().invoke(main, ["report", str(grades), "--format", form, *map(str, more)])


def rows(grades: Path, form: str, *more: str | Path) -> list[dict[str, str]]:
    output = grades.parent / "out.csv"
    done = report(grades, form, "-o", output, *more)
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(output.read_text(), newline="")))


def test_the_gradebook_has_a_row_for_everybody(grades: Path) -> None:
    found = rows(grades, "gradebook", "--roster", grades.parent / "roster.csv")
    assert [row["id"] for row in found] == ["ada", "bob", "cy", ""]
    ada, bob, cy, dan = found
    assert (ada["lab 00"], ada["lab 01"], ada["total"], ada["points"]) == (
        "4.0",
        "3.0",
        "7.0",
        "8.0",
    )
    assert (bob["lab 00"], bob["lab 01"], bob["name"]) == ("infra_error", "missing", "Bob, B.")
    assert (cy["lab 00"], cy["lab 01"], cy["notes"]) == (
        "missing",
        "0.0",
        "01: Refused: it is empty.",
    )
    assert (dan["name"], dan["notes"]) == ("dan/00_ranks.ipynb", "not in the roster")
    assert ada["lab 00 handed in"].startswith("2001-09-")
    newest = rows(grades, "gradebook", "--roster", grades.parent / "roster.csv", "--keep", "newest")
    assert newest[0]["lab 00"] == "1.0"


def test_who_is_not_in_the_roster_is_said(grades: Path) -> None:
    done = report(grades, "csv", "--roster", grades.parent / "roster.csv")
    assert "Not in the roster: dan/00_ranks.ipynb" in done.output


def test_without_a_roster_each_folder_is_a_person(grades: Path) -> None:
    assert [row["id"] for row in rows(grades, "gradebook")] == ["ada", "b0b_00.ipynb", "cy", "dan"]


def test_what_was_withdrawn_does_not_count(grades: Path) -> None:
    gone = replace(RESULTS[1], status="withdrawn", earned=None, exercises=(), handed_in=3e9)
    store.save(grades, gone)
    store.save(grades, replace(gone, name="dan/00_ranks.ipynb", written=(("?", "words"),)))
    (grades.parent / "roster.csv").write_text("id\nada\ndan\n")
    for keep in ("newest", "best"):
        more = ["--roster", grades.parent / "roster.csv", "--keep", keep]
        ada, dan, *_ = rows(grades, "gradebook", *more)
        assert (ada["lab 00"], dan["lab 00"]) == ("4.0", "withdrawn")
        assert rows(grades, "canvas", *more)[2]["Lab 00"] == ""
    assert "words" not in report(grades, "written").output


def test_canvas(grades: Path) -> None:
    (roster := grades.parent / "canvas.csv").write_text(CANVAS)
    possible, ada, bob, cy = rows(grades, "canvas", "--roster", roster)
    assert list(possible)[:5] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    assert list(possible)[5:] == ["Lab 00 (77)", "Lab 01: SGD (78)"]
    assert possible["Student"] == "    Points Possible"
    assert possible["Lab 00 (77)"] == "4"
    assert (ada["Student"], ada["ID"], ada["Section"]) == ("Lovelace, Ada", "1001", "A, B")
    assert (ada["Lab 00 (77)"], ada["Lab 01: SGD (78)"]) == ("4", "3")
    assert (bob["Lab 00 (77)"], cy["Lab 00 (77)"]) == ("", "")  # their lab 00 does not change
    own = rows(grades, "canvas", "--roster", grades.parent / "roster.csv", "--lab", "0")
    assert (own[1]["SIS User ID"], own[1]["Lab 00"]) == ("ada", "4")


def test_moodle(grades: Path) -> None:
    (roster := grades.parent / "moodle.csv").write_text(MOODLE)
    store.save(grades, result("Bob_32_assignsubmission_file/lab.ipynb", "00", 1.0))
    store.save(grades, result("ada@x.org/lab.ipynb", "00", 2.0))
    ada, bob = rows(grades, "moodle", "--roster", roster, "--lab", "00")
    assert (ada["Identifier"], ada["Grade"]) == ("Participant 31", "50")
    assert ada["Last modified (grade)"] == "Sunday, 3 May 2026, 9:00 AM"
    assert (bob["Identifier"], bob["Grade"]) == ("Participant 32", "25")
    assert "token_ring: 2 of 2" in ada["Feedback comments"]
    assert "<script>" not in ada["Feedback comments"]
    assert "&lt;script&gt;" in ada["Feedback comments"]
    several = report(grades, "moodle", "--roster", roster)
    assert "choose one of the labs 00, 01" in several.output
    assert "Download grading worksheet" in report(grades, "moodle").output


def test_a_file_that_is_called_as_moodle_calls_anothers_is_its_senders(tmp_path: Path) -> None:
    """Moodle's download without folders ends each name with the student's own file name."""
    (path := tmp_path / "roster.csv").write_text(MOODLE)
    owner = read_roster(path).owner(
        "Bob_32_assignsubmission_file_A_31_assignsubmission_file_00.ipynb"
    )
    assert owner is not None
    assert owner.id == "bob@x.org"


def test_m18_a_folder_that_is_called_as_a_formula_is_none_in_canvas(grades: Path) -> None:
    store.save(grades, result(f"{EVIL.partition('<')[0]}/00_ranks.ipynb", "00", 4.0))
    found = rows(grades, "canvas")
    assert [each["SIS User ID"] for each in found if "1+1" in str(each)] == ["'=1+1"]
    assert not any(cell.startswith("=") for each in found for cell in each.values())


def test_a_time_that_no_calendar_has_stops_no_gradebook(grades: Path) -> None:
    for name, when in (("ada/00_late.ipynb", 1e12), ("cy/00_early.ipynb", -1e12)):
        store.save(grades, result(name, "00", 4.0, when))
    found = rows(grades, "gradebook", "--roster", grades.parent / "roster.csv", "--keep", "newest")
    assert [each["lab 00"] for each in found[:3]] == ["4.0", "infra_error", "4.0"]
    assert found[0]["lab 00 handed in"] == found[2]["lab 00 handed in"] == ""


@pytest.mark.parametrize("name", ["99_notes.ipynb", "\u0661\u0662_notes.ipynb"])
def test_a_refused_file_makes_no_lab_of_its_own(grades: Path, name: str) -> None:
    store.save(grades, Result(f"cy/{name}", "", "refused", notes=("Refused: it is empty.",)))
    found = rows(grades, "canvas", "--roster", grades.parent / "roster.csv")
    assert [each for each in found[0] if each.startswith("Lab")] == ["Lab 00", "Lab 01"]


def test_files_as_canvas_downloads_them_are_known(tmp_path: Path) -> None:
    (path := tmp_path / "roster.csv").write_text(CANVAS)
    roster = read_roster(path)
    for name in (
        "lovelaceada_1001_555_00_ranks.ipynb",
        "lovelaceada_LATE_1001_5_lab.ipynb",
        "s1/x",
    ):
        owner = roster.owner(name)
        assert owner is not None
        assert owner.id == "ada"
    assert roster.owner("lovelaceada_9999_555_00_ranks.ipynb") is None
    # a file's number may also be a person's number
    bob = roster.owner("bob_1002_1001_00_ranks.ipynb")
    assert bob is not None
    assert bob.id == "bob"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a roster"),
        ("name,mail\n", "is not a roster"),
        ("id\n", "names nobody"),
        ("id\na\na\n", "two people with the id a"),
    ],
)
def test_what_is_no_roster_is_said(tmp_path: Path, text: str, says: str) -> None:
    (path := tmp_path / "roster.csv").write_text(text)
    with pytest.raises(GradeError, match=says):
        read_roster(path)


def test_a_roster_with_semicolons(tmp_path: Path) -> None:
    (path := tmp_path / "roster.csv").write_text("id;name\nada;Ada, Countess\n")
    assert read_roster(path).people[0].name == "Ada, Countess"


def test_a_submission_of_two_people_is_said(tmp_path: Path) -> None:
    (path := tmp_path / "roster.csv").write_text("id,folder\na,x*\nb,x1*\n")
    with pytest.raises(GradeError, match="x12/lab.ipynb fits two people, a and b"):
        read_roster(path).owner("x12/lab.ipynb")


# Overrides


def test_overrides_outlive_a_regrade(grades: Path) -> None:
    (grades / "overrides.toml").write_text(
        '[[override]]\nname = "ada/00_again.ipynb"\nexercise = "token_ring"\npoints = 2\n'
        'comment = "It was our typo."\n'
        '[[override]]\nname = "b0b_00.ipynb"\npoints = 3.5\n'
        '[[override]]\nname = "ada/01_sgd.ipynb"\ncomment = "Nicely done."\n'
    )
    for _ in range(2):
        found = {row["submission"]: row for row in rows(grades, "csv")}
        assert found["ada/00_again.ipynb"]["earned"] == "2.0"
        assert found["b0b_00.ipynb"]["earned"] == "3.5"
        assert found["ada/01_sgd.ipynb"]["earned"] == "3.0"
        for each in RESULTS:  # regraded
            store.save(grades, each)
    page = report(grades, "html").output
    assert "Set to 2 by your teacher. It was our typo." in page
    assert "Nicely done." in page


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[override]]\n", "Entry 1 of .* needs a name"),
        ('[[override]]\nname = "a"\n', "neither points nor a comment"),
        ('[[override]]\nname = "a"\npoints = "2"\n', "points must be a number, not '2'"),
        ('[[override]]\nname = "a"\npoints = -1\n', "points must be a number"),
        ("[[override]]\nname = 7\npoints = 1\n", "name must be a text in quotes, not 7"),
        ('[[override]]\nname = "a"\nexercise = 3\n', "exercise must be a text in quotes, not 3"),
        ('[[override]]\nname = "a"\ncomment = true\n', "comment must be a text .*, not True"),
        ("override = [1]\n", "nothing but entries"),
        ('override = ["name"]\n', "nothing but entries"),
        ('[[override]]\nname = "a"\npoint = 1\n', "unknown key 'point'; the keys are comment"),
        ("x = 1\n", "nothing but entries"),
        ("[[override\n", "cannot be read"),
    ],
)
def test_a_damaged_override_is_said(tmp_path: Path, text: str, says: str) -> None:
    (path := tmp_path / "overrides.toml").write_text(text)
    with pytest.raises(GradeError, match=says):
        read_overrides(path)


def test_an_override_of_nothing_is_said(grades: Path) -> None:
    for entry, says in (
        ('name = "ada/00_rank.ipynb"\npoints = 1', "Did you mean ada/00_ranks.ipynb?"),
        (
            'name = "ada/00_ranks.ipynb"\nexercise = "ring"\npoints = 1',
            "its exercises are: token_ring.",
        ),
    ):
        (grades / "overrides.toml").write_text(f"[[override]]\n{entry}\n")
        done = report(grades, "csv")
        assert done.exit_code == 1
        assert says in done.output


def test_some_are_graded_again(grades: Path) -> None:
    """--only chooses by status, --again by name; the other results stay."""
    from ddpkit.commands.grade import _once_more
    from ddpkit.grade.found import HandedIn

    everybody = [HandedIn(each.name, Path(each.name)) for each in RESULTS]

    def chosen(statuses: str, *again: str) -> list[str]:
        for each in RESULTS:
            store.save(grades, each)
        found = [one.name for one in _once_more(everybody, grades, {statuses}, again)]
        left = [one.name for one in store.load(grades)]
        assert sorted([*found, *left]) == sorted(each.name for each in RESULTS)
        return found

    assert chosen("infra_error") == ["b0b_00.ipynb"]
    assert chosen("fail") == ["ada/00_again.ipynb"]
    assert chosen("", "ada/", "dan/00_ranks.ipynb") == [
        *("ada/00_ranks.ipynb", "ada/00_again.ipynb", "ada/01_sgd.ipynb", "dan/00_ranks.ipynb")
    ]
    assert chosen("deadlock") == []
    with pytest.raises(GradeError, match="--again da: there is no submission and no folder"):
        chosen("deadlock", "da")


# For people


def test_statistics_say_which_case_fails_and_with_which_hint(grades: Path) -> None:
    text = report(grades, "statistics").output
    assert "lab 00: 3 graded, mean 2.33 of 4" in text
    assert "token_ring: mean 1.67 of 2; 2 have all, 1 some, 0 none" in text
    assert "3 of 3 fail at 3 ranks: own x 3" in text
    assert "3 of 3 fail at 3 ranks" in report(grades, "html").output


def test_a_page_for_each_student(grades: Path) -> None:
    folder = grades.parent / "pages"
    done = report(grades, "html", "--each", folder, "--roster", grades.parent / "roster.csv")
    assert f"wrote 4 pages into {folder}" in done.output
    (ada,) = folder.glob("ada-*.html")
    text = ada.read_text()
    assert "ada/00_ranks.ipynb: 4 of 4" in text
    assert "dan" not in text
    assert "<script" not in text
    assert "--each writes HTML pages" in report(grades, "csv", "--each", folder).output


def test_written_answers_stand_by_question(grades: Path) -> None:
    text = report(grades, "written").output
    assert "lab 01: **Predict:** what?" in text
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_sources_are_a_file_for_each_answer(grades: Path) -> None:
    folder = grades.parent / "sources"
    assert "wrote 1 answers" in report(grades, "sources", "-o", folder).output
    (path,) = folder.rglob("*.py")
    assert path.parent == folder / "lab01" / "sgd_step"
    assert path.read_text() == "x = 1\n"
    assert "name a folder for them with -o" in report(grades, "sources").output


def test_codes_in_place_of_names(grades: Path) -> None:
    key, roster = grades.parent / "key.csv", grades.parent / "roster.csv"
    first = report(grades, "html", "--anonymous", key, "--roster", roster).output
    for name in ("ada", "b0b", "Lovelace"):  # whole words only: a random code may contain "ada"
        assert not re.search(rf"\b{name}\b", first)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    codes = {row["id"]: row["code"] for row in csv.DictReader(key.open())}
    assert list(codes) == ["ada", "bob", "cy", "dan"]
    assert f"{codes['ada']}/00-2" in first
    assert (
        rows(grades, "gradebook", "--anonymous", key, "--roster", roster)[0]["id"] == codes["ada"]
    )
    assert "needs names" in report(grades, "canvas", "--anonymous", key).output


def test_no_cell_of_the_gradebook_is_a_formula(grades: Path) -> None:
    store.save(grades, result("=1+1/00_ranks.ipynb", "00", 1.0))
    assert rows(grades, "gradebook")[0]["id"] == "'=1+1"
