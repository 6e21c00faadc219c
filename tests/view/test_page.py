"""The page of a trace: opened from a file, offline, in a browser, and read without JavaScript."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.trace import MemoryLevel, Span, Trace
from ddpkit.view.drawing import words
from ddpkit.view.explorer.look import DARK, LOOK
from ddpkit.view.explorer.model import span_columns
from ddpkit.view.explorer.page import page, page_bytes
from tests.view import examples

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FIXTURES = Path(__file__).parents[1] / "trace" / "fixtures"
ATTRIBUTES = {*("lang", "charset", "http-equiv", "content", "name", "class", "id", "type", "style")}
HOSTILE = (
    "</script><script>document.title = 'taken'</script>",
    "<img src=https://example.com/x onerror=\"document.title = 'taken'\">",
    "--><!--<script>",
    "\ud800 \u2028 ' \" & \\u003c",
    "long " * 1000,
)


def hostile() -> Trace:
    """Return the trace of a stranger, in which every text tries to become code."""
    spans = [
        Span(0, "compute", name, "forward", 10 * k, 10 * k + 9) for k, name in enumerate(HOSTILE)
    ]
    spans += [
        Span(r, "comm", HOSTILE[0], "comm", 60, 90, 4, group=HOSTILE[1], args={"group_desc": name})
        for r, name in enumerate(HOSTILE[:2])
    ]
    return Trace(spans, 2, dict.fromkeys(("backend", "device", "emulated", HOSTILE[1]), HOSTILE[0]))


class Cells(HTMLParser):
    """The cells of a page's tables, and the tags of the whole page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self._rows: list[list[str]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self._in_cell = tag in ("th", "td")
        if tag == "table":
            self._rows = self.tables.setdefault(str(dict(attrs)["class"]), [])
        elif tag == "tr":
            self._rows.append([])
        elif self._in_cell:
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_cell &= tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self._rows[-1][-1] += data


def test_its_tables_hold_the_numbers() -> None:
    trace = examples.ddp(2)
    tables = Cells(page(trace)).tables
    for rank, parts in trace.breakdown().items():
        row = tables["breakdown"][1 + rank]
        assert row[:2] == [f"rank {rank}", words.ms(parts.step_ns)]
        exposed = words.percent(parts.exposed_ns, parts.step_ns)
        assert row[4] == f"{words.ms(parts.exposed_ns)} ({exposed})"
    assert len(tables["steps"]) == 1 + trace.steps
    count = trace.traffic.collectives(0)["all_reduce"]
    assert ["every rank", "all_reduce", f"{count.times}"] in [row[:3] for row in tables["traffic"]]


def test_a_step_has_a_page_of_its_own() -> None:
    text = page(examples.ddp(2, steps=3), 0)
    assert "<h1>Step 0 on 2 ranks" in text
    assert "steps" not in Cells(text).tables
    assert Cells(text).tables["traffic"][1] == ["every rank", "all_reduce", "5", "20 MB"]


def test_emulated_time_is_said() -> None:
    trace = examples.ddp(2)
    facts = {**trace.facts, "time": "emulated", "emulated": "1 Gbit/s", "machine": "A100"}
    text = page(replace(trace, facts=facts))
    assert "Emulated time. Links: 1 Gbit/s. Machine: A100." in text
    assert ", emulated)</h1>" in text


def test_memory_is_a_table_where_it_is_known() -> None:
    trace = examples.ddp(2)
    assert "memory" not in Cells(page(trace)).tables
    levels = [
        MemoryLevel(trace.start_ns, (1000, 0, 0, 0, 5)),
        MemoryLevel(trace.end_ns, (9, *[0] * 4)),
    ]
    rows = Cells(page(replace(trace, memory={1: tuple(levels)}))).tables["memory"]
    assert rows[0][1:3] == ["in all", "parameters"]
    assert rows[1:] == [["rank 1", "1 kB", "1 kB", "0 B", "0 B", "0 B", "5 B"]]


def test_a_strangers_words_stay_words() -> None:
    text = page_bytes(hostile()).decode("utf-8")
    tags = Cells(text).tags
    assert tags.count("script") == 2
    assert "img" not in tags
    assert Cells(text).attributes <= ATTRIBUTES
    assert max(map(len, Cells(text).tables["traffic"][1])) < 100


def test_nothing_at_all_has_a_page() -> None:
    assert "Nothing was recorded" in page(Trace([], 2))


def test_the_command_writes_the_page_of_any_trace(tmp_path: Path) -> None:
    target = tmp_path / "run.html"
    files = [str(FIXTURES / f"nccl.rank{rank}.json") for rank in (0, 1)]
    done = CliRunner().invoke(main, ["trace", *files, "--html", str(target)])
    assert done.exit_code == 0, done.output
    assert "nccl" in target.read_text("utf-8")
    nowhere = tmp_path / "no" / "run.html"
    refused = CliRunner().invoke(main, ["trace", *files, "--html", str(nowhere)])
    assert (refused.exit_code, "cannot be written" in refused.output) == (1, True)


def opened(browser: Browser, path: Path, **how: object) -> tuple[Page, list[str]]:
    """Return a page opened from a file without network, with its requests and complaints."""
    context = browser.new_context(offline=True, **how)  # type: ignore[arg-type]
    tab, heard = context.new_page(), list[str]()
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("console", lambda said: heard.append(said.text))
    tab.on("request", lambda asked: heard.append(asked.url))
    tab.goto(path.as_uri())
    return tab, [each for each in heard if each != path.as_uri()]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_offline_and_can_be_pointed_at(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(page_bytes(examples.done_early()))
    tab, heard = opened(browser, path, color_scheme=scheme)
    drawn = tab.get_by_role("application")
    first = span_columns(examples.done_early()).rows[1]
    drawn.hover(position={"x": 106, "y": 24 + first.top + first.height / 2})
    assert tab.get_by_role("status").inner_text().startswith("isend · rank 0 · 1 ms, from 0 ms")
    paper = {"light": "rgb(255, 255, 255)", "dark": _rgb(DARK["paper"])}[scheme]
    for element in (drawn, tab.locator("body")):
        assert element.evaluate("(it) => getComputedStyle(it).backgroundColor") == paper
    assert heard == []
    tab.context.close()


def _rgb(color: str) -> str:
    return f"rgb({', '.join(str(int(color[k : k + 2], 16)) for k in (1, 3, 5))})"


@pytest.mark.browser
def test_it_is_read_without_javascript(browser: Browser, tmp_path: Path) -> None:
    path, trace = tmp_path / "page.html", examples.ddp(2)
    path.write_bytes(page_bytes(trace))
    tab, heard = opened(browser, path, java_script_enabled=False)
    row = tab.get_by_role("row").filter(has_text="rank 1").first
    assert words.ms(trace.breakdown()[1].step_ns) in row.inner_text()
    assert tab.get_by_role("application").count() == 0
    assert heard == []
    tab.context.close()


@pytest.mark.browser
def test_a_strangers_words_run_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(page_bytes(hostile()))
    tab, heard = opened(browser, path)
    tab.get_by_role("application").hover(position={"x": 130, "y": 40})
    tab.wait_for_timeout(100)
    assert HOSTILE[0][:20] in tab.get_by_role("status").inner_text()
    assert tab.title() != "taken"
    assert tab.locator("script").count() == 2
    assert heard == []
    tab.context.close()


def test_both_schemes_have_all_inks() -> None:
    assert DARK.keys() == LOOK["ink"].keys()  # type: ignore[attr-defined]
