"""`ddpkit trace A --beside B`: the changes, as text, page, JSON and CSV."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from ddpkit.commands.main import main
from ddpkit.trace import Trace
from ddpkit.view import write_page
from ddpkit.view.drawing.changes import changes
from tests.view import examples
from tests.view.test_page import HOSTILE, Cells, hostile, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FIXTURES = Path(__file__).parents[1] / "trace" / "fixtures"
A, B = examples.ddp(3, steps=6), examples.ddp(3, steps=5, seed=7)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    for trace, path in zip((A, B), paths, strict=True):
        trace.save(path)
    return paths


def command(*args: object) -> Result:
    return CliRunner().invoke(main, ["trace", *map(str, args)])


@pytest.mark.parametrize("step", [None, 1])
def test_the_text_and_the_numbers(saved: tuple[Path, Path], step: int | None) -> None:
    a, b = saved
    numbers, rows = a.with_name("n.json.out"), a.with_name("r.csv")
    given = [] if step is None else ["--step", step]
    done = command(a, "--beside", b, "--json", numbers, "--csv", rows, *given)
    assert done.exit_code == 0, done.output
    found = changes((A, B), (a.name, b.name), step)
    assert found.text() in done.output
    written = json.loads(numbers.read_text())
    assert written["runs"] == ["a.json.gz", "b.json.gz"]
    assert written["steps"] == [*found.steps]
    assert written["rows"] == found.numbers()
    with rows.open(encoding="utf-8") as file:
        assert len([*csv.DictReader(file)]) == len(found.numbers())


def test_files_of_single_ranks(tmp_path: Path) -> None:
    files = [FIXTURES / f"nccl.rank{rank}.json" for rank in (0, 1)]
    done = command(*files, "--beside", files[0], "--beside", files[1])
    assert done.exit_code == 0, done.output
    assert "as long as before" in done.output
    assert str(files[0]) in done.output  # files of equal names are told apart by their paths


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--step", 5], 1, "there is no step 5: this trace has steps 0 to 4"),
        (["--export", "x.json"], 2, "--export takes one run: leave --beside out."),
    ],
)
def test_refusals(saved: tuple[Path, Path], args: list[object], code: int, says: str) -> None:
    a, b = saved
    done = command(a, "--beside", b, *args)
    assert done.exit_code == code
    assert says in done.output
    assert "there is no trace file no.json" in command(a, "--beside", "no.json").output


def test_the_page_has_the_tables(saved: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = saved
    page, same = tmp_path / "page.html", tmp_path / "same.html"
    assert command(a, "--beside", b, "--html", page).exit_code == 0
    write_page(Trace.load(a), same, beside=Trace.load(b), labels=(a.name, b.name))
    assert page.read_bytes() == same.read_bytes()
    found = changes((A, B), (a.name, b.name))
    tables = Cells(page.read_text("utf-8")).tables
    assert tables["ranks"][1:] == [found.row(rank) for rank in found.ranks]
    assert tables["kinds"][1:] == [*found.kind_rows()]


@pytest.mark.browser
def test_both_timelines_zoom_as_one(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(A, path, beside=B)
    tab, heard = opened(browser, path)
    drawn = tab.get_by_role("application")
    views = (
        "() => [...document.querySelectorAll('.explorer > div')].map(each => each.explorer.view)"
    )
    assert drawn.count() == 2
    whole = tab.evaluate(views)
    assert whole[0] == whole[1]
    drawn.nth(1).click(position={"x": 300, "y": 60})
    tab.keyboard.press("+")
    tab.keyboard.press("ArrowRight")
    one, two = tab.evaluate(views)
    assert one == pytest.approx(two)
    assert one[1] - one[0] == pytest.approx((whole[0][1] - whole[0][0]) / 2, rel=0.01)
    drawn.nth(0).click(position={"x": 300, "y": 60})
    tab.keyboard.press("Home")
    one, two = tab.evaluate(views)
    assert one == pytest.approx(two)
    assert heard == []
    tab.context.close()


@pytest.mark.browser
def test_a_strangers_words_run_nothing_here_too(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(hostile(), path, beside=hostile(), labels=(HOSTILE[0], HOSTILE[1]))
    tab, heard = opened(browser, path)
    tab.wait_for_timeout(100)
    assert tab.title() != "taken"
    assert tab.locator("script").count() == 2
    assert heard == []
    tab.context.close()
