"""Reports, in the forms that their consumers define."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.errors import GradeError
from ddpkit.grade import store
from ddpkit.grade.report import FORMATS, report
from ddpkit.grade.score import Score
from ddpkit.grade.store import Result
from ddpkit.text import visible

EVIL = '=HYPERLINK("http://x")</pre><script>alert(1)</script>\x00\x1b[0m\ud800\u202e\x9b1m&"\''
RESULTS = [
    Result(
        EVIL, "k", "graded", "00", "bwrap", 4.0, 3.0, 5.5,
        (Score("f", "pass", 2.0, 2.0, ("✓ one",)), Score("g", "fail", 2.0, 1.0, (EVIL, "✗ two"))),
        (EVIL,),
    ),
    Result("-1+1.ipynb", "k", "refused", notes=("Refused: it is empty.",)),
    Result("unlucky.ipynb", "k", "infra_error", "00", earned=None, notes=("no disk",)),
]  # fmt: skip


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_shows_and_never_runs_what_students_wrote() -> None:
    parser = Tags()
    parser.feed(report(RESULTS, "html"))
    assert "script" not in parser.tags
    assert any("<script>alert(1)</script>" in text for text in parser.texts)
    assert [source[:22] for source in parser.sources] == ["data:image/png;base64,"]
    assert "3 of 4" in parser.texts
    assert "none" in parser.texts  # infra_error is not 0 points


@pytest.mark.parametrize("form", FORMATS)
def test_m03_m04_every_form_is_written_whatever_it_quotes(form: str, tmp_path: Path) -> None:
    """Half a surrogate pair, in a refusal or in feedback, once left the class without reports."""
    for result in RESULTS[:1] if form == "gradescope" else RESULTS:
        store.save(tmp_path, result)
    written = CliRunner().invoke(main, ["report", str(tmp_path), "--format", form])
    assert written.exit_code == 0, written.output
    text = written.stdout_bytes.decode()  # decoding fails on a surrogate
    assert not [c for c in "\x00\x1b\x9b\u202e\ud800" if c in text]
    assert "ud800" in text


@pytest.mark.parametrize(
    "name",
    [
        "a;=1+1;b.ipynb",
        "\uff1d1+1",
        "\uff0b1",
        "\uff0d1",
        "\uff20x",
        "−1",
        "  =1",
        "\t=1",
        "\n=1",
        '"=1',
    ],
)
def test_m18_no_cell_is_a_formula(name: str) -> None:
    """Not with another separator, and not in full-width letters."""
    line = report([Result(name, "k", "refused")], "csv").partition("\n")[2]
    (row,) = csv.reader(io.StringIO(line))
    assert row[0] in (name, f"'{name}")
    assert unicodedata.normalize("NFKC", row[0]).strip()[0] not in "=+-@|%−"
    assert line.count('"') == 2 * len(row) + 2 * name.count('"')  # each cell is quoted


def test_csv_has_no_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(report(RESULTS, "csv"))))
    assert [row["submission"][:2] for row in rows] == ["'=", "'-", "un"]
    assert [row["earned"] for row in rows] == ["3.0", "0.0", ""]
    assert (rows[0]["f"], rows[0]["g"]) == ("2.0", "1.0")


def test_junit() -> None:
    suites = ElementTree.fromstring(report(RESULTS, "junit"))
    assert [suite.get("tests") for suite in suites] == ["2", "1", "1"]
    assert [suite.get("failures") for suite in suites] == ["1", "0", "0"]
    assert [suite.get("errors") for suite in suites] == ["0", "1", "1"]
    failure = suites[0][1][0]
    assert (failure.tag, failure.get("type")) == ("failure", "fail")
    assert "✗ two" in (failure.text or "")


def test_gradescope_takes_one_graded_submission() -> None:
    data = json.loads(report(RESULTS[:1], "gradescope"))
    assert data["score"] == 3.0
    assert sum(test["score"] for test in data["tests"]) == data["score"]
    assert {test["status"] for test in data["tests"]} == {"passed", "failed"}
    assert {test["output_format"] for test in data["tests"]} == {"text"}
    with pytest.raises(GradeError, match="one submission"):
        report(RESULTS, "gradescope")
    with pytest.raises(GradeError, match="no disk"):
        report(RESULTS[2:], "gradescope")


def test_results_are_kept_as_they_are(tmp_path: Path) -> None:
    for result in RESULTS:
        store.save(tmp_path, result)
    assert store.load(tmp_path) == sorted(RESULTS, key=lambda result: result.name)
    assert json.loads(report(store.load(tmp_path), "json"))[1]["name"] == visible(EVIL)
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / "results"}


def test_a_full_disk_leaves_the_earlier_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(tmp_path, RESULTS[0])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(GradeError, match="No space left"):
        store.save(tmp_path, RESULTS[0])
    assert store.load(tmp_path) == RESULTS[:1]
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(GradeError, match="holds no results"):
        store.load(tmp_path)


def test_every_format_has_a_name_on_the_command_line() -> None:
    from ddpkit.commands.report import report as command

    choices = next(each for each in command.params if each.name == "form").type.to_info_dict()
    more = {"gradebook", "canvas", "moodle", "statistics", "standings", "written", "sources"}
    assert set(choices["choices"]) == set(FORMATS) | more  # test_publish.py tests the others
